/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention of a ragged batch over cached keys and values: softmax(cap(scale * q k^T)) v, with the masks and
 * heads of conventions.h. Keys of the batch's own rows are in the cache already (kv_append). fp32 accumulation. A row's
 * result does not depend on the other rows, on the number of threads, or on whether its prompt came in one chunk or
 * many.
 */
#pragma once
#include "kernels/attention/conventions.h"
#include "kernels/stream.h"
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct AttentionParams {
    const float *q; /* [n_rows of the batch, n_heads, k_dim], rotated */
    float *out;     /* [n_rows of the batch, n_heads, v_dim] */
    const AttnSpan *spans;
    uint32_t n_spans;
    uint32_t n_heads;
    float scale;
    float softcap;   /* scores s become softcap * tanh(s / softcap); 0: they stay */
    uint32_t window; /* keys that a query sees, its own among them; 0: all up to its own */
    void *scratch;   /* attention_scratch_bytes */
} AttentionParams;

/* n_workers: threads of the stream; max_context: largest position + 1 that will ever be asked for. */
size_t attention_scratch_bytes(uint32_t n_workers, uint32_t n_heads, uint32_t head_dim, uint32_t max_context);
bool attention_ref(const AttentionParams *params);

#ifdef __cplusplus
}
#endif
