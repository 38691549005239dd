/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pointwise/softcap.h"

#include "kernels/launch.cuh"

namespace lw
{
namespace
{

constexpr unsigned kThreads = 256;
constexpr size_t kMaxBlocks = 4096; /* enough to fill any device; the rest is done by striding */

__global__ void __launch_bounds__(kThreads) cap_softly(const __grid_constant__ SoftcapParams params)
{
    grid_release();
    grid_wait();
    size_t stride = (size_t)gridDim.x * kThreads;
    for (size_t i = (size_t)blockIdx.x * kThreads + threadIdx.x; i < params.n; i += stride)
        params.y[i] = params.cap * tanhf(params.x[i] / params.cap);
}

} // namespace
} // namespace lw

extern "C" bool softcap_cuda(const SoftcapParams *params, Stream stream)
{
    using namespace lw;
    if (params->n == 0) return true;
    return launch(cap_softly, dim3(blocks_for(params->n, kThreads, kMaxBlocks)), kThreads, 0, stream, *params);
}
