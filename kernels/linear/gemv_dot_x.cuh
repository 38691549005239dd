/* SPDX-License-Identifier: Apache-2.0 */
/*
 * x for gemv_dot.cuh: a row as 16-bit integers with a scale for every 32 columns, in two planes of bytes in shared
 * memory, in the order in which a unit's quants come out of their words; for F16 and BF16 in fp32.
 */
#pragma once
#include "kernels/linear/gemv.cuh"

namespace lw
{

template <class F> constexpr uint32_t dot_warps = is_plain<F> ? 8 : 16;

/* Scales of x are kept so much lower, and results that much higher: neither end of fp32 is in the way. */
constexpr float kDotLower = 1.0f / 4096, kDotMostQuant = 32639; /* whose upper byte is 127 */
constexpr float kDotLeast = 1e-33f;                             /* what is below it counts as 0 */

/* Of 32 columns of x: the scale, and the sums of all quants and of both halves'. */
struct alignas(16) DotBlock {
    float scale;
    int sum, half[2];
};

/* A row of x in shared memory, from `start` on; packed: upper bytes, lower bytes, blocks; else floats. */
template <class F> struct DotRow {
    uint32_t start, cols;

    __device__ __forceinline__ char *upper() const
    {
        return dynamic_shared() + start;
    }
    __device__ __forceinline__ char *lower() const
    {
        return dynamic_shared() + start + cols;
    }
    __device__ __forceinline__ DotBlock *blocks() const
    {
        return reinterpret_cast<DotBlock *>(dynamic_shared() + start + 2 * cols);
    }
    __device__ __forceinline__ float *floats() const
    {
        return reinterpret_cast<float *>(dynamic_shared() + start);
    }
};

/* Four bytes, byte `kByte` of each. */
template <int kByte> __device__ __forceinline__ uint32_t bytes_of(int a, int b, int c, int d)
{
    constexpr uint32_t kTwo = kByte | (4 + kByte) << 4;
    return __byte_perm(__byte_perm(a, b, kTwo), __byte_perm(c, d, kTwo), 0x5410);
}

/* Eight quants (chunk `chunk` of 32 columns) into one plane, ordered as words_of() orders the weights. */
template <class F, int kByte> __device__ __forceinline__ void put_bytes(char *plane, uint32_t chunk, const int *q)
{
    if constexpr (F::kLow == 2) {
        char *to = plane + chunk / 2 * 16 + chunk % 2;
        constexpr int kWord[8] = {0, 0, 2, 2, 1, 1, 3, 3};
#pragma unroll
        for (int i = 0; i < 8; i++) to[4 * kWord[i] + 2 * (i % 2)] = (char)(q[i] >> 8 * kByte);
    } else {
        uint2 words;
        if constexpr (F::kLow == 8 || F::kTable != Table::kNone)
            words = make_uint2(bytes_of<kByte>(q[0], q[1], q[2], q[3]), bytes_of<kByte>(q[4], q[5], q[6], q[7]));
        else
            words = make_uint2(bytes_of<kByte>(q[0], q[4], q[1], q[5]), bytes_of<kByte>(q[2], q[6], q[3], q[7]));
        *reinterpret_cast<uint2 *>(plane + chunk * 8) = words;
    }
}

/* Eight columns of each lane; four lanes have a block. */
template <class F> __device__ __forceinline__ void put_quants(const DotRow<F> &to, uint32_t c, const float *v)
{
    uint32_t bits = 0;
    int q[8], raised[8], sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) bits = max(bits, __float_as_uint(v[i]) & 0x7FFFFFFFu);
    bits = max(bits, __shfl_xor_sync(0xFFFFFFFFu, bits, 1));
    bits = max(bits, __shfl_xor_sync(0xFFFFFFFFu, bits, 2));
    const float largest = __uint_as_float(bits);
    const float factor = largest >= kDotLeast ? kDotMostQuant / largest : 0; /* 0 for an infinity and a NaN as well */
#pragma unroll
    for (int i = 0; i < 8; i++) {
        q[i] = __float2int_rn(v[i] * factor);
        raised[i] = q[i] + 128;
        sum += q[i];
    }
    const int half = sum + __shfl_xor_sync(0xFFFFFFFFu, sum, 1), other = __shfl_xor_sync(0xFFFFFFFFu, half, 2);
    float scale = largest >= kDotLeast ? largest / kDotMostQuant * kDotLower : 0;
    if (bits >= 0x7F800000u) scale = NAN;
    if (c >= to.cols) return;
    put_bytes<F, 1>(to.upper() + c / 32 * 32, c % 32 / 8, raised);
    put_bytes<F, 0>(to.lower() + c / 32 * 32, c % 32 / 8, q);
    if (c % 32 == 0) to.blocks()[c / 32] = {scale, half + other, {half, other}};
}

template <class F> __device__ __forceinline__ void put_piece(const DotRow<F> &to, uint32_t c, float4 a, float4 b)
{
    if constexpr (is_plain<F>) {
        if (c >= to.cols) return;
        *reinterpret_cast<float4 *>(to.floats() + c) = a;
        *reinterpret_cast<float4 *>(to.floats() + c + 4) = b;
    } else {
        const float values[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        put_quants<F>(to, c, values);
    }
}

/* A row's pieces by all threads, those of several steps under way together; returns this thread's squares. */
template <class F, bool kIsNormed>
__device__ __forceinline__ float make_dot_pieces(const RowSource &raw, const float *row, DotRow<F> to)
{
    constexpr uint32_t kAhead = kIsNormed ? 2 : 4, kStep = 8 * 32 * dot_warps<F>;
    float squares = 0;
    for (uint32_t first = 8 * threadIdx.x; first / 256 * 256 < to.cols; first += kAhead * kStep) { /* by whole warps */
        float4 v[kAhead][2], weight[kIsNormed ? kAhead : 1][2];
#pragma unroll
        for (uint32_t i = 0; i < 2 * kAhead; i++) {
            const uint32_t c = first + i / 2 * kStep + i % 2 * 4;
            v[i / 2][i % 2] = make_float4(0, 0, 0, 0);
            if constexpr (kIsNormed) weight[i / 2][i % 2] = make_float4(0, 0, 0, 0);
            if (c >= raw.n_cols) continue;
            v[i / 2][i % 2] = __ldcg(reinterpret_cast<const float4 *>(row + c));
            if constexpr (kIsNormed) weight[i / 2][i % 2] = *reinterpret_cast<const float4 *>(raw.weight + c);
        }
#pragma unroll
        for (uint32_t i = 0; i < kAhead; i++) {
            const uint32_t c = first + i * kStep;
            if (c / 256 * 256 >= to.cols) break;
            if constexpr (kIsNormed) {
                squares += squares_of(v[i][0]) + squares_of(v[i][1]);
                v[i][0] = times(v[i][0], weight[i][0]);
                v[i][1] = times(v[i][1], weight[i][1]);
            }
            put_piece<F>(to, c, v[i][0], v[i][1]);
        }
    }
    return squares;
}

/* A norm's factor is left for the results. */
template <class F> __device__ __forceinline__ float make_dot_row(const RowSource &raw, uint32_t token, DotRow<F> to)
{
    const float *row = raw.x + token * raw.x_stride;
    return raw.weight ? make_dot_pieces<F, true>(raw, row, to) : make_dot_pieces<F, false>(raw, row, to);
}

} // namespace lw
