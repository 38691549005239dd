/* SPDX-License-Identifier: Apache-2.0 */
/* simd.h in plain C: loops over 16 lanes, which compilers turn into whatever the machine has. */
#pragma once
#include <math.h>
#include <string.h>

typedef struct F32x16 {
    float v[16];
} F32x16;
typedef struct I32x16 {
    int32_t v[16];
} I32x16;
typedef struct W8x64 {
    uint8_t v[64];
} W8x64;
enum { SIMD_TILE_TOKENS = 2 };

#define EACH_LANE(expression)                                                                                          \
    for (int i = 0; i < 16; i++) r.v[i] = (expression);                                                                \
    return r

SIMD_INLINE F32x16 f32x16_set1(float x)
{
    F32x16 r;
    EACH_LANE(x);
}
SIMD_INLINE F32x16 f32x16_load(const float *p)
{
    F32x16 r;
    EACH_LANE(p[i]);
}
SIMD_INLINE void f32x16_store(float *p, F32x16 x)
{
    memcpy(p, x.v, sizeof x.v);
}
SIMD_INLINE F32x16 f32x16_load_f16(const uint16_t *p)
{
    F32x16 r;
    EACH_LANE(f32_from_f16(p[i]));
}
SIMD_INLINE F32x16 f32x16_load_bf16(const uint16_t *p)
{
    F32x16 r;
    EACH_LANE(f32_from_bf16(p[i]));
}
/* To nearest even. */
SIMD_INLINE void f32x16_store_f16(uint16_t *p, F32x16 x)
{
    for (int i = 0; i < 16; i++) p[i] = f16_from_f32(x.v[i]);
}
SIMD_INLINE void f32x16_store_bf16(uint16_t *p, F32x16 x)
{
    for (int i = 0; i < 16; i++) p[i] = bf16_from_f32(x.v[i]);
}
SIMD_INLINE F32x16 f32x16_add(F32x16 a, F32x16 b)
{
    F32x16 r;
    EACH_LANE(a.v[i] + b.v[i]);
}
SIMD_INLINE F32x16 f32x16_sub(F32x16 a, F32x16 b)
{
    F32x16 r;
    EACH_LANE(a.v[i] - b.v[i]);
}
SIMD_INLINE F32x16 f32x16_mul(F32x16 a, F32x16 b)
{
    F32x16 r;
    EACH_LANE(a.v[i] * b.v[i]);
}
SIMD_INLINE F32x16 f32x16_div(F32x16 a, F32x16 b)
{
    F32x16 r;
    EACH_LANE(a.v[i] / b.v[i]);
}
SIMD_INLINE F32x16 f32x16_max(F32x16 a, F32x16 b)
{
    F32x16 r;
    EACH_LANE(a.v[i] > b.v[i] ? a.v[i] : b.v[i]);
}
SIMD_INLINE F32x16 f32x16_min(F32x16 a, F32x16 b)
{
    F32x16 r;
    EACH_LANE(a.v[i] < b.v[i] ? a.v[i] : b.v[i]);
}
SIMD_INLINE float madd(float a, float b, float c)
{
#ifdef FP_FAST_FMAF
    return fmaf(a, b, c);
#else
    return a * b + c; /* a fused one in software costs more than all the rest */
#endif
}
SIMD_INLINE F32x16 f32x16_madd(F32x16 a, F32x16 b, F32x16 c)
{
    F32x16 r;
    EACH_LANE(madd(a.v[i], b.v[i], c.v[i]));
}

/* Lanes n and up become fill. */
SIMD_INLINE F32x16 f32x16_keep(F32x16 x, uint32_t n, float fill)
{
    F32x16 r;
    EACH_LANE((uint32_t)i < n ? x.v[i] : fill);
}

/* Lanes whose bit is not set become fill. */
SIMD_INLINE F32x16 f32x16_select(F32x16 x, uint32_t bits, float fill)
{
    F32x16 r;
    EACH_LANE(bits >> i & 1 ? x.v[i] : fill);
}

/* Adds lanes 8 apart, then 4, 2 and 1. */
SIMD_INLINE float f32x16_sum(F32x16 x)
{
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) x.v[i] += x.v[i + half];
    return x.v[0];
}
SIMD_INLINE float f32x16_highest(F32x16 x)
{
    float highest = x.v[0];
    for (int i = 1; i < 16; i++) highest = x.v[i] > highest ? x.v[i] : highest;
    return highest;
}

/* x[i] holds rows 2 i and 2 i + 1 of eight: sixteen rows of eight become columns. */
SIMD_INLINE void f32x16_transpose_pairs(F32x16 x[8])
{
    F32x16 rows[8];
    memcpy(rows, x, sizeof rows);
    for (int c = 0; c < 8; c++)
        for (int i = 0; i < 16; i++) x[c].v[i] = rows[i / 2].v[i % 2 * 8 + c];
}

SIMD_INLINE I32x16 i32x16_set1(int32_t x)
{
    I32x16 r;
    EACH_LANE(x);
}
SIMD_INLINE I32x16 i32x16_load(const void *p)
{
    I32x16 r;
    memcpy(r.v, p, sizeof r.v);
    return r;
}
SIMD_INLINE void i32x16_store(void *p, I32x16 x)
{
    memcpy(p, x.v, sizeof x.v);
}
SIMD_INLINE I32x16 i32x16_add(I32x16 a, I32x16 b)
{
    I32x16 r;
    EACH_LANE(a.v[i] + b.v[i]);
}
SIMD_INLINE I32x16 i32x16_sub(I32x16 a, I32x16 b)
{
    I32x16 r;
    EACH_LANE(a.v[i] - b.v[i]);
}
SIMD_INLINE I32x16 i32x16_mul(I32x16 a, I32x16 b)
{
    I32x16 r;
    EACH_LANE(a.v[i] * b.v[i]);
}
SIMD_INLINE I32x16 i32x16_max(I32x16 a, I32x16 b)
{
    I32x16 r;
    EACH_LANE(a.v[i] > b.v[i] ? a.v[i] : b.v[i]);
}
SIMD_INLINE I32x16 i32x16_halve(I32x16 x)
{
    I32x16 r;
    EACH_LANE(x.v[i] >> 1);
}
SIMD_INLINE I32x16 i32x16_round(F32x16 x)
{
    I32x16 r;
    EACH_LANE(fabsf(x.v[i]) < 0x1p31f ? (int32_t)rintf(x.v[i]) : 0);
}
SIMD_INLINE int32_t i32x16_sum(I32x16 x)
{
    int32_t sum = 0;
    for (int i = 0; i < 16; i++) sum += x.v[i];
    return sum;
}
SIMD_INLINE int32_t i32x16_highest(I32x16 x)
{
    int32_t highest = x.v[0];
    for (int i = 1; i < 16; i++) highest = x.v[i] > highest ? x.v[i] : highest;
    return highest;
}
SIMD_INLINE void i32x16_store_i8(int8_t *p, I32x16 x)
{
    for (int i = 0; i < 16; i++) p[i] = (int8_t)x.v[i];
}
SIMD_INLINE void i32x16_store_u8(uint8_t *p, I32x16 x)
{
    for (int i = 0; i < 16; i++) p[i] = (uint8_t)x.v[i];
}
SIMD_INLINE I32x16 i32x16_load_u8(const uint8_t *p)
{
    I32x16 r;
    EACH_LANE(p[i]);
}
/* 8 bytes, the low half of each first. */
SIMD_INLINE I32x16 i32x16_load_nibbles(const uint8_t *p)
{
    I32x16 r;
    EACH_LANE(p[i / 2] >> (i % 2 * 4) & 15);
}
SIMD_INLINE F32x16 f32x16_from_bits(I32x16 x)
{
    F32x16 r;
    EACH_LANE(float_from_bits((uint32_t)x.v[i]));
}
/* e4m3 from the byte of each lane at bit `from`; its NaN is not known: 480. */
SIMD_INLINE F32x16 f32x16_from_f8(I32x16 x, int from)
{
    F32x16 r;
    for (int i = 0; i < 16; i++) {
        uint32_t byte = (uint32_t)x.v[i] >> from;
        r.v[i] = float_from_bits((byte & 0x80) << 24 | (byte & 0x7F) << 20) * 0x1p120f;
    }
    return r;
}
SIMD_INLINE F32x16 f32x16_from_i32(I32x16 x)
{
    F32x16 r;
    EACH_LANE((float)x.v[i]);
}
SIMD_INLINE F32x16 f32x16_pow2(I32x16 n)
{
    F32x16 r;
    EACH_LANE(float_from_bits((uint32_t)(n.v[i] + 127) << 23));
}
/* The absolute value's bits: a NaN is above infinity is above every finite number. */
SIMD_INLINE I32x16 i32x16_magnitude(F32x16 x)
{
    I32x16 r;
    EACH_LANE((int32_t)(float_to_bits(x.v[i]) & 0x7FFFFFFFu));
}
/* binary16 from the low or the high half of each lane. */
SIMD_INLINE F32x16 f32x16_from_low_f16(I32x16 x)
{
    F32x16 r;
    EACH_LANE(f32_from_f16((uint16_t)x.v[i]));
}
SIMD_INLINE F32x16 f32x16_from_high_f16(I32x16 x)
{
    F32x16 r;
    EACH_LANE(f32_from_f16((uint16_t)((uint32_t)x.v[i] >> 16)));
}

#define EACH_BYTE(expression)                                                                                          \
    for (int i = 0; i < 64; i++) r.v[i] = (uint8_t)(expression);                                                       \
    return r

SIMD_INLINE W8x64 w8x64_load(const void *p)
{
    W8x64 r;
    memcpy(r.v, p, sizeof r.v);
    return r;
}
SIMD_INLINE void w8x64_store(void *p, W8x64 x)
{
    memcpy(p, x.v, sizeof x.v);
}
SIMD_INLINE W8x64 w8x64_low_nibbles(W8x64 x)
{
    W8x64 r;
    EACH_BYTE(x.v[i] & 15);
}
SIMD_INLINE W8x64 w8x64_high_nibbles(W8x64 x)
{
    W8x64 r;
    EACH_BYTE(x.v[i] >> 4);
}
/* low | what of high << shift (>> -shift) lies in mask, a byte at a time: mask leaves out what crosses bytes. */
SIMD_INLINE W8x64 w8x64_join(W8x64 low, W8x64 high, int shift, int mask)
{
    W8x64 r;
    EACH_BYTE((uint8_t)(low.v[i] | ((shift >= 0 ? high.v[i] << shift : high.v[i] >> -shift) & mask)));
}
/* table[x]: x < 16 */
SIMD_INLINE W8x64 w8x64_lookup(W8x64 x, const int8_t table[16])
{
    W8x64 r;
    EACH_BYTE((uint8_t)table[x.v[i]]);
}
/* Adds 16 to byte j of a lane where bit 4 c + j of the lane of bits is set; w has none of these bits. */
SIMD_INLINE W8x64 w8x64_add_fifth_bits(W8x64 w, I32x16 bits, int c)
{
    W8x64 r;
    EACH_BYTE((uint8_t)(w.v[i] + ((uint32_t)bits.v[i / 4] >> (4 * c + i % 4) & 1) * 16));
}
SIMD_INLINE W8x64 w8x64_zero(void)
{
    return (W8x64){{0}};
}
/* Signed bytes become unsigned ones, 128 higher. */
SIMD_INLINE W8x64 w8x64_flip_signs(W8x64 x)
{
    W8x64 r;
    EACH_BYTE(x.v[i] ^ 0x80);
}
SIMD_INLINE W8x64 w8x64_of_lanes(I32x16 x)
{
    W8x64 r;
    i32x16_store(r.v, x);
    return r;
}
SIMD_INLINE I32x16 i32x16_lanes(W8x64 x)
{
    return i32x16_load(x.v);
}
/* n bits of each lane from bit `from` up, moved to bit `to`. */
SIMD_INLINE I32x16 i32x16_bits(I32x16 x, int from, int n, int to)
{
    I32x16 r;
    EACH_LANE((int32_t)(((uint32_t)x.v[i] >> from & ((1u << n) - 1)) << to));
}
/* acc + the 2 products of a lane's signed 16-bit halves with those of x */
SIMD_INLINE I32x16 i32x16_dot_i16(I32x16 acc, I32x16 pairs, int32_t x)
{
    I32x16 r;
    EACH_LANE(acc.v[i] + (int16_t)pairs.v[i] * (int16_t)x + (pairs.v[i] >> 16) * (x >> 16));
}

/* 16 bytes of each of 16 rows that start stride apart: dword c of every row goes to x[c]. */
SIMD_INLINE void w8x64_load_rows(W8x64 x[4], const uint8_t *rows, size_t stride)
{
    for (int c = 0; c < 4; c++)
        for (size_t i = 0; i < LANES; i++) memcpy(x[c].v + 4 * i, rows + i * stride + 4 * c, 4);
}

/* acc + the 4 products of a lane: bytes of w are unsigned and at most 127, x holds 4 signed bytes for every lane. */
SIMD_INLINE I32x16 i32x16_dot_u7(I32x16 acc, W8x64 w, int32_t x)
{
    int8_t q[4];
    memcpy(q, &x, 4);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 4; j++) acc.v[i] += w.v[4 * i + j] * q[j];
    return acc;
}

/* Signed weights of 8 bits stay as they are. */
enum { SIMD_I8_BIAS = 0 };
SIMD_INLINE W8x64 w8x64_from_i8(W8x64 x)
{
    return x;
}
SIMD_INLINE I32x16 i32x16_dot_i8(I32x16 acc, W8x64 w, int32_t x)
{
    int8_t q[4];
    memcpy(q, &x, 4);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 4; j++) acc.v[i] += (int8_t)w.v[4 * i + j] * q[j];
    return acc;
}
