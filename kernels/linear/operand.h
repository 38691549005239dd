/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What matmul's kernels read instead of x: 16-bit rows padded with zeros, after the norm or the gate that MatmulParams
 * may ask for. Rows in binary16 are scaled by a power of two so that the largest value is near 2^14; scale undoes that.
 * A row with a NaN or an infinity becomes NaN. Internal to kernels/linear.
 */
#pragma once
#include "kernels/linear/operand.cuh"

namespace lw
{

enum { OPERAND_COL_STEP = 256 };

struct Operand {
    float *scale;                  /* [n_tokens] */
    uint16_t *half, *half_low;     /* [n_tokens, cols] binary16, and what its rounding left over */
    uint16_t *bfloat, *bfloat_low; /* [n_tokens, cols] the same in bfloat16, not scaled */
    float *full;                   /* [n_tokens, cols] */
    uint32_t cols;
};

RowSource operand_source(const MatmulParams *params);
/* Arrays whose pointer is NULL are left out. */
bool operand_fill(const MatmulParams *params, const Operand *operand, Stream stream);

} // namespace lw
