/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the keys (already rotated) and values of new tokens into the cache, rounding to nearest even. */
#pragma once
#include "kernels/attention/conventions.h"
#include "kernels/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct KvAppendParams {
    const float *k; /* [n_rows of the batch, n_kv_heads, k_dim] */
    const float *v; /* [n_rows of the batch, n_kv_heads, v_dim] */
    const AttnSpan *spans;
    uint32_t n_spans;
} KvAppendParams;

bool kv_append_ref(const KvAppendParams *params);

#ifdef __cplusplus
}
#endif
