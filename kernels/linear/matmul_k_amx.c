/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/quant_k.h"
#include "kernels/linear/tile_amx.h"

/*
 * How weight times scale becomes bytes, so that a sum over a whole block needs no more than two runs of the tile unit:
 * product = (high << shift) + low.
 */
typedef struct Split {
    int part_cols; /* that share a scale */
    int shift;     /* 0: the product is a byte; 3: the scale is cut, for products under 2^11; 8: the product is cut */
} Split;

static const Split splits[] = {
    [DTYPE_Q2_K] = {16, 0}, [DTYPE_Q3_K] = {16, 8}, [DTYPE_Q4_K] = {32, 3},
    [DTYPE_Q5_K] = {32, 3}, [DTYPE_Q6_K] = {16, 8}, [DTYPE_IQ4_XS] = {32, 8},
};

typedef struct Planes {
    _Alignas(64) uint8_t low[K_VECTORS * 64], high[K_VECTORS * 64];
} Planes;

typedef int32_t Sums[AMX_TOKENS][LANES];

SIMD_INLINE __m512i both_halves(__m512i x)
{
    return _mm512_or_si512(_mm512_and_si512(x, _mm512_set1_epi32(0xFFFF)), _mm512_slli_epi32(x, 16));
}

/* Even and odd bytes of w apart, each times scale, in 16 bits; then low and high bytes together again. */
SIMD_INLINE void put_cut_product(__m512i w, int bias, __m512i scale, uint8_t *ret_low, uint8_t *ret_high)
{
    const __mmask64 odd_bytes = 0xAAAAAAAAAAAAAAAA;
    __m512i biases = _mm512_set1_epi16((short)bias);
    __m512i even = _mm512_sub_epi16(_mm512_and_si512(w, _mm512_set1_epi16(0xFF)), biases);
    __m512i odd = _mm512_sub_epi16(_mm512_srli_epi16(w, 8), biases);
    even = _mm512_mullo_epi16(even, scale);
    odd = _mm512_mullo_epi16(odd, scale);
    _mm512_store_si512(ret_low, _mm512_mask_blend_epi8(odd_bytes, even, _mm512_slli_epi16(odd, 8)));
    _mm512_store_si512(ret_high, _mm512_mask_blend_epi8(odd_bytes, _mm512_srli_epi16(even, 8), odd));
}

SIMD_INLINE void make_planes(DType type, const KTile *tile, Planes *ret)
{
    const Split split = splits[type];
    const int n_vectors = split.part_cols / 4;
    for (int part = 0, at = 0; part < BLOCK_K / split.part_cols; part++) {
        __m512i scale = both_halves(i32x16_load(tile->scales[part]));
        __m512i low_scale = split.shift == 3 ? _mm512_and_si512(scale, _mm512_set1_epi16(7)) : scale;
        __m512i high_scale = _mm512_srli_epi16(scale, 3);
        SIMD_UNROLL
        for (int c = 0; c < n_vectors; c++, at += 64) {
            __m512i w = _mm512_load_si512(tile->w + at);
            if (split.shift == 8) {
                put_cut_product(w, quant_traits[type].bias, scale, ret->low + at, ret->high + at);
                continue;
            }
            _mm512_store_si512(ret->low + at, _mm512_mullo_epi16(w, low_scale)); /* no byte carries into the next */
            if (split.shift) _mm512_store_si512(ret->high + at, _mm512_mullo_epi16(w, high_scale));
        }
    }
}

/* What a tile holds; constant. */
typedef struct TileKind {
    int shift;
    bool has_min;
} TileKind;

typedef struct TileWork {
    const KTile *tile;
    const Planes *planes;
    uint32_t block;
    const Activations *a;
    const uint8_t *next; /* share bytes to fetch meanwhile */
    size_t share;
} TileWork;

/* The block's products with AMX_TOKENS tokens from t on; high only where there are any. */
SIMD_INLINE void dot_tile(TileKind kind, const TileWork *work, uint32_t t, Sums low, Sums high)
{
    const Activations *a = work->a;
    const int8_t *q = a->q + (size_t)t * a->n_cols + (size_t)work->block * BLOCK_K;
    AMX_ZERO(AMX_SUMS_0);
    AMX_ZERO(AMX_SUMS_1);
    SIMD_UNROLL
    for (int at = 0; at < BLOCK_K; at += 64) {
        AMX_LOAD(AMX_TOKENS_64, q + at, a->n_cols);
        AMX_LOAD(AMX_ROWS_64, work->planes->low + at * LANES, 64);
        AMX_DOT_U8(AMX_SUMS_0, AMX_TOKENS_64, AMX_ROWS_64);
        if (kind.shift) AMX_LOAD(AMX_ROWS_64, work->planes->high + at * LANES, 64);
        if (kind.shift == 3) AMX_DOT_U8(AMX_SUMS_1, AMX_TOKENS_64, AMX_ROWS_64);
        if (kind.shift == 8) AMX_DOT_I8(AMX_SUMS_1, AMX_TOKENS_64, AMX_ROWS_64);
    }
    AMX_STORE(AMX_SUMS_0, low, 64);
    if (kind.shift) AMX_STORE(AMX_SUMS_1, high, 64);
}

/* The same steps as without tiles: matmul_k_cpu.c. */
SIMD_INLINE void add_tile(TileKind kind, bool is_first, const TileWork *work, uint32_t t, Sums low, Sums high,
                          float *acc)
{
    const KTile *tile = work->tile;
    const Activations *a = work->a;
    uint32_t n_blocks = a->n_cols / BLOCK_K;
    size_t at = (size_t)t * n_blocks + work->block;
    const F32x16 tile_d = f32x16_load(tile->d), tile_m = f32x16_load(tile->m);
    I32x16 mins[K_PARTS / 2];
    SIMD_UNROLL
    for (int p = 0; p < K_PARTS / 2; p++) mins[p] = kind.has_min ? i32x16_load(tile->mins[p]) : i32x16_set1(0);
    SIMD_UNROLL
    for (uint32_t j = 0; j < AMX_TOKENS; j++, at += n_blocks) {
        if (is_first) prefetch(work->next + j * (work->share / AMX_TOKENS), work->share / AMX_TOKENS);
        I32x16 total = i32x16_load(low[j]);
        if (kind.shift) total = i32x16_add(_mm512_slli_epi32(i32x16_load(high[j]), (unsigned)kind.shift), total);
        F32x16 d = f32x16_set1(a->d[at]), sum = f32x16_load(acc + j * LANES);
        sum = f32x16_madd(f32x16_from_i32(total), f32x16_mul(tile_d, d), sum);
        if (kind.has_min) {
            const int16_t *sums = a->sums_16 + at * K_PARTS;
            I32x16 even = i32x16_set1(0), odd = even;
            SIMD_UNROLL
            for (int p = 0; p < K_PARTS / 2; p += 2) {
                even = i32x16_dot_i16(even, mins[p], load_4(sums + 2 * p));
                odd = i32x16_dot_i16(odd, mins[p + 1], load_4(sums + 2 * p + 2));
            }
            I32x16 min_sum = i32x16_sub(i32x16_set1(0), i32x16_add(even, odd));
            sum = f32x16_madd(f32x16_from_i32(min_sum), f32x16_mul(tile_m, d), sum);
        }
        f32x16_store(acc + j * LANES, sum);
    }
}

/* A tile's products are under way while those of the tile before are added. */
SIMD_INLINE void multiply_tokens(TileKind kind, const TileWork *work, uint32_t t0, uint32_t n_tokens, float *acc)
{
    _Alignas(64) Sums low[2], high[2];
    dot_tile(kind, work, t0, low[0], high[0]);
    for (uint32_t i = 0, j = 0; j < n_tokens; i ^= 1, j += AMX_TOKENS) {
        if (j + AMX_TOKENS < n_tokens) dot_tile(kind, work, t0 + j + AMX_TOKENS, low[i ^ 1], high[i ^ 1]);
        add_tile(kind, j == 0, work, t0 + j, low[i], high[i], acc + j * LANES);
    }
}

/* Not inlined into the formats: they share these. */
static void multiply_0_with_min(const TileWork *work, uint32_t t0, uint32_t n_tokens, float *acc)
{
    multiply_tokens((TileKind){0, true}, work, t0, n_tokens, acc);
}

static void multiply_3_with_min(const TileWork *work, uint32_t t0, uint32_t n_tokens, float *acc)
{
    multiply_tokens((TileKind){3, true}, work, t0, n_tokens, acc);
}

static void multiply_8(const TileWork *work, uint32_t t0, uint32_t n_tokens, float *acc)
{
    multiply_tokens((TileKind){8, false}, work, t0, n_tokens, acc);
}

SIMD_INLINE void multiply(DType type, const RowGroup *group, const Activations *a, uint32_t t0, uint32_t n_tokens,
                          float *acc)
{
    KTile tile;
    Planes planes;
    memset(acc, 0, (n_tokens + AMX_TOKENS - 1) / AMX_TOKENS * AMX_TOKENS * LANES * sizeof *acc);
    for (uint32_t b = 0; b < a->n_cols / BLOCK_K; b++) {
        TileWork work = {.tile = &tile, .planes = &planes, .block = b, .a = a};
        work.next = next_group(type, group, b, &work.share);
        unpack_k(type, group, b, &tile);
        make_planes(type, &tile, &planes);
        if (splits[type].shift == 0)
            multiply_0_with_min(&work, t0, n_tokens, acc);
        else if (splits[type].shift == 3)
            multiply_3_with_min(&work, t0, n_tokens, acc);
        else
            multiply_8(&work, t0, n_tokens, acc);
    }
}

DEFINE_MULTIPLY(q2_k, DTYPE_Q2_K)
DEFINE_MULTIPLY(q3_k, DTYPE_Q3_K)
DEFINE_MULTIPLY(q4_k, DTYPE_Q4_K)
DEFINE_MULTIPLY(q5_k, DTYPE_Q5_K)
DEFINE_MULTIPLY(q6_k, DTYPE_Q6_K)
DEFINE_MULTIPLY(iq4_xs, DTYPE_IQ4_XS)
