/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/weights.h"

#include "base/half.h"
#include "kernels/linear/blocks.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static uint32_t random_bits(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 32);
}

float random_float(uint64_t *seed)
{
    return (float)(random_bits(seed) >> 8) * 0x1p-23f - 1.0f;
}

void random_floats(uint64_t *seed, float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) x[i] = random_float(seed) * scale;
}

uint32_t *random_order(uint64_t *seed, uint32_t n)
{
    uint32_t *numbers = malloc((n + (size_t)1) * sizeof *numbers);
    if (!numbers) abort();
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = (uint32_t)((random_float(seed) + 1) / 2 * (float)(i + 1));
        if (j > i) j = i;
        numbers[i] = numbers[j];
        numbers[j] = i;
    }
    return numbers;
}

/* Where a block has its binary16 scale and minimum, and the sizes that make values of about 1; 0: no minimum. */
static const struct {
    DType type;
    size_t d_at, m_at;
    float d, m;
} scales[] = {
    {DTYPE_Q4_0, offsetof(BlockQ4_0, d), 0, 0.1f, 0},
    {DTYPE_Q4_1, offsetof(BlockQ4_1, d), offsetof(BlockQ4_1, m), 0.1f, 1},
    {DTYPE_Q5_0, offsetof(BlockQ5_0, d), 0, 0.05f, 0},
    {DTYPE_Q5_1, offsetof(BlockQ5_1, d), offsetof(BlockQ5_1, m), 0.05f, 1},
    {DTYPE_Q8_0, offsetof(BlockQ8_0, d), 0, 0.01f, 0},
    {DTYPE_IQ4_NL, offsetof(BlockIQ4_NL, d), 0, 0.01f, 0},
    {DTYPE_Q2_K, offsetof(BlockQ2_K, d), offsetof(BlockQ2_K, dmin), 0.03f, 0.06f},
    {DTYPE_Q3_K, offsetof(BlockQ3_K, d), 0, 0.01f, 0},
    {DTYPE_Q4_K, offsetof(BlockQ4_K, d), offsetof(BlockQ4_K, dmin), 0.001f, 0.015f},
    {DTYPE_Q5_K, offsetof(BlockQ5_K, d), offsetof(BlockQ5_K, dmin), 0.0005f, 0.015f},
    {DTYPE_Q6_K, offsetof(BlockQ6_K, d), 0, 0.0005f, 0},
    {DTYPE_IQ4_XS, offsetof(BlockIQ4_XS, d), 0, 0.0005f, 0},
};

/* Overwrites the scale fields of random bytes. */
static void set_scales(uint64_t *seed, DType type, uint8_t *block)
{
    if (type == DTYPE_MXFP4) ((BlockMXFP4 *)block)->exponent = (uint8_t)(122 + random_bits(seed) % 4);
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        if (scales[i].type != type) continue;
        uint16_t d = f16_from_f32(random_float(seed) * scales[i].d), m = f16_from_f32(random_float(seed) * scales[i].m);
        memcpy(block + scales[i].d_at, &d, sizeof d);
        if (scales[i].m_at) memcpy(block + scales[i].m_at, &m, sizeof m);
    }
}

void random_weights(uint64_t *seed, DType type, void *blocks, size_t n)
{
    const DTypeInfo *info = dtype_info(type);
    uint8_t *at = blocks;
    for (size_t b = 0; b < n / info->block_elements; b++, at += info->block_bytes) {
        float x = random_float(seed);
        uint16_t half = type == DTYPE_F16 ? f16_from_f32(x) : bf16_from_f32(x);
        for (uint32_t i = 0; i < info->block_bytes; i++) at[i] = (uint8_t)random_bits(seed);
        if (type == DTYPE_F32)
            memcpy(at, &x, sizeof x);
        else if (info->block_elements == 1)
            memcpy(at, &half, sizeof half);
        else
            set_scales(seed, type, at);
    }
}
