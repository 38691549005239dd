/* SPDX-License-Identifier: Apache-2.0 */
/* How a warp norms and turns one head of a row (KvTurn). */
#pragma once
#include "kernels/attention/kv_device.cuh"
#include "kernels/attention/kv_store.h"

namespace
{

/* A head's channels, two neighbours a lane and step; those behind its end are zeros. */
constexpr uint32_t kSteps = KV_TURN_MAX_DIM / (2 * kWarp);

/* One head after its norm and its rotation. By one warp. */
__device__ void turn_head(const KvTurn &turn, const float *x, const float *norm, uint32_t row, uint32_t n,
                          float2 ret[kSteps])
{
    const uint32_t lane = threadIdx.x % kWarp, first = n - 2 * turn.n_pairs;
    const float2 *angles = (const float2 *)turn.cos_sin + (size_t)row * turn.n_pairs;
    double sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < kSteps; i++) {
        uint32_t c = 2 * (i * kWarp + lane);
        ret[i] = c < n ? *(const float2 *)(x + c) : make_float2(0, 0);
        sum += (double)ret[i].x * ret[i].x + (double)ret[i].y * ret[i].y;
    }
    if (norm) {
        for (unsigned step = kWarp / 2; step; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
        float scale = (float)(1.0 / sqrt(sum / n + turn.norm_eps));
#pragma unroll
        for (uint32_t i = 0; i < kSteps; i++) {
            uint32_t c = 2 * (i * kWarp + lane);
            if (c >= n) continue;
            ret[i].x = ret[i].x * scale * norm[c];
            ret[i].y = ret[i].y * scale * norm[c + 1];
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < kSteps; i++) {
        uint32_t c = 2 * (i * kWarp + lane);
        if (c < first || c >= n) continue;
        float2 a = angles[(c - first) / 2], v = ret[i];
        ret[i] = make_float2(v.x * a.x - v.y * a.y, v.x * a.y + v.y * a.x);
    }
}

} // namespace
