/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/dequant.h"
#include "tests/support/quantize.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* The test's own writer of blocks against the product's reader: both are written from the formats alone. */

Test(test_quantize, every_half_survives)
{
    for (uint32_t half = 0; half < 0x10000; half++) {
        float value = f16_to_f32((uint16_t)half);
        uint16_t back = f32_to_f16(value);
        bool is_nan = (half & 0x7C00) == 0x7C00 && (half & 0x3FF);
        if (is_nan ? !isnan(value) || !isnan(f16_to_f32(back)) : back != half)
            cr_assert_fail("%04x became %g, then %04x", half, (double)value, back);
    }
}

Test(test_quantize, halves_round_to_even)
{
    static const struct {
        float value;
        uint16_t half;
    } cases[] = {
        {1 + 0x1p-11f, 0x3C00}, {1 + 3 * 0x1p-11f, 0x3C02}, {1 + 0x1.8p-11f, 0x3C01}, {0x1p-25f, 0x0000},
        {0x1.8p-25f, 0x0001},   {3 * 0x1p-25f, 0x0002},     {-0x1p-24f, 0x8001},      {0x1.ff8p-15f, 0x03FF},
        {0x1.ffcp-15f, 0x0400}, {0x1.ff4p-15f, 0x03FE},     {65504, 0x7BFF},          {65519, 0x7BFF},
        {65520, 0x7C00},        {-1e30f, 0xFC00},           {2 - 0x1p-12f, 0x4000},   {-0.0f, 0x8000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_assert_eq(f32_to_f16(cases[i].value), cases[i].half, "%a became %04x", (double)cases[i].value,
                     f32_to_f16(cases[i].value));
}

enum { N = 512 };

/* Error allowed: worst, in parts of the largest magnitude of a scale's group, and coarse, in parts of the largest of
 * 256 elements, whose scales are themselves rounded. */
static const struct {
    DType type;
    uint32_t group;
    float worst, coarse;
} types[] = {
    {DTYPE_F32, 1, 0, 0},
    {DTYPE_F16, 1, 0x1p-11f, 0},
    {DTYPE_BF16, 1, 0x1p-8f, 0},
    {DTYPE_Q8_0, 32, 0.0045f, 0},
    {DTYPE_Q4_0, 32, 0.126f, 0},
    {DTYPE_Q4_1, 32, 0.068f, 0},
    {DTYPE_Q5_0, 32, 0.064f, 0},
    {DTYPE_Q5_1, 32, 0.034f, 0},
    {DTYPE_IQ4_NL, 32, 0.112f, 0},
    {DTYPE_MXFP4, 32, 0.251f, 0},
    {DTYPE_Q2_K, 16, 0.34f, 0.11f},
    {DTYPE_Q3_K, 16, 0.26f, 0.02f},
    {DTYPE_Q4_K, 32, 0.07f, 0.03f},
    {DTYPE_Q5_K, 32, 0.035f, 0.03f},
    {DTYPE_Q6_K, 16, 0.036f, 0.004f},
    {DTYPE_IQ4_XS, 32, 0.115f, 0.02f},
};

static float largest(const float *x, size_t n)
{
    float found = 0;
    for (size_t i = 0; i < n; i++) found = fmaxf(found, fabsf(x[i]));
    return found;
}

static void check_round_trip(size_t t, const float *x)
{
    uint8_t blocks[N * 4];
    float y[N];
    quantize_row(types[t].type, x, N, blocks);
    cr_assert(dequant_row_ref(types[t].type, blocks, y, N));
    for (size_t i = 0; i < N; i++) {
        float allowed = types[t].worst * largest(x + i / types[t].group * types[t].group, types[t].group);
        allowed += types[t].coarse * largest(x + i / 256 * 256, 256);
        if (!(fabsf(x[i] - y[i]) <= allowed))
            cr_assert_fail("%s: element %zu was %g and is %g", dtype_info(types[t].type)->name, i, (double)x[i],
                           (double)y[i]);
    }
}

Test(test_quantize, blocks_read_back_near)
{
    float x[N], zeros[N] = {0}, spike[N] = {[3] = 5, [40] = -7, [300] = 0.01f};
    uint32_t state = 1;
    for (size_t i = 0; i < N; i++) {
        state = state * 1664525 + 1013904223;
        x[i] = ((float)(state >> 8) * 0x1p-23f - 1) * (float)(1 + i / 16 % 5);
    }
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        check_round_trip(t, x);
        check_round_trip(t, zeros);
        check_round_trip(t, spike);
    }
}
