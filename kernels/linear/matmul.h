/* SPDX-License-Identifier: Apache-2.0 */
/*
 * y[t, r] (+)= sum_c W[r, c] x[t, c] + bias[r], for up to MATMUL_MAX_OUT matrices that share the input x (q, k and v;
 * gate and up). W is a GGUF block format and stays in it. Activations: fp32 against F32, F16 and BF16 weights;
 * quantised to 8 bits in blocks of 32 (scale = max|x| / 127) against quantised weights, as the reference engines do.
 *
 * The order in which one (t, r) sum is formed depends on n_cols and the type only, never on n_tokens, the number of
 * threads or the tile: a row alone and in a batch is bit-identical.
 *
 * matmul_ref follows the definition in plain loops (8-bit activations included, integer sums exact);
 * matmul_exact_ref multiplies the dequantised weights with fp32 activations in fp64: the yardstick for the error of
 * both.
 */
#pragma once
#include "base/tensor.h"
#include "kernels/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { MATMUL_MAX_OUT = 4 };

typedef struct MatmulOut {
    const void *w; /* [n_rows, n_cols] */
    DType type;
    uint32_t n_rows;
    float *y;          /* [n_tokens, y_stride] */
    size_t y_stride;   /* elements, >= n_rows */
    const float *bias; /* [n_rows] or NULL */
    bool accumulate;   /* add to what y holds: the residual */
} MatmulOut;

typedef struct MatmulParams {
    const float *x; /* [n_tokens, x_stride] */
    size_t x_stride;
    uint32_t n_tokens, n_cols;
    uint32_t n_out;
    MatmulOut out[MATMUL_MAX_OUT];
    void *scratch; /* matmul_scratch_bytes(n_tokens, n_cols), aligned to 64 */
} MatmulParams;

size_t matmul_scratch_bytes(uint32_t n_tokens, uint32_t n_cols);
bool matmul_exact_ref(const MatmulParams *params);
bool matmul_ref(const MatmulParams *params);

#ifdef __cplusplus
}
#endif
