/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/attend_work.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { HEADS = 6, KV_HEADS = 2, DIM = 16, MAX_SPANS = 64, MAX_CONTEXT = 200000 };

typedef struct Batch {
    KvPages pages;
    KvHead heads[KV_HEADS];
    AttnPlan plans[KV_HEADS];
    KvSpan spans[MAX_SPANS];
    AttendParams params;
} Batch;

static Batch *new_batch(uint32_t n_workers, AttnPlan plan)
{
    Batch *batch = calloc(1, sizeof *batch);
    cr_assert_not_null(batch);
    batch->plans[0] = batch->plans[1] = plan;
    batch->params = (AttendParams){.spans = batch->spans,
                                   .n_heads = HEADS,
                                   .n_kv_heads = KV_HEADS,
                                   .k_dim = DIM,
                                   .v_dim = DIM,
                                   .scratch = malloc(attend_scratch_bytes(n_workers, HEADS, DIM, MAX_CONTEXT))};
    cr_assert_not_null(batch->params.scratch);
    return batch;
}

static void add_span(Batch *batch, uint32_t first_pos, uint32_t n_rows)
{
    uint32_t n = batch->params.n_spans++,
             first_row = n ? batch->spans[n - 1].first_row + batch->spans[n - 1].n_rows : 0;
    batch->spans[n] = (KvSpan){&batch->pages, batch->heads, batch->plans, first_row, n_rows, first_pos};
}

static void free_batch(Batch *batch)
{
    free(batch->params.scratch);
    free(batch);
}

static bool task_sees(const AttendTask *task, uint32_t chunk)
{
    for (uint32_t r = 0; r < task->n_rows; r++)
        for (uint32_t k = 0; k < ATTEND_CHUNK_KEYS; k++)
            if (plan_sees(task->plan, task->first_pos + r, chunk * ATTEND_CHUNK_KEYS + k)) return true;
    return false;
}

static void check_chunks(const AttendTask *task)
{
    uint32_t next = 0, n = 0;
    for (uint32_t chunk = 0; chunk * ATTEND_CHUNK_KEYS < task->first_pos + task->n_rows; chunk++) {
        if (!task_sees(task, chunk)) continue;
        cr_assert_eq(attend_task_chunk(task, next), chunk, "from %u, rows at %u", next, task->first_pos);
        next = chunk + 1;
        n++;
    }
    cr_assert_eq(task->n_chunks, n, "rows at %u: %u chunks, not %u", task->first_pos, task->n_chunks, n);
}

/* The chunks that a task visits are those that some row of it sees a key of. */
Test(test_attend_work, chunks_of_a_plan)
{
    static const uint32_t list[] = {0, 3, 20, 21, 40, 79, 90, 200, 201};
    const AttnPlan plans[] = {{.recent = PLAN_ALL},
                              {0},
                              {.sink = 1},
                              {.sink = 256, .recent = 1},
                              {.sink = 257, .recent = 300},
                              {.sink = 4, .recent = 70},
                              {.sink = PLAN_ALL},
                              {.list = list, .n_list = 9},
                              {.sink = 300, .recent = 40, .list = list, .n_list = 9},
                              {.recent = 257, .list = list + 4, .n_list = 2}};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        Batch *batch = new_batch(1, plans[i]);
        const uint32_t positions[] = {0, 63, 255, 256, 300, 511, 512, 900, 1279, 1280, 3300};
        for (size_t p = 0; p < sizeof positions / sizeof *positions; p++) add_span(batch, positions[p], 1 + p % 3 * 40);
        AttendWork work;
        attend_work_begin(&work, &batch->params, 1);
        while (attend_work_next(&work))
            for (uint32_t t = 0; t < work.n_tasks; t++) check_chunks(&work.tasks[t]);
        free_batch(batch);
    }
}

/* Every row of every KV head is in one task, and the rows of a task have their own page in common. */
Test(test_attend_work, tasks_cover_the_batch)
{
    Batch *batch = new_batch(3, (AttnPlan){.recent = PLAN_ALL});
    const uint32_t spans[][2] = {{0, 1}, {5, 0}, {60, 10}, {64, 64}, {1, 300}, {4095, 1}, {127, 130}};
    uint32_t seen[KV_HEADS][1000] = {{0}}, n_rows = 0;
    for (size_t i = 0; i < 7; i++) {
        add_span(batch, spans[i][0], spans[i][1]);
        n_rows += spans[i][1];
    }
    AttendWork work;
    attend_work_begin(&work, &batch->params, 3);
    while (attend_work_next(&work))
        for (uint32_t t = 0; t < work.n_tasks; t++) {
            const AttendTask *task = &work.tasks[t];
            uint32_t last = task->first_pos + task->n_rows - 1;
            cr_assert_eq(task->first_pos / KV_PAGE_TOKENS, last / KV_PAGE_TOKENS);
            for (uint32_t r = 0; r < task->n_rows; r++) seen[task->kv_head][task->first_row + r]++;
        }
    for (uint32_t h = 0; h < KV_HEADS; h++)
        for (uint32_t r = 0; r < n_rows; r++) cr_assert_eq(seen[h][r], 1, "row %u", r);
    free_batch(batch);
}

/* One long sequence among short ones: no part is so large that the others would wait for it. */
Test(test_attend_work, uneven_sequences_are_divided_evenly)
{
    enum { WORKERS = 4, LONG = 120000 };
    Batch *batch = new_batch(WORKERS, (AttnPlan){.recent = PLAN_ALL});
    for (uint32_t i = 0; i < MAX_SPANS; i++) add_span(batch, i == 40 ? LONG : 100 + i * 30, 1);
    AttendWork work;
    attend_work_begin(&work, &batch->params, WORKERS);
    uint64_t chunks = 0, largest = 0, n_parts = 0;
    while (attend_work_next(&work)) {
        n_parts += work.n_parts;
        for (uint32_t t = 0; t < work.n_tasks; t++) {
            const AttendTask *task = &work.tasks[t];
            uint64_t part = (task->n_chunks + task->n_parts - 1) / task->n_parts;
            if (part > largest) largest = part;
            chunks += task->n_chunks;
        }
    }
    cr_assert_leq(largest, chunks / WORKERS / 10, "%lu of %lu chunks in one part", largest, chunks);
    cr_assert_leq(n_parts, MAX_SPANS * KV_HEADS + 32 * WORKERS, "%lu parts", n_parts);
    free_batch(batch);
}
