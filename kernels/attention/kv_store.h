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

typedef struct KvStoreParams {
    const float *k; /* [rows of the batch, n_kv_heads, k_dim] */
    const float *v; /* [rows of the batch, n_kv_heads, v_dim] */
    const KvSpan *spans;
    uint32_t n_spans;
    uint32_t n_kv_heads, k_dim, v_dim;
    KvLaunch launch; /* GPU */
} KvStoreParams;

bool kv_store_ref(const KvStoreParams *params);
/* The same bits as kv_store_ref. */
bool kv_store_cuda(const KvStoreParams *params, Stream stream);

#ifdef __cplusplus
}
#endif
