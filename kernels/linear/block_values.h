/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block of a quantised format taken apart into integers and fp32 scales: the one definition of every format, from
 * which dequantisation and the reference multiplication follow. Any thread.
 */
#pragma once
#include "base/tensor.h"
#include "kernels/linear/blocks.h"

enum { BLOCK_PARTS = BLOCK_K / 16 };

/* y[i] = (d * scale[i / 16]) * q[i], and where the format has minima - m * min[i / 16] */
typedef struct BlockValues {
    float d, m;
    int16_t scale[BLOCK_PARTS], min[BLOCK_PARTS];
    int16_t q[BLOCK_K];
} BlockValues;

typedef struct BlockFormat {
    DType type;
    uint32_t block; /* elements: BLOCK_32, whose scales are 1 and minima -1, or BLOCK_K */
    bool has_min;
    void (*scales)(const void *block, BlockValues *ret); /* all but q */
    void (*quants)(const void *block, BlockValues *ret); /* q */
} BlockFormat;

static inline void block_decode(const BlockFormat *format, const void *block, BlockValues *ret)
{
    format->scales(block, ret);
    format->quants(block, ret);
}

/* NULL: not a quantised format. */
const BlockFormat *block_format(DType type);
