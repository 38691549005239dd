/* SPDX-License-Identifier: Apache-2.0 */
/* What the CUDA kernels of this folder share to find a block's work in spans that only the device reads. */
#pragma once
#include "kernels/attention/kv_page.h"
#include "kernels/launch.cuh"

#include <cstdint>
#include <cuda_runtime.h>

namespace
{

constexpr unsigned kWarp = 32, kMaxWarps = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

/* The sum over all earlier threads of the block, and over all threads; scratch [kMaxWarps]. All threads call. */
__device__ inline uint64_t block_prefix(uint64_t x, uint64_t *scratch, uint64_t *ret_total)
{
    unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, n_warps = blockDim.x / kWarp;
    uint64_t sum = x;
    for (unsigned step = 1; step < kWarp; step *= 2) {
        uint64_t left = __shfl_up_sync(kAllLanes, sum, step);
        if (lane >= step) sum += left;
    }
    __syncthreads();
    if (lane == kWarp - 1) scratch[warp] = sum;
    __syncthreads();
    uint64_t earlier = 0, total = 0;
    for (unsigned w = 0; w < n_warps; w++) {
        if (w < warp) earlier += scratch[w];
        total += scratch[w];
    }
    *ret_total = total;
    return earlier + sum - x;
}

} // namespace
