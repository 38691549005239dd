/* SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "kernels/linear/activations.h"
#include "kernels/linear/blocks.h"
#include "kernels/linear/dequant.h"
#include "kernels/linear/matmul.h"

#include <math.h>

/* One (token, row) sum of a weight format; x is the token's fp32 row, a and t its quantised form. */
typedef float (*DotFn)(const void *row, const float *x, const Activations *a, uint32_t t);

enum { PARTIAL_SUMS = 16 };

static float weight_at(DType type, const void *row, uint32_t c)
{
    if (type == DTYPE_F32) return ((const float *)row)[c];
    uint16_t bits = ((const uint16_t *)row)[c];
    return type == DTYPE_F16 ? f32_from_f16(bits) : f32_from_bf16(bits);
}

static float dot_float(DType type, const void *row, const float *x, uint32_t n)
{
    float sum[PARTIAL_SUMS] = {0};
    for (uint32_t c = 0; c < n; c++) sum[c % PARTIAL_SUMS] = fmaf(weight_at(type, row, c), x[c], sum[c % PARTIAL_SUMS]);
    for (int half = PARTIAL_SUMS / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) sum[j] += sum[j + half];
    return sum[0];
}

static float dot_f32(const void *row, const float *x, const Activations *a, uint32_t t)
{
    (void)t;
    return dot_float(DTYPE_F32, row, x, a->n_cols);
}

static float dot_f16(const void *row, const float *x, const Activations *a, uint32_t t)
{
    (void)t;
    return dot_float(DTYPE_F16, row, x, a->n_cols);
}

static float dot_bf16(const void *row, const float *x, const Activations *a, uint32_t t)
{
    (void)t;
    return dot_float(DTYPE_BF16, row, x, a->n_cols);
}

static float dot_q4_0(const void *row, const float *x, const Activations *a, uint32_t t)
{
    (void)x;
    const BlockQ4_0 *block = row;
    uint32_t n_blocks = a->n_cols / BLOCK_32;
    float acc = 0;
    for (uint32_t b = 0; b < n_blocks; b++, block++) {
        const int8_t *q = a->q + (size_t)t * a->n_cols + (size_t)b * BLOCK_32;
        int32_t sum = 0;
        for (int j = 0; j < 16; j++)
            sum += ((block->quants[j] & 15) - 8) * q[j] + ((block->quants[j] >> 4) - 8) * q[j + 16];
        acc = fmaf((float)sum, f32_from_f16(block->d) * a->d[(size_t)t * n_blocks + b], acc);
    }
    return acc;
}

static float dot_q4_1(const void *row, const float *x, const Activations *a, uint32_t t)
{
    (void)x;
    const BlockQ4_1 *block = row;
    uint32_t n_blocks = a->n_cols / BLOCK_32;
    float acc = 0;
    for (uint32_t b = 0; b < n_blocks; b++, block++) {
        const int8_t *q = a->q + (size_t)t * a->n_cols + (size_t)b * BLOCK_32;
        int32_t sum = 0;
        for (int j = 0; j < 16; j++) sum += (block->quants[j] & 15) * q[j] + (block->quants[j] >> 4) * q[j + 16];
        acc = fmaf((float)sum, f32_from_f16(block->d) * a->d[(size_t)t * n_blocks + b], acc);
        acc = fmaf(f32_from_f16(block->m), a->s[(size_t)t * n_blocks + b], acc);
    }
    return acc;
}

static float dot_q8_0(const void *row, const float *x, const Activations *a, uint32_t t)
{
    (void)x;
    const BlockQ8_0 *block = row;
    uint32_t n_blocks = a->n_cols / BLOCK_32;
    float acc = 0;
    for (uint32_t b = 0; b < n_blocks; b++, block++) {
        const int8_t *q = a->q + (size_t)t * a->n_cols + (size_t)b * BLOCK_32;
        int32_t sum = 0;
        for (int j = 0; j < BLOCK_32; j++) sum += block->quants[j] * q[j];
        acc = fmaf((float)sum, f32_from_f16(block->d) * a->d[(size_t)t * n_blocks + b], acc);
    }
    return acc;
}

static float dot_q6_k(const void *row, const float *x, const Activations *a, uint32_t t)
{
    (void)x;
    const BlockQ6_K *block = row;
    uint32_t n_blocks = a->n_cols / BLOCK_K;
    float acc = 0;
    for (uint32_t b = 0; b < n_blocks; b++, block++) {
        const int8_t *q = a->q + (size_t)t * a->n_cols + (size_t)b * BLOCK_K;
        int32_t sum = 0;
        for (int i = 0; i < BLOCK_K; i++) sum += block->scales[i / 16] * (block_q6_k_quant(block, i) - 32) * q[i];
        acc = fmaf((float)sum, f32_from_f16(block->d) * a->d[(size_t)t * n_blocks + b], acc);
    }
    return acc;
}

static const struct {
    DType type;
    uint32_t block; /* of the activations; 0: fp32 */
    DotFn dot;
} rows[] = {
    {DTYPE_F32, 0, dot_f32},          {DTYPE_F16, 0, dot_f16},          {DTYPE_BF16, 0, dot_bf16},
    {DTYPE_Q4_0, BLOCK_32, dot_q4_0}, {DTYPE_Q4_1, BLOCK_32, dot_q4_1}, {DTYPE_Q8_0, BLOCK_32, dot_q8_0},
    {DTYPE_Q6_K, BLOCK_K, dot_q6_k},
};

static void put(const MatmulOut *out, uint32_t t, uint32_t r, float sum)
{
    float *y = out->y + t * out->y_stride + r;
    if (out->bias) sum += out->bias[r];
    *y = out->accumulate ? *y + sum : sum;
}

static void multiply(const MatmulParams *params, const MatmulOut *out, DotFn dot, const Activations *a)
{
    size_t row_bytes = dtype_row_bytes(out->type, params->n_cols);
    for (uint32_t t = 0; t < params->n_tokens; t++)
        for (uint32_t r = 0; r < out->n_rows; r++)
            put(out, t, r, dot((const char *)out->w + r * row_bytes, params->x + t * params->x_stride, a, t));
}

static bool multiply_out(const MatmulParams *params, const MatmulOut *out)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].type != out->type) continue;
        Activations a = {.n_cols = params->n_cols};
        if (rows[i].block) {
            a = activations_at(params->scratch, rows[i].block, params->n_tokens, params->n_cols);
            for (uint32_t t = 0; t < params->n_tokens; t++)
                activations_quantise_ref(&a, t, params->x + t * params->x_stride);
        }
        multiply(params, out, rows[i].dot, &a);
        return true;
    }
    return false;
}

bool matmul_ref(const MatmulParams *params)
{
    for (uint32_t i = 0; i < params->n_out; i++)
        if (!multiply_out(params, &params->out[i])) return false;
    return true;
}

static bool multiply_exact(const MatmulParams *params, const MatmulOut *out)
{
    enum { CHUNK = BLOCK_K };
    float w[CHUNK];
    if (!dtype_info(out->type)) return false;
    size_t row_bytes = dtype_row_bytes(out->type, params->n_cols);
    for (uint32_t t = 0; t < params->n_tokens; t++) {
        for (uint32_t r = 0; r < out->n_rows; r++) {
            const float *x = params->x + t * params->x_stride;
            const char *row = (const char *)out->w + r * row_bytes;
            double sum = 0;
            for (uint32_t c = 0; c < params->n_cols; c += CHUNK) {
                uint32_t n = params->n_cols - c < CHUNK ? params->n_cols - c : CHUNK;
                if (!dequant_row_ref(out->type, row + dtype_row_bytes(out->type, c), w, n)) return false;
                for (uint32_t i = 0; i < n; i++) sum += (double)w[i] * x[c + i];
            }
            put(out, t, r, (float)sum);
        }
    }
    return true;
}

bool matmul_exact_ref(const MatmulParams *params)
{
    for (uint32_t i = 0; i < params->n_out; i++)
        if (!multiply_exact(params, &params->out[i])) return false;
    return true;
}
