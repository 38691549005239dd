/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/engine_rig.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Error error;

EngineParams engine_rig_params(KvTypes kv_types, uint32_t max_sequences, uint32_t max_rows)
{
    return (EngineParams){.max_sequences = max_sequences,
                          .max_batch_rows = max_rows,
                          .max_logit_rows = max_rows,
                          .n_threads = 1,
                          .kv_types = kv_types,
                          .world = 1};
}

Engine *engine_rig_open(const char *const *settings, EngineParams params)
{
    TinyModel model = tiny_model_default();
    char path[256];
    Engine *engine;
    for (; *settings; settings++) cr_assert(tiny_model_set(&model, *settings), "%s", *settings);
    cr_assert(tiny_model_temp(&model, path, sizeof path, &error), "%s", error.text);
    params.model_path = path;
    cr_assert(engine_open(&params, &engine, &error), "%s", error.text);
    unlink(path);
    return engine;
}

void engine_rig_text(const Engine *engine, uint32_t seed, uint32_t *tokens, uint32_t n)
{
    uint32_t n_vocab = engine_shape(engine)->n_vocab;
    for (uint32_t i = 0; i < n; i++) tokens[i] = (seed * 7919 + i * i * 31 + i * 7) % n_vocab;
}

SeqId engine_rig_seq(Engine *engine, PolicyId policy)
{
    SeqId seq = 0;
    cr_assert(engine_seq_new(engine, policy, &seq, &error), "%s", error.text);
    return seq;
}

void engine_rig_feed(Engine *engine, SeqId seq, RowKind kind, const uint32_t *tokens, uint32_t n, uint32_t chunk,
                     float *out)
{
    size_t n_vocab = engine_shape(engine)->n_vocab;
    for (uint32_t done = 0, rows; done < n; done += rows) {
        rows = chunk && chunk < n - done ? chunk : n - done;
        BatchSpan span = {seq, 0, rows, engine_seq_tokens(engine, seq), out ? LOGITS_ALL : LOGITS_NONE, kind};
        float *logits;
        cr_assert(engine_forward(engine, &(Batch){tokens + done, rows, &span, 1}, &logits, &error), "%s", error.text);
        if (out) memcpy(out + done * n_vocab, logits, rows * n_vocab * sizeof *out);
    }
}

float *engine_rig_logits(const Engine *engine, uint32_t n_rows)
{
    float *x = calloc((size_t)n_rows * engine_shape(engine)->n_vocab, sizeof *x);
    cr_assert_not_null(x);
    return x;
}
