/* SPDX-License-Identifier: Apache-2.0 */
/*
 * x for gemv_dot.cuh: a row as 16-bit integers with a scale for every 32 columns, in two planes of bytes in shared
 * memory, in the order in which a unit's quants come out of their words; for F16 and BF16 in fp32.
 */
#pragma once
#include "kernels/linear/gemv_attend.cuh"
#include "kernels/linear/gemv_feed.cuh"

namespace lw
{

/* Scales of x are kept so much lower, and results that much higher: neither end of fp32 is in the way. */
constexpr float kDotLower = 1.0f / 4096, kDotMostQuant = 32639; /* whose upper byte is 127 */
constexpr float kDotRound = 0x1.8p23f;                          /* plus a quant: the quant is in the lower bits */
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
    int q[8], raised[8], sum = 0; /* of q, the lower 16 bits count */
#pragma unroll
    for (int i = 0; i < 8; i++) bits = max(bits, __float_as_uint(v[i]) & 0x7FFFFFFFu);
    bits = max(bits, __shfl_xor_sync(0xFFFFFFFFu, bits, 1));
    bits = max(bits, __shfl_xor_sync(0xFFFFFFFFu, bits, 2));
    const float largest = __uint_as_float(bits);
    const float factor = largest >= kDotLeast ? kDotMostQuant / largest : 0; /* 0 for an infinity and a NaN as well */
#pragma unroll
    for (int i = 0; i < 8; i++) {
        q[i] =
            __float_as_int(__fadd_rn(__fmul_rn(v[i], factor), kDotRound)); /* many more a cycle than __float2int_rn */
        raised[i] = q[i] + 128;
        sum += q[i];
    }
    sum -= 8 * __float_as_int(kDotRound);
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

/* Columns of piece i of those that a thread has under way together. */
template <uint32_t kStep> __device__ __forceinline__ uint32_t piece_column(uint32_t first, uint32_t i)
{
    return first + i / 2 * kStep + i % 2 * 4;
}

/* Loads those of the pieces that are not there again, until all are. */
template <uint32_t kStep, uint32_t kCount>
__device__ __forceinline__ void await_pieces(const float *row, uint32_t first, uint32_t n_cols, float4 *v)
{
    bool is_all;
    do {
        is_all = true;
#pragma unroll
        for (uint32_t i = 0; i < kCount; i++) {
            if (piece_column<kStep>(first, i) >= n_cols || is_there(v[i])) continue;
            is_all = false;
            v[i] = load_handed_4(row + piece_column<kStep>(first, i));
        }
    } while (!__all_sync(0xFFFFFFFFu, is_all));
}

/*
 * A row's pieces by all threads, those of several steps under way together; returns this thread's squares. Rows that
 * the link in front hands over are waited for.
 */
template <class F, bool kIsNormed>
__device__ __forceinline__ float make_dot_pieces(const RowSource &raw, const float *row, bool is_handed, DotRow<F> to)
{
    constexpr uint32_t kAhead = kIsNormed ? 2 : 4, kStep = 8 * 32 * dot_warps<F>;
    float squares = 0;
    for (uint32_t first = 8 * threadIdx.x; first / 256 * 256 < to.cols; first += kAhead * kStep) { /* by whole warps */
        float4 v[kAhead][2], weight[kIsNormed ? kAhead : 1][2];
#pragma unroll
        for (uint32_t i = 0; i < 2 * kAhead; i++) {
            const uint32_t c = piece_column<kStep>(first, i);
            v[i / 2][i % 2] = make_float4(0, 0, 0, 0);
            if constexpr (kIsNormed) weight[i / 2][i % 2] = make_float4(0, 0, 0, 0);
            if (c >= raw.n_cols) continue;
            v[i / 2][i % 2] = load_handed_4(row + c);
            if constexpr (kIsNormed) weight[i / 2][i % 2] = *reinterpret_cast<const float4 *>(raw.weight + c);
        }
        if (is_handed) await_pieces<kStep, 2 * kAhead>(row, first, raw.n_cols, v[0]);
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

/* What a part of the attention counts for in the sum of all. */
__device__ __forceinline__ void part_weights(const float2 *stats, float *ret)
{
    float max = -INFINITY, sum = 0;
#pragma unroll
    for (int p = 0; p < GEMV_ATTEND_PARTS; p++) max = fmaxf(max, stats[p].x);
#pragma unroll
    for (int p = 0; p < GEMV_ATTEND_PARTS; p++) {
        ret[p] = stats[p].x == -INFINITY ? 0 : exp2_of(stats[p].x - max);
        sum += stats[p].y * ret[p];
    }
#pragma unroll
    for (int p = 0; p < GEMV_ATTEND_PARTS; p++) ret[p] = sum != 0 ? ret[p] / sum : 0;
}

/* A row that the parts of the attention make together. */
template <class F>
__device__ __forceinline__ void make_merged_pieces(const GemvAttend &attend, const float *row, DotRow<F> to)
{
    constexpr int kParts = GEMV_ATTEND_PARTS;
    constexpr uint32_t kStep = 8 * 32 * dot_warps<F>;
    const uint32_t n_heads = attend.params.n_heads, dim = attend.params.v_dim, n_cols = n_heads * dim;
    for (uint32_t c = 8 * threadIdx.x; c / 256 * 256 < to.cols; c += kStep) {
        float4 v[kParts][2], sum[2] = {};
        float2 stats[kParts];
        float weights[kParts];
        bool is_all;
#pragma unroll
        for (int p = 0; p < kParts; p++) {
            v[p][0] = v[p][1] = make_float4(0, 0, 0, 0);
            stats[p] = make_float2(0, 0);
        }
        do {
            const float *of_head = row + kParts * n_cols + 2 * (c / dim);
            is_all = true;
#pragma unroll
            for (int p = 0; p < kParts; p++) {
                if (c >= n_cols) break;
                v[p][0] = load_handed_4(row + p * n_cols + c);
                v[p][1] = load_handed_4(row + p * n_cols + c + 4);
                stats[p].x = load_handed(of_head + 2 * p * n_heads);
                stats[p].y = load_handed(of_head + 2 * p * n_heads + 1);
            }
#pragma unroll
            for (int p = 0; p < kParts; p++)
                is_all =
                    is_all && is_there(v[p][0]) && is_there(v[p][1]) && is_there(stats[p].x) && is_there(stats[p].y);
        } while (!__all_sync(0xFFFFFFFFu, is_all));
        part_weights(stats, weights);
#pragma unroll
        for (int p = 0; p < kParts; p++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                sum[i].x += v[p][i].x * weights[p];
                sum[i].y += v[p][i].y * weights[p];
                sum[i].z += v[p][i].z * weights[p];
                sum[i].w += v[p][i].w * weights[p];
            }
        put_piece<F>(to, c, sum[0], sum[1]);
    }
}

/* Row `token` of a link's x; a norm's factor is left for the results. */
template <class F>
__device__ __forceinline__ float make_dot_row(const GemvAttend *attends, const GemvLink &link, const float *set,
                                              uint32_t token, DotRow<F> to)
{
    const RowSource &raw = link.product.raw;
    const bool is_handed = link.x_at != GEMV_NO_PLACE;
    const float *row = is_handed ? set + link.x_at + token * link.x_stride : raw.x + token * raw.x_stride;
    if (raw.weight) return make_dot_pieces<F, true>(raw, row, is_handed, to);
    if (link.attend && attends[link.attend - 1].n_parts > 1)
        make_merged_pieces<F>(attends[link.attend - 1], row, to);
    else
        make_dot_pieces<F, false>(raw, row, is_handed, to);
    return 0;
}

} // namespace lw
