/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How CPU attention divides its work, and the scratch it needs. A row's keys are taken in blocks of 64 from position 0,
 * and the softmax starts afresh every ATTN_CHUNK_KEYS; the parts are merged in order. So the result is a function of
 * the position alone, though a long context may be shared out to many threads.
 */
#pragma once
#include "kernels/attention/attention.h"

enum {
    ATTN_BLOCK_KEYS = 64,
    ATTN_CHUNK_KEYS = 256,
    ATTN_TASK_QUERIES = 64, /* (row, head) pairs that share each unpacked block; more when a group has more heads */
};

/* Channels are padded to whole vectors. */
static inline size_t attn_pad(uint32_t dim)
{
    return ((size_t)dim + 15) / 16 * 16;
}

/* A partial result of one query: out [attn_pad(v_dim)] not yet divided, then the maximum and the sum of weights. */
static inline size_t attn_partial_floats(uint32_t head_dim)
{
    return attn_pad(head_dim) + 16;
}

typedef struct AttnScratch {
    float *keys;   /* [attn_pad(k_dim), ATTN_BLOCK_KEYS] transposed */
    float *values; /* [ATTN_BLOCK_KEYS, attn_pad(v_dim)] */
    float *chunk;  /* [queries of a task, attn_partial_floats] */
    float *total;  /* the same */
} AttnScratch;

/* The arrays of one worker; worker == n_workers: `keys` is where partials [chunk, head] of a divided row start. */
AttnScratch attention_scratch_at(const AttentionParams *params, uint32_t head_dim, uint32_t worker);
