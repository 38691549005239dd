/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How CPU attention divides its work, and the scratch it needs. The softmax starts afresh every ATTEND_CHUNK_KEYS
 * positions, and the parts are merged in order: so a result is a function of the visible keys alone, though a long
 * context may be shared out to many threads. Within a chunk visible sectors are taken ATTEND_GROUP_SECTORS at a time.
 * Engine thread, but for attend_scratch_at and the functions on a task, which are any thread's.
 */
#pragma once
#include "kernels/attention/attend.h"

#include <stdatomic.h>

enum {
    ATTEND_CHUNK_KEYS = 256,
    ATTEND_CHUNK_SECTORS = ATTEND_CHUNK_KEYS / KV_SECTOR_TOKENS,
    ATTEND_GROUP_SECTORS = 4,
    ATTEND_GROUP_KEYS = ATTEND_GROUP_SECTORS * KV_SECTOR_TOKENS,
    ATTEND_CHUNK_GROUPS = ATTEND_CHUNK_SECTORS / ATTEND_GROUP_SECTORS,
    ATTEND_TASK_QUERIES = 64, /* (row, head) pairs that share each unpacked sector; up to n_heads more */
    ATTEND_SUM_CHANNELS = 16, /* sums of queries are kept every so many channels */
    ATTEND_MIN_CHUNKS = 512,  /* partial results that there is room for, each of all heads of a row */
};

/* The queries of one KV head in a run of rows of one sequence that have their own page in common. */
typedef struct AttendTask {
    const KvPages *pages;
    const AttnPlan *plan;
    uint32_t slot, kv_head;
    uint32_t first_row, n_rows; /* of the batch */
    uint32_t first_pos;
    uint32_t n_chunks;    /* that a row of it sees something of */
    uint32_t n_parts;     /* its chunks are shared out to; 1: its result is written directly */
    size_t first_partial; /* n_parts > 1: [n_chunks, queries] of AttendWork.partials */
    atomic_uint n_parts_left;
} AttendTask;

typedef struct AttendPart {
    uint32_t task, part;
} AttendPart;

/* As many tasks of a batch as there is room for at a time, in the scratch. */
typedef struct AttendWork {
    const AttendParams *params;
    uint32_t n_workers, group, run_rows, head_dim;
    AttendTask *tasks;
    AttendPart *parts;
    float *partials; /* room for n_partials, attend_partial_floats each */
    uint32_t n_tasks, n_parts;
    size_t n_partials;
    uint64_t part_cost;          /* what a part should cost at most */
    uint32_t span, kv_head, row; /* the next task: the span's row */
} AttendWork;

/* The arrays of one worker. */
typedef struct AttendScratch {
    float *keys;             /* [channels, ATTEND_GROUP_KEYS] */
    float *values;           /* [ATTEND_GROUP_KEYS, attend_pad(v_dim)] */
    float *scores;           /* [queries, ATTEND_CHUNK_KEYS] */
    float *k_scale, *k_zero; /* [ATTEND_CHUNK_KEYS] */
    float *v_scale, *v_zero; /* the same */
    float *q_sums;           /* [queries, attend_n_sums] */
    float *far_queries;      /* [queries, channels], of plans with grouped positions */
    float *chunk, *total;    /* [queries, attend_partial_floats] */
} AttendScratch;

static inline size_t attend_pad(uint32_t dim)
{
    return ((size_t)dim + 31) / 32 * 32;
}

static inline uint32_t attend_n_sums(uint32_t dim)
{
    return (dim + ATTEND_SUM_CHANNELS - 1) / ATTEND_SUM_CHANNELS;
}

/* A partial result of one query: out [attend_pad(v_dim)] not yet divided, then the maximum and the sum of weights. */
static inline size_t attend_partial_floats(uint32_t v_dim)
{
    return attend_pad(v_dim) + 16;
}

void attend_work_begin(AttendWork *work, const AttendParams *params, uint32_t n_workers);
bool attend_work_next(AttendWork *work); /* false: all of the batch is done */
AttendScratch attend_scratch_at(const AttendWork *work, uint32_t worker);

/* The first chunk from `chunk` on that a row of the task sees something of; only asked for when there is one. */
uint32_t attend_task_chunk(const AttendTask *task, uint32_t chunk);

/* The first position that the query at `position` sees by recency: beyond its own when none. */
static inline uint32_t attend_recent_begin(const AttnPlan *plan, uint32_t position)
{
    uint32_t begin = plan->recent > position ? 0 : position + 1 - plan->recent;
    if (plan->positions == POSITIONS_GROUPED) return 0;
    return begin > plan->recent_from ? begin : plan->recent_from;
}
