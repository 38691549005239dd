/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of a selection on scores that a test makes: what they keep, when they are due, what is probed. */
#include "engine/select/list_need.h"
#include "engine/select/policy_check.h"
#include "engine/select/presets.h"
#include "engine/select/select_stages.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 8192, MAX_SECTORS = CONTEXT / KV_SECTOR_TOKENS + KV_PAGE_SECTORS, N_LAYERS = 30 };

/* A sector's score: the same whatever unit asks, so that a unit's is the best of its sectors'. */
static float sector_score(uint32_t sector)
{
    return (float)((sector * 2654435761u >> 12) % 1000); /* with ties */
}

static float unit_score(uint32_t first, uint32_t n)
{
    float best = 0;
    for (uint32_t i = 0; i < n; i++)
        if (sector_score(first + i) > best) best = sector_score(first + i);
    return best;
}

static uint32_t n_scans;

static bool scan(const ScanParams *params, Stream stream)
{
    (void)stream;
    for (uint32_t i = 0; i < params->n_units; i++) {
        cr_assert(i == 0 || params->units[i] > params->units[i - 1], "ascending");
        params->scores[i] = unit_score(params->units[i], params->unit_sectors);
    }
    n_scans++;
    return true;
}

/* All that a selection works with, on the heap. */
typedef struct Bench {
    KernelTable kernels;
    SelectTools tools;
    KvPool pool;
    KvPages pages;
    RopeTurns turns;
    SelectQuery query;
    SelectList list;
    uint32_t words[MAX_SECTORS * (SELECT_MAX_STAGES + 1)];
    uint32_t units[MAX_SECTORS], indices[MAX_SECTORS], scratch[MAX_SECTORS];
    float scores[MAX_SECTORS], q[64];
} Bench;

static Bench *bench_new(const Selection *selection, uint32_t position)
{
    Bench *bench = calloc(1, sizeof *bench);
    cr_assert_not_null(bench);
    bench->kernels.scan = scan;
    bench->tools = (SelectTools){.kernels = &bench->kernels,
                                 .units = bench->units,
                                 .indices = bench->indices,
                                 .top_scratch = bench->scratch,
                                 .scores = bench->scores};
    bench->pool.layout = kv_layout(KV_F16, 64, 64);
    bench->pages.pool = &bench->pool;
    bench->query = (SelectQuery){.selection = selection,
                                 .n_layers = N_LAYERS,
                                 .kind = ROWS_DECODE,
                                 .position = position,
                                 .first_pos = position,
                                 .end = position + selection->stages[0].refresh,
                                 .q = bench->q,
                                 .n_rows = 1,
                                 .row_heads = 1,
                                 .group = 1,
                                 .k_dim = 64,
                                 .pages = &bench->pages,
                                 .turns = &bench->turns};
    return bench;
}

static void run(Bench *bench, uint32_t first_stage)
{
    uint64_t bytes = 0;
    cr_assert(select_run(&bench->tools, &bench->query, first_stage, &bench->list, bench->words, &bytes));
}

static bool has(const uint32_t *list, uint32_t n, uint32_t value)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == value) return true;
    return false;
}

static const Selection three = {
    .planner = "hip",
    .stages = {{SCAN_DESCENT, 256, 4096, 16}, {SCAN_MEAN, 64, 2048, 8}, {SCAN_EXACT, 16, 512, 4}},
    .n_stages = 3,
    .sink = 256,
    .recent = 512};

Test(select_stages, each_keeps_the_best_units_of_those_before)
{
    Bench *bench = bench_new(&three, 8000);
    run(bench, 0);
    const uint32_t *kept = bench->words, counts[] = {4096 / 256, 2048 / 64, 512 / 16}, units[] = {16, 4, 1};
    for (uint32_t stage = 0; stage < 3; stage++) {
        uint32_t n = bench->list.n[stage];
        cr_assert_eq(n, counts[stage]);
        float worst = 1e9f;
        for (uint32_t i = 0; i < n; i++) {
            cr_expect(i == 0 || kept[i] > kept[i - 1]);
            cr_expect(kept[i] >= 16 && (kept[i] - 16) % units[stage] == 0 && kept[i] * 16 < bench->list.recent_from);
            if (stage > 0) {
                uint32_t parent = 16 + (kept[i] - 16) / units[stage - 1] * units[stage - 1];
                cr_expect(has(kept - bench->list.n[stage - 1], bench->list.n[stage - 1], parent));
            }
            if (unit_score(kept[i], units[stage]) < worst) worst = unit_score(kept[i], units[stage]);
        }
        /* Nothing better was there; of equals the earlier ones were taken. */
        bool is_first = true;
        for (uint32_t at = 16; stage == 0 && at < bench->list.recent_from / 16; at += 16) {
            if (has(kept, n, at)) {
                cr_expect(is_first || unit_score(at, 16) > worst);
            } else {
                cr_expect_leq(unit_score(at, 16), worst);
                if (unit_score(at, 16) == worst) is_first = false;
            }
        }
        kept += n;
    }
    cr_expect_eq(bench->list.n_sectors, 32);
    cr_expect_eq(select_sectors(&bench->list, bench->words), kept);
    cr_expect_arr_eq(kept, kept - 32, 32 * sizeof *kept);
    free(bench);
}

/* More kept by an earlier stage never loses one of the best. */
Test(select_stages, wider_stages_find_no_less)
{
    float sums[4];
    for (uint32_t i = 0; i < 4; i++) {
        Selection wider = three;
        wider.stages[0].keep_tokens = 1024u << i;
        wider.stages[1].keep_tokens = 1024;
        Bench *bench = bench_new(&wider, 8000);
        run(bench, 0);
        const uint32_t *sectors = select_sectors(&bench->list, bench->words);
        sums[i] = 0;
        for (uint32_t s = 0; s < bench->list.n_sectors; s++) sums[i] += sector_score(sectors[s]);
        cr_expect(i == 0 || sums[i] >= sums[i - 1]);
        free(bench);
    }
    cr_expect_gt(sums[3], sums[0]);
}

Test(select_stages, a_later_stage_alone_goes_by_the_lists_before_it)
{
    Bench *bench = bench_new(&three, 8000), *before = malloc(sizeof *before);
    cr_assert_not_null(before);
    run(bench, 0);
    memcpy(before, bench, sizeof *before);
    bench->query.position = bench->query.first_pos = 8008;
    n_scans = 0;
    run(bench, 2);
    cr_expect_eq(n_scans, 1);
    cr_expect_arr_eq(&bench->list, &before->list, sizeof bench->list, "the recent range stays where it began");
    cr_expect_arr_eq(bench->words, before->words, sizeof bench->words);
    free(before);
    free(bench);
}

/* Whatever the position, until the list is made anew; units of whole pages become their sectors. */
Test(select_stages, a_budget_holds_as_long_as_the_list)
{
    Selection pages = preset_find("lserve-4k")->selection;
    for (uint32_t position = 4096; position < 8000; position += 37) {
        Bench *bench = bench_new(&pages, position);
        cr_assert(select_applies(&pages, ROWS_DECODE, position));
        run(bench, 0);
        for (uint32_t p = position; p < position + 4; p++) {
            uint32_t seen = pages.sink + bench->list.n_sectors * 16 + p + 1 - bench->list.recent_from;
            cr_expect(seen <= 4096 && seen > 4096 - 64 - 4, "%u at %u", seen, p);
            cr_expect_geq(p + 1 - bench->list.recent_from, pages.recent);
        }
        const uint32_t *sectors = select_sectors(&bench->list, bench->words);
        for (uint32_t i = 0; i < bench->list.n_sectors; i++)
            cr_expect_eq(sectors[i] % 4, i % 4, "sectors of whole pages");
        free(bench);
    }
}

/* The least that is taken holds too, at the end of the longest wait for a refresh. */
Test(select_stages, the_least_budget_holds)
{
    static const uint32_t refreshes[] = {1, 64, 256};
    for (size_t i = 0; i < 3; i++) {
        AttnPolicy policy = *preset_find("lserve-4k");
        Error error;
        policy.selection.stages[0].refresh = refreshes[i];
        for (policy.selection.budget = 64; !policy_check(&policy, &error); policy.selection.budget++)
            cr_assert_lt(policy.selection.budget, 4096);
        policy.selection.bypass = policy.selection.budget;
        uint32_t most = 0;
        for (uint32_t position = 2000; position < 2064; position++) {
            Bench *bench = bench_new(&policy.selection, position);
            run(bench, 0);
            uint32_t seen =
                policy.selection.sink + bench->list.n_sectors * 16 + position + refreshes[i] - bench->list.recent_from;
            if (seen > most) most = seen;
            free(bench);
        }
        cr_expect(most <= policy.selection.budget, "%u of %u, refresh %u", most, policy.selection.budget, refreshes[i]);
    }
}

static uint32_t n_words(const SelectList *list)
{
    uint32_t n = list->n_sectors;
    for (uint32_t i = 0; i < list->n_stages; i++) n += list->n[i];
    return n;
}

/* What is charged for lists is what they take, whatever the preset. */
Test(select_stages, lists_take_no_more_than_is_charged)
{
    for (size_t i = 0; preset_name_at(i); i++) {
        Selection selection = preset_find(preset_name_at(i))->selection;
        if (!selection.n_stages || !strcmp(selection.planner, "vertical-slash")) continue;
        for (uint32_t position = 1000; position < MAX_SECTORS * 16 - 64; position += 1013)
            for (uint32_t layer = 0; layer < 4; layer += 3) {
                if (!select_applies(&selection, ROWS_DECODE, position)) continue;
                Bench *bench = bench_new(&selection, position);
                bench->query.layer = layer;
                run(bench, 0);
                uint64_t charged = list_need_bytes(&selection, selection_is_early(&selection, layer), position + 1);
                cr_expect(2 * sizeof(uint32_t) * n_words(&bench->list) <= charged,
                          "%s at %u, layer %u: %u words of %lu", preset_name_at(i), position, layer,
                          n_words(&bench->list), (unsigned long)charged);
                free(bench);
            }
        selection.bypass = 5000;
        cr_expect_eq(list_need_bytes(&selection, false, 5000), 0, "rows that are dense have no lists");
        cr_expect(list_need_bytes(&selection, false, 5001) >= 8192 || !selection.stages[0].keep_tokens);
    }
    /* 3M tokens, all of them kept: no 32 bits hold what is taken. */
    Selection all = preset_find("hip-3k")->selection;
    all.max_missing_mass = 0.05;
    cr_expect_eq(list_need_bytes(&all, false, 3u << 20), 2 * 4 * 4 * (3u << 20) / 16);
}

Test(select_stages, what_fits_is_listed_without_a_look)
{
    Selection wide = three;
    wide.stages[0].keep_tokens = wide.stages[1].keep_tokens = wide.stages[2].keep_tokens = CONTEXT;
    Bench *bench = bench_new(&wide, 5000);
    n_scans = 0;
    run(bench, 0);
    cr_expect_eq(n_scans, 0);
    cr_expect_eq(bench->list.n_sectors, (bench->list.recent_from - wide.sink) / 16);
    cr_expect_eq(select_n_left_out(&wide, &bench->list), 0);
    cr_expect_not(select_applies(&wide, ROWS_DECODE, wide.sink + wide.recent - 1), "nothing lies between the ranges");
    free(bench);
}

/* ---- when ---- */

Test(select_stages, stages_are_due_by_their_own_clocks_and_layers_in_turn)
{
    static const uint32_t periods[] = {16, 8, 4};
    uint32_t n_due[16][3] = {{0}};
    SelectList some = {.n_stages = 3}, none = {0};
    SelectQuery query = {.selection = &three, .n_layers = N_LAYERS};
    for (query.layer = 0; query.layer < N_LAYERS; query.layer++) {
        cr_expect_eq(select_first_due(&query, &none, 7), 0);
        uint32_t last[3] = {0}, n_times[3] = {0};
        for (uint32_t t = 0; t < 64; t++) {
            uint32_t due = select_first_due(&query, &some, t);
            for (uint32_t stage = due; stage < 3; stage++) { /* one that is due runs all after it */
                cr_expect(n_times[stage] == 0 || t - last[stage] == periods[stage]);
                last[stage] = t;
                n_times[stage]++;
                if (t < 16) n_due[t][stage]++;
            }
        }
        for (uint32_t stage = 0; stage < 3; stage++) cr_expect_eq(n_times[stage], 64 / periods[stage]);
    }
    for (uint32_t t = 0; t < 16; t++)
        for (uint32_t stage = 0; stage < 3; stage++)
            cr_expect(n_due[t][stage] <= N_LAYERS / periods[stage] + 2, "no step pays for all: %u layers at %u",
                      n_due[t][stage], t);
}

/* ---- probes ---- */

Test(select_stages, probes_are_spread_over_what_is_left_out)
{
    Bench *bench = bench_new(&three, 8000);
    run(bench, 0);
    const uint32_t *sectors = select_sectors(&bench->list, bench->words);
    uint32_t left_out = select_n_left_out(&three, &bench->list), probes[SELECT_MAX_PROBES], again[SELECT_MAX_PROBES];
    cr_assert_eq(left_out, (bench->list.recent_from - 256) / 16 - 32);
    cr_assert_eq(select_probes(&bench->query, &bench->list, bench->words, 40, probes), 40);
    cr_assert_eq(select_probes(&bench->query, &bench->list, bench->words, 40, again), 40);
    cr_expect_arr_eq(probes, again, 40 * sizeof *probes);
    for (uint32_t i = 0; i < 40; i++) {
        cr_expect(probes[i] >= 16 && probes[i] * 16 < bench->list.recent_from && (i == 0 || probes[i] > probes[i - 1]));
        cr_expect_not(has(sectors, bench->list.n_sectors, probes[i]));
    }
    bench->query.layer = 1;
    cr_assert_eq(select_probes(&bench->query, &bench->list, bench->words, 40, again), 40);
    cr_expect_arr_neq(probes, again, 40 * sizeof *probes, "other ones in another layer");
    /* Where fewer are left out than asked for: all of them. */
    Selection most = three;
    most.stages[0].keep_tokens = most.stages[1].keep_tokens = CONTEXT;
    most.stages[2].keep_tokens = bench->list.recent_from - 256 - 3 * 16;
    bench->query.selection = &most;
    run(bench, 0);
    cr_expect_eq(select_probes(&bench->query, &bench->list, bench->words, 40, probes), 3);
    free(bench);
}
