/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/selector_impl.h"

#include <math.h>

enum { MIN_LEVEL = -4, MAX_LEVEL = 16 };

/* ---- which rows ---- */

static bool is_decoded(const Wave *wave, uint32_t span)
{
    return wave->from[span] && wave->from[span]->kind == ROWS_DECODE;
}

/* Dense attention beyond the trained context is no measure of anything. */
static bool is_audited(const LayerCall *call, uint32_t span)
{
    const Wave *wave = &call->selector->wave;
    if (!is_decoded(wave, span)) return false;
    uint32_t interval = wave->from[span]->policy->selection.audit_interval, at = wave->spans[span].first_pos;
    if (!interval || at >= call->pass->shape->train_context) return false;
    const SelectSeq *seq = select_state_seq(call->selector->state, wave->seqs[span]);
    return !seq->is_dense && (at - seq->decode_from + 1) % interval == 0;
}

static bool is_probed(const LayerCall *call, uint32_t span, const PlannedHead *head)
{
    const Selection *selection = &call->selector->wave.from[span]->policy->selection;
    return selection->n_probes && head->selects && (head->is_new || is_audited(call, span));
}

static PlannedHead *heads_of(const LayerCall *call, uint32_t span)
{
    return call->selector->wave.heads + (size_t)span * call->pass->shape->n_kv_heads;
}

static bool has_probes(const LayerCall *call, uint32_t span)
{
    if (!is_decoded(&call->selector->wave, span)) return false;
    for (uint32_t h = 0; h < call->pass->shape->n_kv_heads; h++)
        if (is_probed(call, span, &heads_of(call, span)[h])) return true;
    return false;
}

bool selector_needs_lse(const LayerCall *call)
{
    for (uint32_t i = 0; i < call->selector->wave.n_spans; i++)
        if (has_probes(call, i) || is_audited(call, i)) return true;
    return false;
}

/* ---- beside the wave ---- */

/* A span of the wave once more, by other plans. */
static AttnPlan *add_more(const LayerCall *call, uint32_t *n_more, uint32_t span)
{
    Selector *selector = call->selector;
    AttnPlan *plans = selector->more_plans + (size_t)*n_more * call->pass->shape->n_kv_heads;
    KvSpan *more = &selector->more_spans[(*n_more)++];
    *more = selector->wave.spans[span];
    more->plans = plans;
    return plans;
}

static bool attend_more(const LayerCall *call, uint32_t n_more)
{
    AttendParams params = *call->params;
    params.spans = call->selector->more_spans;
    params.n_spans = n_more;
    params.out = call->selector->more_out;
    params.lse = call->selector->more_lse;
    return n_more == 0 || call->pass->kernels->attend(&params, call->pass->stream);
}

/* The mean over the head's queries of the share that the first lacks of all, 'other' standing for what it lacks or,
 * is_all, for all. */
static float missing_share(const LayerCall *call, uint32_t span, uint32_t kv_head, float log_scale, bool is_all)
{
    const ModelShape *shape = call->pass->shape;
    uint32_t group = shape->n_heads / shape->n_kv_heads;
    size_t first = (size_t)call->selector->wave.spans[span].first_row * shape->n_heads + (size_t)kv_head * group;
    double sum = 0;
    for (size_t i = first; i < first + group; i++) {
        double seen = call->selector->wave.lse[i], other = call->selector->more_lse[i] + log_scale;
        double share = is_all ? -expm1(seen - other) : 1 / (1 + exp(seen - other));
        sum += share > 0 ? share : 0;
    }
    return (float)(sum / group);
}

/* ---- probes ---- */

static void plan_probes(const LayerCall *call, uint32_t span, AttnPlan *plans)
{
    Selector *selector = call->selector;
    const Wave *wave = &selector->wave;
    uint32_t n_kv_heads = call->pass->shape->n_kv_heads;
    for (uint32_t h = 0; h < n_kv_heads; h++) {
        PlannedHead *head = &heads_of(call, span)[h];
        plans[h] = (AttnPlan){0};
        head->estimate = -1;
        if (!is_probed(call, span, head)) continue;
        const SelectQuery query = selector_query(call, span, h);
        const uint32_t *words;
        const SelectList *list =
            select_state_list(selector->state, wave->seqs[span], call->layer * n_kv_heads + h, &words);
        uint32_t *sectors = selector->words + selector->n_words;
        head->n_left_out = select_n_left_out(query.selection, list);
        head->n_probes = select_probes(&query, list, words, query.selection->n_probes, sectors);
        head->estimate = 0;
        selector->n_words += head->n_probes;
        plans[h] = wave->spans[span].plans[h];
        plans[h].sink = plans[h].recent = 0;
        plans[h].list = sectors;
        plans[h].n_list = head->n_probes;
    }
}

/* Half of the budget is tried only where that should still do. */
static void adapt(const LayerCall *call, uint32_t span, uint32_t kv_head, float estimate)
{
    Selector *selector = call->selector;
    double most = selector->wave.from[span]->policy->selection.max_missing_mass;
    const uint32_t head = call->layer * call->pass->shape->n_kv_heads + kv_head;
    uint32_t *words;
    SelectList *list = select_state_edit(selector->state, selector->wave.seqs[span], head, &words);
    if (!(estimate <= most) && list->level < MAX_LEVEL) list->level++;
    if (estimate < most / 4 && list->level > MIN_LEVEL) list->level--;
}

static void take_estimates(const LayerCall *call, uint32_t span)
{
    Wave *wave = &call->selector->wave;
    const Selection *selection = &wave->from[span]->policy->selection;
    AttentionStats *stats = &select_state_seq(call->selector->state, wave->seqs[span])->stats[ROWS_DECODE];
    for (uint32_t h = 0; h < call->pass->shape->n_kv_heads; h++) {
        PlannedHead *head = &heads_of(call, span)[h];
        if (head->estimate < 0) continue;
        const KvSpan *at = &wave->spans[span];
        const KvLayout *layout = &at->classes[at->heads[h].class_index].pool->layout;
        if (head->n_probes)
            head->estimate = missing_share(call, span, h, logf((float)head->n_left_out / (float)head->n_probes), false);
        if (isfinite(head->estimate)) { /* else the request fails, and sums go on without it */
            stats->n_estimates++;
            stats->estimated_mass += (double)head->estimate;
        }
        stats->select_bytes += (uint64_t)head->n_probes * layout->sector_bytes;
        if (selection->max_missing_mass > 0 && head->is_new) adapt(call, span, h, head->estimate);
    }
}

static bool probe(const LayerCall *call)
{
    uint32_t n_more = 0, n_spans = call->selector->wave.n_spans;
    for (uint32_t i = 0; i < n_spans; i++)
        if (has_probes(call, i)) plan_probes(call, i, add_more(call, &n_more, i));
    if (!attend_more(call, n_more)) return false;
    for (uint32_t i = 0; i < n_spans; i++)
        if (has_probes(call, i)) take_estimates(call, i);
    return true;
}

/* ---- audits ---- */

static void take_audit(const LayerCall *call, uint32_t span)
{
    Wave *wave = &call->selector->wave;
    AttentionStats *stats = &select_state_seq(call->selector->state, wave->seqs[span])->stats[ROWS_DECODE];
    for (uint32_t h = 0; h < call->pass->shape->n_kv_heads; h++) {
        const PlannedHead *head = &heads_of(call, span)[h];
        if (!head->selects) continue;
        double missing = (double)missing_share(call, span, h, 0, true);
        if (!isfinite(missing)) continue;
        stats->n_audits++;
        stats->audited_mass += missing;
        if (head->estimate > 0) stats->audited_estimate += (double)head->estimate;
    }
}

static bool audit(const LayerCall *call)
{
    const Wave *wave = &call->selector->wave;
    uint32_t n_more = 0, n_kv_heads = call->pass->shape->n_kv_heads;
    for (uint32_t i = 0; i < wave->n_spans; i++) {
        if (!is_audited(call, i)) continue;
        AttnPlan *plans = add_more(call, &n_more, i);
        for (uint32_t h = 0; h < n_kv_heads; h++) plans[h] = wave->from[i]->plans[h];
    }
    if (!attend_more(call, n_more)) return false;
    for (uint32_t i = 0; i < wave->n_spans; i++)
        if (is_audited(call, i)) take_audit(call, i);
    return true;
}

bool selector_measure(const LayerCall *call)
{
    return !selector_needs_lse(call) || (probe(call) && audit(call));
}
