/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/dequant.h"

#include "base/half.h"
#include "kernels/linear/block_values.h"

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

static void dequant_blocks(const BlockFormat *format, const void *blocks, float *y, size_t n)
{
    const char *at = blocks;
    size_t block_bytes = dtype_info(format->type)->block_bytes;
    BlockValues values;
    for (; n >= format->block; n -= format->block, at += block_bytes, y += format->block) {
        block_decode(format, at, &values);
        for (uint32_t i = 0; i < format->block; i++) {
            y[i] = values.d * (float)values.scale[i / 16] * (float)values.q[i];
            if (format->has_min) y[i] -= values.m * (float)values.min[i / 16];
        }
    }
}

bool dequant_row_ref(DType type, const void *blocks, float *y, size_t n)
{
    const BlockFormat *format = block_format(type);
    if (format)
        dequant_blocks(format, blocks, y, n);
    else if (type == DTYPE_F32)
        dequant_f32(blocks, y, n);
    else if (type == DTYPE_F16)
        dequant_f16(blocks, y, n);
    else if (type == DTYPE_BF16)
        dequant_bf16(blocks, y, n);
    else
        return false;
    return true;
}
