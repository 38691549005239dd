/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/block_values.h"

#include "base/half.h"

static const int8_t iq4_values[16] = BLOCK_IQ4_VALUES;
static const int8_t mxfp4_values[16] = BLOCK_MXFP4_VALUES;

/* ---- blocks of 32 ---- */

static void set_scales(BlockValues *ret, float d, float m)
{
    ret->d = d;
    ret->m = m;
    for (int s = 0; s < BLOCK_32 / 16; s++) {
        ret->scale[s] = 1;
        ret->min[s] = -1;
    }
}

/* The first half of the elements is in the low nibbles, the second in the high ones. */
static int nibble(const uint8_t quants[16], int i)
{
    return quants[i % 16] >> (i < 16 ? 0 : 4) & 15;
}

static void scales_q4_0(const void *data, BlockValues *ret)
{
    const BlockQ4_0 *block = data;
    set_scales(ret, f32_from_f16(block->d), 0);
}

static void quants_q4_0(const void *data, BlockValues *ret)
{
    const BlockQ4_0 *block = data;
    for (int i = 0; i < BLOCK_32 / 2; i++) {
        ret->q[i] = (int16_t)((block->quants[i] & 15) - 8);
        ret->q[i + BLOCK_32 / 2] = (int16_t)((block->quants[i] >> 4) - 8);
    }
}

static void scales_q4_1(const void *data, BlockValues *ret)
{
    const BlockQ4_1 *block = data;
    set_scales(ret, f32_from_f16(block->d), f32_from_f16(block->m));
}

static void quants_q4_1(const void *data, BlockValues *ret)
{
    const BlockQ4_1 *block = data;
    for (int i = 0; i < BLOCK_32; i++) ret->q[i] = (int16_t)nibble(block->quants, i);
}

static int five_bits(const uint8_t quants[16], const uint8_t high[4], int i)
{
    return nibble(quants, i) | (high[i / 8] >> i % 8 & 1) << 4;
}

static void scales_q5_0(const void *data, BlockValues *ret)
{
    const BlockQ5_0 *block = data;
    set_scales(ret, f32_from_f16(block->d), 0);
}

static void quants_q5_0(const void *data, BlockValues *ret)
{
    const BlockQ5_0 *block = data;
    for (int i = 0; i < BLOCK_32; i++) ret->q[i] = (int16_t)(five_bits(block->quants, block->high, i) - 16);
}

static void scales_q5_1(const void *data, BlockValues *ret)
{
    const BlockQ5_1 *block = data;
    set_scales(ret, f32_from_f16(block->d), f32_from_f16(block->m));
}

static void quants_q5_1(const void *data, BlockValues *ret)
{
    const BlockQ5_1 *block = data;
    for (int i = 0; i < BLOCK_32; i++) ret->q[i] = (int16_t)five_bits(block->quants, block->high, i);
}

static void scales_q8_0(const void *data, BlockValues *ret)
{
    const BlockQ8_0 *block = data;
    set_scales(ret, f32_from_f16(block->d), 0);
}

static void quants_q8_0(const void *data, BlockValues *ret)
{
    const BlockQ8_0 *block = data;
    for (int i = 0; i < BLOCK_32; i++) ret->q[i] = block->quants[i];
}

static void scales_iq4_nl(const void *data, BlockValues *ret)
{
    const BlockIQ4_NL *block = data;
    set_scales(ret, f32_from_f16(block->d), 0);
}

static void quants_iq4_nl(const void *data, BlockValues *ret)
{
    const BlockIQ4_NL *block = data;
    for (int i = 0; i < BLOCK_32; i++) ret->q[i] = iq4_values[nibble(block->quants, i)];
}

static void scales_mxfp4(const void *data, BlockValues *ret)
{
    const BlockMXFP4 *block = data;
    set_scales(ret, float_from_bits(block_mxfp4_scale_bits(block->exponent)), 0);
}

static void quants_mxfp4(const void *data, BlockValues *ret)
{
    const BlockMXFP4 *block = data;
    for (int i = 0; i < BLOCK_32; i++) ret->q[i] = mxfp4_values[nibble(block->quants, i)];
}

/* ---- blocks of 256 ---- */

static int two_bits(const uint8_t quants[64], int i)
{
    return quants[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3;
}

static void scales_q2_k(const void *data, BlockValues *ret)
{
    const BlockQ2_K *block = data;
    ret->d = f32_from_f16(block->d);
    ret->m = f32_from_f16(block->dmin);
    for (int s = 0; s < BLOCK_PARTS; s++) {
        ret->scale[s] = block->scales[s] & 15;
        ret->min[s] = block->scales[s] >> 4;
    }
}

static void quants_q2_k(const void *data, BlockValues *ret)
{
    const BlockQ2_K *block = data;
    for (int i = 0; i < BLOCK_K; i++) ret->q[i] = (int16_t)two_bits(block->quants, i);
}

static void scales_q3_k(const void *data, BlockValues *ret)
{
    const BlockQ3_K *block = data;
    ret->d = f32_from_f16(block->d);
    for (int s = 0; s < BLOCK_PARTS; s++) {
        int low = block->scales[s % 8] >> (s < 8 ? 0 : 4) & 15, high = block->scales[8 + s % 4] >> (2 * (s / 4)) & 3;
        ret->scale[s] = (int16_t)((low | high << 4) - 32);
    }
}

static void quants_q3_k(const void *data, BlockValues *ret)
{
    const BlockQ3_K *block = data;
    for (int i = 0; i < BLOCK_K; i++)
        ret->q[i] = (int16_t)((two_bits(block->quants, i) | (block->high[i % 32] >> i / 32 & 1) << 2) - 4);
}

/* Scales and minima of Q4_K and Q5_K, each for two parts of 16. */
static void decode_six_bits(const uint8_t scales[12], BlockValues *ret)
{
    for (int s = 0; s < 8; s++) {
        int scale = s < 4 ? scales[s] & 63 : (scales[4 + s] & 15) | scales[s - 4] >> 6 << 4;
        int min = s < 4 ? scales[4 + s] & 63 : scales[4 + s] >> 4 | scales[s] >> 6 << 4;
        ret->scale[2 * s] = ret->scale[2 * s + 1] = (int16_t)scale;
        ret->min[2 * s] = ret->min[2 * s + 1] = (int16_t)min;
    }
}

static int quarter_nibble(const uint8_t quants[128], int i)
{
    return quants[i / 64 * 32 + i % 32] >> (i % 64 < 32 ? 0 : 4) & 15;
}

static void scales_q4_k(const void *data, BlockValues *ret)
{
    const BlockQ4_K *block = data;
    ret->d = f32_from_f16(block->d);
    ret->m = f32_from_f16(block->dmin);
    decode_six_bits(block->scales, ret);
}

static void quants_q4_k(const void *data, BlockValues *ret)
{
    const BlockQ4_K *block = data;
    for (int part = 0; part < BLOCK_K / 64; part++)
        for (int i = 0; i < 32; i++) {
            ret->q[part * 64 + i] = block->quants[part * 32 + i] & 15;
            ret->q[part * 64 + 32 + i] = block->quants[part * 32 + i] >> 4;
        }
}

static void scales_q5_k(const void *data, BlockValues *ret)
{
    const BlockQ5_K *block = data;
    ret->d = f32_from_f16(block->d);
    ret->m = f32_from_f16(block->dmin);
    decode_six_bits(block->scales, ret);
}

static void quants_q5_k(const void *data, BlockValues *ret)
{
    const BlockQ5_K *block = data;
    for (int i = 0; i < BLOCK_K; i++)
        ret->q[i] = (int16_t)(quarter_nibble(block->quants, i) | (block->high[i % 32] >> i / 32 & 1) << 4);
}

static void scales_q6_k(const void *data, BlockValues *ret)
{
    const BlockQ6_K *block = data;
    ret->d = f32_from_f16(block->d);
    for (int s = 0; s < BLOCK_PARTS; s++) ret->scale[s] = block->scales[s];
}

static void quants_q6_k(const void *data, BlockValues *ret)
{
    const BlockQ6_K *block = data;
    for (int half = 0; half < 2; half++)
        for (int quarter = 0; quarter < 4; quarter++)
            for (int j = 0; j < 32; j++) {
                int low = block->low[half * 64 + quarter % 2 * 32 + j] >> (quarter < 2 ? 0 : 4) & 15;
                int high = block->high[half * 32 + j] >> (2 * quarter) & 3;
                ret->q[half * 128 + quarter * 32 + j] = (int16_t)((low | high << 4) - 32);
            }
}

static void scales_iq4_xs(const void *data, BlockValues *ret)
{
    const BlockIQ4_XS *block = data;
    ret->d = f32_from_f16(block->d);
    for (int s = 0; s < 8; s++) {
        int low = block->scales_low[s / 2] >> (s % 2 * 4) & 15, high = block->scales_high >> (2 * s) & 3;
        ret->scale[2 * s] = ret->scale[2 * s + 1] = (int16_t)((low | high << 4) - 32);
    }
}

static void quants_iq4_xs(const void *data, BlockValues *ret)
{
    const BlockIQ4_XS *block = data;
    for (int i = 0; i < BLOCK_K; i++) ret->q[i] = iq4_values[nibble(block->quants + i / 32 * 16, i % 32)];
}

static const BlockFormat formats[] = {
    {DTYPE_Q4_0, BLOCK_32, false, scales_q4_0, quants_q4_0},
    {DTYPE_Q4_1, BLOCK_32, true, scales_q4_1, quants_q4_1},
    {DTYPE_Q5_0, BLOCK_32, false, scales_q5_0, quants_q5_0},
    {DTYPE_Q5_1, BLOCK_32, true, scales_q5_1, quants_q5_1},
    {DTYPE_Q8_0, BLOCK_32, false, scales_q8_0, quants_q8_0},
    {DTYPE_IQ4_NL, BLOCK_32, false, scales_iq4_nl, quants_iq4_nl},
    {DTYPE_MXFP4, BLOCK_32, false, scales_mxfp4, quants_mxfp4},
    {DTYPE_Q2_K, BLOCK_K, true, scales_q2_k, quants_q2_k},
    {DTYPE_Q3_K, BLOCK_K, false, scales_q3_k, quants_q3_k},
    {DTYPE_Q4_K, BLOCK_K, true, scales_q4_k, quants_q4_k},
    {DTYPE_Q5_K, BLOCK_K, true, scales_q5_k, quants_q5_k},
    {DTYPE_Q6_K, BLOCK_K, false, scales_q6_k, quants_q6_k},
    {DTYPE_IQ4_XS, BLOCK_K, false, scales_iq4_xs, quants_iq4_xs},
};

const BlockFormat *block_format(DType type)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].type == type) return &formats[i];
    return NULL;
}
