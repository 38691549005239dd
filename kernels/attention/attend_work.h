/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How CPU attention divides its work, and the scratch it needs. The softmax starts afresh every ATTEND_CHUNK_KEYS
 * positions, and the parts are merged in order: so a result is a function of the visible keys alone, though a long
 * context may be shared out to many threads. Within a chunk visible sectors are taken ATTEND_GROUP_SECTORS at a time.
 */
#pragma once
#include "kernels/attention/attend.h"

enum {
    ATTEND_CHUNK_KEYS = 256,
    ATTEND_CHUNK_SECTORS = ATTEND_CHUNK_KEYS / KV_SECTOR_TOKENS,
    ATTEND_GROUP_SECTORS = 4,
    ATTEND_GROUP_KEYS = ATTEND_GROUP_SECTORS * KV_SECTOR_TOKENS,
    ATTEND_TASK_QUERIES = 64, /* (row, head) pairs that share each unpacked sector; up to n_heads more */
    ATTEND_MIN_CHUNKS = 512,  /* partial results that there is room for, each of all heads of a row */
};

/* A partial result of one query: out [attend_pad(v_dim)] not yet divided, then the maximum and the sum of weights. */
static inline size_t attend_pad(uint32_t dim)
{
    return ((size_t)dim + 31) / 32 * 32;
}

static inline size_t attend_partial_floats(uint32_t v_dim)
{
    return attend_pad(v_dim) + 16;
}
