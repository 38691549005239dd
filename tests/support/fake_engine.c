/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_engine.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_vocab.h"

#include <stdlib.h>
#include <string.h>

typedef struct FakeSequence {
    bool is_open;
    uint32_t n;
    uint32_t *tokens; /* [context] */
} FakeSequence;

struct Engine {
    FakeEngineParams params;
    Buffer file;
    Gguf *gguf;
    Tokenizer *tokenizer;
    FakeSequence *sequences; /* [max_sequences] */
    float *logits;           /* [max_logit_rows, n_vocab] */
    void (*pulse)(void *arg);
    void *pulse_arg;
    FakeEngineCounts counts;
};

static void *checked(void *pointer)
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

Engine *fake_engine_new(const FakeEngineParams *params)
{
    Engine *engine = checked(calloc(1, sizeof *engine));
    engine->params = *params;
    FakeEngineParams *p = &engine->params;
    if (!p->context) p->context = 4096;
    if (!p->max_batch_rows) p->max_batch_rows = 64;
    if (!p->max_logit_rows) p->max_logit_rows = 64;
    if (!p->max_sequences) p->max_sequences = 1;
    open_tokenizer(engine);
    engine->sequences = checked(calloc(p->max_sequences, sizeof *engine->sequences));
    for (uint32_t i = 0; i < p->max_sequences; i++)
        engine->sequences[i].tokens = checked(calloc(p->context, sizeof(uint32_t)));
    engine->logits = checked(calloc((size_t)p->max_logit_rows * tiny_vocab_size(), sizeof(float)));
    return engine;
}

void engine_close(Engine *engine)
{
    if (!engine) return;
    for (uint32_t i = 0; i < engine->params.max_sequences; i++) free(engine->sequences[i].tokens);
    free(engine->sequences);
    free(engine->logits);
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

uint32_t engine_context(const Engine *engine)
{
    return engine->params.context;
}

uint32_t engine_max_batch_rows(const Engine *engine)
{
    return engine->params.max_batch_rows;
}

uint32_t engine_max_logit_rows(const Engine *engine)
{
    return engine->params.max_logit_rows;
}

bool engine_seq_open(Engine *engine, SeqId *ret_seq, Error *error)
{
    for (uint32_t i = 0; i < engine->params.max_sequences; i++) {
        if (engine->sequences[i].is_open) continue;
        engine->sequences[i].is_open = true;
        engine->sequences[i].n = 0;
        engine->counts.opened++;
        engine->counts.open++;
        *ret_seq = i;
        return true;
    }
    return error_set(error, ERR_BUSY, "%u sequences are open", engine->params.max_sequences);
}

static FakeSequence *find(Engine *engine, SeqId seq)
{
    static FakeSequence none;
    if (seq < engine->params.max_sequences && engine->sequences[seq].is_open) return &engine->sequences[seq];
    engine->counts.broken_promises++;
    return &none;
}

void engine_set_pulse(Engine *engine, void (*pulse)(void *arg), void *arg)
{
    engine->pulse = pulse;
    engine->pulse_arg = arg;
}

void fake_engine_pulse(const Engine *engine)
{
    if (engine->pulse) engine->pulse(engine->pulse_arg);
}

void engine_seq_close(Engine *engine, SeqId seq)
{
    find(engine, seq)->is_open = false;
    engine->counts.open--;
}

uint32_t engine_seq_tokens(const Engine *engine, SeqId seq)
{
    return seq < engine->params.max_sequences ? engine->sequences[seq].n : 0;
}

void engine_seq_truncate(Engine *engine, SeqId seq, uint32_t n)
{
    FakeSequence *sequence = find(engine, seq);
    if (n > sequence->n) engine->counts.broken_promises++;
    sequence->n = n < sequence->n ? n : sequence->n;
}

static uint32_t next_token(const Engine *engine, const FakeSequence *sequence)
{
    const FakeEngineParams *p = &engine->params;
    if (p->next) return p->next(p->next_arg, sequence->tokens, sequence->n);
    uint32_t at = sequence->n - p->n_script_prompt;
    return sequence->n >= p->n_script_prompt && at < p->n_script ? p->script[at] : TINY_IM_END;
}

/* A row that depends on the tokens alone: small differences, and one clear winner. */
static void fill_row(const Engine *engine, const FakeSequence *sequence, float *row)
{
    uint32_t n_vocab = tiny_vocab_size(), state = sequence->n;
    for (uint32_t i = 0; i < sequence->n; i++) state = state * 31 + sequence->tokens[i];
    for (uint32_t i = 0; i < n_vocab; i++) {
        state = state * 1664525u + 1013904223u;
        row[i] = (float)(state >> 16) * 0x1p-16f;
    }
    row[next_token(engine, sequence) % n_vocab] = 20;
    if (engine->params.edit) engine->params.edit(engine->params.edit_arg, sequence->tokens, sequence->n, row);
}

static bool keeps_promises(Engine *engine, const Batch *batch)
{
    uint32_t row = 0, logit_rows = 0;
    for (uint32_t i = 0; i < batch->n_spans; i++) {
        const BatchSpan *span = &batch->spans[i];
        const FakeSequence *sequence = find(engine, span->seq);
        if (span->first_row != row || span->n_rows == 0 || span->first_pos != sequence->n) return false;
        if (sequence->n + span->n_rows > engine->params.context) return false;
        row += span->n_rows;
        logit_rows += span->logits == LOGITS_ALL ? span->n_rows : span->logits == LOGITS_LAST;
    }
    for (uint32_t i = 0; i < batch->n_rows; i++)
        if (batch->tokens[i] >= tiny_vocab_size()) return false;
    return row == batch->n_rows && row > 0 && row <= engine->params.max_batch_rows &&
           logit_rows <= engine->params.max_logit_rows;
}

static void run_span(Engine *engine, const Batch *batch, const BatchSpan *span, uint32_t *n_logit_rows)
{
    FakeSequence *sequence = find(engine, span->seq);
    for (uint32_t i = 0; i < span->n_rows; i++) {
        sequence->tokens[sequence->n++] = batch->tokens[span->first_row + i];
        bool is_last = i + 1 == span->n_rows;
        if (span->logits == LOGITS_NONE || (span->logits == LOGITS_LAST && !is_last)) continue;
        fill_row(engine, sequence, engine->logits + (size_t)(*n_logit_rows)++ * tiny_vocab_size());
    }
}

bool engine_forward(Engine *engine, const Batch *batch, float **ret_logits, Error *error)
{
    if (!keeps_promises(engine, batch)) {
        engine->counts.broken_promises++;
        return error_set(error, ERR_INTERNAL, "the batch breaks the contract");
    }
    if (++engine->counts.forwards == engine->params.fail_at_forward)
        return error_set(error, ERR_DEVICE, "the device has failed");
    uint32_t n_logit_rows = 0;
    for (uint32_t i = 0; i < batch->n_spans; i++) run_span(engine, batch, &batch->spans[i], &n_logit_rows);
    engine->counts.rows += batch->n_rows;
    engine->counts.logit_rows += n_logit_rows;
    engine->counts.last_rows = batch->n_rows;
    engine->counts.last_first_pos = batch->spans[0].first_pos;
    *ret_logits = engine->logits;
    return true;
}
