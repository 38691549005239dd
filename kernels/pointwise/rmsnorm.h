/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Root mean square norm: y[r, i] = x[r, i] / sqrt(mean_i(x[r, i]^2) + eps) * weight[i]. The sum is formed in
 * fp64 in an order that n alone fixes, so a row's result never depends on its neighbours. y may be x. Also serves the
 * per-head norms of Q and K (n_rows = n_tokens * n_heads, n = head_dim).
 */
#pragma once
#include "kernels/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct RmsNormParams {
    const float *x;      /* [n_rows, n] */
    const float *weight; /* [n] */
    float *y;            /* [n_rows, n] */
    uint32_t n_rows, n;
    float eps;
} RmsNormParams;

bool rmsnorm_ref(const RmsNormParams *params);
bool rmsnorm_cuda(const RmsNormParams *params, Stream stream);

#ifdef __cplusplus
}
#endif
