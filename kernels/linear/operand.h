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
    /* binary16 as gemv_wide.cuh reads it: 16 bytes for each lane 4 g + t, of columns 8 j .. of 32 t .. of 128 h .. and
     * token 8 n + g: [h, j, n of n_groups, lane]. What lies past the last token is left as it is. */
    uint16_t *pieces;
    uint32_t n_groups;
    uint32_t cols;
};

/* Tokens that pieces have room for. */
inline uint32_t operand_piece_tokens(uint32_t n_tokens)
{
    return n_tokens <= 32 ? 32 : 64;
}

RowSource operand_source(const MatmulParams *params);
/* Arrays whose pointer is NULL are left out. */
bool operand_fill(const MatmulParams *params, const Operand *operand, Stream stream);

} // namespace lw
