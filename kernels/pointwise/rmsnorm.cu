/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pointwise/rmsnorm.h"

#include "kernels/launch.cuh"

namespace lw
{
namespace
{

constexpr unsigned kMaxThreads = 1024, kColsPerThread = 4;

__device__ double sum_over_warp(double x)
{
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
    return x;
}

/* One row a block. */
__global__ void __launch_bounds__(kMaxThreads) normalise(const __grid_constant__ RmsNormParams params)
{
    __shared__ double of_warps[kMaxThreads / 32];
    grid_release();
    grid_wait();
    const float *x = params.x + (size_t)blockIdx.x * params.n;
    float *y = params.y + (size_t)blockIdx.x * params.n;
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < params.n; i += blockDim.x) sum += (double)x[i] * x[i];
    sum = sum_over_warp(sum);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = sum_over_warp(threadIdx.x % 32 < blockDim.x / 32 ? of_warps[threadIdx.x % 32] : 0);
    float scale = (float)(1.0 / sqrt(sum / params.n + params.eps));
    for (uint32_t i = threadIdx.x; i < params.n; i += blockDim.x) y[i] = x[i] * scale * params.weight[i];
}

} // namespace
} // namespace lw

extern "C" bool rmsnorm_cuda(const RmsNormParams *params, Stream stream)
{
    using namespace lw;
    if (params->n_rows == 0 || params->n == 0) return true;
    unsigned warps = blocks_for(params->n, 32 * kColsPerThread, kMaxThreads / 32);
    return launch(normalise, dim3(params->n_rows), 32 * warps, 0, stream, *params);
}
