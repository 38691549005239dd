/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/attend_work.h"

static size_t worker_floats(uint32_t n_heads, uint32_t head_dim)
{
    size_t queries = ATTEND_TASK_QUERIES + n_heads;
    return 2 * ATTEND_GROUP_KEYS * attend_pad(head_dim) +
           queries * (ATTEND_CHUNK_KEYS + 2 * attend_partial_floats(head_dim));
}

size_t attend_scratch_bytes(uint32_t n_workers, uint32_t n_heads, uint32_t head_dim, uint32_t max_context)
{
    size_t chunks = (size_t)max_context / ATTEND_CHUNK_KEYS + 1;
    size_t partials = (chunks > ATTEND_MIN_CHUNKS ? chunks : ATTEND_MIN_CHUNKS) * n_heads;
    return (n_workers * worker_floats(n_heads, head_dim) + partials * attend_partial_floats(head_dim)) * sizeof(float) +
           64;
}
