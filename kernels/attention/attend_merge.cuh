/* SPDX-License-Identifier: Apache-2.0 */
/* How the warps' shares of a part, and the parts of an item, become one result; always in the same order. */
#pragma once
#include "kernels/attention/attend_sector.cuh"

namespace
{

/* In shared memory. */
template <int dim, int tiles> struct Merge {
    static constexpr int kQueries = 8 * tiles, kPitch = dim + 4;
    float out[kQueries * kPitch];
    float max[kSplitMaxWorkers][kQueries], sum[kSplitMaxWorkers][kQueries];
    bool is_last;
};

/* Barrier of the warps that take sectors; the preparing warp is not among them. */
__device__ inline void workers_wait(unsigned n_threads)
{
    asm volatile("bar.sync 1, %0;" ::"r"(n_threads) : "memory");
}

/* What a share with maximum `max` counts for where the maximum of all is `of_all`; without keys: nothing. */
__device__ inline float share_factor(float max, float of_all)
{
    return max == -INFINITY ? 0 : exp2_of(max - of_all);
}

template <int dim, int tiles> __device__ float merged_max(const Merge<dim, tiles> &merge, int q, unsigned n_workers)
{
    float max = -INFINITY;
    for (unsigned w = 0; w < n_workers; w++) max = fmaxf(max, merge.max[w][q]);
    return max;
}

/* NaN sums count though no maximum tells of them. */
template <int dim, int tiles>
__device__ float merged_sum(const Merge<dim, tiles> &merge, int q, unsigned n_workers, float max)
{
    float sum = 0;
    for (unsigned w = 0; w < n_workers; w++) sum += merge.sum[w][q] * share_factor(merge.max[w][q], max);
    return sum;
}

/* The warps add what they have one after the other. */
template <int dim, int tiles, bool quads>
__device__ void merge_workers(Merge<dim, tiles> &merge, const Softmax<dim, tiles> &soft, const Lane &l,
                              unsigned n_workers)
{
    for (int n = 0; n < tiles; n++)
        for (int i = 0; i < 2; i++) {
            float sum = over_tokens_sum(soft.sum[n][i]);
            if (l.g != 0) continue;
            merge.max[l.warp][8 * n + 2 * l.t + i] = soft.max[n][i];
            merge.sum[l.warp][8 * n + 2 * l.t + i] = sum;
        }
    workers_wait(n_workers * kWarp);
    float factor[tiles][2], zero[tiles][2];
    for (int n = 0; n < tiles; n++)
        for (int i = 0; i < 2; i++) {
            float f = share_factor(soft.max[n][i], merged_max(merge, 8 * n + 2 * l.t + i, n_workers));
            zero[n][i] = over_tokens_sum(soft.zero[n][i]) * f;
            factor[n][i] = f * soft.unit;
        }
    for (unsigned w = 0; w < n_workers; w++) {
        if (w == l.warp)
            for (int m = 0; m < dim / 16; m++)
                for (int n = 0; n < tiles; n++)
                    for (int i = 0; i < 4; i++) {
                        int channel = value_channel<quads>(m, l.g + i / 2 * 8);
                        float *to = &merge.out[(8 * n + 2 * l.t + i % 2) * merge.kPitch + channel];
                        float x = soft.out[m][n][i] * factor[n][i % 2] + zero[n][i % 2];
                        *to = w == 0 ? x : *to + x;
                    }
        workers_wait(n_workers * kWarp);
    }
}

__device__ inline float *out_of(const SplitArgs &args, const Part &part, uint32_t q, int dim)
{
    const AttendParams &p = args.params;
    uint32_t group = p.n_heads / p.n_kv_heads, i = part.first_query + q;
    return p.out + ((size_t)(part.first_row + i / group) * p.n_heads + part.first_head + i % group) * dim;
}

/* All parts of an item, from memory: a warp a query, lane i with the weight of every 32nd part from the i-th on. */
template <int dim>
__device__ void merge_parts(const SplitArgs &args, const Part &part, const Lane &l, unsigned n_workers)
{
    size_t pitch = dim + 2, slot_floats = args.part_queries * pitch;
    for (uint32_t q = l.warp; q < part.n_queries; q += n_workers) {
        const float *from = args.parts + part.first_slot * slot_floats + q * pitch;
        float max = -INFINITY, sum = 0, out[dim / 32] = {};
        for (uint32_t i = l.lane; i < part.n_parts; i += kWarp) max = fmaxf(max, __ldcg(from + i * slot_floats + dim));
        for (unsigned step = kWarp / 2; step; step /= 2) max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, step));
        for (uint32_t first = 0; first < part.n_parts; first += kWarp) {
            bool is_there = first + l.lane < part.n_parts;
            const float *at = from + (first + (is_there ? l.lane : 0)) * slot_floats;
            float weight = is_there ? share_factor(__ldcg(at + dim), max) : 0;
            sum += is_there ? __ldcg(at + dim + 1) * weight : 0;
            uint32_t n = min(kWarp, part.n_parts - first);
#pragma unroll 8
            for (uint32_t i = 0; i < n; i++) {
                float f = __shfl_sync(kAllLanes, weight, i);
                for (int k = 0; k < dim / 32; k++)
                    out[k] += __ldcg(from + (first + i) * slot_floats + k * 32 + l.lane) * f;
            }
        }
        for (unsigned step = kWarp / 2; step; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
        float *to = out_of(args, part, q, dim);
        for (int k = 0; k < dim / 32; k++) to[k * 32 + l.lane] = sum != 0 ? out[k] / sum : 0;
    }
}

/* An item of one part is done; of several, the block that comes last merges them. */
template <int dim, int tiles>
__device__ void finish_part(const SplitArgs &args, Merge<dim, tiles> &merge, const Part &part, const Lane &l,
                            unsigned n_workers)
{
    bool is_whole = part.n_parts == 1;
    float *slot = args.parts + part.slot * args.part_queries * (dim + 2);
    for (uint32_t q = l.warp; q < part.n_queries; q += n_workers) {
        float max = merged_max(merge, q, n_workers), sum = merged_sum(merge, q, n_workers, max);
        float *to = is_whole ? out_of(args, part, q, dim) : slot + (size_t)q * (dim + 2);
        float f = !is_whole ? 1 : sum != 0 ? 1 / sum : 0;
        for (int c = l.lane; c < dim; c += kWarp) to[c] = merge.out[q * merge.kPitch + c] * f;
        if (!is_whole && l.lane == 0) {
            to[dim] = max;
            to[dim + 1] = sum;
        }
    }
    if (is_whole) return;
    __threadfence();
    workers_wait(n_workers * kWarp);
    if (l.warp == 0 && l.lane == 0) merge.is_last = atomicAdd(&args.counters[part.item], 1u) == part.n_parts - 1;
    workers_wait(n_workers * kWarp);
    if (!merge.is_last) return;
    __threadfence();
    merge_parts<dim>(args, part, l, n_workers);
    if (l.warp == 0 && l.lane == 0) args.counters[part.item] = 0;
}

} // namespace
