/* SPDX-License-Identifier: Apache-2.0 */
/* A row of x after its norm or gate, measured and scaled by one block. */
#pragma once
#include "kernels/linear/matmul.h"
#include "kernels/pointwise/activation.cuh"

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace lw
{

/* Threads of a block, and how many times 4 columns each of them holds in registers; a norm's sums depend on both. */
template <uint32_t kThreadsValue, uint32_t kPiecesValue> struct RowShape {
    static constexpr uint32_t kThreads = kThreadsValue, kPieces = kPiecesValue, kWarps = kThreads / 32;
    static constexpr uint32_t kStep = 4 * kThreads, kHeldCols = kPieces * kStep;
};
using NormShape = RowShape<256, 4>;
using WideShape = RowShape<1024, 4>;

struct RowSource {
    const float *x, *up, *weight; /* up: of a gate; weight: of a norm; or NULL */
    size_t x_stride;
    uint32_t n_cols;
    float eps;
    GluActivation activation;
    bool is_aligned; /* rows can be read by float4 */
};

struct RowSums {
    float squares;
    float max; /* of the row's magnitudes, before the norm's factor; NaN counts as infinity */
};

/* What a row is multiplied with: v * norm (* weight) is its value, times factor what goes to binary16. */
struct RowFactors {
    float norm, factor, scale;
};

/* Zeros past the row's end. */
__device__ __forceinline__ float4 load_4(const float *row, uint32_t c, const RowSource &s)
{
    if (s.is_aligned) return c < s.n_cols ? *reinterpret_cast<const float4 *>(row + c) : make_float4(0, 0, 0, 0);
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = c + i < s.n_cols ? row[c + i] : 0;
    return make_float4(v[0], v[1], v[2], v[3]);
}

/* Loads of all pieces are under way before the first is used. */
template <uint32_t kPieces, uint32_t kStep>
__device__ __forceinline__ void load_pieces(const float *row, uint32_t first, uint32_t n_cols, float4 *ret)
{
#pragma unroll
    for (uint32_t i = 0; i < kPieces; i++) {
        uint32_t c = first + i * kStep;
        ret[i] = make_float4(0, 0, 0, 0);
        if (c < n_cols) ret[i] = *reinterpret_cast<const float4 *>(row + c);
    }
}

__device__ __forceinline__ float4 times(float4 a, float4 b)
{
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

__device__ __forceinline__ float4 times(float4 v, float factor)
{
    return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

__device__ __forceinline__ float4 gate_4(const RowSource &s, float4 gate, float4 up)
{
    return times(make_float4(glu_value(s.activation, gate.x), glu_value(s.activation, gate.y),
                             glu_value(s.activation, gate.z), glu_value(s.activation, gate.w)),
                 up);
}

__device__ __forceinline__ float magnitude(float max, float x)
{
    return isfinite(x) ? fmaxf(max, fabsf(x)) : INFINITY;
}

__device__ __forceinline__ RowSums combine_warp(RowSums sums)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        sums.squares += __shfl_xor_sync(0xFFFFFFFFu, sums.squares, step);
        sums.max = fmaxf(sums.max, __shfl_xor_sync(0xFFFFFFFFu, sums.max, step));
    }
    return sums;
}

__device__ __forceinline__ float squares_of(float4 v)
{
    return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
}

__device__ __forceinline__ float magnitude(float max, float4 v)
{
    return magnitude(magnitude(magnitude(magnitude(max, v.x), v.y), v.z), v.w);
}

/* The power of two that brings values of up to max near the top of binary16, and what undoes it. */
__device__ __forceinline__ RowFactors factors_of_max(float max)
{
    constexpr int kTargetExponent = 14;
    RowFactors ret = {1, NAN, 1};
    int exponent = (int)(__float_as_uint(max) >> 23) - 126 - kTargetExponent;
    if (exponent < -100) exponent = max > 0 ? -100 : 0;
    if (isfinite(max)) ret.factor = ldexpf(1, -exponent), ret.scale = ldexpf(1, exponent);
    return ret;
}

/* of_warps [kWarps] is shared memory that nobody else uses until the next barrier. */
template <uint32_t kWarps>
__device__ __forceinline__ RowFactors row_factors(const RowSource &s, RowSums sums, RowSums *of_warps)
{
    float norm = 1;
    sums = combine_warp(sums);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sums;
    __syncthreads();
    sums = combine_warp(of_warps[threadIdx.x % kWarps]); /* each 32 / kWarps times */
    if (s.weight) norm = 1.0f / sqrtf(sums.squares / (float)(32 / kWarps) / (float)s.n_cols + s.eps);
    RowFactors ret = factors_of_max(sums.max * norm);
    ret.norm = norm;
    return ret;
}

/* x rounded to 16 bits, and what that left over rounded again. */
template <bool kIsBf16> __device__ __forceinline__ void split_4(float4 v, uint2 *ret, uint2 *ret_low)
{
    if constexpr (kIsBf16) {
        __nv_bfloat162 a = __floats2bfloat162_rn(v.x, v.y), b = __floats2bfloat162_rn(v.z, v.w);
        float2 fa = __bfloat1622float2(a), fb = __bfloat1622float2(b);
        __nv_bfloat162 c = __floats2bfloat162_rn(v.x - fa.x, v.y - fa.y),
                       d = __floats2bfloat162_rn(v.z - fb.x, v.w - fb.y);
        *ret = make_uint2(*(uint32_t *)&a, *(uint32_t *)&b);
        *ret_low = make_uint2(*(uint32_t *)&c, *(uint32_t *)&d);
    } else {
        __half2 a = __floats2half2_rn(v.x, v.y), b = __floats2half2_rn(v.z, v.w);
        float2 fa = __half22float2(a), fb = __half22float2(b);
        __half2 c = __floats2half2_rn(v.x - fa.x, v.y - fa.y), d = __floats2half2_rn(v.z - fb.x, v.w - fb.y);
        *ret = make_uint2(*(uint32_t *)&a, *(uint32_t *)&b);
        *ret_low = make_uint2(*(uint32_t *)&c, *(uint32_t *)&d);
    }
}

/*
 * put(column, value, factor) for every four columns below `cols`, value in fp32 after norm or gate. of_warps as above.
 * The first form holds an aligned row in registers between its two passes.
 */
template <class Shape, bool kIsGate, class Put>
__device__ __forceinline__ RowFactors convert_row_held(const RowSource &s, size_t token, uint32_t cols,
                                                       RowSums *of_warps, Put put)
{
    constexpr uint32_t kPieces = Shape::kPieces, kStep = Shape::kStep;
    const uint32_t first = 4 * threadIdx.x;
    float4 v[kPieces], other[kPieces];
    RowSums sums = {0, 0};
    load_pieces<kPieces, kStep>(s.x + token * s.x_stride, first, s.n_cols, v);
    if (kIsGate) load_pieces<kPieces, kStep>(s.up + token * s.x_stride, first, s.n_cols, other);
    if (!kIsGate && s.weight) load_pieces<kPieces, kStep>(s.weight, first, s.n_cols, other);
#pragma unroll
    for (uint32_t i = 0; i < kPieces; i++) {
        if (kIsGate) v[i] = gate_4(s, v[i], other[i]);
        if (!kIsGate && s.weight) {
            sums.squares += squares_of(v[i]);
            v[i] = times(v[i], other[i]);
        }
        sums.max = magnitude(sums.max, v[i]);
    }
    RowFactors factors = row_factors<Shape::kWarps>(s, sums, of_warps);
#pragma unroll
    for (uint32_t i = 0; i < kPieces; i++)
        if (first + i * kStep < cols) put(first + i * kStep, times(v[i], factors.norm), factors.factor);
    return factors;
}

__device__ __forceinline__ float4 value_4(const RowSource &s, size_t token, uint32_t c, float *squares)
{
    float4 v = load_4(s.x + token * s.x_stride, c, s);
    if (s.up) v = gate_4(s, v, load_4(s.up + token * s.x_stride, c, s));
    *squares += squares_of(v);
    return s.weight ? times(v, load_4(s.weight, c, s)) : v;
}

template <class Shape, class Put>
__device__ __forceinline__ RowFactors convert_row(const RowSource &s, size_t token, uint32_t cols, RowSums *of_warps,
                                                  Put put)
{
    RowSums sums = {0, 0};
    float ignored = 0;
    for (uint32_t c = 4 * threadIdx.x; c < s.n_cols; c += Shape::kStep)
        sums.max = magnitude(sums.max, value_4(s, token, c, &sums.squares));
    RowFactors factors = row_factors<Shape::kWarps>(s, sums, of_warps);
    for (uint32_t c = 4 * threadIdx.x; c < cols; c += Shape::kStep)
        put(c, times(value_4(s, token, c, &ignored), factors.norm), factors.factor);
    return factors;
}

/* The norm's weights into the second-level cache: they may be fetched before grid_wait(). */
__device__ __forceinline__ void prefetch_weights(const RowSource &s)
{
    constexpr uint32_t kSectorFloats = 8;
    if (!s.weight) return;
    for (uint32_t c = kSectorFloats * threadIdx.x; c < s.n_cols; c += kSectorFloats * blockDim.x)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(s.weight + c));
}

/* Held in registers, the same with a gate, or any row. */
enum class RowWay { kHeld, kGate, kAny };

template <class Shape, RowWay kWay, class Put>
__device__ __forceinline__ RowFactors convert_row_by(const RowSource &s, size_t token, uint32_t cols, RowSums *of_warps,
                                                     Put put)
{
    if constexpr (kWay == RowWay::kAny)
        return convert_row<Shape>(s, token, cols, of_warps, put);
    else
        return convert_row_held<Shape, kWay == RowWay::kGate>(s, token, cols, of_warps, put);
}

} // namespace lw
