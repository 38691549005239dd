/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every attention kernel agrees on.
 *
 * Masks: the query at position p sees the keys at positions 0..p, itself included; with a window only those after
 * p - window (attn_first_key).
 * Scale: scores are scale * (q . k); scale is 1/sqrt(head_dim) unless the family says otherwise, applied in the kernel.
 * Log-sum-exp: natural base, over scaled scores; a row that sees no key has lse = -INFINITY and out = 0.
 * Heads: query head h reads KV head h / (n_heads / n_kv_heads).
 * Keys are stored rotated at their true position, in the channel order of rope.h (ARCHITECTURE.md, KV facts 1 and 2).
 */
#pragma once
#include "base/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

/* One layer of one sequence's cache: the key of KV head h at position p starts (h * capacity + p) * k_dim elements into
 * k. */
typedef struct KvView {
    void *k;    /* [n_kv_heads, capacity, k_dim] of type */
    void *v;    /* [n_kv_heads, capacity, v_dim] of type */
    DType type; /* F32, F16 or BF16 */
    uint32_t n_kv_heads, k_dim, v_dim;
    uint32_t capacity; /* tokens */
} KvView;

/* Rows [first_row, first_row + n_rows) of a batch belong to one sequence, at positions first_pos and up. */
typedef struct AttnSpan {
    KvView kv;
    uint32_t first_row, n_rows, first_pos;
} AttnSpan;

/* The first key that the query at a position sees; window 0: none is set. */
static inline uint32_t attn_first_key(uint32_t window, uint32_t position)
{
    return window && position >= window ? position - window + 1 : 0;
}

#ifdef __cplusplus
}
#endif
