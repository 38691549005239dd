/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pointwise/rope.h"

#include "kernels/launch.cuh"

namespace lw
{
namespace
{

constexpr unsigned kThreads = 256;
constexpr size_t kMaxBlocks = 4096; /* enough to fill any device; the rest is done by striding */

__global__ void __launch_bounds__(kThreads) fill_table(const __grid_constant__ RopeTableParams params)
{
    const double two_pi = 6.283185307179586477;
    size_t n = (size_t)params.n_tokens * params.n_pairs;
    grid_release();
    grid_wait();
    size_t stride = (size_t)gridDim.x * kThreads;
    for (size_t i = (size_t)blockIdx.x * kThreads + threadIdx.x; i < n; i += stride) {
        double angle = params.positions[i / params.n_pairs] * params.theta[i % params.n_pairs], sine, cosine;
        sincos(remainder(angle, two_pi), &sine, &cosine);
        params.cos_sin[2 * i] = (float)cosine * params.magnitude;
        params.cos_sin[2 * i + 1] = (float)sine * params.magnitude;
    }
}

__global__ void __launch_bounds__(kThreads) turn(const __grid_constant__ RopeParams params)
{
    size_t n = (size_t)params.n_tokens * params.n_heads * params.n_pairs;
    uint32_t first = params.head_dim - 2 * params.n_pairs;
    grid_release();
    grid_wait();
    size_t stride = (size_t)gridDim.x * kThreads;
    for (size_t i = (size_t)blockIdx.x * kThreads + threadIdx.x; i < n; i += stride) {
        size_t head = i / params.n_pairs, j = i % params.n_pairs;
        const float *cos_sin = params.cos_sin + 2 * (head / params.n_heads * params.n_pairs + j);
        float *x = params.x + head * params.head_dim + first + 2 * j;
        float c = cos_sin[0], s = cos_sin[1], x0 = x[0], x1 = x[1];
        x[0] = x0 * c - x1 * s;
        x[1] = x0 * s + x1 * c;
    }
}

} // namespace
} // namespace lw

extern "C" bool rope_table_cuda(const RopeTableParams *params, Stream stream)
{
    using namespace lw;
    size_t n = (size_t)params->n_tokens * params->n_pairs;
    if (n == 0) return true;
    return launch(fill_table, dim3(blocks_for(n, kThreads, kMaxBlocks)), kThreads, 0, stream, *params);
}

extern "C" bool rope_cuda(const RopeParams *params, Stream stream)
{
    using namespace lw;
    size_t n = (size_t)params->n_tokens * params->n_heads * params->n_pairs;
    if (n == 0) return true;
    return launch(turn, dim3(blocks_for(n, kThreads, kMaxBlocks)), kThreads, 0, stream, *params);
}
