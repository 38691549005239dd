/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/quant_32.h"
#include "kernels/linear/tile_amx.h"

void ISA(matmul_enter)(uint32_t n_tokens)
{
    if (n_tokens >= AMX_MIN_TOKENS) amx_configure();
}

void ISA(matmul_leave)(uint32_t n_tokens)
{
    if (n_tokens >= AMX_MIN_TOKENS) amx_release();
}

/* The values themselves where quant_tile.h holds them higher by a bias. */
SIMD_INLINE void make_signed(DType type, Tile *tile, uint32_t n)
{
    int bias = quant_traits[type].bias;
    if (bias == 0) return;
    for (uint32_t i = 0; i < n; i++)
        for (int c = 0; c < BLOCK_VECTORS; c++) {
            __m512i w = _mm512_load_si512(tile->w[i] + 64 * c);
            _mm512_store_si512(tile->w[i] + 64 * c, _mm512_sub_epi8(w, _mm512_set1_epi8((char)bias)));
        }
}

/* n blocks from b0 on. */
typedef struct TileWork {
    const Tile *tile;
    uint32_t b0, n;
    const Activations *a;
    const uint8_t *next; /* share bytes a block to fetch meanwhile */
    size_t share;
} TileWork;

typedef int32_t Sums[AMX_TOKENS][LANES];

/* Adds the blocks to the sums of AMX_TOKENS tokens from t on; acc [AMX_TOKENS, LANES]. */
SIMD_INLINE void multiply_tile(bool has_min, bool is_first, const TileWork *work, uint32_t t, float *acc)
{
    enum { AHEAD = 2 };
    _Alignas(64) Sums sums[AHEAD];
    const Tile *tile = work->tile;
    const Activations *a = work->a;
    uint32_t n_blocks = a->n_cols / BLOCK_32;
    size_t at = (size_t)t * n_blocks + work->b0; /* of the scales and sums, next token n_blocks on */
    const int8_t *q = a->q + (size_t)t * a->n_cols + (size_t)work->b0 * BLOCK_32;
    F32x16 sum[AMX_TOKENS];
    SIMD_UNROLL
    for (uint32_t j = 0; j < AMX_TOKENS; j++) sum[j] = work->b0 ? f32x16_load(acc + j * LANES) : f32x16_set1(0);
    for (uint32_t i = 0; i <= work->n; i++) {
        if (i < work->n) {
            AMX_ZERO(AMX_SUMS_0);
            AMX_LOAD(AMX_TOKENS_32, q + i * BLOCK_32, a->n_cols);
            AMX_LOAD(AMX_ROWS_32, tile->w[i], 64);
            AMX_DOT_I8(AMX_SUMS_0, AMX_TOKENS_32, AMX_ROWS_32);
            AMX_STORE(AMX_SUMS_0, sums[i % AHEAD], 64);
        }
        if (i == 0) continue;
        if (is_first) prefetch(work->next + (i - 1) * work->share, work->share);
        F32x16 d = f32x16_load(tile->d[i - 1]), m = f32x16_load(tile->m[i - 1]);
        SIMD_UNROLL
        for (uint32_t j = 0; j < AMX_TOKENS; j++) {
            size_t own = at + i - 1 + j * n_blocks;
            F32x16 scale = f32x16_mul(d, f32x16_set1(a->d[own]));
            sum[j] = f32x16_madd(f32x16_from_i32(i32x16_load(sums[(i - 1) % AHEAD][j])), scale, sum[j]);
            if (has_min) sum[j] = f32x16_madd(m, f32x16_set1(a->s[own]), sum[j]);
        }
    }
    SIMD_UNROLL
    for (uint32_t j = 0; j < AMX_TOKENS; j++) f32x16_store(acc + j * LANES, sum[j]);
}

/* Not inlined into the formats: they share these. */
static void multiply_plain(const TileWork *work, uint32_t t0, uint32_t n_tokens, float *acc)
{
    for (uint32_t j = 0; j < n_tokens; j += AMX_TOKENS) multiply_tile(false, j == 0, work, t0 + j, acc + j * LANES);
}

static void multiply_with_min(const TileWork *work, uint32_t t0, uint32_t n_tokens, float *acc)
{
    for (uint32_t j = 0; j < n_tokens; j += AMX_TOKENS) multiply_tile(true, j == 0, work, t0 + j, acc + j * LANES);
}

SIMD_INLINE void multiply(DType type, const RowGroup *group, const Activations *a, uint32_t t0, uint32_t n_tokens,
                          float *acc)
{
    const QuantTraits *traits = &quant_traits[type];
    uint32_t n_blocks = a->n_cols / BLOCK_32;
    Tile tile;
    for (uint32_t b0 = 0; b0 < n_blocks; b0 += CHUNK_BLOCKS) {
        uint32_t n = n_blocks - b0 < CHUNK_BLOCKS ? n_blocks - b0 : CHUNK_BLOCKS;
        TileWork work = {.tile = &tile, .b0 = b0, .n = n, .a = a};
        work.next = next_group(type, group, b0, &work.share);
        fill_tile(type, group, b0, n, &tile);
        make_signed(type, &tile, n);
        (traits->has_min ? multiply_with_min : multiply_plain)(&work, t0, n_tokens, acc);
    }
}

DEFINE_MULTIPLY(q4_0, DTYPE_Q4_0)
DEFINE_MULTIPLY(q4_1, DTYPE_Q4_1)
DEFINE_MULTIPLY(q5_0, DTYPE_Q5_0)
DEFINE_MULTIPLY(q5_1, DTYPE_Q5_1)
DEFINE_MULTIPLY(q8_0, DTYPE_Q8_0)
DEFINE_MULTIPLY(iq4_nl, DTYPE_IQ4_NL)
DEFINE_MULTIPLY(mxfp4, DTYPE_MXFP4)
