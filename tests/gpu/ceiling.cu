/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/ceiling.h"

#include <cuda_runtime.h>

namespace
{

constexpr unsigned kThreads = 256, kBlocks = 132 * 8;
constexpr int kLoads = 8;

__global__ void __launch_bounds__(kThreads) read_all(const uint4 *x, size_t n, unsigned *ret)
{
    size_t stride = (size_t)gridDim.x * kThreads;
    unsigned sum = 0;
    for (size_t i = (size_t)blockIdx.x * kThreads + threadIdx.x; i < n; i += kLoads * stride) {
#pragma unroll
        for (int j = 0; j < kLoads; j++) {
            uint4 v = i + j * stride < n ? __ldcs(x + i + j * stride) : make_uint4(0, 0, 0, 0);
            sum += v.x ^ v.y ^ v.z ^ v.w;
        }
    }
    if (sum == 0x12345678u) *ret = sum; /* keeps the loads */
}

} // namespace

extern "C" bool ceiling_read(const void *x, size_t bytes, void *ret_word, void *stream)
{
    read_all<<<kBlocks, kThreads, 0, (cudaStream_t)stream>>>((const uint4 *)x, bytes / sizeof(uint4),
                                                             (unsigned *)ret_word);
    return cudaGetLastError() == cudaSuccess;
}
