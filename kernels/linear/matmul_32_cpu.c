/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/quant_32.h"

/* Nothing to prepare. */
void ISA(matmul_enter)(uint32_t n_tokens)
{
    (void)n_tokens;
}

void ISA(matmul_leave)(uint32_t n_tokens)
{
    (void)n_tokens;
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
    size_t share;
    const uint8_t *next = next_group(type, group, 0, &share);
    Heads heads;
    for (uint32_t b0 = 0; b0 < n_blocks; b0 += CHUNK_BLOCKS) {
        uint32_t n = n_blocks - b0 < CHUNK_BLOCKS ? n_blocks - b0 : CHUNK_BLOCKS;
        load_heads(type, group, b0, n, &heads);
        for (uint32_t i = 0; i < n; i++, q += BLOCK_32) {
            W8x64 w[BLOCK_VECTORS];
            unpack(type, group, b0 + i, &heads, i, w);
            prefetch(next + (b0 + i) * share, share);
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

/* What a tile holds, beside where it stands; kind is constant. */
typedef struct TileKind {
    bool has_min, is_i8;
} TileKind;

typedef struct TileWork {
    const Tile *tile;
    int32_t bias;
    uint32_t b0, n; /* blocks */
    const Activations *a;
    const uint8_t *next; /* share bytes a block to fetch meanwhile */
    size_t share;
} TileWork;

/* Adds the blocks to the sums of tokens t .. t + tokens - 1; acc [tokens, LANES]. */
SIMD_INLINE void multiply_tile(TileKind kind, bool is_first, const TileWork *work, uint32_t t, const uint32_t tokens,
                               float *acc)
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
        if (is_first) prefetch(work->next + i * work->share, work->share);
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
        multiply_tile(kind, j == 0, work, t0 + j, SIMD_TILE_TOKENS, acc + j * LANES);
    for (; j + HALF_TILE <= n_tokens; j += HALF_TILE)
        multiply_tile(kind, j == 0, work, t0 + j, HALF_TILE, acc + j * LANES);
    for (; HALF_TILE > 1 && j < n_tokens; j++) multiply_tile(kind, j == 0, work, t0 + j, 1, acc + j * LANES);
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
        TileWork work = {.tile = &tile, .bias = traits->bias, .b0 = b0, .n = n, .a = a};
        work.next = next_group(type, group, b0, &work.share);
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
