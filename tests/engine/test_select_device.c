/* SPDX-License-Identifier: Apache-2.0 */
/* Selection as a device has it, plans first and lists later, with the host's memory and the twin of its kernel. */
#include "engine/select/select_stages.h"
#include "engine/select/selector.h"
#include "kernels/attention/kv_bounds.h"
#include "tests/kernels/paged.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, HEADS = 2, GROUP = 2, DIM = 32, TOKENS = 2000, FIRST = 1500, MAX_LIST = 64, REFRESH = 6 };

static const AttnPolicy policy = {.name = "pages",
                                  .selection = {.planner = "pages",
                                                .stages = {{SCAN_BOX, KV_PAGE_TOKENS, PLAN_ALL, REFRESH}},
                                                .n_stages = 1,
                                                .sink = 64,
                                                .recent = 128,
                                                .budget = 768,
                                                .bypass = 768,
                                                .prefill_from = PLAN_ALL,
                                                .row_stride = 1}};
static ModelShape shape;
static AttnPlan dense[LAYERS * HEADS];
static Paged *paged;
static Selector *selector;
static Error error;

static void begin(void)
{
    shape = (ModelShape){.n_layers = LAYERS,
                         .n_heads = HEADS * GROUP,
                         .n_kv_heads = HEADS,
                         .head_dim = DIM,
                         .v_dim = DIM,
                         .train_context = TOKENS};
    paged = paged_new((PagedShape){KV_BF16, HEADS * GROUP, HEADS, DIM, DIM}, TOKENS, 11);
    KvSpan span = paged_span(paged, 0, TOKENS, 0);
    KvBoundsParams bounds = {.spans = &span, .n_spans = 1, .n_kv_heads = HEADS, .k_dim = DIM, .turns = &paged->turns};
    cr_assert(kv_bounds_ref(&bounds));
    const SelectorParams params = {.shape = &shape,
                                   .kernels = kernels_ref(),
                                   .context = TOKENS,
                                   .max_sequences = 2,
                                   .max_batch_rows = 4,
                                   .n_threads = 1,
                                   .device = device_host(),
                                   .max_list = MAX_LIST,
                                   .n_channels = scan_bounds_width(&paged->turns, DIM)};
    cr_assert(selector_new(&params, &selector, &error), "%s", error.text);
    for (SeqId seq = 0; seq < 2; seq++) select_state_open(selector_state(selector), seq);
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) dense[i] = (AttnPlan){.recent = PLAN_ALL};
}

static void end(void)
{
    selector_free(selector);
    paged_free(paged);
}

TestSuite(test_select_device, .init = begin, .fini = end);

/* Layers have the same keys and heads here. */
static KvHead heads[LAYERS * HEADS];

static SelectRow row_at(SeqId seq, uint32_t position)
{
    for (uint32_t i = 0; i < LAYERS * HEADS; i++) heads[i] = paged->heads[i % HEADS];
    return (SelectRow){seq, position, &policy, dense, heads, &paged->pages};
}

static void run_job(const AttnPlan *plans, const SelectJob *job, uint32_t position)
{
    KvSpan span = paged_span(paged, position, 1, position);
    span.plans = plans;
    SelectParams params = {.q = paged->q,
                           .spans = &span,
                           .jobs = job,
                           .n_spans = 1,
                           .n_heads = HEADS * GROUP,
                           .n_kv_heads = HEADS,
                           .k_dim = DIM,
                           .max_spans = 1,
                           .max_pages = TOKENS / KV_PAGE_TOKENS,
                           .turns = &paged->turns};
    params.scratch = malloc(select_ref_scratch_bytes(GROUP, DIM, params.max_pages));
    cr_assert_not_null(params.scratch);
    cr_assert(select_ref(&params));
    free(params.scratch);
}

/* What the stages of the CPU make of the same row. */
static void same_as_stages(const AttnPlan *plan, uint32_t layer, uint32_t kv_head, uint32_t position)
{
    enum { SECTORS = TOKENS / KV_SECTOR_TOKENS + 1 };
    static uint32_t units[SECTORS], indices[SECTORS], top[SECTORS], words[5 * SECTORS];
    static float scores[SECTORS];
    SelectTools tools = {.kernels = kernels_ref(), .units = units, .indices = indices, .top_scratch = top};
    tools.scores = scores;
    tools.scan_scratch = malloc(scan_scratch_bytes(1, 1, GROUP, DIM));
    const SelectQuery query = {.selection = &policy.selection,
                               .layer = layer,
                               .n_layers = LAYERS,
                               .kv_head = kv_head,
                               .kind = ROWS_DECODE,
                               .position = position,
                               .end = position + REFRESH,
                               .first_pos = position,
                               .q = paged->q + ((size_t)position * HEADS + kv_head) * GROUP * DIM,
                               .n_rows = 1,
                               .row_heads = HEADS * GROUP,
                               .group = GROUP,
                               .k_dim = DIM,
                               .pages = &paged->pages,
                               .slot = paged->heads[kv_head].slot,
                               .turns = &paged->turns};
    SelectList list = {0};
    uint64_t bytes = 0;
    cr_assert(select_run(&tools, &query, 0, &list, words, &bytes));
    cr_assert_eq(plan->n_list, list.n_sectors);
    cr_assert_eq(plan->recent_from, list.recent_from);
    cr_assert_eq(plan->recent, position + 1 - list.recent_from);
    cr_assert_arr_eq(plan->list, select_sectors(&list, words), list.n_sectors * sizeof *words);
    free(tools.scan_scratch);
}

Test(test_select_device, lists_are_those_of_the_stages)
{
    uint32_t n_due = 0;
    for (uint32_t position = FIRST; position < FIRST + 3 * REFRESH; position++) {
        SelectRow row = row_at(0, position);
        cr_assert(selector_row_selects(selector, &row));
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            AttnPlan plans[HEADS];
            SelectJob job;
            selector_plan_row(selector, &row, layer, plans, &job);
            bool is_due = position == FIRST || (position - FIRST + layer * REFRESH / LAYERS) % REFRESH == 0;
            cr_assert_eq(job.n_keep > 0, is_due, "layer %u at %u", layer, position);
            n_due += is_due;
            if (is_due) run_job(plans, &job, position);
            for (uint32_t h = 0; h < HEADS; h++) {
                if (is_due) same_as_stages(&plans[h], layer, h, position);
                cr_assert_leq(plans[h].sink + plans[h].recent + plans[h].n_list * KV_SECTOR_TOKENS,
                              policy.selection.budget);
                cr_assert_leq(plans[h].list[plans[h].n_list - 1], plans[h].recent_from / KV_SECTOR_TOKENS - 1);
            }
        }
        selector_commit(selector, 0, ROWS_DECODE);
    }
    AttentionStats stats = select_state_seq(selector_state(selector), 0)->stats[ROWS_DECODE];
    cr_assert_eq(stats.n_selections, n_due * HEADS);
    cr_assert_eq(stats.n_queries, 3u * REFRESH * LAYERS * HEADS);
    cr_assert_gt(stats.select_bytes, 0);
}

Test(test_select_device, a_row_that_is_given_up_is_due_again)
{
    SelectRow row = row_at(1, FIRST);
    AttnPlan plans[HEADS], again[HEADS];
    SelectJob job, other;
    cr_assert(selector_row_selects(selector, &row));
    selector_plan_row(selector, &row, 1, plans, &job);
    run_job(plans, &job, FIRST);
    selector_plan_row(selector, &row, 1, again, &other);
    cr_assert_eq(other.n_keep, 0);
    cr_assert_eq(again[0].list, plans[0].list);
    select_state_revert(selector_state(selector), 1);
    cr_assert(selector_row_selects(selector, &row));
    selector_plan_row(selector, &row, 1, again, &other);
    cr_assert_eq(other.n_keep, job.n_keep);
    cr_assert_eq(other.n_pages, job.n_pages);
}

Test(test_select_device, short_contexts_and_dense_forks_select_nothing)
{
    SelectRow row = row_at(0, 767);
    cr_assert_not(selector_row_selects(selector, &row));
    row = row_at(0, 768);
    cr_assert(selector_row_selects(selector, &row));
    select_state_seq(selector_state(selector), 0)->is_dense = true;
    cr_assert_not(selector_row_selects(selector, &row));
}

Test(test_select_device, what_a_device_cannot_select_by)
{
    Selection selection = policy.selection;
    cr_assert_eq(selector_device_list(&selection), 768 / KV_SECTOR_TOKENS);
    selection.max_missing_mass = 0.05;
    cr_assert_eq(selector_device_list(&selection), 0);
    selection = policy.selection;
    selection.prefill_from = 0;
    cr_assert_eq(selector_device_list(&selection), 0);
    selection = policy.selection;
    selection.stages[0].scan = SCAN_EXACT;
    cr_assert_eq(selector_device_list(&selection), 0);
}

/* A row's selection in every layer; it counts from then on. */
static void select_row(SeqId seq, uint32_t position)
{
    SelectRow row = row_at(seq, position);
    cr_assert(selector_row_selects(selector, &row));
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        AttnPlan plans[HEADS];
        SelectJob job;
        selector_plan_row(selector, &row, layer, plans, &job);
        if (job.n_keep > 0) run_job(plans, &job, position);
    }
    selector_commit(selector, seq, ROWS_DECODE);
}

static const SelectList *list_of(SeqId seq, uint32_t head, const uint32_t **ret_words)
{
    return select_state_list(selector_state(selector), seq, head, ret_words);
}

static void same_lists(SeqId a, SeqId b)
{
    for (uint32_t head = 0; head < LAYERS * HEADS; head++) {
        const uint32_t *x, *y;
        const SelectList *list = list_of(a, head, &x), *other = list_of(b, head, &y);
        cr_assert(list->n_sectors > 0 && x != y, "head %u", head);
        cr_assert_eq(memcmp(list, other, sizeof *list), 0, "head %u", head);
        cr_assert_arr_eq(x, y, list->n_sectors * sizeof *x, "head %u", head);
    }
}

/* Rows on: banks have changed places in some heads and not in others. */
static void select_some(SeqId seq)
{
    for (uint32_t i = 0; i < 3; i++) select_row(seq, FIRST + i);
}

Test(test_select_device, forks_have_the_lists_that_count)
{
    SelectState *state = selector_state(selector);
    select_some(0);
    select_state_fork(state, 0, 1);
    same_lists(0, 1);
    cr_assert_eq(select_state_seq(state, 1)->decode_from, FIRST);
    /* What one writes then, the other does not see. */
    const uint32_t *before;
    uint32_t kept[MAX_LIST], *words;
    uint32_t n = list_of(0, 0, &before)->n_sectors;
    memcpy(kept, before, n * sizeof *kept);
    (void)select_state_edit(state, 1, 0, &words);
    memset(words, 0xFF, n * sizeof *words);
    select_state_commit(state, 1);
    (void)list_of(0, 0, &before);
    cr_assert_arr_eq(before, kept, n * sizeof *kept);
    (void)list_of(1, 0, &before);
    cr_assert_eq(before[0], UINT32_MAX);
}

Test(test_select_device, copies_bring_back_the_lists)
{
    SelectState *state = selector_state(selector);
    select_some(0);
    size_t n_bytes = select_state_bytes(state, 0);
    char *copy = malloc(n_bytes), *again = malloc(n_bytes);
    cr_assert(copy && again);
    select_state_read(state, 0, copy);
    for (uint32_t head = 0; head < LAYERS * HEADS; head++)
        for (int bank = 0; bank < 2; bank++) {
            uint32_t *words;
            (void)select_state_edit(state, 1, head, &words);
            memset(words, 0xFF, MAX_LIST * sizeof *words);
            select_state_commit(state, 1);
        }
    select_state_write(state, 1, copy);
    same_lists(0, 1);
    cr_assert_eq(select_state_bytes(state, 1), n_bytes);
    select_state_read(state, 1, again);
    cr_assert_eq(memcmp(again, copy, n_bytes), 0);
    free(copy);
    free(again);
}

Test(test_select_device, what_a_given_up_pass_wrote_does_not_count)
{
    SelectState *state = selector_state(selector);
    select_some(0);
    select_state_fork(state, 0, 1);
    for (uint32_t head = 0; head < LAYERS * HEADS; head++) {
        uint32_t *words;
        SelectList *list = select_state_edit(state, 1, head, &words);
        list->n_sectors = 1;
        memset(words, 0xFF, MAX_LIST * sizeof *words);
    }
    select_state_revert(state, 1);
    same_lists(0, 1);
}
