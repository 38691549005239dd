/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/gemv_f32.h"

#include "kernels/launch.cuh"

namespace lw
{
namespace
{

constexpr unsigned kThreads = 256, kWarps = kThreads / 32;
constexpr uint32_t kTokens = 8;

/* One row a warp, for up to 8 tokens from t0 on; the order of a sum depends on n_cols alone. */
__device__ void multiply_row(const GemvF32Args &args, const float *w, uint32_t t0, uint32_t n, uint32_t lane,
                             float *acc)
{
    for (uint32_t c = 4 * lane; c < args.n_cols; c += 128) {
        float4 a = *reinterpret_cast<const float4 *>(w + c);
#pragma unroll
        for (uint32_t t = 0; t < kTokens; t++) {
            if (t >= n) break;
            float4 b = *reinterpret_cast<const float4 *>(args.x + (size_t)(t0 + t) * args.x_stride + c);
            acc[t] = fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, fmaf(a.w, b.w, acc[t]))));
        }
    }
#pragma unroll
    for (uint32_t t = 0; t < kTokens; t++)
        for (int step = 16; step > 0; step /= 2) acc[t] += __shfl_xor_sync(0xFFFFFFFFu, acc[t], step);
}

__global__ void __launch_bounds__(kThreads) gemv_f32(const __grid_constant__ GemvF32Args args)
{
    grid_release();
    grid_wait();
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t r = blockIdx.x * kWarps + threadIdx.x / 32; r < args.n_rows; r += gridDim.x * kWarps) {
        const float *w = args.w + (size_t)r * args.n_cols;
        for (uint32_t t0 = 0; t0 < args.n_tokens; t0 += kTokens) {
            float acc[kTokens] = {};
            uint32_t n = min(kTokens, args.n_tokens - t0);
            multiply_row(args, w, t0, n, lane, acc);
#pragma unroll
            for (uint32_t t = 0; t < kTokens; t++) {
                if (lane != t || t >= n) continue;
                float *y = args.y + (size_t)(t0 + t) * args.y_stride + r;
                *y = acc[t] + (args.bias ? args.bias[r] : 0) + (args.accumulate ? *y : 0);
            }
        }
    }
}

} // namespace

bool gemv_f32_launch(const GemvF32Args *args, Stream stream)
{
    constexpr size_t kMaxBlocks = 1024;
    return launch(gemv_f32, dim3(blocks_for(args->n_rows, kWarps, kMaxBlocks)), kThreads, 0, stream, *args);
}

} // namespace lw
