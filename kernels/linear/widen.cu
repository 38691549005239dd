/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/widen.h"

#include "kernels/launch.cuh"
#include "kernels/linear/device_layout.h"
#include "kernels/linear/unpack.cuh"

#include <cuda_bf16.h>

namespace lw
{
namespace
{

constexpr unsigned kThreads = 256, kWarps = kThreads / 32;

/* A lane's words of its planes in device memory; heads are shared by the lanes of a row pair. */
template <class F> struct LaneUnit {
    uint32_t low[F::kLowBytes / 4], high[F::kHighBytes / 4 + 1], scale[F::kScaleBytes / 4], head[F::kHeadBytes / 4 + 1];
};

template <int kBytes> __device__ __forceinline__ void read_plane(const char *from, uint32_t lane, uint32_t *ret)
{
    constexpr int kWidth = kBytes < 16 ? kBytes : 16;
#pragma unroll
    for (int i = 0; i < kBytes / 4; i++)
        ret[i] = *reinterpret_cast<const uint32_t *>(from + (i * 4 / kWidth * 32 + lane) * kWidth + i * 4 % kWidth);
}

template <class F> __device__ __forceinline__ LaneUnit<F> read_unit(const char *from, uint32_t lane)
{
    LaneUnit<F> unit = {};
    read_plane<F::kLowBytes>(from, lane, unit.low);
    from += 32 * F::kLowBytes;
    if constexpr (F::kHighBytes > 0) read_plane<F::kHighBytes>(from, lane, unit.high);
    from += 32 * F::kHighBytes;
    read_plane<F::kScaleBytes>(from, lane, unit.scale);
    from += 32 * F::kScaleBytes;
    if constexpr (F::kHeadBytes > 0) read_plane<F::kHeadBytes>(from, lane / 4, unit.head);
    return unit;
}

__device__ __forceinline__ uint32_t bfloats_of(float x, float y)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    return *reinterpret_cast<uint32_t *>(&pair);
}

template <class F, int kChunk>
__device__ __forceinline__ void put_chunk(const uint32_t *low, const uint32_t *high, const Scale *scales, float factor,
                                          uint16_t *y)
{
    uint32_t pairs[4], ret[4];
    weights_of<F, kChunk>(low, high, scales, pairs);
#pragma unroll
    for (int p = 0; p < 4; p++) {
        float2 w = __half22float2(half2_of_bits(pairs[p]));
        ret[p] = bfloats_of(w.x * factor, w.y * factor);
    }
    *reinterpret_cast<uint4 *>(y + 8 * kChunk) = make_uint4(ret[0], ret[1], ret[2], ret[3]);
}

template <class F> __global__ void __launch_bounds__(kThreads) widen_quantised(const __grid_constant__ WidenArgs args)
{
    grid_release();
    grid_wait();
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const size_t n = (size_t)args.n_tiles * args.n_units, step = (size_t)gridDim.x * kWarps;
    for (size_t i = (size_t)blockIdx.x * kWarps + threadIdx.x / 32; i < n; i += step) {
        const char *tile = args.w + i / args.n_units * args.tile_bytes;
        uint32_t col = (uint32_t)(i % args.n_units) * F::kUnitCols + 32 * t;
        LaneUnit<F> unit = read_unit<F>(tile + DEVICE_TILE_HEAD_BYTES + i % args.n_units * (size_t)F::kUnitBytes, lane);
        Scale scales[F::kGroups][2][F::kParts];
        scales_of<F>(unit.scale, unit.head, scales);
#pragma unroll
        for (int second = 0; second < 2; second++) {
            uint32_t in_tile = g + 8 * second;
            float factor = reinterpret_cast<const float *>(tile)[in_tile];
            size_t row = i / args.n_units * DEVICE_TILE_ROWS + in_tile;
#pragma unroll
            for (int h = 0; h < F::kGroups; h++) {
                const uint32_t *low = unit.low + (second * F::kGroups + h) * F::kLow;
                const uint32_t *high = unit.high + (second * F::kGroups + h) * F::kHigh;
                uint16_t *y = args.y + row * args.y_stride + col + 128 * h;
                put_chunk<F, 0>(low, high, scales[h][second], factor, y);
                put_chunk<F, 1>(low, high, scales[h][second], factor, y);
                put_chunk<F, 2>(low, high, scales[h][second], factor, y);
                put_chunk<F, 3>(low, high, scales[h][second], factor, y);
            }
        }
    }
}

__global__ void __launch_bounds__(kThreads) widen_half(const __grid_constant__ WidenArgs args)
{
    grid_release();
    grid_wait();
    const size_t n = (size_t)args.n_tiles * DEVICE_TILE_ROWS * args.y_stride / 2, step = (size_t)gridDim.x * kThreads;
    for (size_t i = (size_t)blockIdx.x * kThreads + threadIdx.x; i < n; i += step) {
        float2 w = __half22float2(reinterpret_cast<const __half2 *>(args.w)[i]);
        reinterpret_cast<uint32_t *>(args.y)[i] = bfloats_of(w.x, w.y);
    }
}

const struct {
    DType type;
    WidenKernel kernel;
} rows[] = {
    {DTYPE_F16, widen_half},
    {DTYPE_Q8_0, widen_quantised<Q8_0>},
    {DTYPE_Q4_0, widen_quantised<Q4_0>},
    {DTYPE_Q4_1, widen_quantised<Q4_1>},
    {DTYPE_Q5_0, widen_quantised<Q5_0>},
    {DTYPE_Q5_1, widen_quantised<Q5_1>},
    {DTYPE_IQ4_NL, widen_quantised<IQ4_NL>},
    {DTYPE_MXFP4, widen_quantised<MXFP4>},
    {DTYPE_Q2_K, widen_quantised<Q2_K>},
    {DTYPE_Q3_K, widen_quantised<Q3_K>},
    {DTYPE_Q4_K, widen_quantised<Q4_K>},
    {DTYPE_Q5_K, widen_quantised<Q5_K>},
    {DTYPE_Q6_K, widen_quantised<Q6_K>},
    {DTYPE_IQ4_XS, widen_quantised<IQ4_XS>},
};

} // namespace

WidenKernel widen_kernel(DType type)
{
    for (const auto &row : rows)
        if (row.type == type) return row.kernel;
    return nullptr;
}

bool widen(WidenKernel kernel, const WidenArgs *args, Stream stream)
{
    constexpr size_t kMaxBlocks = 2048;
    return launch(kernel, dim3(blocks_for((size_t)args->n_tiles * args->n_units, kWarps, kMaxBlocks)), kThreads, 0,
                  stream, *args);
}

} // namespace lw
