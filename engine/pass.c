/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/device_step.h"
#include "engine/engine_state.h"
#include "engine/select/attention_count.h"

#include <assert.h>
#include <string.h>

static bool check_span(const Engine *engine, const Batch *batch, uint32_t i, uint32_t expected_row, Error *error)
{
    const BatchSpan *span = &batch->spans[i];
    if (!kv_seq_is_open(engine->seqs, span->seq))
        return error_set(error, ERR_INTERNAL, "span %u: sequence %u is not open", i, span->seq);
    if (engine->seq_pass[span->seq] != PASS_NONE)
        return error_set(error, ERR_INTERNAL, "span %u: sequence %u is in pass %u", i, span->seq,
                         engine->seq_pass[span->seq]);
    for (uint32_t j = 0; j < i; j++)
        if (batch->spans[j].seq == span->seq)
            return error_set(error, ERR_INTERNAL, "spans %u and %u: both of sequence %u", j, i, span->seq);
    if (span->n_rows == 0 || span->first_row != expected_row || span->n_rows > batch->n_rows - expected_row)
        return error_set(error, ERR_INTERNAL, "span %u: rows [%u, +%u) do not follow row %u of %u", i, span->first_row,
                         span->n_rows, expected_row, batch->n_rows);
    uint32_t held = kv_seq_tokens(engine->seqs, span->seq);
    if (span->first_pos != held)
        return error_set(error, ERR_INTERNAL, "span %u: starts at position %u, the sequence holds %u tokens", i,
                         span->first_pos, held);
    return true;
}

static bool check_batch(const Engine *engine, const Batch *batch, Error *error)
{
    const EngineParams *p = &engine->params;
    uint32_t row = 0, n_logit_rows = 0;
    if (batch->n_rows == 0 || batch->n_rows > p->max_batch_rows || batch->n_spans > p->max_sequences)
        return error_set(error, ERR_INTERNAL, "a batch of %u rows in %u spans; the limits are %u and %u", batch->n_rows,
                         batch->n_spans, p->max_batch_rows, p->max_sequences);
    for (uint32_t i = 0; i < batch->n_spans; i++) {
        if (!check_span(engine, batch, i, row, error)) return false;
        row += batch->spans[i].n_rows;
        n_logit_rows += span_logit_rows(&batch->spans[i]);
    }
    if (row != batch->n_rows) return error_set(error, ERR_INTERNAL, "spans cover %u of %u rows", row, batch->n_rows);
    if (n_logit_rows > p->max_logit_rows)
        return error_set(error, ERR_INTERNAL, "%u rows with logits, more than %u", n_logit_rows, p->max_logit_rows);
    for (uint32_t t = 0; t < batch->n_rows; t++)
        if (batch->tokens[t] >= engine->shape.n_vocab)
            return error_set(error, ERR_INVALID, "token id %u, but the vocabulary has %u", batch->tokens[t],
                             engine->shape.n_vocab);
    return true;
}

static bool check_reserved(const Engine *engine, const Batch *batch, Error *error)
{
    for (uint32_t i = 0; i < batch->n_spans; i++)
        if (!kv_seq_may_write(engine->seqs, batch->spans[i].seq, batch->spans[i].n_rows))
            return error_set(error, ERR_INTERNAL, "span %u: the pages of %u tokens are not reserved", i,
                             batch->spans[i].n_rows);
    return true;
}

static bool find_pass(const Engine *engine, PassId *ret_pass, Error *error)
{
    for (PassId id = 0; id < engine->params.max_passes; id++)
        if (!engine->passes[id].is_open) {
            *ret_pass = id;
            return true;
        }
    return error_set(error, ERR_BUSY, "all %u passes are open", engine->params.max_passes);
}

/* Passes on whether the part before it succeeded. */
static bool pulse_after(const Engine *engine, bool ok)
{
    if (engine->pulse) engine->pulse(engine->pulse_arg);
    return ok;
}

/* What a stream of launches has left behind after one of them failed nobody knows. */
static bool kernel_failed(const Engine *engine, Error *error)
{
    engine->device->has_failed |= !engine->device->is_host;
    return error_set(error, ERR_DEVICE, "a kernel of '%s' failed", engine->kernels->name);
}

static bool embed(Engine *engine, Pass *pass)
{
    const uint32_t *ids = pass->tokens, *positions = pass->positions;
    if (engine->step && !device_step_rows(engine, pass, &ids, &positions)) return false;
    return forward_embed(engine, pass, ids, positions);
}

/* is_step: nothing else runs before it ends, so that its logits may be made as it runs. */
static bool begin_pass(Engine *engine, const Batch *batch, bool is_step, PassId *ret_pass, Error *error)
{
    PassId id = 0;
    if (!check_batch(engine, batch, error) || !check_reserved(engine, batch, error) || !find_pass(engine, &id, error))
        return false;
    Pass *pass = &engine->passes[id];
    device_use(engine->device);
    if (!engine_check_device(engine, error)) return false;
    pass->n_rows = batch->n_rows;
    pass->n_spans = batch->n_spans;
    memcpy(pass->spans, batch->spans, batch->n_spans * sizeof *pass->spans);
    pass->is_step = is_step && engine->step && device_step_takes(engine, batch);
    pass->has_logits = false;
    pass->asks = pass->is_step ? batch->asks : NULL;
    memcpy(pass->tokens, batch->tokens, batch->n_rows * sizeof *pass->tokens);
    memset(pass->rows_done, 0, engine->shape.n_layers * sizeof *pass->rows_done);
    for (uint32_t i = 0; i < batch->n_spans; i++)
        for (uint32_t t = 0; t < pass->spans[i].n_rows; t++)
            pass->positions[pass->spans[i].first_row + t] = pass->spans[i].first_pos + t;
    if (!pass->is_step && !pulse_after(engine, embed(engine, pass))) return kernel_failed(engine, error);
    for (uint32_t i = 0; i < batch->n_spans; i++) engine->seq_pass[pass->spans[i].seq] = id;
    pass->is_open = true;
    *ret_pass = id;
    return true;
}

static bool is_open_pass(const Engine *engine, PassId id)
{
    return id < engine->params.max_passes && engine->passes[id].is_open;
}

/* Each layer takes the rows in order, and none before the layer below has. */
static bool check_item(const Engine *engine, const WorkItem *item, Error *error)
{
    if (!is_open_pass(engine, item->pass)) return error_set(error, ERR_INTERNAL, "pass %u is not open", item->pass);
    const Pass *pass = &engine->passes[item->pass];
    uint32_t n_layers = engine->shape.n_layers;
    if (!item->n_layers || item->first_layer >= n_layers || item->n_layers > n_layers - item->first_layer ||
        !item->n_rows || item->first_row >= pass->n_rows || item->n_rows > pass->n_rows - item->first_row)
        return error_set(error, ERR_INTERNAL, "layers [%u, +%u), rows [%u, +%u): not of a pass of %u layers, %u rows",
                         item->first_layer, item->n_layers, item->first_row, item->n_rows, n_layers, pass->n_rows);
    bool is_due = item->first_layer == 0 || pass->rows_done[item->first_layer - 1] >= item->first_row + item->n_rows;
    for (uint32_t i = 0; i < item->n_layers; i++) is_due &= pass->rows_done[item->first_layer + i] == item->first_row;
    return is_due || error_set(error, ERR_INTERNAL, "layers [%u, +%u), rows [%u, +%u) are not the next",
                               item->first_layer, item->n_layers, item->first_row, item->n_rows);
}

bool engine_pass_begin(Engine *engine, const Batch *batch, PassId *ret_pass, Error *error)
{
    return begin_pass(engine, batch, false, ret_pass, error);
}

/* All of it at once, or the ordinary way after all. */
static bool run_step(Engine *engine, const WorkItem *item, Pass *pass)
{
    pass->is_step = false;
    if (item->n_layers != engine->shape.n_layers || item->n_rows != pass->n_rows) return embed(engine, pass);
    pass->has_logits = true;
    for (uint32_t layer = 0; layer < item->n_layers; layer++) pass->rows_done[layer] = pass->n_rows;
    return device_step_run(engine, pass);
}

static bool run_piece(Engine *engine, const WorkItem *item, Pass *pass)
{
    Piece piece;
    if (!forward_piece(engine, pass, item, &piece)) return false;
    for (uint32_t i = 0; i < item->n_layers; i++) {
        uint32_t layer = item->first_layer + i;
        if (!pulse_after(engine, forward_layer(engine, pass, &piece, layer, item->first_row, item->n_rows)))
            return false;
        pass->rows_done[layer] += item->n_rows;
    }
    return !engine->step || forward_bounds(engine, &piece, item->n_layers);
}

/*
 * Where the next piece of an item's rows ends: on a device rows that select go one by one, since each one's lists may
 * depend on what the row before it left; decoded ones also where they are to have the bits of a step.
 */
static uint32_t piece_end(const Engine *engine, const Pass *pass, uint32_t first, uint32_t end)
{
    const bool is_deterministic = engine_is_deterministic_device(engine);
    for (uint32_t i = 0; i < pass->n_spans && (engine->max_list || is_deterministic); i++) {
        const BatchSpan *span = &pass->spans[i];
        if (span->seq == SEQ_NONE || span->kind != ROWS_DECODE || span->n_rows == 1 ||
            span->first_row + span->n_rows <= first)
            continue;
        uint32_t slot = policy_slot(kv_seq_policy(engine->seqs, span->seq));
        uint32_t row = span->first_row > first ? span->first_row : first;
        bool is_apart = is_deterministic || selector_serves(&engine->policies[slot].policy);
        if (is_apart && row + 1 < end) end = row + 1;
    }
    return end;
}

static bool run_layers(Engine *engine, const WorkItem *item, Pass *pass)
{
    const uint32_t end = item->first_row + item->n_rows;
    for (WorkItem part = *item; part.first_row < end; part.first_row += part.n_rows) {
        part.n_rows = piece_end(engine, pass, part.first_row, end) - part.first_row;
        if (!run_piece(engine, &part, pass)) return false;
    }
    return device_sync(engine->device); /* the scheduler learns from the clock what an item costs */
}

bool engine_pass_run(Engine *engine, const WorkItem *item, Error *error)
{
    if (!check_item(engine, item, error)) return false;
    Pass *pass = &engine->passes[item->pass];
    device_use(engine->device);
    if (!engine_check_device(engine, error)) return false;
    if (pass->is_step && !pulse_after(engine, run_step(engine, item, pass))) return kernel_failed(engine, error);
    return pass->has_logits || run_layers(engine, item, pass) || kernel_failed(engine, error);
}

/* On a device. */
static bool row_selected(const Engine *engine, const BatchSpan *span, uint32_t row)
{
    uint32_t slot = policy_slot(kv_seq_policy(engine->seqs, span->seq));
    const SelectRow select = {
        .seq = span->seq, .position = span->first_pos + row, .policy = &engine->policies[slot].policy};
    return selector_row_selects(engine->selector, &select);
}

/* A row by the plans of its policy, heads that are alike together. */
static void count_row(const Engine *engine, const BatchSpan *span, const AttnPlan *plans, uint32_t row,
                      AttentionStats *stats)
{
    const ModelShape *shape = &engine->shape;
    const KvHead *heads = engine->classes.policies[policy_slot(kv_seq_policy(engine->seqs, span->seq))].heads;
    const KvPages *pages = kv_seq_views(engine->seqs, span->seq);
    const size_t n_heads = (size_t)shape->n_layers * shape->n_kv_heads;
    size_t first = 0, n_alike = 0; /* from `first` on, those with windows left out */
    for (size_t i = 0; i < n_heads; i++) {
        if (i % shape->n_kv_heads == 0 && shape_layer_window(shape, (uint32_t)(i / shape->n_kv_heads))) {
            i += shape->n_kv_heads - 1;
            continue;
        }
        if (n_alike && !attention_counts_same(&plans[first], &plans[i])) {
            attention_count(&plans[first], row, &pages[heads[first].class_index].pool->layout, n_alike, stats);
            n_alike = 0;
        }
        if (n_alike++ == 0) first = i;
    }
    if (n_alike) attention_count(&plans[first], row, &pages[heads[first].class_index].pool->layout, n_alike, stats);
}

/* Rows whose plans are those of their policy are counted when all is done. */
static void count_span(Engine *engine, const BatchSpan *span)
{
    uint32_t slot = policy_slot(kv_seq_policy(engine->seqs, span->seq));
    bool is_served = selector_serves(&engine->policies[slot].policy);
    if (span->kind != ROWS_DECODE || (is_served && engine->device->is_host)) return;
    const AttnPlan *plans = engine_plans(engine, slot, span->kind);
    AttentionStats *stats = &select_state_seq(selector_state(engine->selector), span->seq)->stats[span->kind];
    for (uint32_t row = 0; row < span->n_rows; row++)
        if (!is_served || !row_selected(engine, span, row)) /* else selector_plan_row has counted it */
            count_row(engine, span, plans, span->first_pos + row, stats);
}

static void end_span(Engine *engine, const BatchSpan *span)
{
    count_span(engine, span);
    kv_seq_advance(engine->seqs, span->seq, span->n_rows);
    selector_commit(engine->selector, span->seq, span->kind);
}

static void close_pass(Engine *engine, PassId id, bool has_ended)
{
    Pass *pass = &engine->passes[id];
    for (uint32_t i = 0; i < pass->n_spans; i++) {
        const BatchSpan *span = &pass->spans[i];
        if (span->seq == SEQ_NONE) continue;
        engine->seq_pass[span->seq] = PASS_NONE;
        if (has_ended)
            end_span(engine, span);
        else
            select_state_revert(selector_state(engine->selector), span->seq);
    }
    pass->is_open = false;
}

bool engine_pass_end(Engine *engine, PassId id, float **ret_logits, Error *error)
{
    if (!is_open_pass(engine, id)) return error_set(error, ERR_INTERNAL, "pass %u is not open", id);
    const Pass *pass = &engine->passes[id];
    if (pass->rows_done[engine->shape.n_layers - 1] != pass->n_rows)
        return error_set(error, ERR_INTERNAL, "pass %u has not been through all layers", id);
    device_use(engine->device);
    if (!engine_check_device(engine, error)) return false;
    if (!pulse_after(engine, forward_logits(engine, pass))) return kernel_failed(engine, error);
    if (!engine_check_device(engine, error)) return false;
    if (!gguf_check_intact(engine->gguf, error)) return false; /* some of it may have been computed with zeros */
    close_pass(engine, id, true);
    *ret_logits = engine->host_logits;
    return true;
}

void engine_pass_drop(Engine *engine, PassId id)
{
    assert(is_open_pass(engine, id));
    close_pass(engine, id, false);
}

void pass_lose_seq(Engine *engine, SeqId seq)
{
    PassId id = engine->seq_pass[seq];
    if (id == PASS_NONE) return;
    Pass *pass = &engine->passes[id];
    for (uint32_t i = 0; i < pass->n_spans; i++)
        if (pass->spans[i].seq == seq) pass->spans[i].seq = SEQ_NONE;
    engine->seq_pass[seq] = PASS_NONE;
}

bool engine_step(Engine *engine, const Batch *batch, float **ret_logits, Error *error)
{
    PassId pass = 0;
    if (!begin_pass(engine, batch, true, &pass, error)) return false;
    const WorkItem all = {.pass = pass, .n_layers = engine->shape.n_layers, .n_rows = batch->n_rows};
    if (engine_pass_run(engine, &all, error) && engine_pass_end(engine, pass, ret_logits, error)) return true;
    engine_pass_drop(engine, pass);
    return false;
}

bool engine_forward(Engine *engine, const Batch *batch, float **ret_logits, Error *error)
{
    if (!check_batch(engine, batch, error)) return false;
    device_use(engine->device);
    for (uint32_t i = 0; i < batch->n_spans; i++)
        if (!kv_seq_reserve(engine->seqs, batch->spans[i].seq, batch->spans[i].n_rows, error)) return false;
    return engine_step(engine, batch, ret_logits, error);
}
