/* SPDX-License-Identifier: Apache-2.0 */
#include "base/carver.h"
#include "engine/select/selector_impl.h"
#include "engine/select/vertical_slash.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64 };

/* ---- memory ---- */

static void lay_out(Selector *selector, Carver *carver)
{
    const SelectorParams *p = &selector->params;
    const ModelShape *shape = p->shape;
    size_t rows = p->max_batch_rows, heads = rows * shape->n_heads, kv_heads = rows * shape->n_kv_heads;
    size_t sectors = selector->max_sectors, blocks = rows / KV_PAGE_TOKENS + 2 * (size_t)p->max_sequences;
    SelectTools *tools = &selector->tools;
    tools->units = carve(carver, sectors, sizeof *tools->units);
    tools->indices = carve(carver, sectors, sizeof *tools->indices);
    tools->top_scratch = carve(carver, sectors, sizeof *tools->top_scratch);
    tools->scores = carve(carver, sectors, sizeof *tools->scores);
    tools->scan_scratch =
        carve(carver,
              scan_scratch_bytes(p->n_threads, KV_PAGE_TOKENS, shape->n_heads / shape->n_kv_heads, shape->head_dim), 1);
    tools->slash_scratch = carve(
        carver,
        vertical_slash_scratch_bytes(shape->n_heads / shape->n_kv_heads, shape->head_dim, selector->max_sectors), 1);
    Wave *wave = &selector->wave;
    wave->spans = carve(carver, rows, sizeof *wave->spans);
    wave->seqs = carve(carver, rows, sizeof *wave->seqs);
    wave->from = carve(carver, rows, sizeof *wave->from);
    wave->plans = carve(carver, kv_heads, sizeof *wave->plans);
    wave->heads = carve(carver, kv_heads, sizeof *wave->heads);
    wave->lse = carve(carver, heads, sizeof *wave->lse);
    selector->more_spans = carve(carver, rows, sizeof *selector->more_spans);
    selector->more_plans = carve(carver, kv_heads, sizeof *selector->more_plans);
    selector->more_lse = carve(carver, heads, sizeof *selector->more_lse);
    selector->more_out = carve(carver, heads * shape->v_dim, sizeof *selector->more_out);
    selector->list = carve(carver, sectors * (SELECT_MAX_STAGES + 1), sizeof *selector->list);
    /* Of prompt blocks, or of the probes of decoded rows. */
    selector->words =
        carve(carver, (blocks * sectors + rows * SELECT_MAX_PROBES) * shape->n_kv_heads, sizeof *selector->words);
}

static bool take_memory(Selector *selector)
{
    Carver measure = {.alignment = ALIGNMENT};
    lay_out(selector, &measure);
    void *slab = measure.overflow ? MAP_FAILED
                                  : mmap(NULL, measure.used_bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED) return false;
    selector->slab = slab;
    selector->slab_bytes = measure.used_bytes;
    Carver real = {slab, ALIGNMENT};
    lay_out(selector, &real);
    return true;
}

static bool take_state(Selector *selector, Error *error)
{
    const SelectorParams *p = &selector->params;
    uint32_t n_heads = p->shape->n_layers * p->shape->n_kv_heads;
    if (p->device)
        return select_state_new_on(p->device, p->max_sequences, n_heads, p->max_list, &selector->state, error);
    return select_state_new(p->max_sequences, n_heads, selector->max_sectors, &selector->state, error);
}

bool selector_new(const SelectorParams *params, Selector **ret_selector, Error *error)
{
    const ModelShape *shape = params->shape;
    Selector *selector = calloc(1, sizeof *selector);
    if (!selector) return error_set(error, ERR_NO_MEMORY, "no memory for a selector");
    selector->params = *params;
    selector->tools.kernels = params->kernels;
    selector->tools.scale = shape->attention_scale;
    selector->tools.softcap = shape->attention_softcap;
    selector->max_sectors = params->context / KV_SECTOR_TOKENS + KV_PAGE_SECTORS;
    if (!take_memory(selector)) {
        selector_free(selector);
        return error_set(error, ERR_NO_MEMORY, "no memory to select for %u rows", params->max_batch_rows);
    }
    if (!take_state(selector, error)) {
        selector_free(selector);
        return false;
    }
    *ret_selector = selector;
    return true;
}

void selector_free(Selector *selector)
{
    if (!selector) return;
    select_state_free(selector->state);
    if (selector->slab) munmap(selector->slab, selector->slab_bytes);
    free(selector);
}

SelectState *selector_state(Selector *selector)
{
    return selector->state;
}

void selector_commit(Selector *selector, SeqId seq, RowKind kind)
{
    SelectSeq *state = select_state_seq(selector->state, seq);
    /* What follows a prompt is another answer: it begins with nothing. */
    if (kind == ROWS_PREFILL && state->decode_from != UINT32_MAX) {
        state->decode_from = UINT32_MAX;
        select_state_clear(selector->state, seq);
    }
    select_state_commit(selector->state, seq);
}

bool selector_serves(const AttnPolicy *policy)
{
    return policy->selection.n_stages || (policy->roles && policy->positions == POSITIONS_PACKED);
}

/* ---- plans ---- */

/* What a query beyond the trained context is told of positions. */
static bool is_packed(const LayerCall *call, const SpanPlans *from, uint32_t end)
{
    return from->policy->positions == POSITIONS_PACKED && end > call->pass->shape->train_context;
}

/* A streaming head: what it sees ends where its recent range begins, whole sectors. */
static void pack_ranges(AttnPlan *plan, uint32_t position)
{
    uint32_t from = position >= plan->recent ? (position + 1 - plan->recent) / KV_SECTOR_TOKENS * KV_SECTOR_TOKENS : 0;
    if (from <= plan->sink) return;
    plan->recent_from = from;
    plan->positions = POSITIONS_PACKED;
}

SelectQuery selector_query(const LayerCall *call, uint32_t span, uint32_t kv_head)
{
    const Wave *wave = &call->selector->wave;
    const ModelShape *shape = call->pass->shape;
    const SpanPlans *from = wave->from[span];
    const KvSpan *at = &wave->spans[span];
    const KvHead *head = &at->heads[kv_head];
    uint32_t group = shape->n_heads / shape->n_kv_heads;
    bool is_row = from->kind == ROWS_DECODE;
    uint32_t position = is_row ? at->first_pos : at->first_pos / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    size_t first_head = (size_t)at->first_row * shape->n_heads + (size_t)kv_head * group;
    return (SelectQuery){.selection = &from->policy->selection,
                         .layer = call->layer,
                         .n_layers = shape->n_layers,
                         .kv_head = kv_head,
                         .kind = from->kind,
                         .position = position,
                         .end = position + (is_row ? from->policy->selection.stages[0].refresh : KV_PAGE_TOKENS),
                         .q = call->params->q + first_head * shape->head_dim,
                         .first_pos = at->first_pos,
                         .n_rows = at->n_rows,
                         .row_heads = shape->n_heads,
                         .group = group,
                         .k_dim = shape->head_dim,
                         .pages = &at->classes[head->class_index],
                         .slot = head->slot,
                         .turns = call->params->turns};
}

static uint32_t state_head(const LayerCall *call, uint32_t kv_head)
{
    return call->layer * call->pass->shape->n_kv_heads + kv_head;
}

static void count_selection(const SelectQuery *query, uint32_t first_stage, AttentionStats *stats)
{
    stats->n_selections++;
    for (uint32_t i = first_stage; i < query->selection->n_stages; i++) stats->n_refreshes[i]++;
}

/* A decoded row: what is due of the stages runs, the rest is as rows before left it. */
static bool select_row(const LayerCall *call, const SelectQuery *query, SeqId seq, PlannedHead *head, AttnPlan *plan)
{
    Selector *selector = call->selector;
    SelectSeq *state = select_state_seq(selector->state, seq);
    AttentionStats *stats = &state->stats[ROWS_DECODE];
    uint32_t which = state_head(call, query->kv_head);
    const uint32_t *words;
    const SelectList *list = select_state_list(selector->state, seq, which, &words);
    uint32_t due = select_first_due(query, list, query->position - state->decode_from);
    if (due < query->selection->n_stages) {
        uint32_t *made;
        SelectList *edited = select_state_edit(selector->state, seq, which, &made);
        if (!select_run(&selector->tools, query, due, edited, made, &stats->select_bytes)) return false;
        count_selection(query, due, stats);
        head->is_new = true;
        list = edited;
        words = made;
    }
    plan->recent_from = list->recent_from;
    plan->list = select_sectors(list, words);
    plan->n_list = list->n_sectors;
    return true;
}

/* A block of a prompt: its list is its own. */
static bool select_block(const LayerCall *call, const SelectQuery *query, SeqId seq, AttnPlan *plan)
{
    Selector *selector = call->selector;
    AttentionStats *stats = &select_state_seq(selector->state, seq)->stats[ROWS_PREFILL];
    SelectList list = {0};
    if (!select_run(&selector->tools, query, 0, &list, selector->list, &stats->select_bytes)) return false;
    count_selection(query, 0, stats);
    uint32_t *sectors = selector->words + selector->n_words;
    memcpy(sectors, select_sectors(&list, selector->list), list.n_sectors * sizeof *sectors);
    selector->n_words += list.n_sectors;
    plan->recent_from = list.recent_from;
    plan->list = sectors;
    plan->n_list = list.n_sectors;
    return true;
}

static bool plan_head(const LayerCall *call, uint32_t span, uint32_t kv_head, bool may_select)
{
    Wave *wave = &call->selector->wave;
    const SpanPlans *from = wave->from[span];
    const Selection *selection = &from->policy->selection;
    size_t at = (size_t)span * call->pass->shape->n_kv_heads + kv_head;
    AttnPlan *plan = &wave->plans[at];
    SelectQuery query = selector_query(call, span, kv_head);
    bool packed =
        is_packed(call, from, from->kind == ROWS_DECODE ? query.position + 1 : query.position + KV_PAGE_TOKENS);
    query.is_packed = packed;
    *plan = from->plans[kv_head];
    wave->heads[at] = (PlannedHead){0};
    if (select_state_seq(call->selector->state, wave->seqs[span])->is_dense) plan->n_bands = 0, plan->bands = NULL;
    if (plan->recent != PLAN_ALL) {
        if (packed) pack_ranges(plan, query.position);
        return true;
    }
    if (!may_select || !select_applies(selection, from->kind, query.position)) return true;
    plan->sink = selection->sink;
    wave->heads[at].selects = true;
    if (packed) plan->positions = POSITIONS_PACKED;
    if (from->kind == ROWS_PREFILL) return select_block(call, &query, wave->seqs[span], plan);
    return select_row(call, &query, wave->seqs[span], &wave->heads[at], plan);
}

/* ---- waves ---- */

/* Rows [skip, skip + n) of a span, by plans of their own. */
static bool add_span(const LayerCall *call, uint32_t from, uint32_t skip, uint32_t n, bool may_select)
{
    Wave *wave = &call->selector->wave;
    uint32_t n_kv_heads = call->pass->shape->n_kv_heads, i = wave->n_spans++;
    KvSpan *span = &wave->spans[i];
    *span = call->pass->spans[from];
    span->first_row += skip;
    span->first_pos += skip;
    span->n_rows = n;
    span->plans = wave->plans + (size_t)i * n_kv_heads;
    wave->seqs[i] = call->pass->span_seqs[from];
    wave->from[i] = &call->pass->span_plans[from];
    for (uint32_t h = 0; h < n_kv_heads; h++)
        if (!plan_head(call, i, h, may_select)) return false;
    return true;
}

/* Pieces within blocks of positions; those of the prompt's tail are dense. */
static bool add_blocks(const LayerCall *call, uint32_t from)
{
    const KvSpan *span = &call->pass->spans[from];
    const SelectSeq *seq = select_state_seq(call->selector->state, call->pass->span_seqs[from]);
    uint32_t tail_rows = call->pass->span_plans[from].policy->selection.dense_tail_rows, tail = UINT32_MAX;
    if (tail_rows && seq->n_prompt) tail = seq->n_prompt > tail_rows ? seq->n_prompt - tail_rows : 0;
    for (uint32_t done = 0; done < span->n_rows;) {
        uint32_t position = span->first_pos + done, n = KV_PAGE_TOKENS - position % KV_PAGE_TOKENS;
        if (n > span->n_rows - done) n = span->n_rows - done;
        if (position < tail && n > tail - position) n = tail - position;
        if (!add_span(call, from, done, n, !seq->is_dense && position < tail)) return false;
        done += n;
    }
    return true;
}

static bool has_own_plans(const LayerCall *call, uint32_t span)
{
    return selector_serves(call->pass->span_plans[span].policy);
}

static bool add_row(const LayerCall *call, uint32_t from, uint32_t row)
{
    SelectSeq *seq = select_state_seq(call->selector->state, call->pass->span_seqs[from]);
    uint32_t position = call->pass->spans[from].first_pos + row;
    if (seq->decode_from == UINT32_MAX) seq->decode_from = position;
    return add_span(call, from, row, 1, !seq->is_dense);
}

/* The spans of one wave: everything is in the first one but the later rows of spans that decode several. */
static bool make_wave(const LayerCall *call, uint32_t number)
{
    Wave *wave = &call->selector->wave;
    wave->n_spans = 0;
    call->selector->n_words = 0;
    for (uint32_t i = 0; i < call->pass->n_spans; i++) {
        bool ok = true;
        if (!has_own_plans(call, i)) {
            if (number > 0) continue;
            wave->seqs[wave->n_spans] = call->pass->span_seqs[i];
            wave->from[wave->n_spans] = NULL;
            wave->spans[wave->n_spans++] = call->pass->spans[i];
        } else if (call->pass->span_plans[i].kind == ROWS_DECODE) {
            if (number < call->pass->spans[i].n_rows) ok = add_row(call, i, number);
        } else if (number == 0) {
            ok = add_blocks(call, i);
        }
        if (!ok) return false;
    }
    return true;
}

static uint32_t count_waves(const LayerCall *call)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < call->pass->n_spans; i++)
        if (has_own_plans(call, i) && call->pass->span_plans[i].kind == ROWS_DECODE && call->pass->spans[i].n_rows > n)
            n = call->pass->spans[i].n_rows;
    return n;
}

static void count_wave(const LayerCall *call)
{
    const Wave *wave = &call->selector->wave;
    uint32_t n_kv_heads = call->pass->shape->n_kv_heads;
    for (uint32_t i = 0; i < wave->n_spans; i++) {
        if (!wave->from[i]) continue;
        const KvSpan *span = &wave->spans[i];
        AttentionStats *stats = &select_state_seq(call->selector->state, wave->seqs[i])->stats[wave->from[i]->kind];
        for (uint32_t h = 0; h < n_kv_heads; h++)
            for (uint32_t r = 0; r < span->n_rows; r++)
                attention_count(&span->plans[h], span->first_pos + r,
                                &span->classes[span->heads[h].class_index].pool->layout, 1, stats);
    }
}

bool selector_attend(Selector *selector, const ForwardPass *pass, uint32_t layer, const AttendParams *params)
{
    const LayerCall call = {selector, pass, params, layer};
    uint32_t n_waves = count_waves(&call);
    selector->tools.stream = pass->stream;
    for (uint32_t number = 0; number < n_waves; number++) {
        if (!make_wave(&call, number)) return false;
        const Wave *wave = &selector->wave;
        block_trace(pass, layer, wave->spans, wave->seqs, wave->n_spans);
        AttendParams own = *params;
        own.spans = wave->spans;
        own.n_spans = wave->n_spans;
        own.lse = selector_needs_lse(&call) ? wave->lse : NULL;
        if (!pass->kernels->attend(&own, pass->stream) || !selector_measure(&call) || !selector_correct(&call))
            return false;
        count_wave(&call);
    }
    return true;
}
