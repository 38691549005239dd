/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacks formats in blocks of 32, as quant_tile.h says. Only for sources that include isa.h. */
#pragma once
#include "kernels/linear/quant_tile.h"

enum { BLOCK_VECTORS = BLOCK_32 / 4, CHUNK_BLOCKS = 16 /* unpacked before use */ };

/* What stands beside the quants of a chunk's blocks. */
typedef struct Heads {
    union {
        uint32_t bits[CHUNK_BLOCKS][LANES]; /* binary16: d in the low half, m, if any, in the high one */
        float floats[CHUNK_BLOCKS][LANES];  /* MXFP4 */
    } scale;
    uint32_t fifth[CHUNK_BLOCKS][LANES]; /* of Q5_0 and Q5_1 */
} Heads;

typedef struct Tile {
    _Alignas(64) uint8_t w[CHUNK_BLOCKS][BLOCK_VECTORS * 64];
    _Alignas(64) float d[CHUNK_BLOCKS][LANES];
    float m[CHUNK_BLOCKS][LANES];
} Tile;

SIMD_INLINE bool has_fifth_bits(DType type)
{
    return type == DTYPE_Q5_0 || type == DTYPE_Q5_1;
}

SIMD_INLINE void copy_column(const uint8_t *at, size_t stride, uint32_t ret[LANES])
{
    for (size_t r = 0; r < LANES; r++) memcpy(&ret[r], at + r * stride, 4);
}

/* Fetched ahead of use: a vector load just behind 16 scalar stores would wait for all of them. */
SIMD_INLINE void load_heads(DType type, const RowGroup *group, uint32_t first_block, uint32_t n_blocks, Heads *ret)
{
    const QuantTraits *traits = &quant_traits[type];
    const uint8_t *at = group->base + (size_t)first_block * traits->block_bytes;
    for (uint32_t b = 0; b < n_blocks; b++, at += traits->block_bytes) {
        if (type == DTYPE_MXFP4)
            for (size_t r = 0; r < LANES; r++) ret->scale.bits[b][r] = block_mxfp4_scale_bits(at[r * group->stride]);
        else
            copy_column(at, group->stride, ret->scale.bits[b]);
        if (has_fifth_bits(type)) copy_column(at + (traits->has_min ? 4 : 2), group->stride, ret->fifth[b]);
    }
}

SIMD_INLINE F32x16 scale_of(DType type, const Heads *heads, uint32_t i)
{
    if (type == DTYPE_MXFP4) return f32x16_load(heads->scale.floats[i]);
    return f32x16_from_low_f16(i32x16_load(heads->scale.bits[i]));
}

SIMD_INLINE F32x16 min_of(const Heads *heads, uint32_t i)
{
    return f32x16_from_high_f16(i32x16_load(heads->scale.bits[i]));
}

/* Nibbles to values; c: which 4 columns. */
SIMD_INLINE W8x64 finish(DType type, W8x64 nibbles, I32x16 fifth, int c)
{
    static const int8_t mxfp4_values[16] = BLOCK_MXFP4_VALUES;
    if (type == DTYPE_IQ4_NL) return w8x64_from_i8(w8x64_lookup(nibbles, iq4_values));
    if (type == DTYPE_MXFP4) return w8x64_from_i8(w8x64_lookup(nibbles, mxfp4_values));
    return has_fifth_bits(type) ? w8x64_add_fifth_bits(nibbles, fifth, c) : nibbles;
}

/* Block `block` of the rows, which is number i of the heads. */
SIMD_INLINE void unpack(DType type, const RowGroup *group, uint32_t block, const Heads *heads, uint32_t i,
                        W8x64 w[BLOCK_VECTORS])
{
    size_t block_bytes = quant_traits[type].block_bytes;
    const uint8_t *end = group->base + (block + 1) * block_bytes; /* the quants stand last in all formats */
    if (type == DTYPE_Q8_0) {
        w8x64_load_rows(w, end - 32, group->stride);
        w8x64_load_rows(w + 4, end - 16, group->stride);
        for (int c = 0; c < BLOCK_VECTORS; c++) w[c] = w8x64_from_i8(w[c]);
        return;
    }
    W8x64 packed[4];
    I32x16 fifth = has_fifth_bits(type) ? i32x16_load(heads->fifth[i]) : i32x16_set1(0);
    w8x64_load_rows(packed, end - 16, group->stride);
    for (int c = 0; c < 4; c++) {
        w[c] = finish(type, w8x64_low_nibbles(packed[c]), fifth, c);
        w[4 + c] = finish(type, w8x64_high_nibbles(packed[c]), fifth, 4 + c);
    }
}

SIMD_INLINE void fill_tile(DType type, const RowGroup *group, uint32_t b0, uint32_t n, Tile *tile)
{
    Heads heads;
    load_heads(type, group, b0, n, &heads);
    for (uint32_t i = 0; i < n; i++) {
        f32x16_store(tile->d[i], scale_of(type, &heads, i));
        if (quant_traits[type].has_min) f32x16_store(tile->m[i], min_of(&heads, i));
        W8x64 w[BLOCK_VECTORS];
        unpack(type, group, b0 + i, &heads, i, w);
        for (int c = 0; c < BLOCK_VECTORS; c++) w8x64_store(tile->w[i] + 64 * c, w[c]);
    }
}
