/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/presets.h"

#include "engine/select/policy_check.h"

#include <string.h>

#define ATTENTION "longwave.attention"
#define ADAPTIVE_MISSING_MASS 0.05
enum { N_PROBES = 8 };

/* LServe 3.5: whole pages by their key bounds; the budget has all that a query sees. Prompts are dense. */
#define LSERVE(tokens)                                                                                                 \
    {                                                                                                                  \
        .planner = "pages", .stages = {{SCAN_BOX, 64, PLAN_ALL, 4}}, .n_stages = 1, .sink = 64, .recent = 256,         \
        .budget = (tokens), .bypass = (tokens), .prefill_from = PLAN_ALL, .row_stride = 1, .n_probes = N_PROBES        \
    }

/*
 * InfiniteHiP (sparse-attention.md A1, D3): bounds of sectors, then the best of them again by the query of now, then
 * exact scores; sink and recent range beside what is kept. Its early layers see more. The middle stage is no descent:
 * on real keys that loses what the bounds had found (docs/measurements.md).
 */
#define HIP(tokens, first, second, third)                                                                              \
    {                                                                                                                  \
        .planner = "hip",                                                                                              \
        .stages = {{SCAN_BOX, 16, 32768, first}, {SCAN_BOX, 16, 8192, second}, {SCAN_EXACT, 16, tokens, third}},       \
        .n_stages = 3, .sink = 256, .recent = 1024, .bypass = 256 + 1024 + (tokens), .scan_positions = SCAN_RELATIVE,  \
        .early_scan_positions = SCAN_CHUNK_INDEXED, .early_layers = 7, .early_keep_tokens = 4096, .row_stride = 4,     \
        .n_probes = N_PROBES                                                                                           \
    }

static const AttnPolicy presets[] = {
    {.name = "dense"},
    {.name = "lserve-4k", .selection = LSERVE(4096)},
    {.name = "lserve-8k", .selection = LSERVE(8192)},
    {.name = "hip-3k", .selection = HIP(2048, 16, 8, 4), .positions = POSITIONS_PACKED},
    {.name = "hip-5k", .selection = HIP(4096, 16, 8, 4), .positions = POSITIONS_PACKED},
    {.name = "hip-3k-fast", .selection = HIP(2048, 32, 16, 8), .positions = POSITIONS_PACKED},
    {.name = "hip-3k-flash", .selection = HIP(2048, 96, 24, 8), .positions = POSITIONS_PACKED},
    /* Baselines. */
    {.name = "oracle",
     .selection = {.planner = "oracle",
                   .stages = {{SCAN_EXACT, 16, PLAN_ALL, 1}},
                   .n_stages = 1,
                   .sink = 64,
                   .recent = 64,
                   .budget = 2048,
                   .bypass = 2048,
                   .prefill_from = PLAN_ALL,
                   .n_probes = N_PROBES}},
    {.name = "quest",
     .selection = {.planner = "quest",
                   .stages = {{SCAN_BOX, 16, PLAN_ALL, 1}},
                   .n_stages = 1,
                   .recent = 64,
                   .budget = 2048,
                   .bypass = 2048,
                   .prefill_from = PLAN_ALL,
                   .early_layers = 3,
                   .early_keep_tokens = PLAN_ALL,
                   .n_probes = N_PROBES}},
    {.name = "streaming-llm",
     .selection = {.planner = "streaming-llm",
                   .stages = {{SCAN_EXACT, 16, 0, 1}},
                   .n_stages = 1,
                   .sink = 64,
                   .recent = 1984,
                   .bypass = 2048},
     .positions = POSITIONS_PACKED},
    {.name = "random",
     .selection = {.planner = "random",
                   .stages = {{SCAN_EXACT, 16, PLAN_ALL, 4}},
                   .n_stages = 1,
                   .sink = 64,
                   .recent = 256,
                   .budget = 2048,
                   .bypass = 2048,
                   .prefill_from = PLAN_ALL,
                   .n_probes = N_PROBES}},
    {.name = "vertical-slash",
     .selection = {.planner = "vertical-slash",
                   .stages = {{SCAN_EXACT, 16, PLAN_ALL, 1}},
                   .n_stages = 1,
                   .sink = 64,
                   .recent = 256,
                   .budget = 2048,
                   .bypass = 2048}},
    {.name = "self-extend", .positions = POSITIONS_GROUPED, .group = 8, .near = 1024},
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

const AttnPolicy *preset_find(const char *name)
{
    for (size_t i = 0; i < N_PRESETS; i++)
        if (!strcmp(presets[i].name, name)) return &presets[i];
    return NULL;
}

bool preset_is_baseline(const AttnPolicy *preset)
{
    static const char *const baselines[] = {"oracle", "quest",          "streaming-llm",
                                            "random", "vertical-slash", "self-extend"};
    for (size_t i = 0; i < sizeof baselines / sizeof *baselines; i++)
        if (!strcmp(baselines[i], preset->name)) return true;
    return false;
}

const char *preset_name_at(size_t i)
{
    return i < N_PRESETS ? presets[i].name : NULL;
}

/* ---- wishes ---- */

static bool refuse(const char *field, const char *why, Error *error)
{
    return error_set_param(error, ERR_INVALID, field, "'%s' %s", field, why);
}

bool wish_is_plain(const AttnWish *wish)
{
    bool is_dense = !wish->preset || !strcmp(wish->preset, "dense");
    return is_dense && !wish->budget && !wish->is_adaptive && !wish->n_refresh && !wish->has_wavelength &&
           !wish->has_positions;
}

/*
 * Where the stages say how much they keep, the last one gives way, in all layers, and those before it leave it a
 * choice; the recent range does where nothing is kept.
 */
static bool set_budget(Selection *selection, uint32_t budget, Error *error)
{
    SelectStage *last = &selection->stages[selection->n_stages - 1];
    uint32_t near = selection->sink + selection->recent, unit = last->unit_tokens;
    if (selection->budget) {
        selection->budget = budget;
    } else if (last->keep_tokens) {
        if (budget < near + unit)
            return error_set_param(error, ERR_INVALID, ATTENTION ".budget",
                                   "'" ATTENTION ".budget' is %u tokens, of which sink and recent range take %u",
                                   budget, near);
        last->keep_tokens = (budget - near) / unit * unit;
        if (selection->early_keep_tokens) selection->early_keep_tokens = last->keep_tokens;
        for (SelectStage *stage = last; stage > selection->stages; stage--)
            if (stage[-1].keep_tokens < 2 * stage->keep_tokens) stage[-1].keep_tokens = 2 * stage->keep_tokens;
    } else {
        if (budget < selection->sink + KV_PAGE_TOKENS)
            return refuse(ATTENTION ".budget", "has no room for a recent range", error);
        selection->recent = (budget - selection->sink) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    }
    selection->bypass = budget;
    return true;
}

static bool set_refresh(Selection *selection, const AttnWish *wish, Error *error)
{
    if (wish->n_refresh != selection->n_stages)
        return error_set_param(error, ERR_INVALID, ATTENTION ".refresh",
                               "'" ATTENTION ".refresh' has %u numbers, the preset '%s' %u stages", wish->n_refresh,
                               wish->preset, selection->n_stages);
    for (uint32_t i = 0; i < wish->n_refresh; i++) selection->stages[i].refresh = wish->refresh[i];
    return true;
}

bool wish_apply(const AttnWish *wish, const AttnPolicy *base, AttnPolicy *ret_policy, Error *error)
{
    AttnPolicy policy = *base;
    const AttnPolicy *preset = wish->preset ? preset_find(wish->preset) : NULL;
    if (wish->preset && !preset) return refuse(ATTENTION ".preset", "is not known", error);
    if (preset) {
        policy.name = preset->name;
        policy.selection = preset->selection;
        policy.positions = preset->positions;
        policy.group = preset->group;
        policy.near = preset->near;
    }
    bool selects = policy.selection.n_stages;
    if (wish->budget && !selects) return refuse(ATTENTION ".budget", "needs a preset that selects", error);
    if (wish->budget && !set_budget(&policy.selection, wish->budget, error)) return false;
    if (wish->is_adaptive && !policy.selection.n_probes)
        return refuse(ATTENTION ".budget", "is adaptive, which needs a preset that estimates what it leaves out",
                      error);
    if (wish->is_adaptive) policy.selection.max_missing_mass = ADAPTIVE_MISSING_MASS;
    if (wish->n_refresh && !selects) return refuse(ATTENTION ".refresh", "needs a preset that selects", error);
    if (wish->n_refresh && !set_refresh(&policy.selection, wish, error)) return false;
    if (wish->has_wavelength) {
        policy.wavelength.k_prefill = wish->k_prefill;
        policy.wavelength.k_decode = wish->k_decode;
    }
    if (wish->has_positions) {
        if (wish->positions == POSITIONS_PACKED && !selects && !policy.roles)
            return refuse(ATTENTION ".positions", "can be packed only where something is left out", error);
        policy.positions = wish->positions;
    }
    if (!policy_check(&policy, error)) return false;
    *ret_policy = policy;
    return true;
}
