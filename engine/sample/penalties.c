/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/sampler_impl.h"

#include <math.h>

bool penalties_apply_to(const Sampler *sampler)
{
    const SamplingParams *p = &sampler->params;
    return p->repeat_last_n != 0 &&
           (p->repetition_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0);
}

void penalties_edit(Sampler *sampler)
{
    const SamplingParams *p = &sampler->params;
    const History *history = &sampler->history;
    for (uint32_t i = 0; i < history->n_counts; i++) {
        const TokenCount *count = &history->counts[i];
        if (!count->n_seen) continue;
        DigestEdit *edit = edit_of(sampler, count->id_plus_1 - 1);
        edit->repetition = p->repetition_penalty;
        if (count->n_generated) edit->less = p->frequency_penalty * (float)count->n_generated + p->presence_penalty;
    }
}

/* ---- DRY: against repeating what came before word by word ---- */

/* No draw can tell more from it, and the deviation that top_n_sigma goes by still means something. */
#define DRY_MAX_PENALTY 1000.0

bool dry_applies_to(const Sampler *sampler)
{
    const SamplingParams *p = &sampler->params;
    return p->dry_multiplier > 0 && p->dry_base >= 1 && p->dry_penalty_last_n != 0;
}

/* The window seen from its end: token 0 is the last one. */
typedef struct Backward {
    const History *history;
    uint32_t n;
} Backward;

static Backward backward(const Sampler *sampler)
{
    Backward view = {&sampler->history, SAMPLE_MAX_WINDOW};
    if (sampler->params.dry_penalty_last_n > 0) view.n = (uint32_t)sampler->params.dry_penalty_last_n;
    if (view.n > sampler->history.n) view.n = (uint32_t)sampler->history.n;
    return view;
}

static uint32_t slot_of(const Backward *view, uint32_t i)
{
    return (uint32_t)((view->history->n - 1 - i) % view->history->n_ring);
}

static uint32_t token_of(const Backward *view, uint32_t i)
{
    return view->history->ids[slot_of(view, i)];
}

static bool may_lose(const Backward *view, uint32_t i)
{
    return !(view->history->breaks[slot_of(view, i)] & BREAKS_ALONE);
}

/* How many tokens have come since the last breaker. */
static uint32_t unbroken_tokens(const Backward *view)
{
    uint32_t i = 0;
    while (i < view->n && !(view->history->breaks[slot_of(view, i)] & BREAKS_BEHIND)) i++;
    return i;
}

/*
 * matches[k], 0 < k < n: how many tokens before and with token k are the same as those before and with the last one, at
 * most limit. The Z function of the window read backward: the furthest match so far, [left, right), tells of the tokens
 * in it what their twins at its start have; every comparison beyond moves right, so there are at most 2 n.
 */
static void count_matches(const Backward *view, uint32_t limit, uint32_t *matches)
{
    uint32_t left = 0, right = 0;
    for (uint32_t k = 1; k < view->n; k++) {
        uint32_t length = 0;
        if (k < right) length = matches[k - left] < right - k ? matches[k - left] : right - k;
        while (length < limit && k + length < view->n && token_of(view, length) == token_of(view, k + length)) length++;
        matches[k] = length;
        if (k + length > right) {
            left = k;
            right = k + length;
        }
    }
}

static float dry_penalty(const SamplingParams *p, uint32_t length)
{
    double penalty = (double)p->dry_multiplier * pow((double)p->dry_base, (double)length - p->dry_allowed_length);
    return (float)fmin(penalty, DRY_MAX_PENALTY);
}

void dry_edit(Sampler *sampler)
{
    Backward view = backward(sampler);
    uint32_t limit = unbroken_tokens(&view), allowed = (uint32_t)sampler->params.dry_allowed_length;
    uint32_t *matches = sampler->space->matches, *longest = sampler->space->scratch;
    if (limit < allowed) return;
    count_matches(&view, limit, matches);
    /* Token k - 1 came behind a match that ends with token k: it would make the match longer. */
    for (uint32_t k = 1; k < view.n; k++) longest[token_of(&view, k - 1)] = 0;
    for (uint32_t k = 1; k < view.n; k++) {
        uint32_t id = token_of(&view, k - 1);
        if (matches[k] >= allowed && may_lose(&view, k - 1) && matches[k] + 1 > longest[id])
            longest[id] = matches[k] + 1;
    }
    for (uint32_t k = 1; k < view.n; k++) {
        uint32_t id = token_of(&view, k - 1);
        if (longest[id]) edit_of(sampler, id)->again = dry_penalty(&sampler->params, longest[id] - 1);
        longest[id] = 0;
    }
}
