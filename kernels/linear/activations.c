/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/activations.h"

#include "base/half.h"
#include "kernels/linear/blocks.h"
#include "kernels/linear/matmul.h"

#include <math.h>

static size_t pad64(size_t n)
{
    return (n + 63) / 64 * 64;
}

static uint32_t sum_cols_of(uint32_t block)
{
    return block == BLOCK_K ? 16 : BLOCK_32;
}

size_t activations_bytes(uint32_t block, uint32_t n_tokens, uint32_t n_cols)
{
    size_t n = n_tokens, blocks = n * (n_cols / block), sums = n * (n_cols / sum_cols_of(block));
    return pad64(n * n_cols) + 2 * pad64(blocks * sizeof(float)) + pad64(sums * sizeof(int32_t));
}

Activations activations_at(void *scratch, uint32_t block, uint32_t n_tokens, uint32_t n_cols)
{
    size_t n = n_tokens, scale_bytes = pad64(n * (n_cols / block) * sizeof(float));
    char *at = scratch;
    Activations a = {.n_cols = n_cols, .block = block, .sum_cols = sum_cols_of(block)};
    a.q = (int8_t *)at;
    at += pad64(n * n_cols);
    a.d = (float *)(void *)at;
    a.s = (float *)(void *)(at + scale_bytes);
    a.sums = (int32_t *)(void *)(at + 2 * scale_bytes);
    return a;
}

size_t matmul_scratch_bytes(uint32_t n_tokens, uint32_t n_cols)
{
    return activations_bytes(BLOCK_32, n_tokens, n_cols) + activations_bytes(BLOCK_K, n_tokens, n_cols) + 64;
}

static void quantise_block(const float *x, uint32_t n, int8_t *q, float *ret_d)
{
    uint32_t max_bits = 0; /* as bits a NaN is above infinity is above every finite number */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = float_to_bits(x[i]) & 0x7FFFFFFFu;
        if (bits > max_bits) max_bits = bits;
    }
    float max = float_from_bits(max_bits);
    bool finite = max_bits < 0x7F800000u;
    bool usable = finite && max >= 0x1p-100f;
    float inverse = usable ? 127.0f / max : 0.0f;
    for (uint32_t i = 0; i < n; i++) q[i] = usable ? (int8_t)rintf(x[i] * inverse) : 0;
    *ret_d = usable ? max / 127.0f : finite ? 0.0f : NAN;
}

void activations_quantise_ref(const Activations *a, uint32_t t, const float *x)
{
    int8_t *q = a->q + (size_t)t * a->n_cols;
    int32_t *sums = a->sums + (size_t)t * (a->n_cols / a->sum_cols);
    uint32_t n_blocks = a->n_cols / a->block;
    float *d = a->d + (size_t)t * n_blocks, *s = a->s + (size_t)t * n_blocks;
    for (uint32_t b = 0; b < n_blocks; b++) {
        quantise_block(x + (size_t)b * a->block, a->block, q + (size_t)b * a->block, &d[b]);
        for (uint32_t g = b * a->block / a->sum_cols; g < (b + 1) * a->block / a->sum_cols; g++) {
            sums[g] = 0;
            for (uint32_t j = 0; j < a->sum_cols; j++) sums[g] += q[(size_t)g * a->sum_cols + j];
        }
        if (a->block != BLOCK_32) continue;
        s[b] = activations_round_scale(d[b] * (float)sums[b]);
        d[b] = activations_round_scale(d[b]);
    }
}
