/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/quantize.h"
#include "tests/support/quantize_k.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Exact scaling by powers of two, then the grid of the target (normal or subnormal) decides the rounding. */
uint16_t f32_to_f16(float value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    float x = fabsf(value);
    if (isnan(x)) return sign | 0x7E00;
    if (x >= 65520.0f) return sign | 0x7C00;
    int exponent = x < 0x1p-14f ? -14 : ilogbf(x);
    long steps = lrintf(ldexpf(x, 10 - exponent)); /* 0..1023 subnormal, 1024..2048 normal */
    return sign | (uint16_t)(((exponent + 14) << 10) + steps);
}

float f16_to_f32(uint16_t value)
{
    int exponent = value >> 10 & 31, mantissa = value & 1023;
    float x = exponent == 31  ? (mantissa ? NAN : INFINITY)
              : exponent == 0 ? ldexpf((float)mantissa, -24)
                              : ldexpf((float)(1024 + mantissa), exponent - 25);
    return value & 0x8000 ? -x : x;
}

uint16_t f32_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value)) return (uint16_t)(bits >> 16 | 64);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

int quantize_nearest(float x, int low, int high)
{
    long q = lrintf(x);
    return q < low ? low : q > high ? high : (int)q;
}

uint8_t *quantize_put_f16(uint8_t *out, float value)
{
    uint16_t half = f32_to_f16(value);
    memcpy(out, &half, sizeof half);
    return out + sizeof half;
}

float quantize_extreme(const float *x, size_t n)
{
    float found = 0;
    for (size_t i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(found)) found = x[i];
    return found;
}

float quantize_inverse(float d)
{
    return d != 0 ? 1 / d : 0;
}

/* f16 d; i8 q[32]; x = d q */
static void block_q8_0(const float *x, uint8_t *out)
{
    float d = fabsf(quantize_extreme(x, 32)) / 127, id = quantize_inverse(d);
    out = quantize_put_f16(out, d);
    for (int i = 0; i < 32; i++) out[i] = (uint8_t)(int8_t)quantize_nearest(x[i] * id, -127, 127);
}

/* f16 d; 16 bytes, low nibbles elements 0..15, high ones 16..31; x = d (q - 8) */
static void block_q4_0(const float *x, uint8_t *out)
{
    float d = quantize_extreme(x, 32) / -8, id = quantize_inverse(d);
    out = quantize_put_f16(out, d);
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)(quantize_nearest(x[i] * id + 8, 0, 15) | quantize_nearest(x[i + 16] * id + 8, 0, 15) << 4);
}

/* f16 d, m; nibbles as in Q4_0; x = d q + m */
static void block_q4_1(const float *x, uint8_t *out)
{
    float low = x[0], high = x[0];
    for (int i = 1; i < 32; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    float d = (high - low) / 15, id = quantize_inverse(d);
    out = quantize_put_f16(quantize_put_f16(out, d), low);
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)(quantize_nearest((x[i] - low) * id, 0, 15) | quantize_nearest((x[i + 16] - low) * id, 0, 15)
                                                                            << 4);
}

/* Fifth bits: element i has bit i % 8 of byte i / 8. */
static void put_five_bits(uint8_t *high, uint8_t *quants, int i, int q)
{
    high[i / 8] |= (uint8_t)(q >> 4 << i % 8);
    quants[i % 16] |= (uint8_t)((q & 15) << (i < 16 ? 0 : 4));
}

/* f16 d; fifth bits [4]; nibbles as in Q4_0; x = d (q - 16) */
static void block_q5_0(const float *x, uint8_t *out)
{
    float d = quantize_extreme(x, 32) / -16, id = quantize_inverse(d);
    memset(out, 0, 22);
    quantize_put_f16(out, d);
    for (int i = 0; i < 32; i++) put_five_bits(out + 2, out + 6, i, quantize_nearest(x[i] * id + 16, 0, 31));
}

/* f16 d, m; fifth bits [4]; nibbles as in Q4_0; x = d q + m */
static void block_q5_1(const float *x, uint8_t *out)
{
    float low = x[0], high = x[0];
    for (int i = 1; i < 32; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    float d = (high - low) / 31, id = quantize_inverse(d);
    memset(out, 0, 24);
    quantize_put_f16(quantize_put_f16(out, d), low);
    for (int i = 0; i < 32; i++) put_five_bits(out + 4, out + 8, i, quantize_nearest((x[i] - low) * id, 0, 31));
}

static int nearest_value(const int8_t values[16], float x)
{
    int found = 0;
    for (int v = 1; v < 16; v++)
        if (fabsf(x - (float)values[v]) < fabsf(x - (float)values[found])) found = v;
    return found;
}

int quantize_nearest_iq4(float x)
{
    static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return nearest_value(values, x);
}

/* f16 d; nibbles as in Q4_0, each an index into 16 values */
static void block_iq4_nl(const float *x, uint8_t *out)
{
    float d = quantize_extreme(x, 32) / -127, id = quantize_inverse(d);
    memset(out, 0, 18);
    quantize_put_f16(out, d);
    for (int i = 0; i < 32; i++) out[2 + i % 16] |= (uint8_t)(quantize_nearest_iq4(x[i] * id) << (i < 16 ? 0 : 4));
}

/* A byte e, for 2^(e - 128); nibbles as in Q4_0, each twice a float of 4 bits */
static void block_mxfp4(const float *x, uint8_t *out)
{
    static const int8_t values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    float most = fabsf(quantize_extreme(x, 32));
    int exponent = most > 0 ? ilogbf(most) - 2 + 127 : 0;
    memset(out, 0, 17);
    out[0] = (uint8_t)exponent;
    for (int i = 0; i < 32; i++)
        out[1 + i % 16] |= (uint8_t)(nearest_value(values, ldexpf(x[i], 128 - exponent)) << (i < 16 ? 0 : 4));
}

static void block_f32(const float *x, uint8_t *out)
{
    memcpy(out, x, sizeof *x);
}

static void block_f16(const float *x, uint8_t *out)
{
    quantize_put_f16(out, *x);
}

static void block_bf16(const float *x, uint8_t *out)
{
    uint16_t bits = f32_to_bf16(*x);
    memcpy(out, &bits, sizeof bits);
}

static const struct {
    DType type;
    void (*block)(const float *x, uint8_t *out);
} rows[] = {
    {DTYPE_F32, block_f32},          {DTYPE_F16, block_f16},      {DTYPE_BF16, block_bf16},
    {DTYPE_Q8_0, block_q8_0},        {DTYPE_Q4_0, block_q4_0},    {DTYPE_Q4_1, block_q4_1},
    {DTYPE_Q5_0, block_q5_0},        {DTYPE_Q5_1, block_q5_1},    {DTYPE_MXFP4, block_mxfp4},
    {DTYPE_IQ4_NL, block_iq4_nl},    {DTYPE_Q2_K, quantize_q2_k}, {DTYPE_Q3_K, quantize_q3_k},
    {DTYPE_Q4_K, quantize_q4_k},     {DTYPE_Q5_K, quantize_q5_k}, {DTYPE_Q6_K, quantize_q6_k},
    {DTYPE_IQ4_XS, quantize_iq4_xs},
};

void quantize_row(DType type, const float *x, size_t n, void *out)
{
    const DTypeInfo *info = dtype_info(type);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        if (rows[r].type != type) continue;
        for (size_t i = 0; i < n / info->block_elements; i++)
            rows[r].block(x + i * info->block_elements, (uint8_t *)out + i * info->block_bytes);
        return;
    }
    abort();
}
