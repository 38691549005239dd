/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacks formats in blocks of 256, as quant_tile.h says. Only for sources that include isa.h. */
#pragma once
#include "kernels/linear/quant_tile.h"

enum { K_VECTORS = BLOCK_K / 4, K_PARTS = BLOCK_K / 16 };

/* A block of 16 rows. */
typedef struct KTile {
    _Alignas(64) uint8_t w[K_VECTORS * 64];
    _Alignas(64) float d[LANES], m[LANES];
    int32_t scales[K_PARTS][LANES];   /* of parts of 16 or 32 columns */
    int32_t mins[K_PARTS / 2][LANES]; /* in pairs of 16 bits: entry p goes with columns 32 p .. 32 p + 31 */
} KTile;

SIMD_INLINE W8x64 w8x64_bits(W8x64 x, int shift, int mask)
{
    return w8x64_join(w8x64_zero(), x, shift, mask);
}

SIMD_INLINE void put_d_and_m(I32x16 halves, KTile *ret)
{
    f32x16_store(ret->d, f32x16_from_low_f16(halves));
    f32x16_store(ret->m, f32x16_from_high_f16(halves));
}

/* Bytes of a lane to one scale each, too high by bias. */
SIMD_INLINE void put_4_scales(W8x64 bytes, int bias, int32_t (*ret_scales)[LANES])
{
    SIMD_UNROLL
    for (int i = 0; i < 4; i++)
        i32x16_store(ret_scales[i], i32x16_sub(i32x16_bits(i32x16_lanes(bytes), 8 * i, 8, 0), i32x16_set1(bias)));
}

SIMD_INLINE void unpack_head_q2_k(const RowGroup *group, const uint8_t *start, KTile *ret)
{
    W8x64 scales[4], tail[4];
    w8x64_load_rows(scales, start, group->stride);
    w8x64_load_rows(tail, start + sizeof(BlockQ2_K) - 16, group->stride);
    put_d_and_m(i32x16_lanes(tail[3]), ret);
    SIMD_UNROLL
    for (int v = 0; v < 4; v++) {
        I32x16 mins = i32x16_lanes(w8x64_high_nibbles(scales[v]));
        put_4_scales(w8x64_low_nibbles(scales[v]), 0, ret->scales + 4 * v);
        i32x16_store(ret->mins[2 * v], i32x16_add(i32x16_bits(mins, 0, 8, 0), i32x16_bits(mins, 8, 8, 16)));
        i32x16_store(ret->mins[2 * v + 1], i32x16_add(i32x16_bits(mins, 16, 8, 0), i32x16_bits(mins, 24, 8, 16)));
    }
}

/* The last 16 bytes are the scales' 12 and d, two bytes into the vectors. */
SIMD_INLINE void unpack_head_q3_k(const RowGroup *group, const uint8_t *start, KTile *ret)
{
    W8x64 tail[4], packed[3];
    w8x64_load_rows(tail, start + sizeof(BlockQ3_K) - 16, group->stride);
    f32x16_store(ret->d, f32x16_from_high_f16(i32x16_lanes(tail[3])));
    SIMD_UNROLL
    for (int v = 0; v < 3; v++) {
        I32x16 low = i32x16_bits(i32x16_lanes(tail[v]), 16, 16, 0);
        packed[v] = w8x64_of_lanes(i32x16_add(low, i32x16_bits(i32x16_lanes(tail[v + 1]), 0, 16, 16)));
    }
    put_4_scales(w8x64_join(w8x64_low_nibbles(packed[0]), packed[2], 4, 0x30), 32, ret->scales);
    put_4_scales(w8x64_join(w8x64_low_nibbles(packed[1]), packed[2], 2, 0x30), 32, ret->scales + 4);
    put_4_scales(w8x64_join(w8x64_high_nibbles(packed[0]), packed[2], 0, 0x30), 32, ret->scales + 8);
    put_4_scales(w8x64_join(w8x64_high_nibbles(packed[1]), packed[2], -2, 0x30), 32, ret->scales + 12);
}

SIMD_INLINE void put_4_mins(W8x64 bytes, int32_t (*ret_mins)[LANES])
{
    SIMD_UNROLL
    for (int i = 0; i < 4; i++) {
        I32x16 min = i32x16_bits(i32x16_lanes(bytes), 8 * i, 8, 0);
        i32x16_store(ret_mins[i], i32x16_add(min, i32x16_bits(min, 0, 8, 16))); /* for both halves of the 32 */
    }
}

/* Q4_K and Q5_K begin alike, with 16 bytes. */
SIMD_INLINE void unpack_head_q4_k(const RowGroup *group, const uint8_t *start, KTile *ret)
{
    W8x64 head[4];
    w8x64_load_rows(head, start, group->stride);
    put_d_and_m(i32x16_lanes(head[0]), ret);
    put_4_scales(w8x64_bits(head[1], 0, 0x3F), 0, ret->scales);
    put_4_scales(w8x64_join(w8x64_low_nibbles(head[3]), head[1], -2, 0x30), 0, ret->scales + 4);
    put_4_mins(w8x64_bits(head[2], 0, 0x3F), ret->mins);
    put_4_mins(w8x64_join(w8x64_high_nibbles(head[3]), head[2], -2, 0x30), ret->mins + 4);
}

SIMD_INLINE void unpack_head_q6_k(const RowGroup *group, const uint8_t *start, KTile *ret)
{
    W8x64 scales[4], tail[4];
    w8x64_load_rows(scales, start + offsetof(BlockQ6_K, scales), group->stride);
    w8x64_load_rows(tail, start + sizeof(BlockQ6_K) - 16, group->stride);
    f32x16_store(ret->d, f32x16_from_high_f16(i32x16_lanes(tail[3])));
    SIMD_UNROLL
    for (int v = 0; v < 4; v++) put_4_scales(w8x64_flip_signs(scales[v]), 128, ret->scales + 4 * v);
}

SIMD_INLINE void unpack_head_iq4_xs(const RowGroup *group, const uint8_t *start, KTile *ret)
{
    W8x64 head[4];
    w8x64_load_rows(head, start, group->stride);
    I32x16 first = i32x16_lanes(head[0]), low = i32x16_lanes(head[1]); /* d and the high bits; the low ones */
    f32x16_store(ret->d, f32x16_from_low_f16(first));
    SIMD_UNROLL
    for (int s = 0; s < 8; s++) {
        I32x16 scale = i32x16_add(i32x16_bits(low, 4 * s, 4, 0), i32x16_bits(first, 16 + 2 * s, 2, 4));
        i32x16_store(ret->scales[s], i32x16_sub(scale, i32x16_set1(32)));
    }
}

SIMD_INLINE void put_4(KTile *ret, int column, const W8x64 w[4])
{
    SIMD_UNROLL
    for (int c = 0; c < 4; c++) w8x64_store(ret->w + 16 * column + 64 * c, w[c]);
}

/* Q2_K and Q3_K: quarter g of 128 columns is at bits 2 g; Q3_K's third bit is at bit 4 half + g of high. */
SIMD_INLINE void unpack_2_bits(DType type, const RowGroup *group, const uint8_t *quants, const uint8_t *high,
                               KTile *ret)
{
    SIMD_UNROLL
    for (int i = 0; i < 2; i++) { /* 16 of the 32 columns in each quarter */
        W8x64 third[4] = {0}, packed[4], w[4];
        if (type == DTYPE_Q3_K) w8x64_load_rows(third, high + 16 * i, group->stride);
        SIMD_UNROLL
        for (int half = 0; half < 2; half++) {
            w8x64_load_rows(packed, quants + 32 * half + 16 * i, group->stride);
            SIMD_UNROLL
            for (int g = 0; g < 4; g++) {
                SIMD_UNROLL
                for (int c = 0; c < 4; c++) {
                    w[c] = w8x64_bits(packed[c], -2 * g, 3);
                    if (type == DTYPE_Q3_K) w[c] = w8x64_join(w[c], third[c], 2 - (4 * half + g), 4);
                }
                put_4(ret, 128 * half + 32 * g + 16 * i, w);
            }
        }
    }
}

/* Q4_K and Q5_K, whose fifth bit of 32 columns s is at bit s of high. */
SIMD_INLINE void unpack_4_bits(DType type, const RowGroup *group, const uint8_t *quants, const uint8_t *high,
                               KTile *ret)
{
    SIMD_UNROLL
    for (int i = 0; i < 2; i++) {
        W8x64 fifth[4] = {0}, packed[4], low[4], upper[4];
        if (type == DTYPE_Q5_K) w8x64_load_rows(fifth, high + 16 * i, group->stride);
        SIMD_UNROLL
        for (int quarter = 0; quarter < 4; quarter++) {
            w8x64_load_rows(packed, quants + 32 * quarter + 16 * i, group->stride);
            SIMD_UNROLL
            for (int c = 0; c < 4; c++) {
                low[c] = w8x64_low_nibbles(packed[c]);
                upper[c] = w8x64_high_nibbles(packed[c]);
                if (type == DTYPE_Q5_K) low[c] = w8x64_join(low[c], fifth[c], 4 - 2 * quarter, 16);
                if (type == DTYPE_Q5_K) upper[c] = w8x64_join(upper[c], fifth[c], 3 - 2 * quarter, 16);
            }
            put_4(ret, 64 * quarter + 16 * i, low);
            put_4(ret, 64 * quarter + 32 + 16 * i, upper);
        }
    }
}

SIMD_INLINE void unpack_6_bits(const RowGroup *group, const uint8_t *start, KTile *ret)
{
    SIMD_UNROLL
    for (int at = 0; at < 4; at++) { /* 16 of the 32 columns in each quarter of a half */
        int half = at / 2, i = at % 2;
        W8x64 high[4], packed[2][4], w[4];
        const uint8_t *low = start + 64 * half + 16 * i;
        w8x64_load_rows(high, start + offsetof(BlockQ6_K, high) + 32 * half + 16 * i, group->stride);
        w8x64_load_rows(packed[0], low, group->stride);
        w8x64_load_rows(packed[1], low + 32, group->stride);
        SIMD_UNROLL
        for (int g = 0; g < 4; g++) {
            SIMD_UNROLL
            for (int c = 0; c < 4; c++) {
                W8x64 x = packed[g % 2][c], nibbles = g < 2 ? w8x64_low_nibbles(x) : w8x64_high_nibbles(x);
                w[c] = w8x64_join(nibbles, high[c], 4 - 2 * g, 0x30);
            }
            put_4(ret, 128 * half + 32 * g + 16 * i, w);
        }
    }
}

SIMD_INLINE void unpack_iq4(const RowGroup *group, const uint8_t *quants, KTile *ret)
{
    SIMD_UNROLL
    for (int s = 0; s < 8; s++) {
        W8x64 packed[4], low[4], upper[4];
        w8x64_load_rows(packed, quants + 16 * s, group->stride);
        SIMD_UNROLL
        for (int c = 0; c < 4; c++) {
            low[c] = w8x64_from_i8(w8x64_lookup(w8x64_low_nibbles(packed[c]), iq4_values));
            upper[c] = w8x64_from_i8(w8x64_lookup(w8x64_high_nibbles(packed[c]), iq4_values));
        }
        put_4(ret, 32 * s, low);
        put_4(ret, 32 * s + 16, upper);
    }
}

SIMD_INLINE void unpack_k(DType type, const RowGroup *group, uint32_t block, KTile *ret)
{
    const uint8_t *start = group->base + (size_t)block * quant_traits[type].block_bytes;
    switch (type) {
    case DTYPE_Q2_K:
        unpack_head_q2_k(group, start, ret);
        unpack_2_bits(type, group, start + offsetof(BlockQ2_K, quants), start, ret);
        break;
    case DTYPE_Q3_K:
        unpack_head_q3_k(group, start, ret);
        unpack_2_bits(type, group, start + offsetof(BlockQ3_K, quants), start, ret);
        break;
    case DTYPE_Q4_K:
        unpack_head_q4_k(group, start, ret);
        unpack_4_bits(type, group, start + offsetof(BlockQ4_K, quants), start, ret);
        break;
    case DTYPE_Q5_K:
        unpack_head_q4_k(group, start, ret);
        unpack_4_bits(type, group, start + offsetof(BlockQ5_K, quants), start + offsetof(BlockQ5_K, high), ret);
        break;
    case DTYPE_Q6_K:
        unpack_head_q6_k(group, start, ret);
        unpack_6_bits(group, start, ret);
        break;
    default:
        unpack_head_iq4_xs(group, start, ret);
        unpack_iq4(group, start + offsetof(BlockIQ4_XS, quants), ret);
        break;
    }
}
