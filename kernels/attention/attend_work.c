/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/attend_work.h"

enum {
    MAX_TASKS = 1024, /* at a time */
    MAX_PARTS = 4096,
    PARTS_PER_WORKER = 16, /* of equal cost would even out the workers well */
    UNPACK_COST = 3,       /* unpacking keys costs as much as so many queries against them */
};

static size_t max_queries(uint32_t n_heads)
{
    return (ATTEND_TASK_QUERIES + (size_t)n_heads + 15) / 16 * 16;
}

static size_t worker_floats(uint32_t n_heads, uint32_t head_dim)
{
    size_t of_query =
        ATTEND_CHUNK_KEYS + attend_n_sums(head_dim) + attend_pad(head_dim) + 2 * attend_partial_floats(head_dim);
    return 2 * ATTEND_GROUP_KEYS * attend_pad(head_dim) + 4 * ATTEND_CHUNK_KEYS + max_queries(n_heads) * of_query;
}

static size_t room_for_partials(uint32_t n_heads, uint32_t max_context)
{
    size_t chunks = (size_t)max_context / ATTEND_CHUNK_KEYS + 1;
    return (chunks > ATTEND_MIN_CHUNKS ? chunks : ATTEND_MIN_CHUNKS) * n_heads;
}

size_t attend_scratch_bytes(uint32_t n_workers, uint32_t n_heads, uint32_t head_dim, uint32_t max_context)
{
    size_t floats = n_workers * worker_floats(n_heads, head_dim) +
                    room_for_partials(n_heads, max_context) * attend_partial_floats(head_dim);
    return MAX_TASKS * sizeof(AttendTask) + MAX_PARTS * sizeof(AttendPart) + floats * sizeof(float) + 64;
}

static char *scratch_base(const AttendParams *params)
{
    return (char *)(((uintptr_t)params->scratch + 63) & ~(uintptr_t)63);
}

AttendScratch attend_scratch_at(const AttendWork *work, uint32_t worker)
{
    uint32_t n_heads = work->params->n_heads;
    size_t queries = max_queries(n_heads), dim = attend_pad(work->head_dim);
    float *at = (float *)(void *)scratch_base(work->params) + worker * worker_floats(n_heads, work->head_dim);
    AttendScratch scratch = {.keys = at, .values = at + ATTEND_GROUP_KEYS * dim};
    scratch.scores = scratch.values + ATTEND_GROUP_KEYS * dim;
    scratch.k_scale = scratch.scores + queries * ATTEND_CHUNK_KEYS;
    scratch.k_zero = scratch.k_scale + ATTEND_CHUNK_KEYS;
    scratch.v_scale = scratch.k_zero + ATTEND_CHUNK_KEYS;
    scratch.v_zero = scratch.v_scale + ATTEND_CHUNK_KEYS;
    scratch.far_queries = scratch.v_zero + ATTEND_CHUNK_KEYS;
    scratch.q_sums = scratch.far_queries + queries * dim;
    scratch.chunk = scratch.q_sums + queries * attend_n_sums(work->head_dim);
    scratch.total = scratch.chunk + queries * attend_partial_floats(work->head_dim);
    return scratch;
}

/* The chunks of a task: [0, sink_end), those of listed sectors, [recent_begin, end). */
typedef struct ChunkRanges {
    uint32_t sink_end, recent_begin, end;
} ChunkRanges;

static ChunkRanges chunk_ranges(const AttendTask *task)
{
    ChunkRanges r = {.end = (task->first_pos + task->n_rows - 1) / ATTEND_CHUNK_KEYS + 1};
    uint32_t sink = task->plan->sink;
    r.sink_end = sink / ATTEND_CHUNK_KEYS + (sink % ATTEND_CHUNK_KEYS != 0);
    if (r.sink_end > r.end) r.sink_end = r.end;
    uint32_t recent_begin = attend_recent_begin(task->plan, task->first_pos);
    bool sees_recent =
        recent_begin <= task->first_pos || (task->plan->recent && recent_begin < task->first_pos + task->n_rows);
    r.recent_begin = sees_recent ? recent_begin / ATTEND_CHUNK_KEYS : r.end;
    if (r.recent_begin < r.sink_end) r.recent_begin = r.sink_end;
    return r;
}

uint32_t attend_task_chunk(const AttendTask *task, uint32_t chunk)
{
    ChunkRanges r = chunk_ranges(task);
    if (chunk < r.sink_end || chunk >= r.recent_begin) return chunk;
    uint32_t i = plan_find_listed(task->plan, chunk * ATTEND_CHUNK_SECTORS);
    uint32_t listed = i < task->plan->n_list ? task->plan->list[i] / ATTEND_CHUNK_SECTORS : r.recent_begin;
    return listed < r.recent_begin ? listed : r.recent_begin;
}

static uint32_t count_chunks(const AttendTask *task)
{
    ChunkRanges r = chunk_ranges(task);
    uint32_t n = r.sink_end + r.end - r.recent_begin, last = UINT32_MAX;
    uint32_t own_sector = (task->first_pos + task->n_rows - 1) / KV_SECTOR_TOKENS;
    for (uint32_t i = plan_find_listed(task->plan, r.sink_end * ATTEND_CHUNK_SECTORS); i < task->plan->n_list; i++) {
        uint32_t chunk = task->plan->list[i] / ATTEND_CHUNK_SECTORS;
        if (chunk >= r.recent_begin || task->plan->list[i] > own_sector) break;
        n += chunk != last;
        last = chunk;
    }
    return n;
}

/* Moves on to the next task of the batch; runs of rows begin at multiples of run_rows within a page. */
static bool next_task(AttendWork *work, AttendTask *ret)
{
    const AttendParams *params = work->params;
    while (work->span < params->n_spans && work->row >= params->spans[work->span].n_rows) {
        work->span++;
        work->row = 0;
    }
    if (work->span >= params->n_spans) return false;
    const KvSpan *span = &params->spans[work->span];
    const KvHead *head = &span->heads[work->kv_head];
    uint32_t first_pos = span->first_pos + work->row, in_page = first_pos % KV_PAGE_TOKENS;
    uint32_t in_run = in_page % work->run_rows, left_of_page = KV_PAGE_TOKENS - in_page;
    uint32_t n_rows = work->run_rows - in_run;
    if (n_rows > left_of_page) n_rows = left_of_page;
    if (n_rows > span->n_rows - work->row) n_rows = span->n_rows - work->row;
    *ret = (AttendTask){.pages = &span->classes[head->class_index],
                        .plan = &span->plans[work->kv_head],
                        .slot = head->slot,
                        .kv_head = work->kv_head,
                        .first_row = span->first_row + work->row,
                        .n_rows = n_rows,
                        .first_pos = first_pos,
                        .n_parts = 1};
    ret->n_chunks = count_chunks(ret);
    if (++work->kv_head == params->n_kv_heads) {
        work->kv_head = 0;
        work->row += n_rows;
    }
    return true;
}

static uint64_t task_cost(const AttendWork *work, const AttendTask *task)
{
    return (uint64_t)task->n_chunks * (task->n_rows * work->group + UNPACK_COST);
}

void attend_work_begin(AttendWork *work, const AttendParams *params, uint32_t n_workers)
{
    *work = (AttendWork){.params = params, .n_workers = n_workers, .group = params->n_heads / params->n_kv_heads};
    work->head_dim = params->k_dim > params->v_dim ? params->k_dim : params->v_dim;
    work->run_rows = work->group < ATTEND_TASK_QUERIES ? (ATTEND_TASK_QUERIES + work->group - 1) / work->group : 1;
    char *at = scratch_base(params) + n_workers * worker_floats(params->n_heads, work->head_dim) * sizeof(float);
    work->tasks = (AttendTask *)(void *)at;
    work->parts = (AttendPart *)(void *)(at + MAX_TASKS * sizeof(AttendTask));
    work->partials = (float *)(void *)(work->parts + MAX_PARTS);
    uint64_t cost = 0;
    AttendTask task;
    if (n_workers > 1)
        while (next_task(work, &task)) cost += task_cost(work, &task);
    work->span = work->row = 0;
    work->part_cost = cost / (n_workers * PARTS_PER_WORKER) + 1;
    for (uint32_t s = 0; s < params->n_spans; s++) {
        size_t room = room_for_partials(params->n_heads, params->spans[s].first_pos + params->spans[s].n_rows);
        if (room > work->n_partials) work->n_partials = room;
    }
}

/* Into how many parts a task should be divided; 1 also where its partial results would never find room. */
static uint32_t parts_of(const AttendWork *work, const AttendTask *task)
{
    if (work->n_workers == 1 || (size_t)task->n_chunks * task->n_rows * work->group > work->n_partials) return 1;
    uint64_t n = task_cost(work, task) / work->part_cost + 1;
    if (n > task->n_chunks) n = task->n_chunks;
    if (n > MAX_PARTS / 4) n = MAX_PARTS / 4;
    return n > 1 ? (uint32_t)n : 1;
}

bool attend_work_next(AttendWork *work)
{
    size_t n_partials = 0;
    work->n_tasks = work->n_parts = 0;
    while (work->n_tasks < MAX_TASKS) {
        uint32_t span = work->span, kv_head = work->kv_head, row = work->row;
        AttendTask *task = &work->tasks[work->n_tasks];
        if (!next_task(work, task)) break;
        task->n_parts = parts_of(work, task);
        size_t partials = task->n_parts > 1 ? (size_t)task->n_chunks * task->n_rows * work->group : 0;
        if (work->n_parts + task->n_parts > MAX_PARTS || n_partials + partials > work->n_partials) {
            work->span = span; /* in the next turn */
            work->kv_head = kv_head;
            work->row = row;
            break;
        }
        task->first_partial = n_partials;
        n_partials += partials;
        atomic_init(&task->n_parts_left, task->n_parts);
        for (uint32_t i = 0; i < task->n_parts; i++)
            work->parts[work->n_parts++] = (AttendPart){.task = work->n_tasks, .part = i};
        work->n_tasks++;
    }
    return work->n_tasks > 0;
}
