/* SPDX-License-Identifier: Apache-2.0 */
/* Token embedding: y[t] = scale * dequantise(table[ids[t]]). The caller has checked every id against n_vocab. */
#pragma once
#include "base/tensor.h"
#include "kernels/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct EmbedParams {
    const void *table; /* [n_vocab, n] rows of type */
    DType type;
    const uint32_t *ids; /* [n_tokens] */
    float *y;            /* [n_tokens, n] */
    uint32_t n_tokens, n;
    float scale; /* 1 for most families */
} EmbedParams;

bool embed_ref(const EmbedParams *params);
bool embed_cuda(const EmbedParams *params, Stream stream);

#ifdef __cplusplus
}
#endif
