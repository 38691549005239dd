/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/quantize.h"

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

static int nearest(float x, int low, int high)
{
    long q = lrintf(x);
    return q < low ? low : q > high ? high : (int)q;
}

static uint8_t *put_f16(uint8_t *out, float value)
{
    uint16_t half = f32_to_f16(value);
    memcpy(out, &half, sizeof half);
    return out + sizeof half;
}

/* The element of largest magnitude, with its sign. */
static float extreme(const float *x, size_t n)
{
    float found = 0;
    for (size_t i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(found)) found = x[i];
    return found;
}

static float inverse(float d)
{
    return d != 0 ? 1 / d : 0;
}

/* f16 d; i8 q[32]; x = d q */
static void block_q8_0(const float *x, uint8_t *out)
{
    float d = fabsf(extreme(x, 32)) / 127, id = inverse(d);
    out = put_f16(out, d);
    for (int i = 0; i < 32; i++) out[i] = (uint8_t)(int8_t)nearest(x[i] * id, -127, 127);
}

/* f16 d; 16 bytes, low nibbles elements 0..15, high ones 16..31; x = d (q - 8) */
static void block_q4_0(const float *x, uint8_t *out)
{
    float d = extreme(x, 32) / -8, id = inverse(d);
    out = put_f16(out, d);
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)(nearest(x[i] * id + 8, 0, 15) | nearest(x[i + 16] * id + 8, 0, 15) << 4);
}

/* f16 d, m; nibbles as in Q4_0; x = d q + m */
static void block_q4_1(const float *x, uint8_t *out)
{
    float low = x[0], high = x[0];
    for (int i = 1; i < 32; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    float d = (high - low) / 15, id = inverse(d);
    out = put_f16(put_f16(out, d), low);
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)(nearest((x[i] - low) * id, 0, 15) | nearest((x[i + 16] - low) * id, 0, 15) << 4);
}

/* Low 4 bits [128], high 2 bits [64], i8 scale [16] of 16 elements each, f16 d; x = d scale (q - 32) */
static void block_q6_k(const float *x, uint8_t *out)
{
    uint8_t *low = out, *high = out + 128, *scales = out + 192;
    float step[16], d = 0;
    for (int g = 0; g < 16; g++) {
        step[g] = extreme(x + 16 * g, 16) / -32;
        d = fmaxf(d, fabsf(step[g]));
    }
    d /= 127;
    memset(out, 0, 192);
    for (int g = 0; g < 16; g++) scales[g] = (uint8_t)(int8_t)nearest(step[g] * inverse(d), -127, 127);
    for (int i = 0; i < 256; i++) {
        float scale = d * (float)(int8_t)scales[i / 16];
        int q = nearest(x[i] * inverse(scale) + 32, 0, 63);
        int half = i / 128, quarter = i % 128 / 32, lane = i % 32;
        low[64 * half + 32 * (quarter % 2) + lane] |= (uint8_t)((q & 15) << (quarter / 2 * 4));
        high[32 * half + lane] |= (uint8_t)(q >> 4 << (2 * quarter));
    }
    put_f16(out + 208, d);
}

static void block_f32(const float *x, uint8_t *out)
{
    memcpy(out, x, sizeof *x);
}

static void block_f16(const float *x, uint8_t *out)
{
    put_f16(out, *x);
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
    {DTYPE_F32, block_f32},   {DTYPE_F16, block_f16},   {DTYPE_BF16, block_bf16}, {DTYPE_Q8_0, block_q8_0},
    {DTYPE_Q4_0, block_q4_0}, {DTYPE_Q4_1, block_q4_1}, {DTYPE_Q6_K, block_q6_k},
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
