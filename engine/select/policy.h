/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention policy: planner, budgets and head roles, by which plans are made. An engine is opened with a list of them
 * and a sequence follows one for life (PolicyId: its index; 0 is dense). Immutable.
 */
#pragma once
#include "kernels/attention/plan.h"
#include "kernels/select/scan.h"

typedef uint32_t PolicyId;

enum { POLICY_MAX_SLOTS = 64, POLICY_SLOT_BITS = 8 };

/* Its place in the engine's table; what is above that tells those apart that had the place one after the other. */
static inline uint32_t policy_slot(PolicyId policy)
{
    return policy & ((1u << POLICY_SLOT_BITS) - 1);
}

/* Which KV heads stream (LServe 3.3) instead of seeing everything. */
typedef struct HeadRoles {
    const char *name;
    const uint8_t *streams; /* [n_layers, n_kv_heads] 0 or 1; heads of sliding-window layers are 0 */
    uint64_t hash;          /* of the file's roles and ranges, which its name is not enough to tell; 0: of no file */
} HeadRoles;

/*
 * Selection: what a head that does not stream sees beyond its sink and recent ranges. Stages narrow the context down:
 * each scores the units that the one before it kept, and keeps the best (InfiniteHiP 4; LServe 3.5 is one stage). The
 * first takes all sectors between the ranges; what the last keeps is the plan's list.
 */
typedef struct SelectStage {
    ScanKind scan;
    uint32_t unit_tokens; /* multiple of KV_SECTOR_TOKENS; of a later stage it divides that of the one before */
    uint32_t keep_tokens; /* PLAN_ALL: what the budget leaves */
    uint32_t refresh;     /* decode steps; 1: every step. A stage that is due runs all after it */
} SelectStage;

enum { SELECT_MAX_STAGES = 4, SELECT_MAX_PROBES = 64 };

typedef struct Selection {
    const char *planner; /* "pages", "hip", "oracle", ... */
    SelectStage stages[SELECT_MAX_STAGES];
    uint32_t n_stages;     /* 0: none, heads see everything */
    uint32_t sink, recent; /* tokens, multiples of KV_PAGE_TOKENS */
    uint32_t budget;       /* tokens that a query sees, those two among them; 0: what the stages keep, besides them */
    uint32_t bypass;       /* contexts of up to so many tokens are dense; at least the budget */
    uint32_t prefill_from; /* blocks of prompt rows from this position on select too; PLAN_ALL: prompts are dense */
    /* Of queries whose keys are packed; others scan at true positions, by which they attend (decision 5). */
    ScanPositions scan_positions, early_scan_positions;
    uint64_t early_layers; /* bit i: layer i is early (A1): keeps early_keep_tokens, scans at early_scan_positions */
    uint32_t early_keep_tokens; /* of the last stage, whatever the budget; 0: as the others; PLAN_ALL: dense */
    uint32_t row_stride;        /* prefill scans average so many rows */
    uint32_t n_probes;          /* random unselected sectors whose exact mass is taken at each refresh; 0: none */
    double max_missing_mass;    /* adaptive: the budget doubles or halves to keep the estimate below it; 0: fixed */
    uint32_t audit_interval;    /* decoded rows between two that also run dense; 0: none */
    uint32_t dense_tail_rows;   /* the last rows of a prompt are dense */
    uint32_t delta_stride;      /* delta correction in prefill: every so many rows are dense too; 0: none (A7.1) */
} Selection;

/* How the retained periods k_r go from the shortest wavelength to the longest: equal steps, or equal ratios. */
typedef enum WaveProfile { WAVE_ARITHMETIC, WAVE_GEOMETRIC } WaveProfile;

/*
 * Wavelength window (ATFlash 3.2, appendix A): pair r of n takes part in the score of a query and a key at distance z
 * iff z <= w_r, where r counts from the shortest wavelength and
 *     w_r = min(max(k_r * lambda_r ^ gamma + linear * (r + 1) / n, floor), ceiling).
 * k_r is k at the longest wavelength and k * k_ratio at the shortest. All but k zero: the plain rule, k * lambda_r.
 */
typedef struct Wavelength {
    double k_prefill, k_decode; /* periods; with linear 0 too: no window */
    double k_ratio;             /* 0: 1, the same k for all */
    WaveProfile profile;
    double gamma;            /* 0: 1 */
    double linear;           /* tokens */
    uint32_t floor, ceiling; /* tokens; ceiling 0: none */
    bool in_window_layers;   /* layers with a sliding window are cut too; the paper leaves them whole */
} Wavelength;

typedef struct AttnPolicy {
    const char *name;       /* preset and roles as clients name them */
    const HeadRoles *roles; /* NULL: no head streams */
    /* Of streaming heads, tokens; multiples of KV_PAGE_TOKENS. Prefill rows are those of a prompt. */
    uint32_t sink, recent_prefill, recent_decode;
    Selection selection;
    Wavelength wavelength;
    PositionRule positions; /* what heads with a selection or roles do beyond the trained context */
    uint32_t group, near;   /* POSITIONS_GROUPED: tokens that share a position; tokens whose positions are true */
} AttnPolicy;

/* Do its stages read key bounds? */
static inline bool policy_reads_bounds(const AttnPolicy *policy)
{
    for (uint32_t i = 0; i < policy->selection.n_stages; i++)
        if (policy->selection.stages[i].scan == SCAN_BOX || policy->selection.stages[i].scan == SCAN_CENTER)
            return true;
    return false;
}

/* Do blocks of prompt rows get lists of their own, so that all rows of a block have to go together? */
static inline bool policy_selects_blocks(const AttnPolicy *policy)
{
    return policy->selection.n_stages && policy->selection.prefill_from != PLAN_ALL;
}

/* Do decoded rows get the same keys and values as prefilled ones would (so that both are one to the prefix cache)? */
static inline bool policy_decodes_as_prefilled(const AttnPolicy *policy)
{
    bool moves = policy->roles && policy->positions == POSITIONS_PACKED, same_selection = !policy->selection.n_stages;
    bool same_window = policy->wavelength.k_prefill == policy->wavelength.k_decode;
    return same_selection && same_window && !moves &&
           (!policy->roles || policy->recent_prefill == policy->recent_decode);
}

/*
 * Tokens of context that it serves on a model that was trained for so many: more only where no row is told of positions
 * beyond those. UINT32_MAX: any.
 */
static inline uint32_t policy_reach(const AttnPolicy *policy, uint32_t trained)
{
    const Selection *selection = &policy->selection;
    if (policy->positions == POSITIONS_GROUPED) return UINT32_MAX;
    if (policy->positions != POSITIONS_PACKED || !selection->n_stages) return trained;
    uint64_t kept = selection->stages[selection->n_stages - 1].keep_tokens;
    if (selection->early_keep_tokens > kept) kept = selection->early_keep_tokens;
    uint64_t seen = selection->budget ? selection->budget : selection->sink + (uint64_t)selection->recent + kept;
    bool stays_near = selection->bypass <= trained && seen + selection->stages[0].refresh + KV_PAGE_TOKENS <= trained;
    bool grows = selection->max_missing_mass > 0;
    return stays_near && !grows && !selection->delta_stride && !selection->dense_tail_rows ? UINT32_MAX : trained;
}
