/* SPDX-License-Identifier: Apache-2.0 */
/* A row of one head after its norm and rotation, of a query or of a key: lane i of a warp has channels 32 k + i. */
#pragma once
#include "kernels/attention/attend.h"
#include "kernels/attention/kv_device.cuh"

namespace
{

/* Cosine and sine of this lane's channels; none for those that do not turn. */
template <int dim> struct RowAngles {
    float2 at[dim / 32];
};

template <int dim> __device__ RowAngles<dim> load_angles(const KvTurn &turn, uint32_t row)
{
    const float2 *from = (const float2 *)turn.cos_sin + (size_t)row * turn.n_pairs;
    uint32_t first = dim - 2 * turn.n_pairs;
    RowAngles<dim> angles = {};
    for (int k = 0; k < dim / 32; k++) {
        uint32_t c = k * 32 + threadIdx.x % kWarp;
        if (c >= first) angles.at[k] = from[(c - first) / 2];
    }
    return angles;
}

/* norm: [dim] or NULL. By all lanes. */
template <int dim>
__device__ void turn_row(const KvTurn &turn, const float *norm, const RowAngles<dim> &angles, float x[dim / 32])
{
    uint32_t lane = threadIdx.x % kWarp, first = dim - 2 * turn.n_pairs;
    float sum = 0;
    if (norm) {
        for (int k = 0; k < dim / 32; k++) sum += x[k] * x[k];
        for (unsigned step = kWarp / 2; step; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
        float scale = 1 / sqrtf(sum / dim + turn.norm_eps);
        for (int k = 0; k < dim / 32; k++) x[k] *= scale * norm[k * 32 + lane];
    }
    for (int k = 0; k < dim / 32; k++) {
        float other = __shfl_xor_sync(kAllLanes, x[k], 1);
        float2 a = angles.at[k];
        if (k * 32 + lane < first) continue;
        x[k] = lane % 2 ? other * a.y + x[k] * a.x : x[k] * a.x - other * a.y;
    }
}

} // namespace
