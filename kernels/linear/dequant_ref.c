/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/dequant.h"

#include "base/half.h"
#include "kernels/linear/blocks.h"

static void dequant_f32(const void *row, float *y, size_t n)
{
    memcpy(y, row, n * sizeof *y);
}

static void dequant_f16(const void *row, float *y, size_t n)
{
    const uint16_t *x = row;
    for (size_t i = 0; i < n; i++) y[i] = f32_from_f16(x[i]);
}

static void dequant_bf16(const void *row, float *y, size_t n)
{
    const uint16_t *x = row;
    for (size_t i = 0; i < n; i++) y[i] = f32_from_bf16(x[i]);
}

static void dequant_q4_0(const void *row, float *y, size_t n)
{
    const BlockQ4_0 *block = row;
    for (size_t b = 0; b < n / BLOCK_32; b++, block++, y += BLOCK_32) {
        float d = f32_from_f16(block->d);
        for (int j = 0; j < 16; j++) {
            y[j] = d * (float)((block->quants[j] & 15) - 8);
            y[j + 16] = d * (float)((block->quants[j] >> 4) - 8);
        }
    }
}

static void dequant_q4_1(const void *row, float *y, size_t n)
{
    const BlockQ4_1 *block = row;
    for (size_t b = 0; b < n / BLOCK_32; b++, block++, y += BLOCK_32) {
        float d = f32_from_f16(block->d), m = f32_from_f16(block->m);
        for (int j = 0; j < 16; j++) {
            y[j] = d * (float)(block->quants[j] & 15) + m;
            y[j + 16] = d * (float)(block->quants[j] >> 4) + m;
        }
    }
}

static void dequant_q8_0(const void *row, float *y, size_t n)
{
    const BlockQ8_0 *block = row;
    for (size_t b = 0; b < n / BLOCK_32; b++, block++, y += BLOCK_32) {
        float d = f32_from_f16(block->d);
        for (int j = 0; j < BLOCK_32; j++) y[j] = d * (float)block->quants[j];
    }
}

static void dequant_q6_k(const void *row, float *y, size_t n)
{
    const BlockQ6_K *block = row;
    for (size_t b = 0; b < n / BLOCK_K; b++, block++, y += BLOCK_K) {
        float d = f32_from_f16(block->d);
        for (int i = 0; i < BLOCK_K; i++)
            y[i] = d * (float)block->scales[i / 16] * (float)(block_q6_k_quant(block, i) - 32);
    }
}

static const struct {
    DType type;
    void (*run)(const void *row, float *y, size_t n);
} rows[] = {
    {DTYPE_F32, dequant_f32},   {DTYPE_F16, dequant_f16},   {DTYPE_BF16, dequant_bf16}, {DTYPE_Q4_0, dequant_q4_0},
    {DTYPE_Q4_1, dequant_q4_1}, {DTYPE_Q8_0, dequant_q8_0}, {DTYPE_Q6_K, dequant_q6_k},
};

bool dequant_row_ref(DType type, const void *blocks, float *y, size_t n)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].type != type) continue;
        rows[i].run(blocks, y, n);
        return true;
    }
    return false;
}
