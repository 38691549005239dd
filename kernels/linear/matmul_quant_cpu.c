/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/isa.h"
#include "kernels/linear/quant_tile.h"

/*
 * Sums of one row run over the blocks in order, one madd a block (two for Q4_1), whatever the number of tokens: integer
 * sums inside a block are exact, so how they are formed is free.
 */

enum { HALF_TILE = SIMD_TILE_TOKENS / 2 };

/* An unpacked chunk of 16 rows: blocks of 32 or of 256. */
typedef struct Tile {
    _Alignas(64) uint8_t w[CHUNK_BLOCKS][BLOCK_VECTORS * 64];
    _Alignas(64) float d[CHUNK_BLOCKS][LANES];
    float m[CHUNK_BLOCKS][LANES];
    int32_t scales[CHUNK_K][K_SUBS * LANES]; /* 256-blocks only */
} Tile;

SIMD_INLINE int32_t load_4(const int8_t *q)
{
    int32_t x;
    memcpy(&x, q, 4);
    return x;
}

SIMD_INLINE I32x16 dot(DType type, I32x16 acc, W8x64 w, const int8_t *q)
{
    return type == DTYPE_Q8_0 ? i32x16_dot_i8(acc, w, load_4(q)) : i32x16_dot_u7(acc, w, load_4(q));
}

/* The share of one block in fetching the 16 rows behind these: decoding is bound by memory. */
SIMD_INLINE void prefetch_next_group(DType type, const RowGroup *group, uint32_t block)
{
    size_t share = LANES * block_bytes_of(type);
    const uint8_t *at = group->base + LANES * group->stride + block * share;
    for (size_t i = 0; i < share; i += 64) __builtin_prefetch(at + i);
}

/* One token against one group, straight from the packed blocks. */
SIMD_INLINE F32x16 multiply_one(DType type, const RowGroup *group, const Activations *a, uint32_t t)
{
    const int8_t *q = a->q + (size_t)t * a->n_cols;
    uint32_t n_blocks = a->n_cols / BLOCK_32;
    const float *d = a->d + (size_t)t * n_blocks, *s = a->s + (size_t)t * n_blocks;
    const int32_t *sums = a->sums + (size_t)t * n_blocks;
    F32x16 acc = f32x16_set1(0);
    ScaleBits scales;
    for (uint32_t b0 = 0; b0 < n_blocks; b0 += CHUNK_BLOCKS) {
        uint32_t n = n_blocks - b0 < CHUNK_BLOCKS ? n_blocks - b0 : CHUNK_BLOCKS;
        load_scale_bits(type, group, b0, n, &scales);
        for (uint32_t i = 0; i < n; i++, q += BLOCK_32) {
            W8x64 w[BLOCK_VECTORS];
            unpack_block(type, group, b0 + i, w);
            prefetch_next_group(type, group, b0 + i);
            I32x16 even = i32x16_set1(-quant_bias(type) * sums[b0 + i]), odd = i32x16_set1(0);
            for (int c = 0; c < BLOCK_VECTORS; c += 2) {
                even = dot(type, even, w[c], q + 4 * c);
                odd = dot(type, odd, w[c + 1], q + 4 * c + 4);
            }
            I32x16 bits = i32x16_load(scales.bits[i]);
            F32x16 scale = f32x16_mul(f32x16_from_low_f16(bits), f32x16_set1(d[b0 + i]));
            acc = f32x16_madd(f32x16_from_i32(i32x16_add(even, odd)), scale, acc);
            if (type == DTYPE_Q4_1) acc = f32x16_madd(f32x16_from_high_f16(bits), f32x16_set1(s[b0 + i]), acc);
        }
    }
    return acc;
}

SIMD_INLINE void fill_tile(DType type, const RowGroup *group, uint32_t b0, uint32_t n, Tile *tile)
{
    ScaleBits scales;
    load_scale_bits(type, group, b0, n, &scales);
    for (uint32_t i = 0; i < n; i++) {
        I32x16 bits = i32x16_load(scales.bits[i]);
        f32x16_store(tile->d[i], f32x16_from_low_f16(bits));
        if (type == DTYPE_Q4_1) f32x16_store(tile->m[i], f32x16_from_high_f16(bits));
        if (type == DTYPE_Q6_K) {
            unpack_k_block(group, b0 + i, tile->w[0] + (size_t)i * K_VECTORS * 64, tile->scales[i]);
            continue;
        }
        W8x64 w[BLOCK_VECTORS];
        unpack_block(type, group, b0 + i, w);
        for (int c = 0; c < BLOCK_VECTORS; c++) w8x64_store(tile->w[i] + 64 * c, w[c]);
    }
}

/* Adds n blocks of the tile to the sums of tokens t .. t + tokens - 1; acc [tokens, LANES]. */
SIMD_INLINE void multiply_blocks(DType type, const Tile *tile, uint32_t b0, uint32_t n, const Activations *a,
                                 uint32_t t, const uint32_t tokens, float *acc)
{
    uint32_t n_blocks = a->n_cols / BLOCK_32;
    size_t at = (size_t)t * n_blocks + b0; /* of the scales and sums, next token n_blocks on */
    const int8_t *q = a->q + (size_t)t * a->n_cols + (size_t)b0 * BLOCK_32;
    F32x16 sum[SIMD_TILE_TOKENS];
#pragma GCC unroll 8
    for (uint32_t j = 0; j < tokens; j++) sum[j] = f32x16_load(acc + j * LANES);
    for (uint32_t i = 0; i < n; i++, at++, q += BLOCK_32) {
        I32x16 isum[SIMD_TILE_TOKENS];
#pragma GCC unroll 8
        for (uint32_t j = 0; j < tokens; j++) isum[j] = i32x16_set1(-quant_bias(type) * a->sums[at + j * n_blocks]);
#pragma GCC unroll 8
        for (int c = 0; c < BLOCK_VECTORS; c++) {
            W8x64 w = w8x64_load(tile->w[i] + 64 * c);
#pragma GCC unroll 8
            for (uint32_t j = 0; j < tokens; j++) isum[j] = dot(type, isum[j], w, q + (size_t)j * a->n_cols + 4 * c);
        }
        F32x16 d = f32x16_load(tile->d[i]);
#pragma GCC unroll 8
        for (uint32_t j = 0; j < tokens; j++) {
            F32x16 scale = f32x16_mul(d, f32x16_set1(a->d[at + j * n_blocks]));
            sum[j] = f32x16_madd(f32x16_from_i32(isum[j]), scale, sum[j]);
            if (type == DTYPE_Q4_1)
                sum[j] = f32x16_madd(f32x16_load(tile->m[i]), f32x16_set1(a->s[at + j * n_blocks]), sum[j]);
        }
    }
#pragma GCC unroll 8
    for (uint32_t j = 0; j < tokens; j++) f32x16_store(acc + j * LANES, sum[j]);
}

/* The same for 256-blocks. */
SIMD_INLINE void multiply_k_blocks(const Tile *tile, uint32_t b0, uint32_t n, const Activations *a, uint32_t t,
                                   const uint32_t tokens, float *acc)
{
    uint32_t n_blocks = a->n_cols / BLOCK_K;
    for (uint32_t i = 0; i < n; i++) {
        I32x16 total[SIMD_TILE_TOKENS];
        size_t at = (size_t)t * n_blocks + b0 + i;
        const int8_t *q = a->q + (size_t)t * a->n_cols + (size_t)(b0 + i) * BLOCK_K;
        const uint8_t *w = tile->w[0] + (size_t)i * K_VECTORS * 64;
#pragma GCC unroll 8
        for (uint32_t j = 0; j < tokens; j++) total[j] = i32x16_set1(0);
        for (int sub = 0; sub < K_SUBS; sub++, q += 16) {
            I32x16 scale = i32x16_load(tile->scales[i] + sub * LANES);
#pragma GCC unroll 8
            for (uint32_t j = 0; j < tokens; j++) {
                I32x16 isum = i32x16_set1(-32 * a->sums[(at + j * n_blocks) * K_SUBS + (size_t)sub]);
#pragma GCC unroll 4
                for (int c = 0; c < 4; c++)
                    isum = dot(DTYPE_Q6_K, isum, w8x64_load(w + 64 * (4 * sub + c)), q + (size_t)j * a->n_cols + 4 * c);
                total[j] = i32x16_add(total[j], i32x16_mul(isum, scale));
            }
        }
#pragma GCC unroll 8
        for (uint32_t j = 0; j < tokens; j++) {
            F32x16 scale = f32x16_mul(f32x16_load(tile->d[i]), f32x16_set1(a->d[at + j * n_blocks]));
            f32x16_store(acc + j * LANES, f32x16_madd(f32x16_from_i32(total[j]), scale, f32x16_load(acc + j * LANES)));
        }
    }
}

SIMD_INLINE void multiply_tokens(DType type, const Tile *tile, uint32_t b0, uint32_t n, const Activations *a,
                                 uint32_t t, const uint32_t tokens, float *acc)
{
    if (type == DTYPE_Q6_K)
        multiply_k_blocks(tile, b0, n, a, t, tokens, acc);
    else
        multiply_blocks(type, tile, b0, n, a, t, tokens, acc);
}

SIMD_INLINE void multiply_group(DType type, const RowGroup *group, const Activations *a, uint32_t t0, uint32_t n_tokens,
                                float *acc)
{
    if (n_tokens == 1 && type != DTYPE_Q6_K) {
        f32x16_store(acc, multiply_one(type, group, a, t0));
        return;
    }
    uint32_t chunk = type == DTYPE_Q6_K ? CHUNK_K : CHUNK_BLOCKS, n_blocks = a->n_cols / a->block;
    Tile tile;
    memset(acc, 0, n_tokens * LANES * sizeof *acc);
    for (uint32_t b0 = 0; b0 < n_blocks; b0 += chunk) {
        uint32_t n = n_blocks - b0 < chunk ? n_blocks - b0 : chunk, j = 0;
        fill_tile(type, group, b0, n, &tile);
        for (; j + SIMD_TILE_TOKENS <= n_tokens; j += SIMD_TILE_TOKENS)
            multiply_tokens(type, &tile, b0, n, a, t0 + j, SIMD_TILE_TOKENS, acc + j * LANES);
        for (; j + HALF_TILE <= n_tokens; j += HALF_TILE)
            multiply_tokens(type, &tile, b0, n, a, t0 + j, HALF_TILE, acc + j * LANES);
        for (; j < n_tokens; j++) multiply_tokens(type, &tile, b0, n, a, t0 + j, 1, acc + j * LANES);
    }
}

/* The first n_rows lanes of acc [n_tokens, LANES] to rows r0 and up of y. */
static void put_rows(const MatmulOut *out, uint32_t r0, uint32_t n_rows, uint32_t t0, uint32_t n_tokens,
                     const float *acc)
{
    for (uint32_t j = 0; j < n_tokens; j++, acc += LANES) {
        float *y = out->y + (t0 + j) * out->y_stride + r0;
        for (uint32_t r = 0; r < n_rows; r++) {
            float sum = out->bias ? acc[r] + out->bias[r0 + r] : acc[r];
            y[r] = out->accumulate ? y[r] + sum : sum;
        }
    }
}

static void multiply_q4_0(const RowGroup *group, const Activations *a, uint32_t t0, uint32_t n_tokens, float *acc)
{
    multiply_group(DTYPE_Q4_0, group, a, t0, n_tokens, acc);
}

static void multiply_q4_1(const RowGroup *group, const Activations *a, uint32_t t0, uint32_t n_tokens, float *acc)
{
    multiply_group(DTYPE_Q4_1, group, a, t0, n_tokens, acc);
}

static void multiply_q8_0(const RowGroup *group, const Activations *a, uint32_t t0, uint32_t n_tokens, float *acc)
{
    multiply_group(DTYPE_Q8_0, group, a, t0, n_tokens, acc);
}

static void multiply_q6_k(const RowGroup *group, const Activations *a, uint32_t t0, uint32_t n_tokens, float *acc)
{
    multiply_group(DTYPE_Q6_K, group, a, t0, n_tokens, acc);
}

static void multiply(DType type, const RowGroup *group, const Activations *a, uint32_t t0, uint32_t n_tokens,
                     float *acc)
{
    switch (type) {
    case DTYPE_Q4_0:
        multiply_q4_0(group, a, t0, n_tokens, acc);
        break;
    case DTYPE_Q4_1:
        multiply_q4_1(group, a, t0, n_tokens, acc);
        break;
    case DTYPE_Q8_0:
        multiply_q8_0(group, a, t0, n_tokens, acc);
        break;
    default:
        multiply_q6_k(group, a, t0, n_tokens, acc);
        break;
    }
}

void ISA(matmul_quant)(const MatmulOut *out, uint32_t group_index, const Activations *a, uint32_t t0, uint32_t n_tokens)
{
    float acc[MATMUL_TILE_TOKENS * LANES];
    RowGroup group = {.stride = dtype_row_bytes(out->type, a->n_cols)};
    uint32_t r0 = group_index * LANES, left = out->n_rows - r0;
    if (out->n_rows >= LANES) {
        uint32_t repeated = left < LANES ? LANES - left : 0; /* the last group reaches back over rows done before */
        group.base = (const uint8_t *)out->w + (r0 - repeated) * group.stride;
        multiply(out->type, &group, a, t0, n_tokens, acc);
        put_rows(out, r0, LANES - repeated, t0, n_tokens, acc + repeated);
        return;
    }
    for (uint32_t r = 0; r < left; r++) {
        RowGroup row = {.base = (const uint8_t *)out->w + r * group.stride, .stride = 0};
        multiply(out->type, &row, a, t0, n_tokens, acc);
        put_rows(out, r, 1, t0, n_tokens, acc);
    }
}
