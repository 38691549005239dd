/* SPDX-License-Identifier: Apache-2.0 */
/* How the warps' shares of a part, and the parts of an item, become one result; always in the same order. */
#pragma once
#include "kernels/attention/attend_sector.cuh"

namespace
{

/* In shared memory. */
template <int dim, int tiles> struct Merge {
    static constexpr int kQueries = 8 * tiles, kPitch = dim + 4;
    alignas(16) float out[kQueries * kPitch];
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

/*
 * All parts of an item, from memory: a warp a query, some parts at a time, of which every lane loads the same pieces of
 * 4 channels, and lane i the maximum and the sum of the i-th. What was gathered shrinks where the maximum grows.
 */
template <int dim>
__device__ void merge_parts(const SplitArgs &args, const Part &part, const Lane &l, unsigned n_workers)
{
    constexpr uint32_t kTogether = dim <= 128 ? 17 : 8; /* 264 blocks make 33 parts of each of 8 items: two turns */
    constexpr uint32_t kPieces = (dim / 4 + kWarp - 1) / kWarp, kPitch = dim + ATTEND_SPLIT_STATS;
    const size_t slot_floats = (size_t)args.part_queries * kPitch;
    for (uint32_t q = l.warp; q < part.n_queries; q += n_workers) {
        const float *from = args.parts + part.first_slot * slot_floats + q * kPitch;
        float max = -INFINITY, sum = 0;
        float4 out[kPieces] = {};
#pragma unroll 1
        for (uint32_t first = 0; first < part.n_parts; first += kTogether, from += kTogether * slot_floats) {
            const uint32_t n = min(kTogether, part.n_parts - first), mine = min(l.lane, n - 1);
            float2 stats = __ldcg((const float2 *)(from + mine * slot_floats + dim));
            float4 x[kTogether][kPieces];
            for (uint32_t i = 0; i < kTogether; i++)
                for (uint32_t k = 0; k < kPieces; k++) {
                    const uint32_t piece = k * kWarp + l.lane;
                    x[i][k] = make_float4(0, 0, 0, 0);
                    if (i < n && piece < dim / 4) x[i][k] = __ldcg((const float4 *)(from + i * slot_floats) + piece);
                }
            float largest = fmaxf(max, stats.x);
            for (unsigned step = kWarp / 2; step; step /= 2)
                largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
            const float weight = l.lane < n ? share_factor(stats.x, largest) : 0, shrink = share_factor(max, largest);
            sum = sum * shrink + (l.lane < n ? stats.y * weight : 0);
            max = largest;
            for (uint32_t k = 0; k < kPieces; k++)
                out[k] = make_float4(out[k].x * shrink, out[k].y * shrink, out[k].z * shrink, out[k].w * shrink);
            for (uint32_t i = 0; i < kTogether; i++) {
                const float f = __shfl_sync(kAllLanes, weight, i);
                if (i >= n) continue;
                for (uint32_t k = 0; k < kPieces; k++)
                    out[k] = make_float4(out[k].x + x[i][k].x * f, out[k].y + x[i][k].y * f, out[k].z + x[i][k].z * f,
                                         out[k].w + x[i][k].w * f);
            }
        }
        for (unsigned step = kWarp / 2; step; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
        float4 *to = (float4 *)out_of(args, part, q, dim);
        for (uint32_t k = 0; k < kPieces; k++)
            if (k * kWarp + l.lane < dim / 4)
                to[k * kWarp + l.lane] =
                    sum != 0 ? make_float4(out[k].x / sum, out[k].y / sum, out[k].z / sum, out[k].w / sum)
                             : make_float4(0, 0, 0, 0);
    }
}

/* An item of one part is done; of several, the block that comes last merges them. */
template <int dim, int tiles>
__device__ void finish_part(const SplitArgs &args, Merge<dim, tiles> &merge, const Part &part, const Lane &l,
                            unsigned n_workers)
{
    bool is_whole = part.n_parts == 1;
    constexpr uint32_t kPitch = dim + ATTEND_SPLIT_STATS;
    float *slot = args.parts + part.slot * args.part_queries * kPitch;
    for (uint32_t q = l.warp; q < part.n_queries; q += n_workers) {
        float max = merged_max(merge, q, n_workers), sum = merged_sum(merge, q, n_workers, max);
        float *to = is_whole ? out_of(args, part, q, dim) : slot + (size_t)q * kPitch;
        float f = !is_whole ? 1 : sum != 0 ? 1 / sum : 0;
        for (int c = l.lane; c < dim / 4; c += kWarp) {
            const float4 x = ((const float4 *)(merge.out + q * merge.kPitch))[c];
            ((float4 *)to)[c] = make_float4(x.x * f, x.y * f, x.z * f, x.w * f);
        }
        if (!is_whole && l.lane == 0) *(float2 *)(to + dim) = make_float2(max, sum);
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
