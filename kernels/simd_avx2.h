/* SPDX-License-Identifier: Apache-2.0 */
/* simd.h for AVX2 with FMA and F16C: two registers of 8 lanes. */
#pragma once
#include <immintrin.h>

typedef struct F32x16 {
    __m256 a, b;
} F32x16;
typedef struct I32x16 {
    __m256i a, b;
} I32x16;
typedef I32x16 W8x64;
enum { SIMD_TILE_TOKENS = 2 }; /* accumulators that the registers hold */

SIMD_INLINE __m256i load_i256(const void *p)
{
    return _mm256_loadu_si256((const __m256i_u *)p);
}

SIMD_INLINE F32x16 f32x16_set1(float x)
{
    return (F32x16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
SIMD_INLINE F32x16 f32x16_load(const float *p)
{
    return (F32x16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
SIMD_INLINE void f32x16_store(float *p, F32x16 x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
SIMD_INLINE F32x16 f32x16_load_f16(const uint16_t *p)
{
    return (F32x16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)p)),
                    _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)(p + 8)))};
}
SIMD_INLINE __m256 bf16_to_f32(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
SIMD_INLINE F32x16 f32x16_load_bf16(const uint16_t *p)
{
    return (F32x16){bf16_to_f32(p), bf16_to_f32(p + 8)};
}
/* To nearest even. */
SIMD_INLINE void f32x16_store_f16(uint16_t *p, F32x16 x)
{
    _mm_storeu_si128((__m128i_u *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i_u *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
SIMD_INLINE __m256i f32_to_bf16(__m256 x)
{
    __m256i u = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7FFF)), odd);
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
}
SIMD_INLINE void f32x16_store_bf16(uint16_t *p, F32x16 x)
{
    __m256i words = _mm256_packus_epi32(f32_to_bf16(x.a), f32_to_bf16(x.b));
    _mm256_storeu_si256((__m256i_u *)p, _mm256_permute4x64_epi64(words, 0xD8));
}
SIMD_INLINE F32x16 f32x16_add(F32x16 x, F32x16 y)
{
    return (F32x16){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
SIMD_INLINE F32x16 f32x16_sub(F32x16 x, F32x16 y)
{
    return (F32x16){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
SIMD_INLINE F32x16 f32x16_mul(F32x16 x, F32x16 y)
{
    return (F32x16){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
SIMD_INLINE F32x16 f32x16_div(F32x16 x, F32x16 y)
{
    return (F32x16){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
SIMD_INLINE F32x16 f32x16_max(F32x16 x, F32x16 y)
{
    return (F32x16){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
SIMD_INLINE F32x16 f32x16_min(F32x16 x, F32x16 y)
{
    return (F32x16){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
SIMD_INLINE F32x16 f32x16_madd(F32x16 x, F32x16 y, F32x16 z)
{
    return (F32x16){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}

/* Lanes n and up become fill. */
SIMD_INLINE F32x16 f32x16_keep(F32x16 x, uint32_t n, float fill)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256 keep_a = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane));
    __m256 keep_b = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)n - 8), lane));
    __m256 other = _mm256_set1_ps(fill);
    return (F32x16){_mm256_blendv_ps(other, x.a, keep_a), _mm256_blendv_ps(other, x.b, keep_b)};
}

/* Lanes whose bit is not set become fill. */
SIMD_INLINE F32x16 f32x16_select(F32x16 x, uint32_t bits, float fill)
{
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i a = _mm256_set1_epi32((int)bits), b = _mm256_set1_epi32((int)(bits >> 8));
    __m256 keep_a = _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(a, bit), bit));
    __m256 keep_b = _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(b, bit), bit));
    __m256 other = _mm256_set1_ps(fill);
    return (F32x16){_mm256_blendv_ps(other, x.a, keep_a), _mm256_blendv_ps(other, x.b, keep_b)};
}

/* Adds lanes 8 apart, then 4, 2 and 1. */
SIMD_INLINE float f32x16_sum(F32x16 x)
{
    __m256 a = _mm256_add_ps(x.a, x.b);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

SIMD_INLINE float f32x16_highest(F32x16 x)
{
    __m256 a = _mm256_max_ps(x.a, x.b);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

SIMD_INLINE void transpose8(__m256 x[8])
{
    __m256 a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xEE);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xEE);
    }
    for (int c = 0; c < 4; c++) {
        x[c] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x20);
        x[4 + c] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x31);
    }
}

/* x[i] holds rows 2 i and 2 i + 1 of eight: sixteen rows of eight become columns. */
SIMD_INLINE void f32x16_transpose_pairs(F32x16 x[8])
{
    __m256 first[8], second[8];
    for (int i = 0; i < 4; i++) {
        first[2 * i] = x[i].a;
        first[2 * i + 1] = x[i].b;
        second[2 * i] = x[4 + i].a;
        second[2 * i + 1] = x[4 + i].b;
    }
    transpose8(first);
    transpose8(second);
    for (int i = 0; i < 8; i++) x[i] = (F32x16){first[i], second[i]};
}

SIMD_INLINE I32x16 i32x16_set1(int32_t x)
{
    return (I32x16){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
SIMD_INLINE I32x16 i32x16_load(const void *p)
{
    return (I32x16){load_i256(p), load_i256((const char *)p + 32)};
}
SIMD_INLINE void i32x16_store(void *p, I32x16 x)
{
    _mm256_storeu_si256((__m256i_u *)p, x.a);
    _mm256_storeu_si256((__m256i_u *)p + 1, x.b);
}
SIMD_INLINE I32x16 i32x16_add(I32x16 x, I32x16 y)
{
    return (I32x16){_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
SIMD_INLINE I32x16 i32x16_sub(I32x16 x, I32x16 y)
{
    return (I32x16){_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
SIMD_INLINE I32x16 i32x16_mul(I32x16 x, I32x16 y)
{
    return (I32x16){_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b)};
}
SIMD_INLINE I32x16 i32x16_max(I32x16 x, I32x16 y)
{
    return (I32x16){_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)};
}
SIMD_INLINE I32x16 i32x16_halve(I32x16 x)
{
    return (I32x16){_mm256_srai_epi32(x.a, 1), _mm256_srai_epi32(x.b, 1)};
}
SIMD_INLINE I32x16 i32x16_round(F32x16 x)
{
    return (I32x16){_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)};
}
SIMD_INLINE int32_t i32x16_sum(I32x16 x)
{
    __m256i a = _mm256_add_epi32(x.a, x.b);
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xB1)));
}
SIMD_INLINE int32_t i32x16_highest(I32x16 x)
{
    __m256i a = _mm256_max_epi32(x.a, x.b);
    __m128i b = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0x4E));
    return _mm_cvtsi128_si32(_mm_max_epi32(b, _mm_shuffle_epi32(b, 0xB1)));
}
SIMD_INLINE void i32x16_store_i8(int8_t *p, I32x16 x)
{
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8);
    __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i_u *)p, bytes);
}
SIMD_INLINE void i32x16_store_u8(uint8_t *p, I32x16 x)
{
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8);
    __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i_u *)p, bytes);
}
SIMD_INLINE I32x16 widen_u8(__m128i bytes)
{
    return (I32x16){_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes))};
}
SIMD_INLINE I32x16 i32x16_load_u8(const uint8_t *p)
{
    return widen_u8(_mm_loadu_si128((const __m128i_u *)p));
}
/* 8 bytes, the low half of each first. */
SIMD_INLINE I32x16 i32x16_load_nibbles(const uint8_t *p)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i_u *)p);
    __m128i halves = _mm_unpacklo_epi8(bytes, _mm_srli_epi16(bytes, 4));
    return widen_u8(_mm_and_si128(halves, _mm_set1_epi8(15)));
}
SIMD_INLINE F32x16 f32x16_from_bits(I32x16 x)
{
    return (F32x16){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)};
}
SIMD_INLINE __m256 f8_to_f32(__m256i x, int from)
{
    __m256i moved = _mm256_srai_epi32(_mm256_slli_epi32(x, 24 - from), 4);
    __m256i bits = _mm256_and_si256(moved, _mm256_set1_epi32((int)0x87F00000));
    return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120f));
}
/* e4m3 from the byte of each lane at bit `from`; its NaN is not known: 480. */
SIMD_INLINE F32x16 f32x16_from_f8(I32x16 x, int from)
{
    return (F32x16){f8_to_f32(x.a, from), f8_to_f32(x.b, from)};
}
SIMD_INLINE F32x16 f32x16_from_i32(I32x16 x)
{
    return (F32x16){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}
SIMD_INLINE __m256 pow2_8(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
SIMD_INLINE F32x16 f32x16_pow2(I32x16 n)
{
    return (F32x16){pow2_8(n.a), pow2_8(n.b)};
}
/* The absolute value's bits: a NaN is above infinity is above every finite number. */
SIMD_INLINE I32x16 i32x16_magnitude(F32x16 x)
{
    const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
    return (I32x16){_mm256_and_si256(_mm256_castps_si256(x.a), mask), _mm256_and_si256(_mm256_castps_si256(x.b), mask)};
}
/* binary16 from the low or the high half of each lane. */
SIMD_INLINE F32x16 f32x16_from_high_f16(I32x16 x)
{
    __m256i words = _mm256_packus_epi32(_mm256_srli_epi32(x.a, 16), _mm256_srli_epi32(x.b, 16));
    words = _mm256_permute4x64_epi64(words, 0xD8);
    return (F32x16){_mm256_cvtph_ps(_mm256_castsi256_si128(words)),
                    _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1))};
}
SIMD_INLINE F32x16 f32x16_from_low_f16(I32x16 x)
{
    return f32x16_from_high_f16((I32x16){_mm256_slli_epi32(x.a, 16), _mm256_slli_epi32(x.b, 16)});
}

SIMD_INLINE W8x64 w8x64_load(const void *p)
{
    return i32x16_load(p);
}
SIMD_INLINE void w8x64_store(void *p, W8x64 x)
{
    i32x16_store(p, x);
}
SIMD_INLINE W8x64 w8x64_low_nibbles(W8x64 x)
{
    const __m256i mask = _mm256_set1_epi8(15);
    return (W8x64){_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask)};
}
SIMD_INLINE W8x64 w8x64_high_nibbles(W8x64 x)
{
    return w8x64_low_nibbles((W8x64){_mm256_srli_epi16(x.a, 4), _mm256_srli_epi16(x.b, 4)});
}
SIMD_INLINE __m256i join_bits(__m256i low, __m256i high, int shift, int mask)
{
    __m256i moved = shift >= 0 ? _mm256_slli_epi16(high, shift) : _mm256_srli_epi16(high, -shift);
    return _mm256_or_si256(low, _mm256_and_si256(moved, _mm256_set1_epi8((char)mask)));
}
/* low | what of high << shift (>> -shift) lies in mask, a byte at a time: mask leaves out what crosses bytes. */
SIMD_INLINE W8x64 w8x64_join(W8x64 low, W8x64 high, int shift, int mask)
{
    return (W8x64){join_bits(low.a, high.a, shift, mask), join_bits(low.b, high.b, shift, mask)};
}
/* table[x]: x < 16 */
SIMD_INLINE W8x64 w8x64_lookup(W8x64 x, const int8_t table[16])
{
    __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i_u *)table));
    return (W8x64){_mm256_shuffle_epi8(both, x.a), _mm256_shuffle_epi8(both, x.b)};
}
SIMD_INLINE __m256i add_fifth_bits(__m256i w, __m256i bits, int c)
{
    const __m256i lane =
        _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C, 0, 0x04040404, 0x08080808, 0x0C0C0C0C);
    const __m256i wanted = _mm256_set1_epi32(c % 2 ? (int)0x80402010 : 0x08040201);
    __m256i byte = _mm256_shuffle_epi8(bits, _mm256_add_epi8(lane, _mm256_set1_epi8((char)(c / 2))));
    __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(byte, wanted), wanted);
    return _mm256_or_si256(w, _mm256_and_si256(set, _mm256_set1_epi8(16)));
}
/* Adds 16 to byte j of a lane where bit 4 c + j of the lane of bits is set; w has none of these bits. */
SIMD_INLINE W8x64 w8x64_add_fifth_bits(W8x64 w, I32x16 bits, int c)
{
    return (W8x64){add_fifth_bits(w.a, bits.a, c), add_fifth_bits(w.b, bits.b, c)};
}
SIMD_INLINE W8x64 w8x64_zero(void)
{
    return (W8x64){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
/* Signed bytes become unsigned ones, 128 higher. */
SIMD_INLINE W8x64 w8x64_flip_signs(W8x64 x)
{
    const __m256i signs = _mm256_set1_epi8((char)0x80);
    return (W8x64){_mm256_xor_si256(x.a, signs), _mm256_xor_si256(x.b, signs)};
}
SIMD_INLINE W8x64 w8x64_of_lanes(I32x16 x)
{
    return x;
}
SIMD_INLINE I32x16 i32x16_lanes(W8x64 x)
{
    return x;
}
SIMD_INLINE __m256i move_bits(__m256i x, int from, int n, int to)
{
    return _mm256_slli_epi32(_mm256_and_si256(_mm256_srli_epi32(x, from), _mm256_set1_epi32((1 << n) - 1)), to);
}
/* n bits of each lane from bit `from` up, moved to bit `to`. */
SIMD_INLINE I32x16 i32x16_bits(I32x16 x, int from, int n, int to)
{
    return (I32x16){move_bits(x.a, from, n, to), move_bits(x.b, from, n, to)};
}
/* acc + the 2 products of a lane's signed 16-bit halves with those of x */
SIMD_INLINE I32x16 i32x16_dot_i16(I32x16 acc, I32x16 pairs, int32_t x)
{
    __m256i all = _mm256_set1_epi32(x);
    return (I32x16){_mm256_add_epi32(acc.a, _mm256_madd_epi16(pairs.a, all)),
                    _mm256_add_epi32(acc.b, _mm256_madd_epi16(pairs.b, all))};
}

SIMD_INLINE __m256i load_2_rows(const uint8_t *low, const uint8_t *high)
{
    __m256i v = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i_u *)low));
    return _mm256_inserti128_si256(v, _mm_loadu_si128((const __m128i_u *)high), 1);
}
SIMD_INLINE void load_8_rows(__m256i x[4], const uint8_t *rows, size_t stride)
{
    __m256i z[4];
    for (size_t i = 0; i < 4; i++) z[i] = load_2_rows(rows + i * stride, rows + (4 + i) * stride);
    __m256i a = _mm256_unpacklo_epi32(z[0], z[1]), b = _mm256_unpackhi_epi32(z[0], z[1]);
    __m256i c = _mm256_unpacklo_epi32(z[2], z[3]), d = _mm256_unpackhi_epi32(z[2], z[3]);
    x[0] = _mm256_unpacklo_epi64(a, c);
    x[1] = _mm256_unpackhi_epi64(a, c);
    x[2] = _mm256_unpacklo_epi64(b, d);
    x[3] = _mm256_unpackhi_epi64(b, d);
}
/* 16 bytes of each of 16 rows that start stride apart: dword c of every row goes to x[c]. */
SIMD_INLINE void w8x64_load_rows(W8x64 x[4], const uint8_t *rows, size_t stride)
{
    __m256i a[4], b[4];
    load_8_rows(a, rows, stride);
    load_8_rows(b, rows + 8 * stride, stride);
    for (int i = 0; i < 4; i++) x[i] = (W8x64){a[i], b[i]};
}

/* acc + the 4 products of a lane: bytes of w are unsigned and at most 127, x holds 4 signed bytes for every lane. */
SIMD_INLINE __m256i dot_u7(__m256i acc, __m256i w, __m256i x)
{
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
}
SIMD_INLINE I32x16 i32x16_dot_u7(I32x16 acc, W8x64 w, int32_t x)
{
    __m256i all = _mm256_set1_epi32(x);
    return (I32x16){dot_u7(acc.a, w.a, all), dot_u7(acc.b, w.b, all)};
}

/*
 * Signed weights of 8 bits stay as they are: |w| times x with w's sign never reaches the 16-bit limit, as |x| <= 127.
 */
enum { SIMD_I8_BIAS = 0 };
SIMD_INLINE W8x64 w8x64_from_i8(W8x64 x)
{
    return x;
}
SIMD_INLINE I32x16 i32x16_dot_i8(I32x16 acc, W8x64 w, int32_t x)
{
    __m256i all = _mm256_set1_epi32(x);
    return (I32x16){dot_u7(acc.a, _mm256_abs_epi8(w.a), _mm256_sign_epi8(all, w.a)),
                    dot_u7(acc.b, _mm256_abs_epi8(w.b), _mm256_sign_epi8(all, w.b))};
}
