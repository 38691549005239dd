/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/quantize_k.h"

#include "tests/support/quantize.h"

#include <math.h>
#include <string.h>

enum { MAX_PARTS = 16 };

/* Parts of n elements with a scale and a minimum each, in steps of d and m up to `steps`; quants are 0 .. top. */
typedef struct Affine {
    float d, m;
    int scale[MAX_PARTS], min[MAX_PARTS];
} Affine;

static Affine fit_affine(const float *x, int n, int top, int steps)
{
    Affine fit = {0};
    float scale[MAX_PARTS], min[MAX_PARTS];
    for (int p = 0; p < 256 / n; p++) {
        float low = 0, high = 0;
        for (int i = 0; i < n; i++) {
            low = fminf(low, x[p * n + i]);
            high = fmaxf(high, x[p * n + i]);
        }
        scale[p] = (high - low) / (float)top;
        min[p] = -low;
        fit.d = fmaxf(fit.d, scale[p] / (float)steps);
        fit.m = fmaxf(fit.m, min[p] / (float)steps);
    }
    for (int p = 0; p < 256 / n; p++) {
        fit.scale[p] = quantize_nearest(scale[p] * quantize_inverse(fit.d), 0, steps);
        fit.min[p] = quantize_nearest(min[p] * quantize_inverse(fit.m), 0, steps);
    }
    return fit;
}

static int affine_quant(const Affine *fit, int part, float x, int top)
{
    float scale = fit->d * (float)fit->scale[part];
    return quantize_nearest((x + fit->m * (float)fit->min[part]) * quantize_inverse(scale), 0, top);
}

/* Parts of n elements with a signed scale of -low .. high steps of d; the extreme element becomes `quant` steps. */
typedef struct Linear {
    float d;
    int scale[MAX_PARTS];
} Linear;

static Linear fit_linear(const float *x, int n, float quant, int low, int high)
{
    Linear fit = {0};
    float scale[MAX_PARTS];
    for (int p = 0; p < 256 / n; p++) {
        scale[p] = quantize_extreme(x + p * n, (size_t)n) / quant;
        fit.d = fmaxf(fit.d, fabsf(scale[p]) / (float)high);
    }
    for (int p = 0; p < 256 / n; p++) fit.scale[p] = quantize_nearest(scale[p] * quantize_inverse(fit.d), -low, high);
    return fit;
}

static float linear_steps(const Linear *fit, int part, float x)
{
    return x * quantize_inverse(fit->d * (float)fit->scale[part]);
}

/* Scale and minimum nibbles [16]; 2-bit quants [64], 128 elements in 32 bytes; f16 d, dmin. */
void quantize_q2_k(const float *x, uint8_t *out)
{
    Affine fit = fit_affine(x, 16, 3, 15);
    memset(out, 0, 80);
    for (int p = 0; p < 16; p++) out[p] = (uint8_t)(fit.scale[p] | fit.min[p] << 4);
    for (int i = 0; i < 256; i++)
        out[16 + i / 128 * 32 + i % 32] |= (uint8_t)(affine_quant(&fit, i / 16, x[i], 3) << 2 * (i % 128 / 32));
    quantize_put_f16(quantize_put_f16(out + 80, fit.d), fit.m);
}

/*
 * Third bits [32], bit i / 32 of byte i % 32; 2-bit quants [64]; 6-bit scales [12]; f16 d; x = d (scale - 32) (q - 4)
 */
void quantize_q3_k(const float *x, uint8_t *out)
{
    Linear fit = fit_linear(x, 16, -4, 31, 31);
    memset(out, 0, 110);
    for (int i = 0; i < 256; i++) {
        int q = quantize_nearest(linear_steps(&fit, i / 16, x[i]) + 4, 0, 7);
        out[i % 32] |= (uint8_t)(q >> 2 << i / 32);
        out[32 + i / 128 * 32 + i % 32] |= (uint8_t)((q & 3) << 2 * (i % 128 / 32));
    }
    for (int p = 0; p < 16; p++) {
        int scale = fit.scale[p] + 32;
        out[96 + p % 8] |= (uint8_t)((scale & 15) << (p < 8 ? 0 : 4));
        out[96 + 8 + p % 4] |= (uint8_t)(scale >> 4 << 2 * (p / 4));
    }
    quantize_put_f16(out + 108, fit.d);
}

/* 8 scales and 8 minima of 6 bits in 12 bytes. */
static void put_six_bits(const Affine *fit, uint8_t *out)
{
    for (int p = 0; p < 4; p++) {
        out[p] = (uint8_t)(fit->scale[p] | fit->scale[p + 4] >> 4 << 6);
        out[p + 4] = (uint8_t)(fit->min[p] | fit->min[p + 4] >> 4 << 6);
        out[p + 8] = (uint8_t)((fit->scale[p + 4] & 15) | (fit->min[p + 4] & 15) << 4);
    }
}

/* f16 d, dmin; scales [12]; quants [128], 64 elements in 32 bytes; x = d scale q - dmin min */
void quantize_q4_k(const float *x, uint8_t *out)
{
    Affine fit = fit_affine(x, 32, 15, 63);
    memset(out, 0, 144);
    quantize_put_f16(quantize_put_f16(out, fit.d), fit.m);
    put_six_bits(&fit, out + 4);
    for (int i = 0; i < 256; i++)
        out[16 + i / 64 * 32 + i % 32] |= (uint8_t)(affine_quant(&fit, i / 32, x[i], 15) << (i % 64 < 32 ? 0 : 4));
}

/* As Q4_K, with fifth bits [32] before the quants: bit i / 32 of byte i % 32. */
void quantize_q5_k(const float *x, uint8_t *out)
{
    Affine fit = fit_affine(x, 32, 31, 63);
    memset(out, 0, 176);
    quantize_put_f16(quantize_put_f16(out, fit.d), fit.m);
    put_six_bits(&fit, out + 4);
    for (int i = 0; i < 256; i++) {
        int q = affine_quant(&fit, i / 32, x[i], 31);
        out[16 + i % 32] |= (uint8_t)(q >> 4 << i / 32);
        out[48 + i / 64 * 32 + i % 32] |= (uint8_t)((q & 15) << (i % 64 < 32 ? 0 : 4));
    }
}

/* Low 4 bits [128], high 2 bits [64], i8 scale [16] of 16 elements each, f16 d; x = d scale (q - 32) */
void quantize_q6_k(const float *x, uint8_t *out)
{
    Linear fit = fit_linear(x, 16, -32, 127, 127);
    memset(out, 0, 192);
    for (int p = 0; p < 16; p++) out[192 + p] = (uint8_t)(int8_t)fit.scale[p];
    for (int i = 0; i < 256; i++) {
        int q = quantize_nearest(linear_steps(&fit, i / 16, x[i]) + 32, 0, 63);
        int half = i / 128, quarter = i % 128 / 32, lane = i % 32;
        out[64 * half + 32 * (quarter % 2) + lane] |= (uint8_t)((q & 15) << (quarter / 2 * 4));
        out[128 + 32 * half + lane] |= (uint8_t)(q >> 4 << (2 * quarter));
    }
    quantize_put_f16(out + 208, fit.d);
}

/* f16 d; high 2 bits of 8 scales in a u16; their low 4 bits [4]; quants [128], 32 elements in 16 bytes */
void quantize_iq4_xs(const float *x, uint8_t *out)
{
    Linear fit = fit_linear(x, 32, -127, 31, 31);
    uint16_t high = 0;
    memset(out, 0, 136);
    quantize_put_f16(out, fit.d);
    for (int p = 0; p < 8; p++) {
        int scale = fit.scale[p] + 32;
        high |= (uint16_t)(scale >> 4 << 2 * p);
        out[4 + p / 2] |= (uint8_t)((scale & 15) << p % 2 * 4);
    }
    memcpy(out + 2, &high, sizeof high);
    for (int i = 0; i < 256; i++)
        out[8 + i / 32 * 16 + i % 16] |=
            (uint8_t)(quantize_nearest_iq4(linear_steps(&fit, i / 32, x[i])) << (i % 32 < 16 ? 0 : 4));
}
