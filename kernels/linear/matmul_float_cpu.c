/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/isa.h"
#include "kernels/simd.h"

#include <string.h>

/* A sum has 16 partial sums, column c in partial c % 16, each in column order; then they meet as f32x16_sum does. */
enum { TILE_ROWS = 4, TILE_TOKENS = SIMD_TILE_TOKENS / 2 };

SIMD_INLINE F32x16 load_weights(DType type, const char *row, uint32_t c)
{
    if (type == DTYPE_F32) return f32x16_load((const float *)(const void *)row + c);
    const uint16_t *half = (const uint16_t *)(const void *)row + c;
    return type == DTYPE_F16 ? f32x16_load_f16(half) : f32x16_load_bf16(half);
}

/* The last n < 16 columns, zeros behind. */
SIMD_INLINE F32x16 load_last_weights(DType type, const char *row, uint32_t c, uint32_t n)
{
    _Alignas(64) char padded[LANES * sizeof(float)] = {0};
    size_t size = type == DTYPE_F32 ? 4 : 2;
    memcpy(padded, row + c * size, n * size);
    return load_weights(type, padded, 0);
}

SIMD_INLINE F32x16 load_last(const float *x, uint32_t n)
{
    float padded[LANES] = {0};
    memcpy(padded, x, n * sizeof *x);
    return f32x16_load(padded);
}

/* ret_sums [TILE_ROWS, tokens] */
SIMD_INLINE void multiply_tile(DType type, const char *const rows[TILE_ROWS], const float *x, size_t x_stride,
                               uint32_t n_cols, const uint32_t tokens, float *ret_sums)
{
    F32x16 sum[TILE_ROWS][TILE_TOKENS], w[TILE_ROWS];
    SIMD_UNROLL
    for (int i = 0; i < TILE_ROWS; i++)
        for (uint32_t j = 0; j < tokens; j++) sum[i][j] = f32x16_set1(0);
    uint32_t c = 0;
    for (; c + LANES <= n_cols; c += LANES) {
        SIMD_UNROLL
        for (int i = 0; i < TILE_ROWS; i++) w[i] = load_weights(type, rows[i], c);
        SIMD_UNROLL
        for (uint32_t j = 0; j < tokens; j++) {
            F32x16 xj = f32x16_load(x + j * x_stride + c);
            SIMD_UNROLL
            for (int i = 0; i < TILE_ROWS; i++) sum[i][j] = f32x16_madd(w[i], xj, sum[i][j]);
        }
    }
    for (uint32_t j = 0; j < tokens; j++) {
        for (int i = 0; i < TILE_ROWS; i++) {
            if (c < n_cols) {
                F32x16 last = load_last_weights(type, rows[i], c, n_cols - c);
                sum[i][j] = f32x16_madd(last, load_last(x + j * x_stride + c, n_cols - c), sum[i][j]);
            }
            ret_sums[(uint32_t)i * tokens + j] = f32x16_sum(sum[i][j]);
        }
    }
}

static void put(const MatmulOut *out, uint32_t r0, uint32_t t0, uint32_t tokens, const float *sums)
{
    for (uint32_t i = 0; i < TILE_ROWS && r0 + i < out->n_rows; i++) {
        for (uint32_t j = 0; j < tokens; j++) {
            float *y = out->y + (t0 + j) * out->y_stride + r0 + i;
            float sum = sums[i * tokens + j];
            if (out->bias) sum += out->bias[r0 + i];
            *y = out->accumulate ? *y + sum : sum;
        }
    }
}

SIMD_INLINE void multiply_rows(DType type, const MatmulParams *params, const MatmulOut *out, uint32_t r0, uint32_t t0,
                               uint32_t n_tokens)
{
    const char *rows[TILE_ROWS];
    float sums[TILE_ROWS * TILE_TOKENS];
    size_t row_bytes = dtype_row_bytes(type, params->n_cols);
    for (uint32_t i = 0; i < TILE_ROWS; i++) {
        uint32_t row = r0 + i < out->n_rows ? r0 + i : out->n_rows - 1;
        rows[i] = (const char *)out->w + row * row_bytes;
    }
    const float *x = params->x + t0 * params->x_stride;
    uint32_t j = 0;
    for (; j + TILE_TOKENS <= n_tokens; j += TILE_TOKENS) {
        multiply_tile(type, rows, x + j * params->x_stride, params->x_stride, params->n_cols, TILE_TOKENS, sums);
        put(out, r0, t0 + j, TILE_TOKENS, sums);
    }
    for (; j < n_tokens; j++) {
        multiply_tile(type, rows, x + j * params->x_stride, params->x_stride, params->n_cols, 1, sums);
        put(out, r0, t0 + j, 1, sums);
    }
}

void ISA(matmul_float)(const MatmulParams *params, const MatmulOut *out, uint32_t group, uint32_t t0, uint32_t n_tokens)
{
    uint32_t first = group * MATMUL_GROUP_ROWS;
    for (uint32_t r0 = first; r0 < first + MATMUL_GROUP_ROWS && r0 < out->n_rows; r0 += TILE_ROWS) {
        switch (out->type) {
        case DTYPE_F32:
            multiply_rows(DTYPE_F32, params, out, r0, t0, n_tokens);
            break;
        case DTYPE_F16:
            multiply_rows(DTYPE_F16, params, out, r0, t0, n_tokens);
            break;
        default:
            multiply_rows(DTYPE_BF16, params, out, r0, t0, n_tokens);
            break;
        }
    }
}
