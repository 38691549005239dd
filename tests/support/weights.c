/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/weights.h"

#include "base/half.h"
#include "kernels/linear/blocks.h"

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

/* Overwrites the scale fields of random bytes. */
static void set_scales(uint64_t *seed, DType type, void *block)
{
    uint16_t d = f16_from_f32(random_float(seed) * 0.1f), m = f16_from_f32(random_float(seed));
    if (type == DTYPE_Q4_0) ((BlockQ4_0 *)block)->d = d;
    if (type == DTYPE_Q4_1) ((BlockQ4_1 *)block)->d = d;
    if (type == DTYPE_Q4_1) ((BlockQ4_1 *)block)->m = m;
    if (type == DTYPE_Q8_0) ((BlockQ8_0 *)block)->d = f16_from_f32(random_float(seed) * 0.01f);
    if (type == DTYPE_Q6_K) ((BlockQ6_K *)block)->d = f16_from_f32(random_float(seed) * 0.0005f);
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
