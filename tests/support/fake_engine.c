/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv/kv_budget.h"
#include "tests/support/fake_engine_impl.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_vocab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SELECT_PERIOD = 4 };

static const uint8_t streams[FAKE_LAYERS * FAKE_KV_HEADS] = {0, 1, 1, 0, 0, 0, 1, 1};
static const HeadRoles roles = {.name = "fake", .streams = streams};
const AttnPolicy fake_policies[FAKE_POLICIES] = {
    {.name = "dense"},
    {.name = "stream", .roles = &roles, .sink = 64, .recent_prefill = 64, .recent_decode = 64},
    {.name = "two windows", .roles = &roles, .sink = 64, .recent_prefill = 128, .recent_decode = 64},
    {.name = "selects",
     .selection = {.planner = "fake", .stages = {{SCAN_EXACT, 16, 64, 1}}, .n_stages = 1, .prefill_from = PLAN_ALL}},
    {.name = "blocks", .selection = {.planner = "fake", .stages = {{SCAN_EXACT, 16, 0, 1}}, .n_stages = 1}},
};

void *fake_checked(void *pointer)
{
    if (!pointer) abort();
    return pointer;
}

static void open_tokenizer(Engine *engine)
{
    Error error;
    GgufWriter writer;
    gguf_writer_init(&writer);
    tiny_vocab_write(&writer, "smollm", false);
    buffer_init(&engine->file, 1 << 20);
    gguf_writer_finish(&writer, &engine->file);
    gguf_writer_done(&writer);
    if (!gguf_open_memory(engine->file.data, engine->file.n, "fake", &engine->gguf, &error)) abort();
    if (!tok_new(engine->gguf, &engine->tokenizer, &error)) abort();
}

static void set_defaults(FakeEngineParams *p)
{
    if (!p->context) p->context = 4096;
    if (!p->max_batch_rows) p->max_batch_rows = 64;
    if (!p->max_logit_rows) p->max_logit_rows = 64;
    if (!p->max_sequences) p->max_sequences = 64;
    if (!p->max_passes) p->max_passes = 4;
    if (!p->n_layers) p->n_layers = 1;
    if (!p->policies) {
        p->policies = fake_policies;
        p->n_policies = 1;
    }
}

static void open_pools(Engine *engine)
{
    Error error;
    const FakeEngineParams *p = &engine->params;
    KvShare shares[KV_MAX_PAGE_CLASSES];
    const KvBudget budget = {&engine->classes, p->n_policies, p->max_batch_rows, 1, p->max_sequences};
    (void)kv_budget_need(&budget, p->pool_tokens, 1, shares);
    if (!kv_memory_new_on(device_host(), &engine->classes, shares, &engine->memory, &error)) abort();
}

static void open_pages(Engine *engine)
{
    Error error;
    FakeEngineParams *p = &engine->params;
    KvTypes types;
    engine->shape = (ModelShape){.n_layers = p->n_layers,
                                 .n_vocab = tiny_vocab_size(),
                                 .n_heads = FAKE_KV_HEADS,
                                 .n_kv_heads = FAKE_KV_HEADS,
                                 .head_dim = 16,
                                 .v_dim = 16,
                                 .train_context = p->context};
    if (!kv_types_parse(p->kv_types ? p->kv_types : "f16", &types, &error) ||
        !kv_classes_init(&engine->shape, p->policies, p->n_policies, &types, &engine->classes, &error))
        abort();
    if (!p->kv_bytes)
        p->kv_bytes = p->max_sequences * kv_classes_need_bytes(&engine->classes, 0, p->context, p->max_batch_rows);
    const KvSeqsParams seqs = {.classes = &engine->classes, .context = p->context, .max_sequences = p->max_sequences};
    if (p->pool_tokens)
        open_pools(engine);
    else if (!kv_memory_new(&engine->classes, p->kv_bytes, &engine->memory, &error))
        abort();
    KvSeqsParams with_memory = seqs;
    with_memory.memory = engine->memory;
    if (!kv_seqs_new(&with_memory, &engine->seqs, &error)) abort();
}

Engine *fake_engine_new(const FakeEngineParams *params)
{
    Engine *engine = fake_checked(calloc(1, sizeof *engine));
    engine->params = *params;
    FakeEngineParams *p = &engine->params;
    set_defaults(p);
    open_tokenizer(engine);
    open_pages(engine);
    engine->passes = fake_checked(calloc(p->max_passes, sizeof *engine->passes));
    for (uint32_t i = 0; i < p->max_passes; i++) {
        engine->passes[i].tokens = fake_checked(calloc(p->max_batch_rows, sizeof(uint32_t)));
        engine->passes[i].spans = fake_checked(calloc(p->max_sequences, sizeof(BatchSpan)));
    }
    engine->is_in_pass = fake_checked(calloc(p->max_sequences, sizeof *engine->is_in_pass));
    engine->selections = fake_checked(calloc(p->max_sequences, sizeof *engine->selections));
    engine->history = fake_checked(calloc(p->context, sizeof *engine->history));
    engine->logits = fake_checked(calloc((size_t)p->max_logit_rows * tiny_vocab_size(), sizeof(float)));
    engine->digests = (FakeDigests){
        .is_there = fake_checked(calloc(p->max_sequences, sizeof(bool))),
        .digests = fake_checked(calloc(p->max_sequences, sizeof(RowDigest))),
        .items = fake_checked(calloc((size_t)p->max_sequences * DIGEST_LIST, sizeof(DigestItem))),
        .rows = fake_checked(calloc((size_t)p->max_sequences * tiny_vocab_size(), sizeof(float))),
    };
    return engine;
}

void engine_close(Engine *engine)
{
    if (!engine) return;
    for (uint32_t i = 0; i < engine->params.max_passes; i++) {
        free(engine->passes[i].tokens);
        free(engine->passes[i].spans);
    }
    free(engine->passes);
    free(engine->is_in_pass);
    free(engine->selections);
    free(engine->history);
    free(engine->logits);
    free(engine->digests.is_there);
    free(engine->digests.digests);
    free(engine->digests.items);
    free(engine->digests.rows);
    kv_seqs_free(engine->seqs);
    kv_memory_free(engine->memory);
    kv_classes_done(&engine->classes);
    tok_free(engine->tokenizer);
    gguf_close(engine->gguf);
    buffer_done(&engine->file);
    free(engine);
}

const FakeEngineCounts *fake_engine_counts(const Engine *engine)
{
    return &engine->counts;
}

const Tokenizer *engine_tokenizer(const Engine *engine)
{
    return engine->tokenizer;
}

const ModelShape *engine_shape(const Engine *engine)
{
    return &engine->shape;
}

uint32_t engine_context(const Engine *engine)
{
    return engine->params.context;
}

uint32_t engine_n_threads(const Engine *engine)
{
    (void)engine;
    return FAKE_THREADS;
}

/* One after the other, backwards and as workers in turn: nothing may depend on who takes what. */
void engine_each(Engine *engine, uint32_t n_items, EngineItemFn fn, void *arg)
{
    (void)engine;
    for (uint32_t i = n_items; i-- > 0;) fn(arg, i % FAKE_THREADS, i, i + 1);
}

bool engine_is_deterministic_device(const Engine *engine)
{
    return engine->params.is_on_device && engine->params.is_deterministic;
}

bool engine_is_on_device(const Engine *engine)
{
    return engine->params.is_on_device;
}

uint32_t engine_max_batch_rows(const Engine *engine)
{
    return engine->params.max_batch_rows;
}

uint32_t engine_max_logit_rows(const Engine *engine)
{
    return engine->params.max_logit_rows;
}

void engine_set_pulse(Engine *engine, void (*pulse)(void *arg), void *arg)
{
    engine->pulse = pulse;
    engine->pulse_arg = arg;
}

void fake_engine_break_device(Engine *engine)
{
    engine->is_broken = true;
}

bool engine_check_device(const Engine *engine, Error *error)
{
    return !engine->is_broken || error_set(error, ERR_DEVICE, "the fake device has failed");
}

void fake_engine_pulse(const Engine *engine)
{
    if (engine->pulse) engine->pulse(engine->pulse_arg);
}

bool fake_keeps(Engine *engine, bool promise)
{
    engine->counts.broken_promises += !promise;
    return promise;
}

/* ---- what a row sees and becomes ---- */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 29;
}

static PageId page_at(const Engine *engine, SeqId seq, uint32_t class, uint32_t position)
{
    PageSet set;
    kv_seq_page(engine->seqs, seq, position / KV_PAGE_TOKENS, &set);
    return set.page[class];
}

/* Of all that a query at this position sees: the last token of each page before its own, and the token before it. */
static uint64_t see(Engine *engine, SeqId seq, const KvPolicyMap *map, uint32_t position)
{
    uint64_t sum = position;
    for (uint32_t c = 0; c < map->n_classes; c++) {
        for (uint32_t first = 0; first + KV_PAGE_TOKENS <= position; first += KV_PAGE_TOKENS) {
            if (!kv_class_needs(&map->classes[c], position, first)) continue;
            PageId page = page_at(engine, seq, c, first);
            if (fake_keeps(engine, page != PAGE_NONE))
                sum = mix(sum + fake_cells(engine, page, false)[KV_PAGE_TOKENS - 1].value);
        }
        if (position % KV_PAGE_TOKENS == 0) continue;
        PageId own = page_at(engine, seq, c, position);
        if (fake_keeps(engine, own != PAGE_NONE))
            sum = mix(sum + fake_cells(engine, own, true)[(position - 1) % KV_PAGE_TOKENS].value);
    }
    return sum;
}

/* What the row's list is made of: of decoded rows the last one that was due, of prompt rows the block they came in. */
static uint64_t listed(Engine *engine, const BatchSpan *span, uint32_t position, uint64_t seen)
{
    FakeSelection *selection = &engine->selections[span->seq];
    const AttnPolicy *policy = &engine->params.policies[kv_seq_policy(engine->seqs, span->seq)];
    if (!policy->selection.n_stages) return 0;
    if (span->kind == ROWS_DECODE) {
        if (selection->decode_from == UINT32_MAX) selection->decode_from = position;
        if ((position - selection->decode_from) % SELECT_PERIOD == 0) selection->list = mix(seen + position);
        return selection->list;
    }
    *selection = (FakeSelection){.decode_from = UINT32_MAX, .n_prompt = selection->n_prompt};
    if (!policy_selects_blocks(policy)) return 1; /* so that nobody's answer is that of dense attention by chance */
    uint32_t first = position / KV_PAGE_TOKENS * KV_PAGE_TOKENS, end = first + KV_PAGE_TOKENS;
    if (first < span->first_pos) first = span->first_pos;
    if (end > span->first_pos + span->n_rows) end = span->first_pos + span->n_rows;
    return mix(((uint64_t)first << 32) + end);
}

static uint64_t write_token(Engine *engine, const BatchSpan *span, uint32_t position, uint32_t token)
{
    SeqId seq = span->seq;
    PolicyId policy = kv_seq_policy(engine->seqs, seq);
    const KvPolicyMap *map = &engine->classes.policies[policy];
    bool kinds_differ = engine_is_deterministic_device(engine) ||
                        !policy_decodes_as_prefilled(&engine->params.policies[policy]);
    uint64_t seen = see(engine, seq, map, position);
    uint64_t value = mix(seen + listed(engine, span, position, seen) + token +
                         (kinds_differ && span->kind == ROWS_DECODE ? 7777 : 0));
    for (uint32_t c = 0; c < map->n_classes; c++) {
        PageId page = page_at(engine, seq, c, position);
        if (!fake_keeps(engine, page != PAGE_NONE)) continue;
        for (int of_image = 0; of_image < 2; of_image++)
            fake_cells(engine, page, of_image)[position % KV_PAGE_TOKENS] = (Cell){.value = value, .token = token};
    }
    return value;
}

/* The tokens of a sequence as its first class has them: all, when that is of the heads that see everything. */
static const uint32_t *read_history(Engine *engine, SeqId seq, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        PageId page = page_at(engine, seq, 0, i);
        engine->history[i] = page == PAGE_NONE ? 0 : fake_cells(engine, page, true)[i % KV_PAGE_TOKENS].token;
    }
    return engine->history;
}

static uint32_t next_token(const Engine *engine, const uint32_t *tokens, uint32_t n, uint64_t value)
{
    const FakeEngineParams *p = &engine->params;
    if (p->next) return p->next(p->next_arg, tokens, n);
    uint32_t at = n - p->n_script_prompt;
    if (p->script) return n >= p->n_script_prompt && at < p->n_script ? p->script[at] : TINY_IM_END;
    return value % 120 == 0 ? TINY_IM_END : TINY_FIRST_BYTE + (uint32_t)(value / 120 % 256);
}

/* A row that depends on the pages alone: small differences, and one clear winner. */
static void fill_row(Engine *engine, SeqId seq, uint32_t n, uint64_t value, float *row)
{
    const FakeEngineParams *p = &engine->params;
    uint32_t n_vocab = tiny_vocab_size(), state = (uint32_t)(value >> 16);
    for (uint32_t i = 0; i < n_vocab; i++) {
        state = state * 1664525u + 1013904223u;
        row[i] = (float)(state >> 16) * 0x1p-16f;
    }
    const uint32_t *tokens = p->next || p->edit ? read_history(engine, seq, n) : NULL;
    row[next_token(engine, tokens, n, value) % n_vocab] = 20;
    if (p->edit) p->edit(p->edit_arg, tokens, n, row);
    if (!p->next && !p->script && !p->edit && value % 4001 == 0) row[n_vocab / 2] = NAN;
}

/* ---- passes ---- */

static bool is_sound(Engine *engine, const Batch *batch)
{
    uint32_t row = 0, logit_rows = 0;
    for (uint32_t i = 0; i < batch->n_spans; i++) {
        const BatchSpan *span = &batch->spans[i];
        if (!kv_seq_is_open(engine->seqs, span->seq) || engine->is_in_pass[span->seq]) return false;
        if (span->first_row != row || span->n_rows == 0) return false;
        if (span->first_pos != kv_seq_tokens(engine->seqs, span->seq)) return false;
        if (!kv_seq_may_write(engine->seqs, span->seq, span->n_rows)) return false;
        for (uint32_t j = 0; j < i; j++)
            if (batch->spans[j].seq == span->seq) return false;
        row += span->n_rows;
        logit_rows += span->logits == LOGITS_ALL ? span->n_rows : span->logits == LOGITS_LAST;
    }
    for (uint32_t i = 0; i < batch->n_rows; i++)
        if (batch->tokens[i] >= tiny_vocab_size()) return false;
    return row == batch->n_rows && row > 0 && row <= engine->params.max_batch_rows &&
           logit_rows <= engine->params.max_logit_rows;
}

bool engine_pass_begin(Engine *engine, const Batch *batch, PassId *ret_pass, Error *error)
{
    PassId id = 0;
    while (id < engine->params.max_passes && engine->passes[id].is_open) id++;
    if (!fake_keeps(engine, id < engine->params.max_passes && is_sound(engine, batch)))
        return error_set(error, ERR_INTERNAL, "the batch breaks the contract");
    if (!engine_check_device(engine, error)) return false;
    FakePass *pass = &engine->passes[id];
    pass->is_open = true;
    pass->fails = ++engine->counts.forwards == engine->params.fail_at_forward;
    pass->n_rows = batch->n_rows;
    pass->n_spans = batch->n_spans;
    pass->next_layer = pass->next_row = pass->depth = 0;
    memcpy(pass->tokens, batch->tokens, batch->n_rows * sizeof *batch->tokens);
    memcpy(pass->spans, batch->spans, batch->n_spans * sizeof *batch->spans);
    for (uint32_t i = 0; i < batch->n_spans; i++) {
        const BatchSpan *span = &batch->spans[i];
        engine->is_in_pass[span->seq] = true;
        if (span->first_pos + span->n_rows > pass->depth) pass->depth = span->first_pos + span->n_rows;
    }
    engine->counts.open_passes++;
    engine->counts.last_rows = batch->n_rows;
    engine->counts.last_first_pos = batch->spans[0].first_pos;
    *ret_pass = id;
    return true;
}

static bool may_write(const Engine *engine, const FakePass *pass)
{
    for (uint32_t i = 0; i < pass->n_spans; i++)
        if (pass->spans[i].n_rows && !kv_seq_may_write(engine->seqs, pass->spans[i].seq, pass->spans[i].n_rows))
            return false;
    return true;
}

/* Rows of a block go together. */
static bool may_end_at(const Engine *engine, const FakePass *pass, uint32_t row)
{
    for (uint32_t i = 0; i < pass->n_spans; i++) {
        const BatchSpan *span = &pass->spans[i];
        if (!span->n_rows || row <= span->first_row || row >= span->first_row + span->n_rows) continue;
        const AttnPolicy *policy = &engine->params.policies[kv_seq_policy(engine->seqs, span->seq)];
        if (policy_selects_blocks(policy) && (span->first_pos + row - span->first_row) % KV_PAGE_TOKENS) return false;
    }
    return true;
}

/* Positions behind the last of its rows. */
static uint32_t depth_of_item(const FakePass *pass, const WorkItem *item)
{
    uint32_t depth = 0, end = item->first_row + item->n_rows;
    for (uint32_t i = 0; i < pass->n_spans; i++) {
        const BatchSpan *span = &pass->spans[i];
        uint32_t last = end < span->first_row + span->n_rows ? end : span->first_row + span->n_rows;
        if (last <= span->first_row || last <= item->first_row) continue;
        if (span->first_pos + last - span->first_row > depth) depth = span->first_pos + last - span->first_row;
    }
    return depth;
}

static uint32_t rows_apart(const Engine *engine, const FakePass *pass, const WorkItem *item)
{
    uint32_t n = 0, end = item->first_row + item->n_rows;
    for (uint32_t i = 0; i < pass->n_spans && engine->params.is_on_device; i++) {
        const BatchSpan *span = &pass->spans[i];
        bool selects = engine->params.policies[kv_seq_policy(engine->seqs, span->seq)].selection.n_stages > 0;
        if (span->n_rows < 2 || span->kind != ROWS_DECODE || (!selects && !engine->params.is_deterministic)) continue;
        for (uint32_t row = span->first_row; row < span->first_row + span->n_rows; row++)
            n += row >= item->first_row && row < end;
    }
    return n;
}

static void work_on(const Engine *engine, const FakePass *pass, const WorkItem *item)
{
    const FakeEngineParams *p = &engine->params;
    uint32_t n_apart = rows_apart(engine, pass, item), depth = depth_of_item(pass, item);
    for (uint32_t i = 0; i < n_apart; i++) p->work(p->work_arg, 1, item->n_layers, depth);
    if (n_apart < item->n_rows) p->work(p->work_arg, item->n_rows - n_apart, item->n_layers, depth);
}

bool engine_pass_run(Engine *engine, const WorkItem *item, Error *error)
{
    FakePass *pass = item->pass < engine->params.max_passes ? &engine->passes[item->pass] : NULL;
    bool is_next = pass && pass->is_open && item->first_layer == pass->next_layer && item->first_row == pass->next_row;
    bool is_whole = is_next && item->n_rows > 0 && item->n_layers > 0 &&
                    item->n_rows <= pass->n_rows - item->first_row &&
                    item->n_layers <= engine->params.n_layers - item->first_layer &&
                    (item->n_layers == 1 || item->n_rows == pass->n_rows) && may_write(engine, pass) &&
                    may_end_at(engine, pass, item->first_row + item->n_rows);
    if (!fake_keeps(engine, is_whole)) return error_set(error, ERR_INTERNAL, "the item breaks the contract");
    if (pass->fails) return error_set(error, ERR_DEVICE, "the device has failed");
    if (engine->params.work) work_on(engine, pass, item);
    pass->next_row = item->first_row + item->n_rows;
    if (pass->next_row < pass->n_rows) return true;
    pass->next_row = 0;
    pass->next_layer += item->n_layers;
    return true;
}

static void release(Engine *engine, FakePass *pass)
{
    for (uint32_t i = 0; i < pass->n_spans; i++)
        if (pass->spans[i].n_rows) engine->is_in_pass[pass->spans[i].seq] = false;
    pass->is_open = false;
    engine->counts.open_passes--;
}

/* The rows of a sequence that was closed meanwhile keep their places among the logits. */
static void end_span(Engine *engine, const uint32_t *tokens, const BatchSpan *span, uint32_t n_rows,
                     uint32_t *n_logit_rows)
{
    for (uint32_t i = 0; i < n_rows; i++) {
        uint64_t value = 0;
        bool has_logits = span->logits == LOGITS_ALL || (span->logits == LOGITS_LAST && i + 1 == n_rows);
        if (span->n_rows) value = write_token(engine, span, span->first_pos + i, tokens[span->first_row + i]);
        if (!has_logits) continue;
        float *row = engine->logits + (size_t)(*n_logit_rows)++ * tiny_vocab_size();
        if (span->n_rows) fill_row(engine, span->seq, span->first_pos + i + 1, value, row);
    }
    if (span->n_rows) kv_seq_advance(engine->seqs, span->seq, span->n_rows);
    if (span->kind == ROWS_DECODE) engine->counts.decode_rows += span->n_rows;
}

bool engine_pass_end(Engine *engine, PassId id, float **ret_logits, Error *error)
{
    FakePass *pass = id < engine->params.max_passes ? &engine->passes[id] : NULL;
    bool is_done = pass && pass->is_open && pass->next_layer == engine->params.n_layers && may_write(engine, pass);
    if (!fake_keeps(engine, is_done)) return error_set(error, ERR_INTERNAL, "the pass is not at its end");
    uint32_t n_logit_rows = 0;
    engine->digests.n = 0;
    for (uint32_t i = 0; i < pass->n_spans; i++) {
        uint32_t end = i + 1 < pass->n_spans ? pass->spans[i + 1].first_row : pass->n_rows;
        end_span(engine, pass->tokens, &pass->spans[i], end - pass->spans[i].first_row, &n_logit_rows);
    }
    if (engine->params.work) engine->params.work(engine->params.work_arg, n_logit_rows, 0, 0);
    engine->counts.rows += pass->n_rows;
    engine->counts.logit_rows += n_logit_rows;
    release(engine, pass);
    *ret_logits = engine->logits;
    return true;
}

bool engine_step(Engine *engine, const Batch *batch, float **ret_logits, Error *error)
{
    WorkItem item = {.n_layers = engine->params.n_layers, .n_rows = batch->n_rows};
    if (!engine_pass_begin(engine, batch, &item.pass, error)) return false;
    if (engine_pass_run(engine, &item, error) && engine_pass_end(engine, item.pass, ret_logits, error)) {
        fake_digests_make(engine, batch);
        return true;
    }
    engine_pass_drop(engine, item.pass);
    return false;
}

void engine_pass_drop(Engine *engine, PassId id)
{
    if (fake_keeps(engine, id < engine->params.max_passes && engine->passes[id].is_open))
        release(engine, &engine->passes[id]);
}
