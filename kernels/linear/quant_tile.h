/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacks quantised weights of 16 rows at a time so that a lane holds a row: vector c of a block has columns 4 c .. 4 c
 * + 3 of every row as bytes, ready for a dot instruction. Formats are told apart by a constant `type`, which the
 * compiler resolves. Only for sources that include isa.h.
 */
#pragma once
#include "kernels/isa.h"
#include "kernels/linear/blocks.h"
#include "kernels/simd.h"

#include <string.h>

enum { HALF_TILE = SIMD_TILE_TOKENS / 2 };

/* 16 rows at base, stride bytes apart; stride 0: the same row in every lane. */
typedef struct RowGroup {
    const uint8_t *base;
    size_t stride;
} RowGroup;

/* Unpacked values are too high by bias; those of is_i8 are signed and may need 8 bits. */
typedef struct QuantTraits {
    uint16_t block_bytes;
    bool has_min, is_i8;
    int16_t bias;
} QuantTraits;

static const QuantTraits quant_traits[] = {
    [DTYPE_Q4_0] = {sizeof(BlockQ4_0), false, false, 8},
    [DTYPE_Q4_1] = {sizeof(BlockQ4_1), true, false, 0},
    [DTYPE_Q5_0] = {sizeof(BlockQ5_0), false, false, 16},
    [DTYPE_Q5_1] = {sizeof(BlockQ5_1), true, false, 0},
    [DTYPE_Q8_0] = {sizeof(BlockQ8_0), false, true, SIMD_I8_BIAS},
    [DTYPE_IQ4_NL] = {sizeof(BlockIQ4_NL), false, true, SIMD_I8_BIAS},
    [DTYPE_MXFP4] = {sizeof(BlockMXFP4), false, true, SIMD_I8_BIAS},
    [DTYPE_Q2_K] = {sizeof(BlockQ2_K), true, false, 0},
    [DTYPE_Q3_K] = {sizeof(BlockQ3_K), false, false, 4},
    [DTYPE_Q4_K] = {sizeof(BlockQ4_K), true, false, 0},
    [DTYPE_Q5_K] = {sizeof(BlockQ5_K), true, false, 0},
    [DTYPE_Q6_K] = {sizeof(BlockQ6_K), false, false, 32},
    [DTYPE_IQ4_XS] = {sizeof(BlockIQ4_XS), false, true, SIMD_I8_BIAS},
};

static const int8_t iq4_values[16] = BLOCK_IQ4_VALUES;

SIMD_INLINE int32_t load_4(const void *p)
{
    int32_t x;
    memcpy(&x, p, 4);
    return x;
}

SIMD_INLINE I32x16 dot(bool is_i8, I32x16 acc, W8x64 w, const int8_t *q)
{
    return is_i8 ? i32x16_dot_i8(acc, w, load_4(q)) : i32x16_dot_u7(acc, w, load_4(q));
}

/* The rows behind these: their share of bytes for each block of these is to be fetched while it is multiplied. */
SIMD_INLINE const uint8_t *next_group(DType type, const RowGroup *group, uint32_t block, size_t *ret_share)
{
    *ret_share = (size_t)LANES * quant_traits[type].block_bytes;
    return group->base + LANES * group->stride + block * *ret_share;
}

SIMD_INLINE void prefetch(const uint8_t *at, size_t n)
{
    for (size_t i = 0; i < n; i += 64) __builtin_prefetch(at + i);
}

/*
 * The same rows of the matrix times tokens t0 .. t0 + n_tokens - 1, in blocks of 32 or of 256, to acc [n_tokens,
 * LANES]. One function a format (matmul_quant_cpu.c has the table): each row's sum runs over the blocks in order, one
 * madd a block and one more for minima, whatever the number of tokens; integer sums inside a block are exact, so how
 * they are formed is free.
 */
typedef void (*MultiplyGroup)(const RowGroup *group, const Activations *a, uint32_t t0, uint32_t n_tokens, float *acc);
#define DECLARE_MULTIPLY_FOR(name, isa)                                                                                \
    void ISA_JOIN(multiply_##name, isa)(const RowGroup *group, const Activations *a, uint32_t t0, uint32_t n_tokens,   \
                                        float *acc)
#define DECLARE_MULTIPLY(name) DECLARE_MULTIPLY_FOR(name, LW_ISA)
DECLARE_MULTIPLY(q4_0);
DECLARE_MULTIPLY(q4_1);
DECLARE_MULTIPLY(q5_0);
DECLARE_MULTIPLY(q5_1);
DECLARE_MULTIPLY(q8_0);
DECLARE_MULTIPLY(iq4_nl);
DECLARE_MULTIPLY(mxfp4);
DECLARE_MULTIPLY(q2_k);
DECLARE_MULTIPLY(q3_k);
DECLARE_MULTIPLY(q4_k);
DECLARE_MULTIPLY(q5_k);
DECLARE_MULTIPLY(q6_k);
DECLARE_MULTIPLY(iq4_xs);
