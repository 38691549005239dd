/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/activations.h"

#include "base/half.h"
#include "kernels/linear/blocks.h"
#include "kernels/linear/matmul.h"

#include <math.h>

static size_t pad(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

size_t activations_bytes(uint32_t block, uint32_t n_tokens, uint32_t n_cols)
{
    size_t n = pad(n_tokens, ACTIVATIONS_PAD_TOKENS), scale_bytes = pad(n * (n_cols / block) * sizeof(float), 64);
    return pad(n * n_cols, 64) + 2 * scale_bytes + pad(n * (n_cols / 16) * sizeof(int16_t), 64);
}

Activations activations_at(void *scratch, uint32_t block, uint32_t n_tokens, uint32_t n_cols)
{
    size_t n = pad(n_tokens, ACTIVATIONS_PAD_TOKENS), scale_bytes = pad(n * (n_cols / block) * sizeof(float), 64);
    char *at = scratch;
    Activations a = {.n_cols = n_cols, .block = block};
    a.q = (int8_t *)at;
    at += pad(n * n_cols, 64);
    a.d = (float *)(void *)at;
    a.s = (float *)(void *)(at + scale_bytes);
    a.sums = (int32_t *)(void *)(at + 2 * scale_bytes);
    a.sums_16 = (int16_t *)(void *)(at + 2 * scale_bytes);
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

static int32_t sum_of(const int8_t *q, uint32_t n)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += q[i];
    return sum;
}

void activations_quantise_ref(const Activations *a, uint32_t t, const float *x)
{
    int8_t *q = a->q + (size_t)t * a->n_cols;
    uint32_t n_blocks = a->n_cols / a->block;
    size_t at = (size_t)t * n_blocks;
    for (uint32_t b = 0; b < n_blocks; b++, at++, q += a->block, x += a->block) {
        quantise_block(x, a->block, q, &a->d[at]);
        if (a->block == BLOCK_K) {
            for (uint32_t part = 0; part < BLOCK_K / 16; part++)
                a->sums_16[at * (BLOCK_K / 16) + part] = (int16_t)sum_of(q + 16 * part, 16);
            continue;
        }
        a->sums[at] = sum_of(q, BLOCK_32);
        a->s[at] = activations_round_scale(a->d[at] * (float)a->sums[at]);
        a->d[at] = activations_round_scale(a->d[at]);
    }
}
