/* SPDX-License-Identifier: Apache-2.0 */
/* CPU rows against the reference. What must be equal to the last bit is in test_attend_bits.c. */
#include "tests/kernels/paged.h"
#include "tests/support/compare.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static ThreadPool *new_pool(uint32_t n)
{
    ThreadPool *pool = NULL;
    Error error;
    cr_assert(threads_new(n, &pool, &error), "%s", error.text);
    return pool;
}

static float *run_ref(const PagedRows *rows, uint32_t n, float softcap)
{
    PagedRun run = {.attend = kernels_ref()->attend, .softcap = softcap};
    return paged_attend(&run, rows, n);
}

/* Softmax over whole arrays, as a textbook has it, for query head h at a position: the reference's own check. */
static void attend_by_hand(const Paged *paged, uint32_t position, uint32_t h, double *ret_out)
{
    enum { MAX_TOKENS = 200 };
    const PagedShape *s = &paged->shape;
    uint32_t kv_head = h / (s->n_heads / s->n_kv_heads);
    double weights[MAX_TOKENS], sum = 0;
    for (uint32_t p = 0; p <= position; p++) {
        weights[p] = 0;
        for (uint32_t c = 0; c < s->k_dim; c++)
            weights[p] += (double)paged->q[((size_t)position * s->n_heads + h) * s->k_dim + c] *
                          paged->k[((size_t)p * s->n_kv_heads + kv_head) * s->k_dim + c];
        weights[p] = exp((double)0.3f * weights[p]);
        sum += weights[p];
    }
    for (uint32_t c = 0; c < s->v_dim; c++) {
        ret_out[c] = 0;
        for (uint32_t p = 0; p <= position; p++)
            ret_out[c] += weights[p] / sum * paged->v[((size_t)p * s->n_kv_heads + kv_head) * s->v_dim + c];
    }
}

Test(test_attend, reference_by_hand)
{
    enum { TOKENS = 150, FIRST = 61, HEADS = 4, K_DIM = 16, V_DIM = 12 };
    Paged *paged = paged_new((PagedShape){KV_F32, HEADS, 2, K_DIM, V_DIM}, TOKENS, 3);
    PagedRows rows = {paged, FIRST, TOKENS - FIRST};
    float *got = run_ref(&rows, 1, 0), *at = got;
    for (uint32_t p = FIRST; p < TOKENS; p++)
        for (uint32_t h = 0; h < HEADS; h++) {
            double want[V_DIM];
            attend_by_hand(paged, p, h, want);
            for (uint32_t c = 0; c < V_DIM; c++) cr_assert_float_eq(at[c], want[c], 1e-6, "row %u, head %u", p, h);
            at += V_DIM;
        }
    free(got);
    paged_free(paged);
}

static const uint32_t some_sectors[] = {1, 4, 5, 9, 12, 13, 14};

typedef struct Case {
    PagedShape shape;
    uint32_t first_pos, n_rows;
    AttnPlan plan;
    float softcap;
} Case;

#define DENSE .plan = {.recent = PLAN_ALL}
#define LISTED .list = some_sectors, .n_list = 7

static const Case cases[] = {
    {{KV_F32, 1, 1, 16, 16}, 0, 0, DENSE},
    {{KV_F32, 1, 1, 16, 16}, 0, 1, DENSE},
    {{KV_F16, 9, 3, 64, 64}, 230, 70, DENSE},
    {{KV_F16, 3, 1, 64, 64}, 0, 70, DENSE, 2},
    {{KV_BF16, 4, 4, 32, 48}, 62, 5, DENSE},
    {{KV_F8, 8, 2, 64, 64}, 180, 100, DENSE},
    {{KV_F8, 2, 1, 17, 40}, 255, 1, DENSE},
    {{KV_INT8, 6, 2, 20, 12}, 254, 4, DENSE},
    {{KV_INT8, 5, 5, 1, 3}, 128, 33, DENSE},
    {{KV_INT4, 8, 1, 128, 128}, 63, 2, DENSE, 0.5f},
    {{KV_INT4, 2, 2, 33, 19}, 256, 40, DENSE},
    {{KV_F32, 70, 1, 8, 8}, 300, 2, DENSE},
    {{KV_F16, 16, 2, 64, 64}, 769, 1, DENSE},
    {{KV_F16, 5, 1, 80, 80}, 120, 9, DENSE},
    {{KV_INT8, 7, 1, 256, 256}, 250, 7, DENSE},
    {{KV_F32, 2, 1, 16, 16}, 0, 40, .plan = {.recent = 1}},
    {{KV_F16, 9, 3, 64, 64}, 0, 200, .plan = {.sink = 4, .recent = 7}},
    {{KV_F32, 4, 1, 24, 24}, 250, 20, .plan = {.sink = 64, .recent = 64}},
    {{KV_F16, 4, 1, 128, 128}, 500, 90, .plan = {.sink = 100, .recent = 65}},
    {{KV_INT8, 8, 2, 32, 32}, 700, 1, .plan = {.sink = 16, .recent = 300}},
    {{KV_INT4, 4, 2, 64, 64}, 270, 100, .plan = {.sink = 64, .recent = 30}},
    {{KV_F16, 4, 2, 64, 64}, 300, 3, .plan = {.sink = 16, .recent = 40, LISTED}},
    {{KV_F8, 4, 2, 64, 64}, 255, 20, .plan = {.sink = 3, .recent = 16, LISTED}},
    {{KV_F32, 4, 2, 16, 16}, 230, 26, .plan = {LISTED}},
    {{KV_F32, 4, 2, 16, 16}, 9, 30, .plan = {.sink = 5}},
    {{KV_F16, 2, 1, 16, 16}, 3, 30, .plan = {0}},
};

/* Rounding of weights and sums apart; quantised types carry larger products before their scales are applied. */
static Tolerance tolerance_of(KvType type)
{
    bool is_quantised = kv_type_info(type)->is_quantised;
    return (Tolerance){.abs = is_quantised ? 2e-5 : 6e-6, .rel = 1e-5, .min_cosine = 0.99999999};
}

Test(test_attend, rows_equal_the_reference)
{
    ThreadPool *pool = new_pool(3);
    char text[200];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        Paged *paged = paged_new(c->shape, c->first_pos + c->n_rows, i);
        PagedRows rows = {paged, c->first_pos, c->n_rows};
        paged_set_plan(paged, c->plan);
        float *want = run_ref(&rows, 1, c->softcap);
        const KernelTable *table;
        for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
            PagedRun run = {table->attend, {.pool = i % 2 ? pool : NULL}, .softcap = c->softcap};
            float *got = paged_attend(&run, &rows, 1);
            cr_assert(compare_floats(got, want, paged_out_floats(paged, c->n_rows), tolerance_of(c->shape.type), text,
                                     sizeof text),
                      "%s case %zu: %s", table->name, i, text);
            free(got);
        }
        free(want);
        paged_free(paged);
    }
    threads_free(pool);
}

/* Against the numbers before they were stored: what a type costs. */
Test(test_attend, stored_types_stay_near_the_exact_numbers)
{
    const double cosines[KV_N_TYPES] = {0.999999999, 0.999999, 0.9999, 0.998, 0.9999, 0.99};
    char text[200];
    PagedShape shape = {KV_F32, 8, 2, 64, 64};
    Paged *exact = paged_new(shape, 300, 17);
    PagedRows rows = {exact, 200, 100};
    float *want = run_ref(&rows, 1, 0);
    for (int type = KV_F32; type < KV_N_TYPES; type++) {
        shape.type = (KvType)type;
        Paged *paged = paged_new(shape, 300, 17);
        rows.paged = paged;
        PagedRun run = {.attend = kernels_cpu()->attend};
        float *got = paged_attend(&run, &rows, 1);
        Tolerance close = {.abs = 1, .min_cosine = cosines[type]};
        cr_assert(compare_floats(got, want, paged_out_floats(paged, 100), close, text, sizeof text), "%s: %s",
                  kv_type_info(shape.type)->name, text);
        free(got);
        paged_free(paged);
    }
    free(want);
    paged_free(exact);
}

/* Every offset of a window in its page, and contexts around sink and sink + recent; pages nobody sees are not held. */
Test(test_attend, windows_at_every_offset)
{
    enum { TOKENS = 330, SINK = 20, RECENT = 70 };
    char text[200];
    Paged *paged = paged_new((PagedShape){KV_INT8, 3, 1, 16, 16}, TOKENS, 9);
    paged_set_plan(paged, (AttnPlan){.sink = SINK, .recent = RECENT});
    uint32_t all[TOKENS / KV_PAGE_TOKENS + 1];
    memcpy(all, paged->numbers, sizeof all);
    for (uint32_t p = 0; p < TOKENS; p++) {
        for (uint32_t page = 0; page < sizeof all / sizeof *all; page++)
            paged->numbers[page] = page == 0 || (page + 1) * KV_PAGE_TOKENS + RECENT > p + 1 ? all[page] : UINT32_MAX;
        PagedRows rows = {paged, p, 1};
        float *want = run_ref(&rows, 1, 0);
        const KernelTable *table;
        for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
            PagedRun run = {.attend = table->attend};
            float *got = paged_attend(&run, &rows, 1);
            cr_assert(compare_floats(got, want, 48, tolerance_of(KV_INT8), text, sizeof text), "%s at %u: %s",
                      table->name, p, text);
            free(got);
        }
        free(want);
    }
    paged_free(paged);
}

/* Every KV head by a plan of its own and in a class of its own, several sequences in one call. */
Test(test_attend, plans_and_classes_mixed_in_one_call)
{
    const AttnPlan plans[] = {{.recent = PLAN_ALL}, {.sink = 16, .recent = 40}, {.recent = 16, LISTED}};
    enum { N = 3, DIM = 32, FLOATS = 6 * DIM };
    ThreadPool *pool = new_pool(3);
    Paged *full[N], *stream[N];
    PagedRows rows[N];
    KvPages classes[N][2];
    for (uint32_t i = 0; i < N; i++) {
        full[i] = paged_new((PagedShape){KV_F16, 6, 3, DIM, DIM}, 290 + 100 * i, i);
        stream[i] = paged_new((PagedShape){KV_INT8, 6, 3, DIM, DIM}, 290 + 100 * i, i);
        rows[i] = (PagedRows){full[i], 280 + 100 * i, 10};
        classes[i][0] = full[i]->pages;
        classes[i][1] = stream[i]->pages;
        for (uint32_t h = 0; h < 3; h++) {
            full[i]->plans[h] = stream[i]->plans[h] = plans[(h + i) % 3];
            full[i]->heads[h].class_index = (h + i) % 3 == 1;
        }
        full[i]->classes = classes[i];
    }
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
        PagedRun run = {.attend = table->attend, .stream = {.pool = pool}};
        float *got = paged_attend(&run, rows, N);
        for (uint32_t i = 0; i < N; i++) {
            PagedRows one[2] = {{stream[i], 280 + 100 * i, 10}, {full[i], 280 + 100 * i, 10}};
            uint32_t kept[3];
            float *streamed = paged_attend(&run, &one[0], 1);
            for (uint32_t h = 0; h < 3; h++) kept[h] = full[i]->heads[h].class_index, full[i]->heads[h].class_index = 0;
            float *whole = paged_attend(&run, &one[1], 1);
            for (uint32_t h = 0; h < 3; h++) full[i]->heads[h].class_index = kept[h];
            for (uint32_t r = 0; r < 10; r++)
                for (uint32_t h = 0; h < 6; h++) {
                    const float *want = (full[i]->heads[h / 2].class_index ? streamed : whole) + r * FLOATS + h * DIM;
                    cr_assert_eq(memcmp(got + (i * 10 + r) * FLOATS + h * DIM, want, DIM * sizeof *want), 0,
                                 "%s: sequence %u, row %u, head %u", table->name, i, r, h);
                }
            free(whole);
            free(streamed);
        }
        free(got);
    }
    for (uint32_t i = 0; i < N; i++) {
        paged_free(full[i]);
        paged_free(stream[i]);
    }
    threads_free(pool);
}

static void store_broken(Paged *paged, uint32_t token, bool in_key, float bad)
{
    const PagedShape *s = &paged->shape;
    if (in_key)
        paged->k[(size_t)token * s->n_kv_heads * s->k_dim + 3] = bad;
    else
        paged->v[(size_t)token * s->n_kv_heads * s->v_dim + 3] = bad;
    KvSpan all = paged_span(paged, 0, paged->n_tokens, 0);
    KvStoreParams store = paged_store_params(paged, &all, 1);
    cr_assert(kv_store_ref(&store));
}

static void check_broken(KvType type, bool in_key, float bad, AttnPlan plan)
{
    enum { TOKENS = 150, BROKEN = 70 };
    Paged *paged = paged_new((PagedShape){type, 2, 1, 16, 16}, TOKENS, 4), *other = paged_new(paged->shape, 150, 5);
    PagedRows rows[2] = {{paged, 0, TOKENS}, {other, 0, TOKENS}};
    store_broken(paged, BROKEN, in_key, bad);
    paged_set_plan(paged, plan);
    float *want = run_ref(rows, 2, 3);
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
        PagedRun run = {.attend = table->attend, .softcap = 3};
        float *got = paged_attend(&run, rows, 2);
        for (uint32_t r = 0; r < 2 * TOKENS; r++) {
            bool sees = r < TOKENS && plan_sees(&plan, r, BROKEN);
            cr_assert_eq(!isfinite(got[r * 32 + 3]), sees, "%s, %s: row %u, %g in %s", table->name,
                         kv_type_info(type)->name, r, (double)bad, in_key ? "key" : "value");
            for (uint32_t c = 0; c < 32; c++)
                cr_assert_eq(isfinite(got[r * 32 + c]) != 0, isfinite(want[r * 32 + c]) != 0);
        }
        free(got);
    }
    free(want);
    paged_free(paged);
    paged_free(other);
}

/* A broken number reaches every row that sees it, softcap or not, and no other, though they share its block. */
Test(test_attend, broken_numbers_reach_who_sees_them)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int type = 0; type < KV_N_TYPES; type++)
        for (size_t i = 0; i < 3; i++)
            for (int in_key = 0; in_key < 2; in_key++) {
                check_broken((KvType)type, in_key, bad[i], (AttnPlan){.recent = PLAN_ALL});
                check_broken((KvType)type, in_key, bad[i], (AttnPlan){.sink = 9, .recent = 12});
            }
}

/* Scores far apart, and so high that exp would overflow unless the maximum is taken off. */
Test(test_attend, huge_scores)
{
    char text[200];
    Paged *paged = paged_new((PagedShape){KV_F32, 3, 1, 16, 16}, 302, 8);
    PagedRows rows = {paged, 300, 2};
    PagedRun run = {.attend = kernels_ref()->attend, .scale = 1000};
    float *want = paged_attend(&run, &rows, 1);
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
        run.attend = table->attend;
        float *got = paged_attend(&run, &rows, 1);
        Tolerance close = {.abs = 0.02, .rel = 0, .min_cosine = 0.9999};
        cr_assert(compare_floats(got, want, 96, close, text, sizeof text), "%s: %s", table->name, text);
        free(got);
    }
    free(want);
    paged_free(paged);
}

Test(test_attend, heads_too_large_are_refused)
{
    AttendParams attend = {.n_heads = 1, .n_kv_heads = 1, .k_dim = KV_MAX_DIM + 1, .v_dim = 16};
    KvStoreParams store = {.n_kv_heads = 1, .k_dim = 16, .v_dim = KV_MAX_DIM + 1};
    cr_assert_not(kernels_ref()->attend(&attend, (Stream){0}));
    cr_assert_not(kernels_ref()->kv_store(&store, (Stream){0}));
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
        cr_assert_not(table->attend(&attend, (Stream){0}));
        cr_assert_not(table->kv_store(&store, (Stream){0}));
    }
}
