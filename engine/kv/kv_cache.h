/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and values of the open sequences. One contiguous region a sequence, [layer][K, V][KV head][capacity][channels],
 * in memory that costs nothing until it is written and is given back when the sequence closes. Engine thread.
 */
#pragma once
#include "base/error.h"
#include "engine/batch.h"
#include "kernels/attention/conventions.h"

typedef struct KvCacheParams {
    uint32_t n_layers, n_kv_heads, k_dim, v_dim;
    DType type;        /* F32, F16 or BF16 */
    uint32_t capacity; /* tokens of one sequence */
    uint32_t max_sequences;
} KvCacheParams;

typedef struct KvCache KvCache;

LW_CHECK bool kv_cache_new(const KvCacheParams *params, KvCache **ret_cache, Error *error);
void kv_cache_free(KvCache *cache);          /* NULL is fine */
size_t kv_cache_bytes(const KvCache *cache); /* when every sequence is full */

/* ERR_BUSY when max_sequences are open. */
LW_CHECK bool kv_seq_open(KvCache *cache, SeqId *ret_seq, Error *error);
void kv_seq_close(KvCache *cache, SeqId seq);
bool kv_seq_is_open(const KvCache *cache, SeqId seq);
uint32_t kv_seq_tokens(const KvCache *cache, SeqId seq);
/* Counts n more tokens, whose keys and values the kernels have written; they fit the capacity. */
void kv_seq_advance(KvCache *cache, SeqId seq, uint32_t n);
/* Forgets the tokens from n on. */
void kv_seq_truncate(KvCache *cache, SeqId seq, uint32_t n);
KvView kv_seq_view(const KvCache *cache, SeqId seq, uint32_t layer);
