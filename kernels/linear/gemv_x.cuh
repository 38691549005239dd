/* SPDX-License-Identifier: Apache-2.0 */
/*
 * x in shared memory for gemv.cuh: every warp brings the columns that it multiplies, and only those, so that none waits
 * for another.
 */
#pragma once
#include "kernels/linear/gemv_ring.cuh"

namespace lw
{

/* What the block shares of x besides its values. */
struct XScales {
    float scale[GEMV_MAX_WARPS][GEMV_MAX_TOKENS]; /* of a warp's columns */
    float squares[GEMV_MAX_WARPS][GEMV_MAX_RAW_TOKENS];
    float norm[GEMV_MAX_TOKENS]; /* 1 without one; from the first pass on */
};

/* Where column c of a row of x lies: pieces of 16 bytes are permuted so that four lanes read from different banks. */
__device__ __forceinline__ uint32_t x_place(uint32_t c)
{
    return 16 * (c / 8 ^ (c / 32 & 3)) + c % 8 * 2;
}

/* This lane's view of x in shared memory. Columns of the product past the last token are never used: they repeat it. */
template <int kN8> struct XView {
    uint32_t row[kN8];  /* of token 8 n + g */
    uint32_t low_at;    /* from x to x_low */
    uint32_t places[4]; /* of pieces in the lane's order, see x_place */

    /* Packed units: a lane has columns 32 t .. of each 128; rows: 8 t .. of each 32. */
    __device__ __forceinline__ XView(uint32_t start, uint32_t row_bytes, uint32_t n_tokens, bool is_packed)
    {
        const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        low_at = row_bytes * n_tokens;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) places[j] = 16 * (j ^ t) + (is_packed ? 64 * t : 0);
#pragma unroll
        for (int n = 0; n < kN8; n++) row[n] = start + min(8 * n + g, n_tokens - 1) * row_bytes;
    }

    __device__ __forceinline__ uint4 read(int n, uint32_t at) const
    {
        return *reinterpret_cast<const uint4 *>(dynamic_shared() + row[n] + at);
    }
};

/* A warp's columns of a chunk, counted by themselves: where column i of them is. */
template <class F, int kWarps> __device__ __forceinline__ uint32_t column_of(const Share<F, kWarps> &share, uint32_t i)
{
    if (is_plain<F>) return share.first * F::kUnitCols + i;
    return (share.first + i / F::kUnitCols * share.kStep) * F::kUnitCols + i % F::kUnitCols;
}

/* From rows of 16 bits. */
template <class F, int kWarps>
__device__ __forceinline__ void stage_x(const GemvArgs &args, uint32_t warp, uint32_t chunk, char *to,
                                        uint32_t row_bytes, XScales *scales)
{
    constexpr uint32_t kBatch = 4;
    const uint32_t lane = threadIdx.x % 32, n_tokens = args.n_tokens;
    const Share<F, kWarps> share(warp, units_of_chunk(args, chunk));
    const uint32_t first_col = chunk * args.chunk_units * F::kUnitCols;
    for (uint32_t i = 8 * lane; i < share.count * F::kUnitCols; i += 256) {
        const uint32_t c = column_of(share, i);
        for (uint32_t kind = 0; kind < (args.x_low ? 2 : 1); kind++) {
            const uint16_t *from = (kind ? args.x_low : args.x) + first_col + c;
            for (uint32_t t0 = 0; t0 < n_tokens; t0 += kBatch) {
                uint4 v[kBatch];
#pragma unroll
                for (uint32_t j = 0; j < kBatch; j++)
                    if (t0 + j < n_tokens)
                        v[j] = __ldcg(reinterpret_cast<const uint4 *>(from + (size_t)(t0 + j) * args.x_stride));
#pragma unroll
                for (uint32_t j = 0; j < kBatch; j++)
                    if (t0 + j < n_tokens)
                        *reinterpret_cast<uint4 *>(to + (kind * n_tokens + t0 + j) * row_bytes + x_place(c)) = v[j];
            }
        }
    }
    if (lane < n_tokens) scales->scale[warp][lane] = args.x_scale ? args.x_scale[lane] : 1;
}

/* Bits of the magnitudes' maximum: those of a NaN or an infinity are above all others. */
__device__ __forceinline__ uint32_t largest_bits(uint32_t bits, float4 v)
{
    const uint32_t kMask = 0x7FFFFFFFu;
    bits = max(max(bits, __float_as_uint(v.x) & kMask), __float_as_uint(v.y) & kMask);
    return max(max(bits, __float_as_uint(v.z) & kMask), __float_as_uint(v.w) & kMask);
}

/* From one row of fp32; a norm's factor is left for the results. A call, so that its registers are not the loop's. */
template <class F, int kWarps, bool kIsNormed>
__device__ __noinline__ void make_row(const GemvArgs &args, uint32_t warp, uint32_t token, char *to, uint32_t low_at,
                                      XScales *scales)
{
    constexpr uint32_t kPieces = GEMV_MAX_RAW_COLS / (kIsNormed ? 2 : 1) / kWarps / 128, kCols = 128;
    const uint32_t lane = threadIdx.x % 32;
    const Share<F, kWarps> share(warp, args.n_units);
    const uint32_t n_cols = share.count * F::kUnitCols;
    const float *row = args.raw.x + token * args.raw.x_stride;
    float4 v[kPieces], weights[kIsNormed ? kPieces : 1];
    float squares = 0;
    uint32_t bits = 0;
#pragma unroll
    for (uint32_t p = 0; p < kPieces; p++) {
        const uint32_t i = p * kCols + 4 * lane, c = column_of(share, i);
        v[p] = make_float4(0, 0, 0, 0);
        if constexpr (kIsNormed) weights[p] = v[p];
        if (i >= n_cols || c >= args.raw.n_cols) continue;
        v[p] = *reinterpret_cast<const float4 *>(row + c);
        if constexpr (kIsNormed) weights[p] = *reinterpret_cast<const float4 *>(args.raw.weight + c);
    }
#pragma unroll
    for (uint32_t p = 0; p < kPieces; p++) {
        if (p * kCols >= n_cols) break;
        if constexpr (kIsNormed) {
            squares += squares_of(v[p]);
            v[p] = times(v[p], weights[p]);
        }
        bits = largest_bits(bits, v[p]);
    }
    const RowFactors factors = factors_of_max(__uint_as_float(__reduce_max_sync(0xFFFFFFFFu, bits)));
#pragma unroll
    for (uint32_t p = 0; p < kPieces; p++) {
        const uint32_t i = p * kCols + 4 * lane, at = x_place(column_of(share, i));
        uint2 high, low;
        if (p * kCols >= n_cols) break;
        if (i >= n_cols) continue;
        split_4<is_bf16<F>>(is_bf16<F> ? v[p] : times(v[p], factors.factor), &high, &low);
        *reinterpret_cast<uint2 *>(to + at) = high;
        if constexpr (is_plain<F>) *reinterpret_cast<uint2 *>(to + low_at + at) = low;
    }
    if constexpr (kIsNormed) squares = combine_warp({squares, 0}).squares;
    if (lane == 0) {
        scales->scale[warp][token] = is_bf16<F> ? 1 : factors.scale;
        scales->squares[warp][token] = squares;
    }
}

/* This warp's columns of a chunk of x into shared memory. */
template <class F, int kWarps, bool kMayBeRaw>
__device__ __forceinline__ void prepare_x(const GemvArgs &args, uint32_t warp, uint32_t chunk, char *to,
                                          uint32_t row_bytes, XScales *scales)
{
    bool is_made = false;
    if constexpr (kMayBeRaw) {
        is_made = args.is_raw;
        for (uint32_t token = 0; is_made && token < args.n_tokens; token++) {
            char *row = to + token * row_bytes;
            const uint32_t low_at = row_bytes * args.n_tokens;
            if (args.raw.weight)
                make_row<F, kWarps, true>(args, warp, token, row, low_at, scales);
            else
                make_row<F, kWarps, false>(args, warp, token, row, low_at, scales);
        }
    }
    if (!is_made) stage_x<F, kWarps>(args, warp, chunk, to, row_bytes, scales);
    __syncwarp();
}

/* A norm's factor from the sums of all warps; behind the first pass's barrier. */
template <int kWarps>
__device__ __forceinline__ float norm_of(const GemvArgs &args, const XScales *scales, uint32_t token)
{
    float squares = 0;
    if (!args.is_raw || !args.raw.weight) return 1;
#pragma unroll
    for (int w = 0; w < kWarps; w++) squares += scales->squares[w][token];
    return 1.0f / sqrtf(squares / (float)args.raw.n_cols + args.raw.eps);
}

} // namespace lw
