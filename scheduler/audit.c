/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sched_impl.h"

#include <math.h>
#include <string.h>

/* Dense attention beyond the trained context is no measure of anything. */
static bool is_due(const Sched *sched, const Sequence *sequence)
{
    const Engine *engine = sched->params.engine;
    const Request *request = sequence->job->request;
    uint32_t interval = engine_policy(engine, request->policy)->selection.audit_interval;
    uint32_t n = engine_seq_tokens(engine, sequence->seq);
    return interval && n < engine_shape(engine)->train_context && (n - request->n_prompt + 1) % interval == 0;
}

/* The row that the sequence decodes next, by dense attention over the keys that are there. */
static bool run_dense(Sched *sched, const Sequence *sequence, float *ret_logits)
{
    Engine *engine = sched->params.engine;
    Error ignored;
    SeqId fork = 0;
    float *logits = NULL;
    uint32_t n = engine_seq_tokens(engine, sequence->seq);
    if (!engine_seq_fork_dense(engine, sequence->seq, &fork, &ignored)) return false;
    BatchSpan span = {.seq = fork, .n_rows = 1, .first_pos = n, .logits = LOGITS_LAST, .kind = ROWS_DECODE};
    const Batch batch = {.tokens = &sequence->tokens[n], .n_rows = 1, .spans = &span, .n_spans = 1};
    bool ok = engine_seq_reserve(engine, fork, 1, &ignored) && engine_step(engine, &batch, &logits, &ignored);
    if (ok) memcpy(ret_logits, logits, tok_n_vocab(sched->tools.tokenizer) * sizeof *logits);
    engine_seq_close(engine, fork);
    return ok;
}

/* One after the other: there is a place for one. */
void audit_begin(Sched *sched, uint32_t n_decoding)
{
    size_t n_vocab = tok_n_vocab(sched->tools.tokenizer);
    for (uint32_t i = 0; i < n_decoding; i++) {
        const Sequence *sequence = sched->decoding[i];
        sched->is_audited[i] = is_due(sched, sequence) && run_dense(sched, sequence, sched->audit_rows + i * n_vocab);
    }
}

/* The logarithm of the sum of exp(x). */
static double log_sum(const float *x, uint32_t n)
{
    double max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++) max = fmax(max, (double)x[i]);
    for (uint32_t i = 0; i < n; i++) sum += exp((double)x[i] - max);
    return max + log(sum);
}

void audit_end(Sched *sched, uint32_t index, const float *logits)
{
    uint32_t n = tok_n_vocab(sched->tools.tokenizer);
    const float *dense = sched->audit_rows + (size_t)index * n;
    double of_dense = log_sum(dense, n), of_row = log_sum(logits, n), divergence = 0;
    for (uint32_t i = 0; i < n; i++) {
        double wanted = (double)dense[i] - of_dense, got = (double)logits[i] - of_row;
        if (isfinite(wanted)) divergence += exp(wanted) * (wanted - got);
    }
    if (!isfinite(divergence)) return; /* the request fails for that by itself */
    RequestTimings *timings = &sched->decoding[index]->job->timings;
    timings->n_audited++;
    timings->audited_kl += divergence > 0 ? divergence : 0;
}
