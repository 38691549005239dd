/* SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "kernels/linear/activations.h"
#include "kernels/linear/block_values.h"
#include "kernels/linear/dequant.h"
#include "kernels/linear/matmul.h"

#include <math.h>

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

/* Integer sums inside a block are exact; the blocks follow one another with one fused step each, two with minima. */
static float dot_blocks(const BlockFormat *format, const char *row, const Activations *a, uint32_t t)
{
    uint32_t n_blocks = a->n_cols / format->block, n_parts = format->block / 16;
    size_t block_bytes = dtype_info(format->type)->block_bytes;
    BlockValues values;
    float acc = 0;
    for (uint32_t b = 0; b < n_blocks; b++) {
        const int8_t *q = a->q + (size_t)t * a->n_cols + (size_t)b * format->block;
        float d = a->d[(size_t)t * n_blocks + b];
        int32_t sum = 0, min_sum = 0;
        block_decode(format, row + b * block_bytes, &values);
        for (uint32_t part = 0; part < n_parts; part++) {
            int32_t dot = 0, x_sum = 0;
            for (uint32_t i = 16 * part; i < 16 * part + 16; i++) {
                dot += values.q[i] * q[i];
                x_sum += q[i];
            }
            sum += values.scale[part] * dot;
            min_sum += format->has_min ? values.min[part] * x_sum : 0;
        }
        acc = fmaf((float)sum, values.d * d, acc);
        if (!format->has_min) continue;
        if (format->block == BLOCK_32)
            acc = fmaf(values.m, a->s[(size_t)t * n_blocks + b], acc);
        else
            acc = fmaf((float)-min_sum, values.m * d, acc);
    }
    return acc;
}

static void put(const MatmulOut *out, uint32_t t, uint32_t r, float sum)
{
    float *y = out->y + t * out->y_stride + r;
    if (out->bias) sum += out->bias[r];
    *y = out->accumulate ? *y + sum : sum;
}

static bool multiply(const MatmulParams *params, const MatmulOut *out)
{
    const BlockFormat *format = block_format(out->type);
    if (!dtype_info(out->type) || params->norm_weight || params->glu_up || params->is_gated) return false;
    size_t row_bytes = dtype_row_bytes(out->type, params->n_cols);
    Activations a = {0};
    if (format) a = activations_at(params->scratch, format->block, params->n_tokens, params->n_cols);
    for (uint32_t t = 0; t < params->n_tokens; t++) {
        const float *x = params->x + t * params->x_stride;
        if (format) activations_quantise_ref(&a, t, x);
        for (uint32_t r = 0; r < out->n_rows; r++) {
            const char *row = (const char *)out->w + r * row_bytes;
            put(out, t, r, format ? dot_blocks(format, row, &a, t) : dot_float(out->type, row, x, params->n_cols));
        }
    }
    return true;
}

bool matmul_ref(const MatmulParams *params)
{
    for (uint32_t i = 0; i < params->n_out; i++)
        if (!multiply(params, &params->out[i])) return false;
    return true;
}

static bool multiply_exact(const MatmulParams *params, const MatmulOut *out)
{
    enum { CHUNK = BLOCK_K };
    float w[CHUNK];
    if (!dtype_info(out->type) || params->norm_weight || params->glu_up || params->is_gated) return false;
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
