/* SPDX-License-Identifier: Apache-2.0 */
/* A row's result is a function of its position, its plan and the stored keys alone: to the last bit. */
#include "tests/kernels/paged.h"
#include "tests/support/sanitized.h"
#include "tests/support/weights.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 6, KV_HEADS = 2, DIM = 32, ROW_FLOATS = HEADS * DIM };

static ThreadPool *new_pool(uint32_t n)
{
    ThreadPool *pool = NULL;
    Error error;
    cr_assert(threads_new(n, &pool, &error), "%s", error.text);
    return pool;
}

static PagedShape shape_of(KvType type)
{
    return (PagedShape){type, HEADS, KV_HEADS, DIM, DIM};
}

static bool same_bits(const float *a, const float *b, size_t n_rows)
{
    return memcmp(a, b, n_rows * ROW_FLOATS * sizeof *a) == 0;
}

static const uint32_t listed[] = {2, 3, 7, 8, 17};
static const AttnPlan plans[] = {
    {.recent = PLAN_ALL}, {.sink = 5, .recent = 90}, {.sink = 64, .recent = 16, .list = listed, .n_list = 5}};

/* A prompt of 390 tokens in chunks of every size from 1 to 130 (fewer on slower rows), on one to four threads. */
static void check_chunks(const KernelTable *table, const Paged *paged, ThreadPool **pools)
{
    enum { TOKENS = 390 };
    PagedRun run = {.attend = table->attend};
    PagedRows all = {paged, 0, TOKENS};
    float *want = paged_attend(&run, &all, 1);
    for (uint32_t size = 1; size <= 130; size += table == kernels_cpu() ? SANITIZED_SHARE : 43) {
        run.stream.pool = pools[size % 4];
        for (uint32_t first = 0; first < TOKENS; first += size) {
            PagedRows chunk = {paged, first, TOKENS - first < size ? TOKENS - first : size};
            float *got = paged_attend(&run, &chunk, 1);
            cr_assert(same_bits(got, want + (size_t)first * ROW_FLOATS, chunk.n_rows), "%s, %s: chunk of %u at %u",
                      table->name, kv_type_info(paged->shape.type)->name, size, first);
            free(got);
        }
    }
    free(want);
}

Test(test_attend_bits, chunks_and_threads, .timeout = 300)
{
    ThreadPool *pools[4] = {NULL, new_pool(2), new_pool(3), new_pool(4)};
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
        for (size_t i = 0; i < 3; i++) {
            Paged *paged = paged_new(shape_of((KvType[]){KV_F16, KV_INT8, KV_INT4}[i]), 390, i);
            paged_set_plan(paged, plans[i]);
            paged->plans[1] = plans[(i + 1) % 3];
            check_chunks(table, paged, pools);
            paged_free(paged);
        }
    for (int i = 1; i < 4; i++) threads_free(pools[i]);
}

/* Sixty sequences of very uneven length, decoding and in prefill, in one call and each alone on one thread. */
Test(test_attend_bits, batch_composition, .timeout = 300)
{
    enum { N = 60 };
    Paged *long_one = paged_new(shape_of(KV_F16), 3000, 1), *other = paged_new(shape_of(KV_F16), 600, 2);
    ThreadPool *pool = new_pool(4);
    PagedRows rows[N];
    uint64_t seed = 7;
    for (uint32_t i = 0; i < N; i++) {
        uint32_t n = i % 9 == 0 ? 40 : 1, most = i % 5 ? 600 : 3000;
        uint32_t first = (uint32_t)((random_float(&seed) + 1) / 2 * (float)(most - n - 1));
        rows[i] = (PagedRows){i % 5 ? other : long_one, first, n};
    }
    paged_set_plan(other, (AttnPlan){.sink = 20, .recent = 200});
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
        PagedRun run = {.attend = table->attend, .stream = {.pool = pool}};
        float *together = paged_attend(&run, rows, N);
        size_t at = 0;
        run.stream.pool = NULL;
        for (uint32_t i = 0; i < N; at += rows[i].n_rows, i++) {
            float *alone = paged_attend(&run, &rows[i], 1);
            cr_assert(same_bits(alone, together + at * ROW_FLOATS, rows[i].n_rows), "%s: sequence %u", table->name, i);
            free(alone);
        }
        free(together);
    }
    threads_free(pool);
    paged_free(long_one);
    paged_free(other);
}

/* Single rows of one sequence, all in one call on four threads, and each alone on one. */
static void check_rows_alone(const PagedRows *rows, uint32_t n)
{
    ThreadPool *pool = new_pool(4);
    PagedRun run = {.attend = kernels_cpu()->attend, .stream = {.pool = pool}};
    float *together = paged_attend(&run, rows, n);
    run.stream.pool = NULL;
    for (uint32_t i = 0; i < n; i++) {
        float *alone = paged_attend(&run, &rows[i], 1);
        cr_assert(same_bits(alone, together + (size_t)i * ROW_FLOATS, 1), "row %u of %u", i, n);
        free(alone);
    }
    free(together);
    threads_free(pool);
}

/* More tasks, and more partial results of rows that are divided, than there is room for at a time. */
Test(test_attend_bits, batches_beyond_the_scratch, .timeout = 300)
{
    enum { MANY = 1100, LONG = 31 };
    Paged *paged = paged_new(shape_of(KV_INT8), 5000, 3);
    PagedRows *rows = calloc(MANY, sizeof *rows);
    cr_assert_not_null(rows);
    for (uint32_t i = 0; i < MANY; i++) rows[i] = (PagedRows){paged, i < 20 ? 2500 + i : i % 90, 1};
    check_rows_alone(rows, MANY);
    for (uint32_t i = 0; i < LONG; i++) rows[i].first_pos = 4900 + i;
    check_rows_alone(rows, LONG);
    free(rows);
    paged_free(paged);
}

/* The same keys said in another way. */
static void check_phrasings(const KernelTable *table, Paged *paged, uint32_t position, const AttnPlan *ways, size_t n)
{
    PagedRun run = {.attend = table->attend};
    PagedRows rows = {paged, position, 1};
    paged_set_plan(paged, ways[0]);
    float *want = paged_attend(&run, &rows, 1);
    for (size_t i = 1; i < n; i++) {
        paged_set_plan(paged, ways[i]);
        float *got = paged_attend(&run, &rows, 1);
        cr_assert(same_bits(got, want, 1), "%s: position %u, way %zu", table->name, position, i);
        free(got);
    }
    free(want);
}

Test(test_attend_bits, plans_that_show_the_same_keys, .timeout = 300)
{
    enum { TOKENS = 700, SECTORS = TOKENS / KV_SECTOR_TOKENS + 1 };
    Paged *paged = paged_new(shape_of(KV_F8), TOKENS, 6);
    uint32_t all[SECTORS];
    for (uint32_t i = 0; i < SECTORS; i++) all[i] = i;
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
        for (uint32_t p = 0; p < TOKENS; p += p < 140 ? 1 : 23) {
            uint32_t own = p / KV_SECTOR_TOKENS, middle = own / 2, third = own / 3, base = middle * KV_SECTOR_TOKENS;
            const AttnPlan dense[] = {
                {.recent = PLAN_ALL},
                {.list = all, .n_list = SECTORS}, /* sectors to come as well */
                {.recent = p - own * KV_SECTOR_TOKENS + 1, .list = all, .n_list = own},
                {.sink = p + 1},
                {.sink = base, .recent = p - base + 1},
                {.sink = third * KV_SECTOR_TOKENS,
                 .recent = p - base + 1,
                 .list = all + third,
                 .n_list = middle - third},
                {.sink = p / 2, .recent = p - p / 2 + 1}, /* which meet anywhere in a sector */
            };
            check_phrasings(table, paged, p, dense, sizeof dense / sizeof *dense);
            const AttnPlan streaming[] = {
                {.sink = third * KV_SECTOR_TOKENS, .recent = p - base + 1},
                {.recent = p - base + 1, .list = all, .n_list = third},
                {.sink = third * KV_SECTOR_TOKENS, .list = all + middle, .n_list = own - middle + 1},
            };
            check_phrasings(table, paged, p, streaming, sizeof streaming / sizeof *streaming);
        }
    paged_free(paged);
}

/* Other numbers in keys that a plan hides change nothing: sink and window begin and end anywhere in a page. */
Test(test_attend_bits, hidden_keys_do_not_matter, .timeout = 300)
{
    enum { TOKENS = 340 };
    const KernelTable *table;
    Paged *paged = paged_new(shape_of(KV_F16), TOKENS, 6), *changed = paged_new(shape_of(KV_F16), TOKENS, 6);
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
        for (uint32_t offset = 0; offset < KV_PAGE_TOKENS; offset++) {
            uint32_t p = TOKENS - 1 - offset;
            AttnPlan plan = {.sink = 1 + offset * 3 % 70, .recent = 1 + (offset * 37 + 11) % 150};
            float k[DIM], v[DIM], nan[DIM];
            for (uint32_t c = 0; c < DIM; c++) nan[c] = NAN;
            for (uint32_t key = 0; key < TOKENS; key++)
                for (uint32_t h = 0; h < KV_HEADS; h++) {
                    const KvLayout *layout;
                    uint32_t page = key / KV_PAGE_TOKENS, token = key % KV_PAGE_TOKENS, slot = paged->heads[h].slot;
                    kv_slot_get(&paged->pool.layout, kv_pages_slot(&paged->pages, page, page, slot, &layout), token, k,
                                v);
                    char *to = kv_pages_slot(&changed->pages, page, page, slot, &layout);
                    bool seen = plan_sees(&plan, p, key);
                    kv_slot_put(layout, to, token, seen ? k : nan, seen ? v : nan);
                }
            paged_set_plan(paged, plan);
            paged_set_plan(changed, plan);
            PagedRun run = {.attend = table->attend};
            PagedRows rows[2] = {{paged, p, 1}, {changed, p, 1}};
            float *got = paged_attend(&run, rows, 2);
            cr_assert(same_bits(got, got + ROW_FLOATS, 1), "%s: sink %u, recent %u at %u", table->name, plan.sink,
                      plan.recent, p);
            free(got);
        }
    paged_free(paged);
    paged_free(changed);
}

/* A query reads its own page unquantised and earlier ones as stored, whether their images are still there or not. */
Test(test_attend_bits, earlier_pages_are_read_as_stored)
{
    enum { TOKENS = 200 };
    const KvType types[] = {KV_F8, KV_INT8, KV_INT4};
    for (size_t i = 0; i < 3; i++) {
        Paged *paged = paged_new(shape_of(types[i]), TOKENS, i);
        const KernelTable *table = kernels_ref();
        for (size_t row = 0; table; table = kernels_cpu_row(row++)) {
            PagedRun run = {.attend = table->attend};
            PagedRows all = {paged, 0, TOKENS};
            float *want = paged_attend(&run, &all, 1);
            for (uint32_t page = 0; page * KV_PAGE_TOKENS < TOKENS; page++) {
                KvPages kept = paged->pages;
                paged->pages.images += page; /* none of earlier pages, and no stored one of this and later pages */
                paged->pages.first_image = page;
                uint32_t *numbers = paged->numbers, stored[TOKENS / KV_PAGE_TOKENS + 1];
                for (uint32_t j = 0; j <= TOKENS / KV_PAGE_TOKENS; j++) stored[j] = j < page ? numbers[j] : UINT32_MAX;
                paged->pages.pages = stored;
                uint32_t first = page * KV_PAGE_TOKENS, n = TOKENS - first < 64 ? TOKENS - first : 64;
                PagedRows rows = {paged, first, n};
                float *got = paged_attend(&run, &rows, 1);
                cr_assert(same_bits(got, want + (size_t)first * ROW_FLOATS, n), "%s, %s: page %u", table->name,
                          kv_type_info(types[i])->name, page);
                free(got);
                paged->pages = kept;
            }
            free(want);
        }
        paged_free(paged);
    }
}
