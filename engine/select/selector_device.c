/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/selector_impl.h"
#include "engine/select/wavelength.h"

#include <string.h>

static SelectSeq *seq_of(const Selector *selector, const SelectRow *row)
{
    return select_state_seq(selector->state, row->seq);
}

uint32_t selector_device_list(const Selection *selection)
{
    const SelectStage *stage = &selection->stages[0];
    bool is_known = selection->n_stages == 1 && stage->scan == SCAN_BOX && stage->unit_tokens == KV_PAGE_TOKENS &&
                    !strcmp(selection->planner, "pages");
    bool is_plain = selection->prefill_from == PLAN_ALL && selection->max_missing_mass <= 0 &&
                    !selection->early_keep_tokens && !selection->delta_stride && !selection->dense_tail_rows;
    uint32_t most = selection->budget ? selection->budget : stage->keep_tokens;
    if (!is_known || !is_plain || most == PLAN_ALL) return 0;
    return most / KV_SECTOR_TOKENS;
}

bool selector_device_takes(const AttnPolicy *policy)
{
    return policy->positions == POSITIONS_TRUE &&
           (!policy->selection.n_stages || selector_device_list(&policy->selection));
}

bool selector_row_selects(Selector *selector, const SelectRow *row)
{
    SelectSeq *seq = seq_of(selector, row);
    if (!row->policy->selection.n_stages) return false;
    if (seq->decode_from == UINT32_MAX) seq->decode_from = row->position;
    return !seq->is_dense && select_applies(&row->policy->selection, ROWS_DECODE, row->position);
}

/* What a choice made now comes to: pages to choose from and to keep. */
static void begin_list(const SelectQuery *query, SelectList *list, SelectJob *ret_job)
{
    const Selection *selection = query->selection;
    *list =
        (SelectList){.n_stages = 1, .recent_from = select_recent_from(selection, query->position), .end = query->end};
    uint32_t n = (list->recent_from - selection->sink) / KV_PAGE_TOKENS, keep = select_keep(query, list, 0);
    *ret_job = (SelectJob){selection->sink / KV_PAGE_TOKENS, n, keep < n ? keep : n};
    list->n_sectors = ret_job->n_keep * KV_PAGE_SECTORS;
}

/* Bytes of bounds that the kernel reads of a head. */
static uint64_t bounds_bytes(const Selector *selector, const SelectJob *job)
{
    uint64_t n_blocks = (selector->params.n_channels + KV_BOUNDS_BLOCK - 1) / KV_BOUNDS_BLOCK;
    return (uint64_t)job->n_pages * KV_PAGE_SECTORS * (n_blocks * KV_BOUNDS_BLOCK_BYTES + KV_BOUNDS_BLOCK);
}

/* Heads of a layer are of few kinds, neighbours often of one. */
static void count_heads(AttentionStats *stats, const AttnPlan *plans, const SelectRow *row, const KvHead *heads,
                        uint32_t n_heads)
{
    AttentionStats one = {0};
    for (uint32_t h = 0; h < n_heads; h++) {
        AttnPlan plan = plans[h];
        plan.list = NULL; /* the device alone knows what it holds */
        if (!h || !attention_counts_same(&plans[h - 1], &plan)) {
            one = (AttentionStats){0};
            attention_count(&plan, row->position, &row->classes[heads[h].class_index].pool->layout, 1, &one);
        }
        attention_stats_add(stats, &one);
    }
}

/* The list of one head, as it is or as it is to become: all heads of a layer are due together. */
static void plan_head(Selector *selector, const SelectRow *row, const SelectQuery *query, AttnPlan *plan,
                      SelectJob *job)
{
    SelectSeq *seq = seq_of(selector, row);
    AttentionStats *stats = &seq->stats[ROWS_DECODE];
    uint32_t which = query->layer * selector->params.shape->n_kv_heads + query->kv_head;
    const uint32_t *words;
    const SelectList *list = select_state_list(selector->state, row->seq, which, &words);
    if (select_first_due(query, list, row->position - seq->decode_from) == 0) {
        uint32_t *made;
        SelectList *edited = select_state_edit(selector->state, row->seq, which, &made);
        begin_list(query, edited, job);
        stats->n_selections++;
        stats->n_refreshes[0]++;
        stats->select_bytes += bounds_bytes(selector, job);
        list = edited;
        words = made;
    }
    plan->sink = query->selection->sink;
    plan->recent_from = list->recent_from;
    plan->recent = row->position + 1 - list->recent_from;
    plan->list = words;
    plan->n_list = list->n_sectors;
}

void selector_plan_row(Selector *selector, const SelectRow *row, uint32_t layer, AttnPlan *ret_plans,
                       SelectJob *ret_job)
{
    const ModelShape *shape = selector->params.shape;
    const Selection *selection = &row->policy->selection;
    const size_t at = (size_t)layer * shape->n_kv_heads;
    AttentionStats *stats = &seq_of(selector, row)->stats[ROWS_DECODE];
    SelectQuery query = {.selection = selection,
                         .layer = layer,
                         .n_layers = shape->n_layers,
                         .kind = ROWS_DECODE,
                         .position = row->position,
                         .end = row->position + selection->stages[0].refresh};
    memcpy(ret_plans, row->plans + at, shape->n_kv_heads * sizeof *ret_plans);
    *ret_job = (SelectJob){0};
    for (query.kv_head = 0; query.kv_head < shape->n_kv_heads; query.kv_head++) {
        AttnPlan *plan = &ret_plans[query.kv_head];
        if (plan->recent == PLAN_ALL) plan_head(selector, row, &query, plan, ret_job);
    }
    if (!shape_layer_window(shape, layer)) count_heads(stats, ret_plans, row, row->heads + at, shape->n_kv_heads);
}
