/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cmd/try_model.h"

#include <math.h>

static bool is_finite(const float *logits, uint32_t n, Error *error)
{
    for (uint32_t i = 0; i < n; i++)
        if (!isfinite(logits[i]))
            return error_set(error, ERR_NON_FINITE,
                             "the model does not compute: of its first logits, that of token %u is not a finite number",
                             i);
    return true;
}

bool try_model(Engine *engine, void (*pulse)(void *arg), void *arg, Error *error)
{
    SeqId seq;
    if (!engine_seq_new(engine, engine_default_policy(engine), &seq, error)) return false;
    const Tokenizer *tokenizer = engine_tokenizer(engine);
    uint32_t token = tok_bos(tokenizer) == TOK_NONE ? 0 : tok_bos(tokenizer);
    const BatchSpan span = {.seq = seq, .n_rows = 1, .logits = LOGITS_LAST, .kind = ROWS_PREFILL};
    const Batch batch = {.tokens = &token, .n_rows = 1, .spans = &span, .n_spans = 1};
    float *logits;
    engine_seq_set_prompt(engine, seq, 1);
    engine_set_pulse(engine, pulse, arg);
    bool ok = engine_forward(engine, &batch, &logits, error) && is_finite(logits, tok_n_vocab(tokenizer), error);
    engine_set_pulse(engine, NULL, NULL);
    engine_seq_close(engine, seq);
    return ok;
}
