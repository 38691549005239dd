/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pointwise/glu.h"

#include "kernels/launch.cuh"
#include "kernels/pointwise/activation.cuh"

namespace lw
{
namespace
{

constexpr unsigned kThreads = 256;
constexpr size_t kMaxBlocks = 4096; /* enough to fill any device; the rest is done by striding */

__global__ void __launch_bounds__(kThreads) apply_glu(const __grid_constant__ GluParams params)
{
    grid_release();
    grid_wait();
    size_t stride = (size_t)gridDim.x * kThreads;
    for (size_t i = (size_t)blockIdx.x * kThreads + threadIdx.x; i < params.n; i += stride)
        params.y[i] = glu_value(params.activation, params.gate[i]) * params.up[i];
}

} // namespace
} // namespace lw

extern "C" bool glu_cuda(const GluParams *params, Stream stream)
{
    using namespace lw;
    if (params->n == 0) return true;
    return launch(apply_glu, dim3(blocks_for(params->n, kThreads, kMaxBlocks)), kThreads, 0, stream, *params);
}
