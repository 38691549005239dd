/* SPDX-License-Identifier: Apache-2.0 */
/* The k-th highest of many keys by one block: ranges of keys that hold it, each cut into bins. */
#pragma once
#include "kernels/attention/kv_device.cuh"

namespace
{

constexpr uint32_t kKeyBins = 2048, kKeyBinBits = 11;

struct KthShared {
    uint64_t scratch[kMaxWarps];
    uint32_t bins[kKeyBins];
    uint32_t least, most, bin, n_left, n_equal;
};

/* What another block wrote, or a copy of it in shared memory. */
template <bool is_kept> __device__ inline uint32_t key_at(const uint32_t *keys, uint32_t i)
{
    if (!is_kept) return __ldcg(keys + i);
    __builtin_assume(__isShared(keys));
    return keys[i];
}

/* Finds the bin with the k-th highest key; shared.n_left: how many of it are chosen. By all threads of a block. */
template <uint32_t n_threads> __device__ void find_key_bin(KthShared &shared, uint32_t k)
{
    constexpr uint32_t kEach = kKeyBins / n_threads;
    uint32_t from = kKeyBins - (threadIdx.x + 1) * kEach;
    uint64_t own = 0, total;
    for (uint32_t i = 0; i < kEach; i++) own += shared.bins[from + i];
    uint32_t above = (uint32_t)block_prefix(own, shared.scratch, &total);
    if (above < k && k <= above + own) {
        uint32_t bin = from + kEach - 1;
        for (; above + shared.bins[bin] < k; bin--) above += shared.bins[bin];
        shared.bin = bin;
        shared.n_left = k - above;
        shared.n_equal = shared.bins[bin];
    }
    __syncthreads();
}

/*
 * The lower end of a range of keys that has the k-th highest of keys [n], 1 <= k <= n: of that key alone, or the first
 * found with no more than n_enough keys at its end and above. shared.n_left: how many of the range are among the k
 * highest; shared.n_equal: how many are in it. By all threads of a block.
 */
template <uint32_t n_threads, bool is_kept>
__device__ uint32_t find_kth_range(const uint32_t *keys, uint32_t n, uint32_t k, uint32_t n_enough, KthShared &shared)
{
    uint32_t least = UINT32_MAX, most = 0;
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < n; i += n_threads) {
        const uint32_t key = key_at<is_kept>(keys, i);
        least = min(least, key);
        most = max(most, key);
    }
    least = __reduce_min_sync(kAllLanes, least);
    most = __reduce_max_sync(kAllLanes, most);
    if (threadIdx.x == 0) {
        shared.least = UINT32_MAX;
        shared.most = 0;
    }
    __syncthreads();
    if (threadIdx.x % kWarp == 0) {
        atomicMin(&shared.least, least);
        atomicMax(&shared.most, most);
    }
    __syncthreads();
    least = shared.least;
    most = shared.most;
    shared.n_left = k;
    shared.n_equal = n;
    while (least < most && k - shared.n_left + shared.n_equal > n_enough) {
        uint32_t shift = max(32 - __clz(most - least), kKeyBinBits) - kKeyBinBits;
        for (uint32_t i = threadIdx.x; i < kKeyBins; i += n_threads) shared.bins[i] = 0;
        __syncthreads();
#pragma unroll 8
        for (uint32_t i = threadIdx.x; i < n; i += n_threads) {
            uint32_t key = key_at<is_kept>(keys, i);
            if (key >= least && key <= most) atomicAdd(&shared.bins[(key - least) >> shift], 1);
        }
        __syncthreads();
        find_key_bin<n_threads>(shared, shared.n_left);
        least += shared.bin << shift;
        most = least + min(most - least, (1u << shift) - 1);
        __syncthreads();
    }
    return least;
}

/* The k-th highest of keys [n], 1 <= k <= n; shared.n_left: how many of those that equal it are among the k highest. By
 * all threads of a block. */
template <uint32_t n_threads>
__device__ uint32_t find_kth_key(const uint32_t *keys, uint32_t n, uint32_t k, KthShared &shared)
{
    return __isShared(keys) ? find_kth_range<n_threads, true>(keys, n, k, 0, shared)
                            : find_kth_range<n_threads, false>(keys, n, k, 0, shared);
}

} // namespace
