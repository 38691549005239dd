/* SPDX-License-Identifier: Apache-2.0 */
/* simd.h for AVX-512 (F, BW, VL, DQ) with VNNI. */
#pragma once
#include <immintrin.h>

typedef __m512 F32x16;
typedef __m512i I32x16;
typedef __m512i W8x64;
enum { SIMD_TILE_TOKENS = 8 }; /* accumulators that the registers hold */

SIMD_INLINE F32x16 f32x16_set1(float x)
{
    return _mm512_set1_ps(x);
}
SIMD_INLINE F32x16 f32x16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
SIMD_INLINE void f32x16_store(float *p, F32x16 x)
{
    _mm512_storeu_ps(p, x);
}
SIMD_INLINE F32x16 f32x16_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)p));
}
SIMD_INLINE F32x16 f32x16_load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
/* To nearest even. */
SIMD_INLINE void f32x16_store_f16(uint16_t *p, F32x16 x)
{
    _mm256_storeu_si256((__m256i_u *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
SIMD_INLINE void f32x16_store_bf16(uint16_t *p, F32x16 x)
{
    __m512i u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), odd);
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, is_nan, u, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256((__m256i_u *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}
SIMD_INLINE F32x16 f32x16_add(F32x16 a, F32x16 b)
{
    return _mm512_add_ps(a, b);
}
SIMD_INLINE F32x16 f32x16_sub(F32x16 a, F32x16 b)
{
    return _mm512_sub_ps(a, b);
}
SIMD_INLINE F32x16 f32x16_mul(F32x16 a, F32x16 b)
{
    return _mm512_mul_ps(a, b);
}
SIMD_INLINE F32x16 f32x16_div(F32x16 a, F32x16 b)
{
    return _mm512_div_ps(a, b);
}
SIMD_INLINE F32x16 f32x16_max(F32x16 a, F32x16 b)
{
    return _mm512_max_ps(a, b);
}
SIMD_INLINE F32x16 f32x16_min(F32x16 a, F32x16 b)
{
    return _mm512_min_ps(a, b);
}
SIMD_INLINE F32x16 f32x16_madd(F32x16 a, F32x16 b, F32x16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* Lanes n and up become fill. */
SIMD_INLINE F32x16 f32x16_keep(F32x16 x, uint32_t n, float fill)
{
    return _mm512_mask_mov_ps(_mm512_set1_ps(fill), (__mmask16)((1u << n) - 1), x);
}

/* Lanes whose bit is not set become fill. */
SIMD_INLINE F32x16 f32x16_select(F32x16 x, uint32_t bits, float fill)
{
    return _mm512_mask_mov_ps(_mm512_set1_ps(fill), (__mmask16)bits, x);
}

/* Adds lanes 8 apart, then 4, 2 and 1. */
SIMD_INLINE float f32x16_sum(F32x16 x)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

SIMD_INLINE float f32x16_highest(F32x16 x)
{
    return _mm512_reduce_max_ps(x);
}

/* x[i] holds rows 2 i and 2 i + 1 of eight: sixteen rows of eight become columns. */
SIMD_INLINE void f32x16_transpose_pairs(F32x16 x[8])
{
    const __m512i low = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 16, 24, 17, 25, 18, 26, 19, 27);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(4));
    __m512 a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xEE);
        b[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xEE);
    }
    for (int c = 0; c < 4; c++) { /* 128-bit lanes: even rows, even rows 4 channels on, odd rows, odd rows 4 on */
        x[c] = _mm512_permutex2var_ps(b[c], low, b[4 + c]);
        x[4 + c] = _mm512_permutex2var_ps(b[c], high, b[4 + c]);
    }
}

SIMD_INLINE I32x16 i32x16_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}
SIMD_INLINE I32x16 i32x16_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
SIMD_INLINE void i32x16_store(void *p, I32x16 x)
{
    _mm512_storeu_si512(p, x);
}
SIMD_INLINE I32x16 i32x16_add(I32x16 a, I32x16 b)
{
    return _mm512_add_epi32(a, b);
}
SIMD_INLINE I32x16 i32x16_sub(I32x16 a, I32x16 b)
{
    return _mm512_sub_epi32(a, b);
}
SIMD_INLINE I32x16 i32x16_mul(I32x16 a, I32x16 b)
{
    return _mm512_mullo_epi32(a, b);
}
SIMD_INLINE I32x16 i32x16_max(I32x16 a, I32x16 b)
{
    return _mm512_max_epi32(a, b);
}
SIMD_INLINE I32x16 i32x16_halve(I32x16 x)
{
    return _mm512_srai_epi32(x, 1);
}
SIMD_INLINE I32x16 i32x16_round(F32x16 x)
{
    return _mm512_cvtps_epi32(x);
}
SIMD_INLINE int32_t i32x16_sum(I32x16 x)
{
    return _mm512_reduce_add_epi32(x);
}
SIMD_INLINE int32_t i32x16_highest(I32x16 x)
{
    return _mm512_reduce_max_epi32(x);
}
SIMD_INLINE void i32x16_store_i8(int8_t *p, I32x16 x)
{
    _mm_storeu_si128((__m128i_u *)p, _mm512_cvtepi32_epi8(x));
}
SIMD_INLINE void i32x16_store_u8(uint8_t *p, I32x16 x)
{
    _mm_storeu_si128((__m128i_u *)p, _mm512_cvtepi32_epi8(x));
}
SIMD_INLINE I32x16 i32x16_load_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i_u *)p));
}
/* 8 bytes, the low half of each first. */
SIMD_INLINE I32x16 i32x16_load_nibbles(const uint8_t *p)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i_u *)p);
    __m512i twice = _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(bytes, _mm_srli_epi16(bytes, 4)));
    return _mm512_and_si512(twice, _mm512_set1_epi32(15));
}
SIMD_INLINE F32x16 f32x16_from_bits(I32x16 x)
{
    return _mm512_castsi512_ps(x);
}
/* e4m3 from the byte of each lane at bit `from`; its NaN is not known: 480. */
SIMD_INLINE F32x16 f32x16_from_f8(I32x16 x, int from)
{
    __m512i moved = _mm512_srai_epi32(_mm512_slli_epi32(x, (unsigned)(24 - from)), 4);
    __m512i bits = _mm512_and_si512(moved, _mm512_set1_epi32((int)0x87F00000));
    return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f));
}
SIMD_INLINE F32x16 f32x16_from_i32(I32x16 x)
{
    return _mm512_cvtepi32_ps(x);
}
SIMD_INLINE F32x16 f32x16_pow2(I32x16 n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
/* The absolute value's bits: a NaN is above infinity is above every finite number. */
SIMD_INLINE I32x16 i32x16_magnitude(F32x16 x)
{
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7FFFFFFF));
}
/* binary16 from the low or the high half of each lane. */
SIMD_INLINE F32x16 f32x16_from_low_f16(I32x16 x)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x));
}
SIMD_INLINE F32x16 f32x16_from_high_f16(I32x16 x)
{
    return f32x16_from_low_f16(_mm512_srli_epi32(x, 16));
}

SIMD_INLINE W8x64 w8x64_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
SIMD_INLINE void w8x64_store(void *p, W8x64 x)
{
    _mm512_storeu_si512(p, x);
}
SIMD_INLINE W8x64 w8x64_low_nibbles(W8x64 x)
{
    return _mm512_and_si512(x, _mm512_set1_epi8(15));
}
SIMD_INLINE W8x64 w8x64_high_nibbles(W8x64 x)
{
    return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
}
/* low | what of high << shift (>> -shift) lies in mask, a byte at a time: mask leaves out what crosses bytes. */
SIMD_INLINE W8x64 w8x64_join(W8x64 low, W8x64 high, int shift, int mask)
{
    __m512i moved = shift >= 0 ? _mm512_slli_epi16(high, (unsigned)shift) : _mm512_srli_epi16(high, (unsigned)-shift);
    return _mm512_ternarylogic_epi32(low, moved, _mm512_set1_epi8((char)mask), 0xF8);
}
/* table[x]: x < 16 */
SIMD_INLINE W8x64 w8x64_lookup(W8x64 x, const int8_t table[16])
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i_u *)table)), x);
}
/* Adds 16 to byte j of a lane where bit 4 c + j of the lane of bits is set; w has none of these bits. */
SIMD_INLINE W8x64 w8x64_add_fifth_bits(W8x64 w, I32x16 bits, int c)
{
    __m512i byte = _mm512_shuffle_epi8(
        bits, _mm512_add_epi8(_mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C)),
                              _mm512_set1_epi8((char)(c / 2))));
    __mmask64 set = _mm512_test_epi8_mask(byte, _mm512_set1_epi32(c % 2 ? (int)0x80402010 : 0x08040201));
    return _mm512_mask_add_epi8(w, set, w, _mm512_set1_epi8(16));
}
SIMD_INLINE W8x64 w8x64_zero(void)
{
    return _mm512_setzero_si512();
}
/* Signed bytes become unsigned ones, 128 higher. */
SIMD_INLINE W8x64 w8x64_flip_signs(W8x64 x)
{
    return _mm512_xor_si512(x, _mm512_set1_epi8((char)0x80));
}
SIMD_INLINE W8x64 w8x64_of_lanes(I32x16 x)
{
    return x;
}
SIMD_INLINE I32x16 i32x16_lanes(W8x64 x)
{
    return x;
}
/* n bits of each lane from bit `from` up, moved to bit `to`. */
SIMD_INLINE I32x16 i32x16_bits(I32x16 x, int from, int n, int to)
{
    __m512i low = _mm512_and_si512(_mm512_srli_epi32(x, (unsigned)from), _mm512_set1_epi32((1 << n) - 1));
    return _mm512_slli_epi32(low, (unsigned)to);
}
/* acc + the 2 products of a lane's signed 16-bit halves with those of x */
SIMD_INLINE I32x16 i32x16_dot_i16(I32x16 acc, I32x16 pairs, int32_t x)
{
    return _mm512_dpwssd_epi32(acc, pairs, _mm512_set1_epi32(x));
}

/* 16 bytes of each of 16 rows that start stride apart: dword c of every row goes to x[c]. */
SIMD_INLINE void w8x64_load_rows(W8x64 x[4], const uint8_t *rows, size_t stride)
{
    __m512i z[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        const uint8_t *row = rows + i * stride;
        __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i_u *)row));
        v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i_u *)(row + 4 * stride)), 1);
        v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i_u *)(row + 8 * stride)), 2);
        z[i] = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i_u *)(row + 12 * stride)), 3);
    }
    __m512i a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpackhi_epi32(z[0], z[1]);
    __m512i c = _mm512_unpacklo_epi32(z[2], z[3]), d = _mm512_unpackhi_epi32(z[2], z[3]);
    x[0] = _mm512_unpacklo_epi64(a, c);
    x[1] = _mm512_unpackhi_epi64(a, c);
    x[2] = _mm512_unpacklo_epi64(b, d);
    x[3] = _mm512_unpackhi_epi64(b, d);
}

/* acc + the 4 products of a lane: bytes of w are unsigned and at most 127, x holds 4 signed bytes for every lane. */
SIMD_INLINE I32x16 i32x16_dot_u7(I32x16 acc, W8x64 w, int32_t x)
{
    return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x));
}

/* For signed weights of 8 bits: the instruction wants one side unsigned, so they are held 128 higher. */
enum { SIMD_I8_BIAS = 128 };
SIMD_INLINE W8x64 w8x64_from_i8(W8x64 x)
{
    return w8x64_flip_signs(x);
}
SIMD_INLINE I32x16 i32x16_dot_i8(I32x16 acc, W8x64 w, int32_t x)
{
    return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x));
}
