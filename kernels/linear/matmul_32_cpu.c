/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/quant_tile.h"

/* Formats in blocks of 32. */
enum { BLOCK_VECTORS = BLOCK_32 / 4, CHUNK_BLOCKS = 16 /* unpacked before use */ };

/* What stands beside the quants of a chunk's blocks. */
typedef struct Heads {
    union {
        uint32_t bits[CHUNK_BLOCKS][LANES]; /* binary16: d in the low half, m in the high one */
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

/* Fetched ahead of use: a vector load just behind 16 scalar stores would wait for all of them. */
SIMD_INLINE void load_heads(DType type, const RowGroup *group, uint32_t first_block, uint32_t n_blocks, Heads *ret)
{
    const QuantTraits *traits = &quant_traits[type];
    const uint8_t *row = group->base + (size_t)first_block * traits->block_bytes;
    for (int r = 0; r < LANES; r++, row += group->stride) {
        const uint8_t *at = row;
        for (uint32_t b = 0; b < n_blocks; b++, at += traits->block_bytes) {
            uint16_t half;
            memcpy(&half, at, sizeof half);
            ret->scale.bits[b][r] = type == DTYPE_MXFP4 ? block_mxfp4_scale_bits(*at) : half;
            if (traits->has_min) memcpy(&ret->scale.bits[b][r], at, 4);
            if (has_fifth_bits(type)) memcpy(&ret->fifth[b][r], at + (traits->has_min ? 4 : 2), 4);
        }
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

/* One token against one group, straight from the packed blocks. */
SIMD_INLINE F32x16 multiply_one(DType type, const RowGroup *group, const Activations *a, uint32_t t)
{
    const QuantTraits *traits = &quant_traits[type];
    const int8_t *q = a->q + (size_t)t * a->n_cols;
    uint32_t n_blocks = a->n_cols / BLOCK_32;
    const float *d = a->d + (size_t)t * n_blocks, *s = a->s + (size_t)t * n_blocks;
    const int32_t *sums = a->sums + (size_t)t * n_blocks;
    F32x16 acc = f32x16_set1(0);
    Heads heads;
    for (uint32_t b0 = 0; b0 < n_blocks; b0 += CHUNK_BLOCKS) {
        uint32_t n = n_blocks - b0 < CHUNK_BLOCKS ? n_blocks - b0 : CHUNK_BLOCKS;
        load_heads(type, group, b0, n, &heads);
        for (uint32_t i = 0; i < n; i++, q += BLOCK_32) {
            W8x64 w[BLOCK_VECTORS];
            unpack(type, group, b0 + i, &heads, i, w);
            prefetch_next_group(type, group, b0 + i);
            I32x16 even = i32x16_set1(-traits->bias * sums[b0 + i]), odd = i32x16_set1(0);
            for (int c = 0; c < BLOCK_VECTORS; c += 2) {
                even = dot(traits->is_i8, even, w[c], q + 4 * c);
                odd = dot(traits->is_i8, odd, w[c + 1], q + 4 * c + 4);
            }
            F32x16 scale = f32x16_mul(scale_of(type, &heads, i), f32x16_set1(d[b0 + i]));
            acc = f32x16_madd(f32x16_from_i32(i32x16_add(even, odd)), scale, acc);
            if (traits->has_min) acc = f32x16_madd(min_of(&heads, i), f32x16_set1(s[b0 + i]), acc);
        }
    }
    return acc;
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

/* What a tile holds, beside where it stands; kind is constant. */
typedef struct TileKind {
    bool has_min, is_i8;
} TileKind;

typedef struct TileWork {
    const Tile *tile;
    int32_t bias;
    uint32_t b0, n; /* blocks */
    const Activations *a;
} TileWork;

/* Adds the blocks to the sums of tokens t .. t + tokens - 1; acc [tokens, LANES]. */
SIMD_INLINE void multiply_tile(TileKind kind, const TileWork *work, uint32_t t, const uint32_t tokens, float *acc)
{
    const Tile *tile = work->tile;
    const Activations *a = work->a;
    uint32_t n_blocks = a->n_cols / BLOCK_32;
    size_t at = (size_t)t * n_blocks + work->b0; /* of the scales and sums, next token n_blocks on */
    const int8_t *q = a->q + (size_t)t * a->n_cols + (size_t)work->b0 * BLOCK_32;
    F32x16 sum[SIMD_TILE_TOKENS];
    SIMD_UNROLL
    for (uint32_t j = 0; j < tokens; j++) sum[j] = f32x16_load(acc + j * LANES);
    for (uint32_t i = 0; i < work->n; i++, at++, q += BLOCK_32) {
        I32x16 isum[SIMD_TILE_TOKENS];
        SIMD_UNROLL
        for (uint32_t j = 0; j < tokens; j++)
            isum[j] = i32x16_set1(kind.has_min ? 0 : -work->bias * a->sums[at + j * n_blocks]);
        SIMD_UNROLL
        for (int c = 0; c < BLOCK_VECTORS; c++) {
            W8x64 w = w8x64_load(tile->w[i] + 64 * c);
            SIMD_UNROLL
            for (uint32_t j = 0; j < tokens; j++)
                isum[j] = dot(kind.is_i8, isum[j], w, q + (size_t)j * a->n_cols + 4 * c);
        }
        F32x16 d = f32x16_load(tile->d[i]);
        SIMD_UNROLL
        for (uint32_t j = 0; j < tokens; j++) {
            F32x16 scale = f32x16_mul(d, f32x16_set1(a->d[at + j * n_blocks]));
            sum[j] = f32x16_madd(f32x16_from_i32(isum[j]), scale, sum[j]);
            if (kind.has_min)
                sum[j] = f32x16_madd(f32x16_load(tile->m[i]), f32x16_set1(a->s[at + j * n_blocks]), sum[j]);
        }
    }
    SIMD_UNROLL
    for (uint32_t j = 0; j < tokens; j++) f32x16_store(acc + j * LANES, sum[j]);
}

SIMD_INLINE void multiply_tokens(TileKind kind, const TileWork *work, uint32_t t0, uint32_t n_tokens, float *acc)
{
    uint32_t j = 0;
    for (; j + SIMD_TILE_TOKENS <= n_tokens; j += SIMD_TILE_TOKENS)
        multiply_tile(kind, work, t0 + j, SIMD_TILE_TOKENS, acc + j * LANES);
    for (; j + HALF_TILE <= n_tokens; j += HALF_TILE) multiply_tile(kind, work, t0 + j, HALF_TILE, acc + j * LANES);
    for (; HALF_TILE > 1 && j < n_tokens; j++) multiply_tile(kind, work, t0 + j, 1, acc + j * LANES);
}

/* Not inlined into the formats: they share these. */
static void multiply_plain(const TileWork *work, uint32_t t0, uint32_t n_tokens, float *acc)
{
    multiply_tokens((TileKind){false, false}, work, t0, n_tokens, acc);
}

static void multiply_with_min(const TileWork *work, uint32_t t0, uint32_t n_tokens, float *acc)
{
    multiply_tokens((TileKind){true, false}, work, t0, n_tokens, acc);
}

static void multiply_i8(const TileWork *work, uint32_t t0, uint32_t n_tokens, float *acc)
{
    multiply_tokens((TileKind){false, true}, work, t0, n_tokens, acc);
}

SIMD_INLINE void multiply(DType type, const RowGroup *group, const Activations *a, uint32_t t0, uint32_t n_tokens,
                          float *acc)
{
    if (n_tokens == 1) {
        f32x16_store(acc, multiply_one(type, group, a, t0));
        return;
    }
    const QuantTraits *traits = &quant_traits[type];
    uint32_t n_blocks = a->n_cols / BLOCK_32;
    Tile tile;
    memset(acc, 0, n_tokens * LANES * sizeof *acc);
    for (uint32_t b0 = 0; b0 < n_blocks; b0 += CHUNK_BLOCKS) {
        uint32_t n = n_blocks - b0 < CHUNK_BLOCKS ? n_blocks - b0 : CHUNK_BLOCKS;
        TileWork work = {&tile, traits->bias, b0, n, a};
        fill_tile(type, group, b0, n, &tile);
        (traits->has_min ? multiply_with_min : traits->is_i8 ? multiply_i8 : multiply_plain)(&work, t0, n_tokens, acc);
    }
}

#define DEFINE_MULTIPLY(name, type)                                                                                    \
    DECLARE_MULTIPLY(name)                                                                                             \
    {                                                                                                                  \
        multiply(type, group, a, t0, n_tokens, acc);                                                                   \
    }

DEFINE_MULTIPLY(q4_0, DTYPE_Q4_0)
DEFINE_MULTIPLY(q4_1, DTYPE_Q4_1)
DEFINE_MULTIPLY(q5_0, DTYPE_Q5_0)
DEFINE_MULTIPLY(q5_1, DTYPE_Q5_1)
DEFINE_MULTIPLY(q8_0, DTYPE_Q8_0)
DEFINE_MULTIPLY(iq4_nl, DTYPE_IQ4_NL)
DEFINE_MULTIPLY(mxfp4, DTYPE_MXFP4)
