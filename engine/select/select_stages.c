/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/select_stages.h"

#include "engine/select/list_need.h"
#include "engine/select/vertical_slash.h"
#include "kernels/select/top_k.h"

#include <string.h>

enum { MAX_LEVEL = 16 };

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- ranges ---- */

uint32_t select_recent_from(const Selection *selection, uint32_t position)
{
    uint64_t near = (uint64_t)selection->sink + selection->recent;
    if (position + 1ull <= near) return selection->sink;
    uint32_t step = max_u32(selection->stages[0].unit_tokens, KV_PAGE_TOKENS);
    return selection->sink + (uint32_t)(position + 1 - near) / step * step;
}

bool select_applies(const Selection *selection, RowKind kind, uint32_t position)
{
    if (!selection->n_stages || select_recent_from(selection, position) <= selection->sink) return false;
    if (kind == ROWS_DECODE) return position >= selection->bypass;
    return position >= selection->prefill_from && (uint64_t)position + KV_PAGE_TOKENS > selection->bypass;
}

static bool is_early(const SelectQuery *query)
{
    return selection_is_early(query->selection, query->layer);
}

/* ---- when ---- */

/* Layers are due one after the other, so that no step pays for all. */
static uint32_t phase_of(const SelectQuery *query)
{
    return (uint32_t)((uint64_t)query->layer * query->selection->stages[0].refresh / query->n_layers);
}

uint32_t select_first_due(const SelectQuery *query, const SelectList *list, uint32_t t)
{
    const Selection *selection = query->selection;
    if (!list->n_stages) return 0;
    for (uint32_t i = 0; i < selection->n_stages; i++)
        if (((uint64_t)t + phase_of(query)) % selection->stages[i].refresh == 0) return i;
    return selection->n_stages;
}

/* ---- how much ---- */

static uint32_t scale(uint32_t tokens, int32_t level)
{
    if (tokens == PLAN_ALL) return tokens;
    if (level < 0) return tokens >> min_u32((uint32_t)-level, MAX_LEVEL);
    uint64_t more = (uint64_t)tokens << min_u32((uint32_t)level, MAX_LEVEL);
    return more < PLAN_ALL ? (uint32_t)more : PLAN_ALL;
}

/* What the budget leaves for the list, as long as it is used. */
static uint32_t budget_left(const SelectQuery *query, const SelectList *list)
{
    const Selection *selection = query->selection;
    if (!selection->budget) return PLAN_ALL;
    uint32_t budget = scale(selection->budget, list->level), seen = selection->sink + (list->end - list->recent_from);
    return budget > seen ? budget - seen : 0;
}

uint32_t select_keep(const SelectQuery *query, const SelectList *list, uint32_t stage)
{
    const Selection *selection = query->selection;
    const SelectStage *at = &selection->stages[stage];
    bool is_last = stage + 1 == selection->n_stages;
    bool is_whole = is_last && is_early(query) && selection->early_keep_tokens;
    uint32_t keep = is_whole ? selection->early_keep_tokens : at->keep_tokens;
    /* A smaller budget is the last stage's alone; a larger one needs as many more to choose from. */
    keep = scale(keep, is_last || list->level > 0 ? list->level : 0);
    if (is_last && !is_whole) keep = min_u32(keep, budget_left(query, list));
    return keep == PLAN_ALL ? PLAN_ALL : keep / at->unit_tokens;
}

/* ---- scores ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Random numbers that depend on where they are drawn alone. */
static uint64_t seed_of(const SelectQuery *query)
{
    return mix(mix(mix(query->position + UINT64_C(0x9e3779b97f4a7c15)) + query->layer) + query->kv_head);
}

static ScanParams scan_of(const SelectTools *tools, const SelectQuery *query, uint32_t stage, uint32_t n_units)
{
    const Selection *selection = query->selection;
    const SelectStage *at = &selection->stages[stage];
    ScanPositions moved = is_early(query) ? selection->early_scan_positions : selection->scan_positions;
    return (ScanParams){.q = query->q,
                        .n_rows = query->n_rows,
                        .row_heads = query->row_heads,
                        .group = query->group,
                        .k_dim = query->k_dim,
                        .first_pos = query->first_pos,
                        .pages = query->pages,
                        .slot = query->slot,
                        .kind = at->scan,
                        .positions = query->is_packed ? moved : SCAN_TRUE,
                        /* Behind the sectors, as far as the recent range is long (A3). */
                        .query_position = selection->recent + 1 - min_u32(selection->recent, KV_SECTOR_TOKENS),
                        .row_stride = max_u32(selection->row_stride, 1),
                        .units = tools->units,
                        .n_units = n_units,
                        .unit_sectors = at->unit_tokens / KV_SECTOR_TOKENS,
                        .turns = query->turns,
                        .scores = tools->scores,
                        .scratch = tools->scan_scratch};
}

/* How a planner scores units, where that is not by its stages' scans. */
typedef struct Scorer {
    const char *planner;
    bool reads; /* what the stage's scan would */
    bool (*score)(const SelectTools *tools, const SelectQuery *query, const ScanParams *scan);
} Scorer;

static bool score_random(const SelectTools *tools, const SelectQuery *query, const ScanParams *scan)
{
    uint64_t seed = seed_of(query);
    for (uint32_t i = 0; i < scan->n_units; i++)
        tools->scores[i] = (float)(mix(seed + tools->units[i]) >> 40); /* 24 bits: exact as a float */
    return true;
}

static bool score_vertical_slash(const SelectTools *tools, const SelectQuery *query, const ScanParams *scan)
{
    (void)query;
    vertical_slash_scan(scan, tools->scale, tools->softcap, tools->slash_scratch);
    return true;
}

static const Scorer scorers[] = {{"random", false, score_random}, {"vertical-slash", true, score_vertical_slash}};

static bool score(const SelectTools *tools, const SelectQuery *query, uint32_t stage, uint32_t n_units, uint64_t *bytes)
{
    const ScanParams scan = scan_of(tools, query, stage, n_units);
    const Scorer *own = NULL;
    for (size_t i = 0; i < sizeof scorers / sizeof *scorers; i++)
        if (!strcmp(query->selection->planner, scorers[i].planner)) own = &scorers[i];
    if (!own || own->reads) *bytes += scan_read_bytes(&scan);
    return own ? own->score(tools, query, &scan) : tools->kernels->scan(&scan, tools->stream);
}

/* ---- stages ---- */

/* First sectors of what the stage chooses from, into tools->units. */
static uint32_t find_units(const SelectTools *tools, const SelectQuery *query, uint32_t stage, const SelectList *list,
                           const uint32_t *kept)
{
    const Selection *selection = query->selection;
    uint32_t step = selection->stages[stage].unit_tokens / KV_SECTOR_TOKENS, n = 0;
    if (stage == 0) {
        for (uint32_t at = selection->sink / KV_SECTOR_TOKENS; at < list->recent_from / KV_SECTOR_TOKENS; at += step)
            tools->units[n++] = at;
        return n;
    }
    uint32_t parent = selection->stages[stage - 1].unit_tokens / KV_SECTOR_TOKENS;
    for (uint32_t i = 0; i < list->n[stage - 1]; i++)
        for (uint32_t at = 0; at < parent; at += step) tools->units[n++] = kept[i] + at;
    return n;
}

static bool run_stage(const SelectTools *tools, const SelectQuery *query, uint32_t stage, SelectList *list,
                      const uint32_t *kept, uint32_t *chosen, uint64_t *bytes)
{
    uint32_t n = find_units(tools, query, stage, list, kept), keep = select_keep(query, list, stage);
    if (n <= keep) { /* nothing to choose */
        memcpy(chosen, tools->units, n * sizeof *chosen);
        list->n[stage] = n;
        return true;
    }
    if (keep > 0) {
        if (!score(tools, query, stage, n, bytes)) return false;
        keep = top_k(tools->scores, n, keep, tools->top_scratch, tools->indices);
        for (uint32_t i = 0; i < keep; i++) chosen[i] = tools->units[tools->indices[i]];
    }
    list->n[stage] = keep;
    return true;
}

bool select_run(const SelectTools *tools, const SelectQuery *query, uint32_t first_stage, SelectList *list,
                uint32_t *words, uint64_t *bytes)
{
    const Selection *selection = query->selection;
    const uint32_t *kept = NULL;
    uint32_t *chosen = words;
    if (first_stage == 0) {
        list->recent_from = select_recent_from(selection, query->position);
        list->end = query->end;
    }
    for (uint32_t stage = 0; stage < selection->n_stages; stage++) {
        if (stage >= first_stage && !run_stage(tools, query, stage, list, kept, chosen, bytes)) return false;
        kept = chosen;
        chosen += list->n[stage];
    }
    uint32_t last = selection->n_stages - 1, n_each = selection->stages[last].unit_tokens / KV_SECTOR_TOKENS;
    for (uint32_t i = 0; i < list->n[last] * n_each; i++) chosen[i] = kept[i / n_each] + i % n_each;
    list->n_sectors = list->n[last] * n_each;
    list->n_stages = selection->n_stages;
    return true;
}

const uint32_t *select_sectors(const SelectList *list, const uint32_t *words)
{
    for (uint32_t i = 0; i < list->n_stages; i++) words += list->n[i];
    return words;
}

/* ---- what is left out ---- */

uint32_t select_n_left_out(const Selection *selection, const SelectList *list)
{
    return (list->recent_from - selection->sink) / KV_SECTOR_TOKENS - list->n_sectors;
}

uint32_t select_probes(const SelectQuery *query, const SelectList *list, const uint32_t *words, uint32_t n,
                       uint32_t *ret_sectors)
{
    const uint32_t *sectors = select_sectors(list, words);
    uint32_t n_out = select_n_left_out(query->selection, list), listed = 0;
    uint64_t seed = seed_of(query);
    n = min_u32(n, n_out);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t from = (uint32_t)((uint64_t)n_out * i / n), to = (uint32_t)((uint64_t)n_out * (i + 1) / n);
        uint32_t at = query->selection->sink / KV_SECTOR_TOKENS + from + (uint32_t)(mix(seed + i) % (to - from));
        while (listed < list->n_sectors && sectors[listed] <= at + listed) listed++;
        ret_sectors[i] = at + listed;
    }
    return n;
}
