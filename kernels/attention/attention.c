/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/scratch.h"

static size_t worker_floats(uint32_t n_heads, uint32_t head_dim)
{
    size_t dim = attn_pad(head_dim);
    size_t queries = n_heads > ATTN_TASK_QUERIES ? n_heads : ATTN_TASK_QUERIES;
    return 2 * ATTN_BLOCK_KEYS * dim + 2 * queries * attn_partial_floats(head_dim);
}

size_t attention_scratch_bytes(uint32_t n_workers, uint32_t n_heads, uint32_t head_dim, uint32_t max_context)
{
    size_t chunks = (size_t)max_context / ATTN_CHUNK_KEYS + 1;
    size_t partials = chunks * n_heads * attn_partial_floats(head_dim);
    return (n_workers * worker_floats(n_heads, head_dim) + partials) * sizeof(float) + 64;
}

AttnScratch attention_scratch_at(const AttentionParams *params, uint32_t head_dim, uint32_t worker)
{
    size_t dim = attn_pad(head_dim), partial = attn_partial_floats(head_dim);
    size_t queries = params->n_heads > ATTN_TASK_QUERIES ? params->n_heads : ATTN_TASK_QUERIES;
    float *at = (float *)(void *)(((uintptr_t)params->scratch + 63) & ~(uintptr_t)63);
    at += worker * worker_floats(params->n_heads, head_dim);
    AttnScratch scratch = {.keys = at, .values = at + ATTN_BLOCK_KEYS * dim};
    scratch.chunk = scratch.values + ATTN_BLOCK_KEYS * dim;
    scratch.total = scratch.chunk + queries * partial;
    return scratch;
}
