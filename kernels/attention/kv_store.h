/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the keys (rotated at their true positions) and values of new rows into their open pages, rounding to nearest
 * even; then closes every page of a quantised class that the rows fill: its image is quantised into the stored page.
 */
#pragma once
#include "kernels/attention/kv_page.h"
#include "kernels/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

/* What happens to Q and K first: only where KernelTable.kv_store_turns says so. Norms (rmsnorm.h), then rotation. */
typedef struct KvTurn {
    float *q;                     /* [rows of the batch, n_heads, k_dim] in place; NULL: both are turned already */
    const float *cos_sin;         /* [rows of the batch, n_pairs, 2], rope.h */
    const float *q_norm, *k_norm; /* [k_dim] or NULL */
    float norm_eps;
    uint32_t n_heads, n_pairs;
} KvTurn;

enum { KV_TURN_MAX_DIM = 256 };

typedef struct KvStoreParams {
    const float *k; /* [rows of the batch, n_kv_heads, k_dim] */
    const float *v; /* [rows of the batch, n_kv_heads, v_dim] */
    const KvSpan *spans;
    uint32_t n_spans;
    uint32_t n_kv_heads, k_dim, v_dim;
    KvTurn turn;     /* k itself stays as it is */
    KvLaunch launch; /* GPU */
} KvStoreParams;

bool kv_store_ref(const KvStoreParams *params);
/* The same bits as kv_store_ref. */
bool kv_store_cuda(const KvStoreParams *params, Stream stream);

#ifdef __cplusplus
}
#endif
