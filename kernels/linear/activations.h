/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations quantised to 8 bits for the quantised weight formats: blocks of 32 columns or of 256, as the weights
 * have, q = round(x * 127 / max|x|). A block's scale, and its scale times the sum of its q, keep 11 significant bits
 * in blocks of 32, as the reference engines store them in binary16, but with the range of fp32. A block with a NaN or
 * an infinity has q = 0 and scale NaN; one whose max|x| is under 2^-100 counts as zero.
 */
#pragma once
#include "base/half.h"
#include <stddef.h>
#include <stdint.h>

typedef struct Activations {
    int8_t *q;        /* [n_tokens, n_cols] */
    float *d;         /* [n_tokens, n_cols / block] scale */
    float *s;         /* [n_tokens, n_cols / block] scale * sum of q; blocks of 32 only */
    int32_t *sums;    /* [n_tokens, n_cols / 32] sums of q; blocks of 32 only */
    int16_t *sums_16; /* [n_tokens, n_cols / 16] sums of q over 16 columns; blocks of 256 only */
    uint32_t n_cols;
    uint32_t block; /* 32 or 256 */
} Activations;

/* Memory is there for whole multiples of so many tokens: kernels may read what was never written, and drop it. */
enum { ACTIVATIONS_PAD_TOKENS = 16 };

size_t activations_bytes(uint32_t block, uint32_t n_tokens, uint32_t n_cols);
/* Lays the arrays out in scratch, which is aligned to 64. */
Activations activations_at(void *scratch, uint32_t block, uint32_t n_tokens, uint32_t n_cols);
/* Quantises token t from x [n_cols]. */
void activations_quantise_ref(const Activations *activations, uint32_t t, const float *x);

/* To 11 significant bits, to nearest even. */
static inline float activations_round_scale(float x)
{
    uint32_t u = float_to_bits(x);
    return float_from_bits((u + 0xFFFu + (u >> 13 & 1)) & ~0x1FFFu);
}
