/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/quant_k.h"

/* What a tile holds; constant. */
typedef struct TileKind {
    int part_cols; /* 16 or 32 columns share a scale */
    bool has_min, is_i8;
} TileKind;

typedef struct TileWork {
    const KTile *tile;
    int32_t bias;
    uint32_t block;
    const Activations *a;
    const uint8_t *next; /* share bytes to fetch meanwhile */
    size_t share;
} TileWork;

/* Sum of x over the columns of a part, from the sums of 16. */
SIMD_INLINE int32_t part_sum(int cols, const int16_t *sums, uint32_t part)
{
    return cols == 16 ? sums[part] : sums[2 * part] + sums[2 * part + 1];
}

SIMD_INLINE I32x16 min_sum_of(const KTile *tile, const int16_t *sums)
{
    I32x16 sum = i32x16_set1(0);
    for (int p = 0; p < K_PARTS / 2; p++) sum = i32x16_dot_i16(sum, i32x16_load(tile->mins[p]), load_4(sums + 2 * p));
    return sum;
}

/* Adds the block to the sums of tokens t .. t + tokens - 1; acc [tokens, LANES]. */
SIMD_INLINE void multiply_tile(TileKind kind, bool is_first, const TileWork *work, uint32_t t, const uint32_t tokens,
                               float *acc)
{
    const KTile *tile = work->tile;
    const Activations *a = work->a;
    const int n_vectors = kind.part_cols / 4;
    const uint32_t n_parts = BLOCK_K / (uint32_t)kind.part_cols;
    uint32_t n_blocks = a->n_cols / BLOCK_K;
    size_t at = (size_t)t * n_blocks + work->block; /* of the scales, next token n_blocks on */
    const int8_t *q = a->q + (size_t)t * a->n_cols + (size_t)work->block * BLOCK_K;
    const int16_t *sums = a->sums_16 + at * K_PARTS;
    I32x16 total[SIMD_TILE_TOKENS], isum[SIMD_TILE_TOKENS];
    SIMD_UNROLL
    for (uint32_t j = 0; j < tokens; j++) total[j] = i32x16_set1(0);
    for (uint32_t part = 0; part < n_parts; part++, q += kind.part_cols) {
        if (is_first) prefetch(work->next + part * (work->share / n_parts), work->share / n_parts);
        SIMD_UNROLL
        for (uint32_t j = 0; j < tokens; j++) {
            const int16_t *own = sums + (size_t)j * n_blocks * K_PARTS;
            isum[j] = i32x16_set1(kind.has_min ? 0 : -work->bias * part_sum(kind.part_cols, own, part));
        }
        SIMD_UNROLL
        for (int c = 0; c < n_vectors; c++) {
            W8x64 w = w8x64_load(tile->w + 64 * (n_vectors * (int)part + c));
            SIMD_UNROLL
            for (uint32_t j = 0; j < tokens; j++)
                isum[j] = dot(kind.is_i8, isum[j], w, q + (size_t)j * a->n_cols + 4 * c);
        }
        I32x16 scale = i32x16_load(tile->scales[part]);
        SIMD_UNROLL
        for (uint32_t j = 0; j < tokens; j++) total[j] = i32x16_add(total[j], i32x16_mul(isum[j], scale));
    }
    SIMD_UNROLL
    for (uint32_t j = 0; j < tokens; j++) {
        F32x16 d = f32x16_set1(a->d[at + j * n_blocks]), sum = f32x16_load(acc + j * LANES);
        sum = f32x16_madd(f32x16_from_i32(total[j]), f32x16_mul(f32x16_load(tile->d), d), sum);
        if (kind.has_min) {
            I32x16 min_sum = i32x16_sub(i32x16_set1(0), min_sum_of(tile, sums + (size_t)j * n_blocks * K_PARTS));
            sum = f32x16_madd(f32x16_from_i32(min_sum), f32x16_mul(f32x16_load(tile->m), d), sum);
        }
        f32x16_store(acc + j * LANES, sum);
    }
}

SIMD_INLINE void multiply_tokens(TileKind kind, const TileWork *work, uint32_t t0, uint32_t n_tokens, float *acc)
{
    uint32_t j = 0;
    for (; j + SIMD_TILE_TOKENS <= n_tokens; j += SIMD_TILE_TOKENS)
        multiply_tile(kind, j == 0, work, t0 + j, SIMD_TILE_TOKENS, acc + j * LANES);
    for (; j + HALF_TILE <= n_tokens; j += HALF_TILE)
        multiply_tile(kind, j == 0, work, t0 + j, HALF_TILE, acc + j * LANES);
    for (; HALF_TILE > 1 && j < n_tokens; j++) multiply_tile(kind, j == 0, work, t0 + j, 1, acc + j * LANES);
}

/* Not inlined into the formats: they share these. */
static void multiply_16(const TileWork *work, uint32_t t0, uint32_t n_tokens, float *acc)
{
    multiply_tokens((TileKind){16, false, false}, work, t0, n_tokens, acc);
}

static void multiply_16_with_min(const TileWork *work, uint32_t t0, uint32_t n_tokens, float *acc)
{
    multiply_tokens((TileKind){16, true, false}, work, t0, n_tokens, acc);
}

static void multiply_32_with_min(const TileWork *work, uint32_t t0, uint32_t n_tokens, float *acc)
{
    multiply_tokens((TileKind){32, true, false}, work, t0, n_tokens, acc);
}

static void multiply_32_i8(const TileWork *work, uint32_t t0, uint32_t n_tokens, float *acc)
{
    multiply_tokens((TileKind){32, false, true}, work, t0, n_tokens, acc);
}

SIMD_INLINE void multiply(DType type, const RowGroup *group, const Activations *a, uint32_t t0, uint32_t n_tokens,
                          float *acc)
{
    KTile tile;
    memset(acc, 0, n_tokens * LANES * sizeof *acc);
    for (uint32_t b = 0; b < a->n_cols / BLOCK_K; b++) {
        TileWork work = {.tile = &tile, .bias = quant_traits[type].bias, .block = b, .a = a};
        work.next = next_group(type, group, b, &work.share);
        unpack_k(type, group, b, &tile);
        if (type == DTYPE_Q2_K)
            multiply_16_with_min(&work, t0, n_tokens, acc);
        else if (type == DTYPE_Q3_K || type == DTYPE_Q6_K)
            multiply_16(&work, t0, n_tokens, acc);
        else if (type == DTYPE_IQ4_XS)
            multiply_32_i8(&work, t0, n_tokens, acc);
        else
            multiply_32_with_min(&work, t0, n_tokens, acc);
    }
}

#define DEFINE_MULTIPLY(name, type)                                                                                    \
    DECLARE_MULTIPLY(name)                                                                                             \
    {                                                                                                                  \
        multiply(type, group, a, t0, n_tokens, acc);                                                                   \
    }

DEFINE_MULTIPLY(q2_k, DTYPE_Q2_K)
DEFINE_MULTIPLY(q3_k, DTYPE_Q3_K)
DEFINE_MULTIPLY(q4_k, DTYPE_Q4_K)
DEFINE_MULTIPLY(q5_k, DTYPE_Q5_K)
DEFINE_MULTIPLY(q6_k, DTYPE_Q6_K)
DEFINE_MULTIPLY(iq4_xs, DTYPE_IQ4_XS)
