/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacks quantised weights of 16 rows at a time so that a lane holds a row: vector c of a block has columns 4 c .. 4 c
 * + 3 of every row as bytes, ready for a dot instruction. Formats are told apart by a constant `type`, which the
 * compiler resolves. Only for sources that include isa.h.
 */
#pragma once
#include "base/tensor.h"
#include "kernels/linear/blocks.h"
#include "kernels/simd.h"

#include <string.h>

enum {
    BLOCK_VECTORS = BLOCK_32 / 4,
    K_VECTORS = BLOCK_K / 4,
    K_SUBS = 16,       /* parts of a 256-block with their own scale, 16 columns each */
    CHUNK_BLOCKS = 16, /* blocks of 32 that are unpacked before use: with CHUNK_K, 512 columns */
    CHUNK_K = 2,
};

/* 16 rows at base, stride bytes apart; stride 0: the same row in every lane. */
typedef struct RowGroup {
    const uint8_t *base;
    size_t stride;
} RowGroup;

/* binary16 scales of blocks, d in the low half and m (Q4_1) in the high half, [CHUNK_BLOCKS, LANES]. */
typedef struct ScaleBits {
    uint32_t bits[CHUNK_BLOCKS][LANES];
} ScaleBits;

SIMD_INLINE size_t block_bytes_of(DType type)
{
    return type == DTYPE_Q4_0   ? sizeof(BlockQ4_0)
           : type == DTYPE_Q4_1 ? sizeof(BlockQ4_1)
           : type == DTYPE_Q8_0 ? sizeof(BlockQ8_0)
                                : sizeof(BlockQ6_K);
}

/* What the unpacked values are too high by. */
SIMD_INLINE int32_t quant_bias(DType type)
{
    return type == DTYPE_Q4_0 ? 8 : type == DTYPE_Q8_0 ? SIMD_I8_BIAS : type == DTYPE_Q6_K ? 32 : 0;
}

/* Fetched ahead of use: a vector load just behind 16 scalar stores would wait for all of them. */
SIMD_INLINE void load_scale_bits(DType type, const RowGroup *group, uint32_t first_block, uint32_t n_blocks,
                                 ScaleBits *ret)
{
    const uint8_t *row = group->base + first_block * block_bytes_of(type);
    if (type == DTYPE_Q6_K) row += offsetof(BlockQ6_K, d);
    for (int r = 0; r < LANES; r++, row += group->stride) {
        for (uint32_t b = 0; b < n_blocks; b++) {
            uint16_t half;
            memcpy(&half, row + b * block_bytes_of(type), sizeof half);
            ret->bits[b][r] = half;
            if (type == DTYPE_Q4_1) memcpy(&ret->bits[b][r], row + b * block_bytes_of(type), 4);
        }
    }
}

SIMD_INLINE void unpack_block(DType type, const RowGroup *group, uint32_t block, W8x64 w[BLOCK_VECTORS])
{
    size_t offset = block * block_bytes_of(type) + (type == DTYPE_Q4_1 ? 4 : 2);
    if (type == DTYPE_Q8_0) {
        w8x64_load_rows(w, group->base + offset, group->stride);
        w8x64_load_rows(w + 4, group->base + offset + 16, group->stride);
        for (int c = 0; c < BLOCK_VECTORS; c++) w[c] = w8x64_from_i8(w[c]);
    } else {
        W8x64 packed[4];
        w8x64_load_rows(packed, group->base + offset, group->stride);
        for (int c = 0; c < 4; c++) {
            w[c] = w8x64_low_nibbles(packed[c]);
            w[4 + c] = w8x64_high_nibbles(packed[c]);
        }
    }
}

/* 16 columns of a Q6_K half: 4 dwords of quarter g from chunk i (0 or 1) of its 32 columns. */
SIMD_INLINE void unpack_k_part(const W8x64 low[4], const W8x64 high[4], int quarter, uint8_t *ret_w)
{
    for (int c = 0; c < 4; c++) {
        W8x64 nibbles = quarter < 2 ? w8x64_low_nibbles(low[c]) : w8x64_high_nibbles(low[c]);
        w8x64_store(ret_w + 64 * c, w8x64_join_6_bits(nibbles, high[c], quarter));
    }
}

/* A 256-block of 16 rows: ret_w [K_VECTORS, 64 bytes], ret_scales [K_SUBS, LANES]. */
SIMD_INLINE void unpack_k_block(const RowGroup *group, uint32_t block, uint8_t *ret_w, int32_t *ret_scales)
{
    const uint8_t *start = group->base + block * sizeof(BlockQ6_K);
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < 2; i++) { /* 16 of the 32 columns in each quarter */
            W8x64 high[4], even[4], odd[4];
            const uint8_t *low_at = start + offsetof(BlockQ6_K, low) + 64 * half + 16 * i;
            w8x64_load_rows(high, start + offsetof(BlockQ6_K, high) + 32 * half + 16 * i, group->stride);
            w8x64_load_rows(even, low_at, group->stride);
            w8x64_load_rows(odd, low_at + 32, group->stride);
            uint8_t *w = ret_w + 64 * (32 * half + 4 * i);
            unpack_k_part(even, high, 0, w);
            unpack_k_part(odd, high, 1, w + 64 * 8);
            unpack_k_part(even, high, 2, w + 64 * 16);
            unpack_k_part(odd, high, 3, w + 64 * 24);
        }
    }
    for (int r = 0; r < LANES; r++) {
        const uint8_t *scales = start + (size_t)r * group->stride + offsetof(BlockQ6_K, scales);
        for (int j = 0; j < K_SUBS; j++) ret_scales[j * LANES + r] = (int8_t)scales[j];
    }
}
