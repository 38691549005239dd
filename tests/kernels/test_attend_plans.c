/* SPDX-License-Identifier: Apache-2.0 */
/* What plans say beyond which keys are seen: bands, positions, a fixed recent range; and the sum of weights. */
#include "tests/kernels/paged.h"
#include "tests/support/compare.h"
#include "tests/support/sanitized.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 420, HEADS = 4, KV_HEADS = 2, DIM = 64, ROW_FLOATS = HEADS * DIM, FIRST = 350, ROWS = TOKENS - FIRST };

static const uint32_t listed[] = {2, 5, 6, 7, 12, 13};
static const AttnBand bands[] = {{0, 64}, {40, 48}, {130, 32}, {260, 16}};
static const AttnBand odd_bands[] = {{0, 64}, {31, 16}, {32, 48}, {200, 32}, {201, 16}};

#define SELECTED .sink = 16, .recent = PLAN_ALL, .recent_from = 272, .list = listed, .n_list = 6
#define BANDS .bands = bands, .n_bands = 4

static const AttnPlan plans[] = {
    {SELECTED},
    {.sink = 3, .recent = 100, .recent_from = 301},
    {.recent = PLAN_ALL, .recent_from = 400},
    {.recent = PLAN_ALL, BANDS},
    {.recent = PLAN_ALL, .bands = odd_bands, .n_bands = 5},
    {SELECTED, BANDS},
    {SELECTED, .positions = POSITIONS_PACKED},
    {SELECTED, BANDS, .positions = POSITIONS_PACKED},
    {.sink = 64, .recent = PLAN_ALL, .recent_from = 256, .positions = POSITIONS_PACKED},
    {.recent = 64, .positions = POSITIONS_GROUPED, .group = 8},
    {.recent = 100, .positions = POSITIONS_GROUPED, .group = 3},
    {.recent = 1, .positions = POSITIONS_GROUPED, .group = 16},
};
enum { N_PLANS = sizeof plans / sizeof *plans };

/* Where the plan has a key, and the query beside it, stand. */
static void positions_of(const AttnPlan *plan, uint32_t query, uint32_t key, int64_t *ret_query, int64_t *ret_key)
{
    *ret_query = query;
    *ret_key = key;
    if (plan->positions == POSITIONS_GROUPED && query - key >= plan->recent) {
        *ret_query = query / plan->group + plan->recent - plan->recent / plan->group;
        *ret_key = key / plan->group;
    }
    if (plan->positions != POSITIONS_PACKED || key >= plan->recent_from) return;
    uint32_t n_moved = plan->sink / 16 + plan->n_list, rank = key / 16;
    if (key >= plan->sink)
        for (rank = plan->sink / 16; plan->list[rank - plan->sink / 16] != key / 16;) rank++;
    *ret_key = (int64_t)plan->recent_from - 16 * (int64_t)(n_moved - rank) + key % 16;
}

static double product(const Paged *paged, const AttnPlan *plan, uint32_t query, uint32_t key, uint32_t h)
{
    int64_t q_pos, k_pos;
    positions_of(plan, query, key, &q_pos, &k_pos);
    const float *q = paged->q + ((size_t)query * HEADS + h) * DIM;
    const float *k = paged->k + ((size_t)key * KV_HEADS + h / 2) * DIM;
    int64_t distance = (int64_t)query / 64 * 64 - (k_pos / 16 * 16 + 15);
    uint32_t n_channels = DIM;
    for (uint32_t i = 0; i < plan->n_bands; i++)
        if (plan->bands[i].first_distance <= (distance > 0 ? distance : 0)) n_channels = plan->bands[i].n_channels;
    double sum = 0;
    for (uint32_t j = 0; 2 * j < n_channels; j++) { /* turned further by where it stands now, less where it stood */
        double angle = (double)((k_pos - q_pos) - ((int64_t)key - query)) * paged->theta[j];
        double x0 = k[2 * j] * cos(angle) - k[2 * j + 1] * sin(angle);
        double x1 = k[2 * j] * sin(angle) + k[2 * j + 1] * cos(angle);
        sum += q[2 * j] * x0 + q[2 * j + 1] * x1;
    }
    return sum;
}

/* Softmax as a textbook has it. Returns the logarithm of the sum. */
static double attend_by_hand(const Paged *paged, const AttnPlan *plan, uint32_t query, uint32_t h, double *ret_out)
{
    double sum = 0;
    for (uint32_t c = 0; c < DIM; c++) ret_out[c] = 0;
    for (uint32_t key = 0; key <= query; key++) {
        bool is_listed = false, grouped = plan->positions == POSITIONS_GROUPED;
        for (uint32_t i = 0; i < plan->n_list; i++) is_listed = is_listed || plan->list[i] == key / 16;
        bool is_recent = query - key < plan->recent && key >= plan->recent_from;
        if (!grouped && !is_listed && !is_recent && key >= plan->sink) continue;
        double weight = exp((double)0.3f * product(paged, plan, query, key, h));
        sum += weight;
        for (uint32_t c = 0; c < DIM; c++) ret_out[c] += weight * paged->v[((size_t)key * KV_HEADS + h / 2) * DIM + c];
    }
    for (uint32_t c = 0; c < DIM && sum > 0; c++) ret_out[c] /= sum;
    return log(sum);
}

static Paged *new_paged(KvType type)
{
    return paged_new((PagedShape){type, HEADS, KV_HEADS, DIM, DIM}, TOKENS, 7);
}

static float *attend(const KernelTable *table, const Paged *paged, uint32_t first, uint32_t n, float *ret_lse)
{
    PagedRun run = {.attend = table->attend, .lse = ret_lse};
    PagedRows rows = {paged, first, n};
    return paged_attend(&run, &rows, 1);
}

Test(test_attend_plans, reference_by_hand)
{
    Paged *paged = new_paged(KV_F32);
    float lse[ROWS * HEADS];
    double want[DIM];
    for (size_t i = 0; i < N_PLANS; i++) {
        paged_set_plan(paged, plans[i]);
        float *got = attend(kernels_ref(), paged, FIRST, ROWS, lse);
        for (uint32_t r = 0; r < ROWS; r += 23)
            for (uint32_t h = 0; h < HEADS; h++) {
                double sum = attend_by_hand(paged, &plans[i], FIRST + r, h, want);
                if (isinf(sum))
                    cr_assert_eq(lse[r * HEADS + h], -INFINITY);
                else
                    cr_assert_float_eq(lse[r * HEADS + h], sum, 1e-5, "plan %zu, row %u", i, r);
                for (uint32_t c = 0; c < DIM; c++)
                    cr_assert_float_eq(got[(r * HEADS + h) * DIM + c], want[c], 1e-5, "plan %zu, row %u: %g, not %g", i,
                                       r, (double)got[(r * HEADS + h) * DIM + c], want[c]);
            }
        free(got);
    }
    paged_free(paged);
}

Test(test_attend_plans, rows_equal_the_reference)
{
    char text[200];
    float want_lse[ROWS * HEADS], lse[ROWS * HEADS];
    const Tolerance close = {.abs = 4e-5, .rel = 2e-5, .min_cosine = 0.99999999},
                    lse_close = {.abs = 2e-4, .rel = 1e-5};
    for (int type = 0; type < KV_N_TYPES; type++) {
        Paged *paged = new_paged((KvType)type);
        for (size_t i = (size_t)type % SANITIZED_SHARE; i < N_PLANS; i += SANITIZED_SHARE) {
            paged_set_plan(paged, plans[i]);
            float *want = attend(kernels_ref(), paged, FIRST, ROWS, want_lse);
            const KernelTable *table;
            for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
                float *got = attend(table, paged, FIRST, ROWS, lse);
                cr_assert(compare_floats(got, want, ROWS * ROW_FLOATS, close, text, sizeof text),
                          "%s, %s, plan %zu: %s", table->name, kv_type_info((KvType)type)->name, i, text);
                cr_assert(compare_floats(lse, want_lse, ROWS * HEADS, lse_close, text, sizeof text),
                          "%s, %s, plan %zu: lse: %s", table->name, kv_type_info((KvType)type)->name, i, text);
                free(got);
            }
            free(want);
        }
        paged_free(paged);
    }
}

/* A row alone, among others, on any number of threads: the same bits, of lse too. */
Test(test_attend_plans, bits_depend_on_the_row_alone)
{
    ThreadPool *pool = NULL;
    Error error;
    cr_assert(threads_new(3, &pool, &error), "%s", error.text);
    const KernelTable *table;
    for (int type = KV_F16; type < KV_N_TYPES; type++) {
        Paged *paged = new_paged((KvType)type);
        for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
            for (size_t i = (size_t)type % SANITIZED_SHARE; i < N_PLANS; i += SANITIZED_SHARE) {
                float all_lse[ROWS * HEADS], lse[HEADS];
                paged_set_plan(paged, plans[i]);
                PagedRun run = {.attend = table->attend, .stream = {.pool = pool}, .lse = all_lse};
                PagedRows rows = {paged, FIRST, ROWS};
                float *all = paged_attend(&run, &rows, 1);
                for (uint32_t r = 0; r < ROWS; r += 13) {
                    float *alone = attend(table, paged, FIRST + r, 1, lse);
                    cr_assert_eq(memcmp(alone, all + r * ROW_FLOATS, ROW_FLOATS * sizeof *all), 0,
                                 "%s, plan %zu, row %u", table->name, i, r);
                    cr_assert_eq(memcmp(lse, all_lse + r * HEADS, sizeof lse), 0, "%s, plan %zu", table->name, i);
                    free(alone);
                }
                free(all);
            }
        paged_free(paged);
    }
    threads_free(pool);
}

static void check_same_bits(const KernelTable *table, Paged *paged, AttnPlan a, AttnPlan b, const char *what)
{
    paged_set_plan(paged, a);
    float *want = attend(table, paged, FIRST, ROWS, NULL);
    paged_set_plan(paged, b);
    float *got = attend(table, paged, FIRST, ROWS, NULL);
    cr_assert_eq(memcmp(got, want, ROWS * ROW_FLOATS * sizeof *got), 0, "%s, %s: %s", table->name,
                 kv_type_info(paged->shape.type)->name, what);
    free(want);
    free(got);
}

/* Bands beyond the context, packed positions that move nothing, a recent range that says what a list says. */
Test(test_attend_plans, what_changes_nothing_changes_no_bit)
{
    static const AttnBand all[] = {{0, 64}}, beyond[] = {{0, 64}, {TOKENS, 16}};
    static const uint32_t next_to_sink[] = {4, 5, 6, 7, 8, 9}, up_to_recent[] = {17, 18};
    const AttnPlan dense = {.recent = PLAN_ALL};
    for (int type = KV_F32; type < KV_N_TYPES; type++) {
        Paged *paged = new_paged((KvType)type);
        const KernelTable *table;
        for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
            check_same_bits(table, paged, dense, (AttnPlan){.recent = PLAN_ALL, .bands = all, .n_bands = 1},
                            "one band");
            check_same_bits(table, paged, dense, (AttnPlan){.recent = PLAN_ALL, .bands = beyond, .n_bands = 2},
                            "bands that nobody reaches");
            check_same_bits(table, paged, dense,
                            (AttnPlan){.sink = 64,
                                       .recent = PLAN_ALL,
                                       .recent_from = 160,
                                       .list = next_to_sink,
                                       .n_list = 6,
                                       .positions = POSITIONS_PACKED},
                            "packed, but all is selected");
            check_same_bits(table, paged, dense, (AttnPlan){.sink = 100, .recent = PLAN_ALL, .recent_from = 100},
                            "two ranges");
            check_same_bits(table, paged, (AttnPlan){.recent = PLAN_ALL, .recent_from = 272},
                            (AttnPlan){.recent = PLAN_ALL, .recent_from = 304, .list = up_to_recent, .n_list = 2},
                            "the range's first sectors listed");
        }
        paged_free(paged);
    }
}

/* Of sectors far behind only the channels of their band are read: what lies behind them may be anything. */
Test(test_attend_plans, keys_beyond_the_band_are_not_read)
{
    const KvType types[] = {KV_F32, KV_F16, KV_BF16, KV_INT8, KV_F8};
    for (size_t i = 0; i < 5; i++) {
        Paged *paged = new_paged(types[i]);
        const KernelTable *table;
        for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
            for (size_t p = 0; p < N_PLANS; p++) {
                if (!plans[p].n_bands) continue;
                paged_set_plan(paged, plans[p]);
                float *want = attend(table, paged, TOKENS - 1, 1, NULL);
                Paged *spoilt = new_paged(types[i]);
                paged_set_plan(spoilt, plans[p]);
                for (uint32_t sector = 0; sector < TOKENS / 16; sector++)
                    for (uint32_t h = 0; h < KV_HEADS; h++) {
                        const KvLayout *layout;
                        char *slot = kv_pages_slot(&spoilt->pages, sector / 4, 6, spoilt->heads[h].slot, &layout);
                        uint32_t n = plan_channels(&plans[p], 6, plan_sector_position(&plans[p], sector), DIM);
                        uint32_t from = n * kv_type_info(layout->type)->bits / 128 * 256;
                        memset(slot + sector % 4 * layout->sector_bytes + from, 0xFF, layout->v_offset - from);
                    }
                float *got = attend(table, spoilt, TOKENS - 1, 1, NULL);
                cr_assert_eq(memcmp(got, want, ROW_FLOATS * sizeof *got), 0, "%s, %s, plan %zu", table->name,
                             kv_type_info(types[i])->name, p);
                free(want);
                free(got);
                paged_free(spoilt);
            }
        paged_free(paged);
    }
}

/* Each key that a plan shows counts once: with scores of 0 the weights' sum is their number. */
Test(test_attend_plans, ranges_and_list_count_each_key_once)
{
    Paged *paged = new_paged(KV_F16);
    memset(paged->q, 0, (size_t)TOKENS * HEADS * DIM * sizeof *paged->q);
    float lse[ROWS * HEADS];
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
        for (size_t i = 0; i < N_PLANS; i++) {
            paged_set_plan(paged, plans[i]);
            free(attend(table, paged, FIRST, ROWS, lse));
            for (uint32_t r = 0; r < ROWS; r++) {
                uint32_t n = 0;
                for (uint32_t key = 0; key <= FIRST + r; key++) n += plan_sees(&plans[i], FIRST + r, key);
                for (uint32_t h = 0; h < HEADS; h++)
                    cr_assert(n ? fabs(lse[r * HEADS + h] - log(n)) < 1e-5 : lse[r * HEADS + h] == -INFINITY,
                              "%s, plan %zu, row %u: %g for %u keys", table->name, i, r, (double)lse[r * HEADS + h], n);
            }
        }
    paged_free(paged);
}

/* Heads that share a KV head see what they would see had each its own copy. */
Test(test_attend_plans, shared_heads_equal_copies)
{
    Paged *shared = new_paged(KV_INT8);
    Paged *copies = paged_new((PagedShape){KV_INT8, HEADS, HEADS, DIM, DIM}, TOKENS, 7);
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t h = 0; h < HEADS; h++) {
            size_t from = ((size_t)t * KV_HEADS + h / 2) * DIM, to = ((size_t)t * HEADS + h) * DIM;
            memcpy(copies->k + to, shared->k + from, DIM * sizeof(float));
            memcpy(copies->v + to, shared->v + from, DIM * sizeof(float));
        }
    memcpy(copies->q, shared->q, (size_t)TOKENS * HEADS * DIM * sizeof(float));
    KvSpan all = paged_span(copies, 0, TOKENS, 0);
    KvStoreParams store = paged_store_params(copies, &all, 1);
    cr_assert(kv_store_ref(&store));
    for (size_t i = 0; i < N_PLANS; i++) {
        paged_set_plan(shared, plans[i]);
        paged_set_plan(copies, plans[i]);
        float *want = attend(kernels_cpu(), copies, FIRST, ROWS, NULL);
        float *got = attend(kernels_cpu(), shared, FIRST, ROWS, NULL);
        cr_assert_eq(memcmp(got, want, ROWS * ROW_FLOATS * sizeof *got), 0, "plan %zu", i);
        free(want);
        free(got);
    }
    paged_free(shared);
    paged_free(copies);
}

/* Sink and a recent range with a fixed beginning, at every offset in a page, for every distance from the query to it.
 */
Test(test_attend_plans, fixed_ranges_at_every_offset)
{
    char text[200];
    const Tolerance close = {.abs = 2e-5, .rel = 1e-5, .min_cosine = 0.99999999};
    Paged *paged = paged_new((PagedShape){KV_INT8, 3, 1, 16, 16}, TOKENS, 9);
    for (uint32_t offset = 0; offset < KV_PAGE_TOKENS; offset++) {
        const AttnPlan ways[] = {
            {.sink = offset, .recent = PLAN_ALL, .recent_from = 200 + offset},
            {.sink = 20, .recent = 40 + offset, .recent_from = 300},
            {.recent = 1 + offset, .recent_from = TOKENS - 1 - offset * 3 % 64},
        };
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            paged_set_plan(paged, ways[i]);
            PagedRun ref = {.attend = kernels_ref()->attend}, cpu = {.attend = kernels_cpu()->attend};
            PagedRows rows = {paged, TOKENS - 3 - offset, 3};
            float *want = paged_attend(&ref, &rows, 1), *got = paged_attend(&cpu, &rows, 1);
            cr_assert(compare_floats(got, want, 3 * 48, close, text, sizeof text), "offset %u, plan %zu: %s", offset, i,
                      text);
            free(want);
            free(got);
        }
    }
    paged_free(paged);
}

/* What 8-bit keys and values cost a list, and that vectors of one value divide by no zero. */
Test(test_attend_plans, an_int8_list_stays_near_bf16)
{
    char text[200];
    const Tolerance close = {.abs = 1, .min_cosine = 0.9999};
    for (int is_constant = 0; is_constant < 2; is_constant++)
        for (size_t i = 0; i < N_PLANS; i++) {
            Paged *exact = new_paged(KV_BF16), *paged = new_paged(KV_INT8);
            for (Paged *each = exact;; each = paged) {
                if (is_constant)
                    for (size_t j = 0; j < (size_t)TOKENS * KV_HEADS * DIM; j++)
                        each->k[j] = each->v[j] = (float)(j / DIM % 5) - 2;
                KvSpan all = paged_span(each, 0, TOKENS, 0);
                KvStoreParams store = paged_store_params(each, &all, 1);
                cr_assert(kv_store_ref(&store));
                paged_set_plan(each, plans[i]);
                if (each == paged) break;
            }
            float *want = attend(kernels_cpu(), exact, FIRST, ROWS, NULL);
            float *got = attend(kernels_cpu(), paged, FIRST, ROWS, NULL);
            cr_assert(compare_floats(got, want, ROWS * ROW_FLOATS, close, text, sizeof text), "plan %zu: %s", i, text);
            free(want);
            free(got);
            paged_free(exact);
            paged_free(paged);
        }
}
