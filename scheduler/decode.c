/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sched_impl.h"

/* Those that decode and have their page, by rank: who takes pages takes them from those behind, not yet listed. */
static uint32_t gather(Sched *sched)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        Sequence *sequence = sched->running[i];
        Error error;
        if (sequence->in_pass || !sched_may_run(sequence) || !sequence_decodes(sequence, &sched->tools)) continue;
        PageTake taken = pressure_reserve(sched, sequence, 1, &error);
        if (taken == TAKE_DONE)
            sched->decoding[n++] = sequence;
        else if (taken == TAKE_FAILED)
            sched_fail(sched, sequence->job, &error);
        if (taken == TAKE_FAILED) return gather(sched); /* its choices left from all over the list */
    }
    return n;
}

static void ask_each(void *arg, uint32_t worker, size_t first, size_t end)
{
    Sched *sched = arg;
    for (size_t k = first; k < end; k++) {
        uint32_t i = sched->early[k];
        DigestAsk ask = {0};
        if (sequence_ask(sched->decoding[i], sched->spaces[worker], &ask)) sched->asks[i] = ask;
    }
}

/* Digests of the rows that need not be seen whole: few bytes of them leave a device. */
static const DigestAsk *ask(Sched *sched, uint32_t n)
{
    uint32_t n_asked = 0;
    bool takes_time = false;
    if (!engine_makes_digests(sched->params.engine)) return NULL;
    for (uint32_t i = 0; i < n; i++) {
        sched->asks[i] = (DigestAsk){0};
        if (sched->is_audited[i] || !sequence_may_ask(sched->decoding[i])) continue;
        takes_time |= sampler_edits(sched->decoding[i]->sampler);
        sched->early[n_asked++] = i;
    }
    if (takes_time && n_asked > 1)
        engine_each(sched->params.engine, n_asked, ask_each, sched);
    else
        ask_each(sched, 0, 0, n_asked);
    return sched->asks;
}

typedef struct EarlyPicks {
    Sched *sched;
    float *logits; /* [n_decoding, n_vocab] */
    size_t n_vocab;
    bool are_rows; /* all of them are rows, whatever was asked for */
} EarlyPicks;

static void pick_early(void *arg, uint32_t worker, size_t first, size_t end)
{
    const EarlyPicks *picks = arg;
    Sched *sched = picks->sched;
    for (size_t k = first; k < end; k++) {
        uint32_t i = sched->early[k];
        const DigestItem *items = NULL;
        const RowDigest *digest = picks->are_rows ? NULL : engine_digest(sched->params.engine, i, &items);
        sequence_pick_early(sched->decoding[i], sched->spaces[worker], picks->logits + i * picks->n_vocab, digest,
                            items);
    }
}

static void pick_each(Sched *sched, uint32_t n, EarlyPicks *picks)
{
    if (n > 1)
        engine_each(sched->params.engine, n, pick_early, picks);
    else
        pick_early(picks, 0, 0, n);
}

/* A row takes up to a millisecond, so those that depend on nothing else are shared out. */
static bool pick_together(Sched *sched, uint32_t n, float *logits, Error *error)
{
    EarlyPicks picks = {sched, logits, tok_n_vocab(sched->tools.tokenizer), false};
    const DigestItem *items;
    uint32_t n_early = 0, n_rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool is_digest = engine_digest(sched->params.engine, i, &items);
        sched->stats.digested_rows += is_digest;
        if (is_digest || (!sched->is_audited[i] && sequence_may_pick_early(sched->decoding[i])))
            sched->early[n_early++] = i;
    }
    pick_each(sched, n_early, &picks);
    for (uint32_t k = 0; k < n_early; k++)
        if (sched->decoding[sched->early[k]]->early.wants_row) sched->early[n_rows++] = sched->early[k];
    if (n_rows == 0) return true;
    sched->stats.digested_rows -= n_rows;
    picks.are_rows = true;
    if (!engine_bring_rows(sched->params.engine, sched->early, n_rows, error)) return false;
    pick_each(sched, n_rows, &picks);
    return true;
}

void decode_step(Sched *sched)
{
    uint32_t n = gather(sched);
    if (n == 0) return;
    uint64_t begin_usec = sched->params.clock_usec();
    batch_build_clear(&sched->build);
    for (uint32_t i = 0; i < n; i++) {
        Sequence *sequence = sched->decoding[i];
        BatchSpan span = sequence_span(sequence, &sched->tools, 1);
        if (!batch_build_add(&sched->build, &span, &sequence->tokens[span.first_pos])) n = i;
    }
    Error error;
    float *logits = NULL;
    audit_begin(sched, n);
    sched->build.batch.asks = ask(sched, n);
    bool ok = engine_step(sched->params.engine, &sched->build.batch, &logits, &error) &&
              pick_together(sched, n, logits, &error);
    uint32_t n_vocab = tok_n_vocab(sched->tools.tokenizer);
    for (uint32_t i = 0; i < n; i++) {
        Sequence *sequence = sched->decoding[i];
        if (sequence->state != SEQUENCE_RUNNING) continue; /* another choice of its request failed */
        if (ok && sched->is_audited[i]) audit_end(sched, i, logits + (size_t)i * n_vocab);
        if (ok)
            sched_advance(sched, sequence, 1, logits + (size_t)i * n_vocab);
        else
            sched_fail(sched, sequence->job, &error);
    }
    sched->last_decode_usec = sched->params.clock_usec();
    uint64_t usec = sched->last_decode_usec - begin_usec;
    estimate_learn(&sched->decode_usec, (double)usec);
    sched->stats.decode_steps++;
    sched->stats.decode_rows += n;
    sched->stats.decode_usec += usec;
}
