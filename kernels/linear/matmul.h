/* SPDX-License-Identifier: Apache-2.0 */
/*
 * y[t, r] (+)= sum_c W[r, c] x[t, c] + bias[r], for up to MATMUL_MAX_OUT matrices that share the input x (q, k and v;
 * gate and up). W is a GGUF block format and stays in it. Activations: fp32 against F32, F16 and BF16 weights;
 * quantised to 8 bits in blocks of 32 (scale = max|x| / 127) against quantised weights, as the reference engines do.
 *
 * On the CPU the order in which one (t, r) sum is formed depends on n_cols and the type only, never on n_tokens, the
 * number of threads or the tile: a row alone and in a batch is bit-identical.
 *
 * matmul_ref follows the definition in plain loops (8-bit activations included, integer sums exact);
 * matmul_exact_ref multiplies the dequantised weights with fp32 activations in fp64: the yardstick for the error of
 * both.
 *
 * matmul_cuda wants weights packed as device_layout.h says and multiplies them with 16-bit activations (F16 and BF16:
 * with two 16-bit parts, which is nearly fp32). Beyond MATMUL_CUDA_ROWS tokens, for F32 and BF16 beyond
 * MATMUL_CUDA_PLAIN_ROWS, cuBLAS multiplies, and what is not F32 as bfloat16; on compute capability 9.0 some types are
 * gemm.cuh's from 17 tokens on and up to GEMM_MOST_TOKENS. The order of a sum may depend on n_tokens unless
 * is_deterministic is set.
 */
#pragma once
#include "base/error.h"
#include "base/tensor.h"
#include "kernels/pointwise/glu.h"
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
    void *scratch; /* matmul_scratch_bytes(n_tokens, n_cols) or matmul_cuda_scratch_bytes, aligned to 64 */

    /* What happens to x first: only where KernelTable.matmul_fuses says so; at most one of the two. */
    const float *norm_weight; /* [n_cols] or NULL: rmsnorm.h */
    float norm_eps;
    const float *glu_up; /* [n_tokens, x_stride] or NULL: x is the gate, glu.h */
    GluActivation glu_activation;
    /* And to the results, there too: out[0].y takes glu_activation(out[0]) * out[1], out[1].y is undefined after. Both
     * have the same rows, and neither accumulates. */
    bool is_gated;
    bool is_deterministic; /* CUDA: every token as if it came alone; slow for many */
} MatmulParams;

size_t matmul_scratch_bytes(uint32_t n_tokens, uint32_t n_cols);
bool matmul_exact_ref(const MatmulParams *params);
bool matmul_ref(const MatmulParams *params);

enum { MATMUL_CUDA_ROWS = 64, MATMUL_CUDA_PLAIN_ROWS = 16 };
size_t matmul_cuda_scratch_bytes(uint32_t n_tokens, uint32_t n_cols);
bool matmul_cuda(const MatmulParams *params, Stream stream);
/* Prepares the kernels on the current device; once, before matmul_cuda. */
LW_CHECK bool matmul_cuda_prepare(Error *error);

#ifdef __cplusplus
}
#endif
