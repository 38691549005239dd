/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/model_digest.h"

#include "tests/gpu/model_pair.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_MASKS = 7, N_SEQS = 21, N_STEPS = 6, N_PROMPT = 24, CONTEXT = 64 };

static const DigestEdit edits[] = {{3, -INFINITY, 1, 0, 0}, {40, 2.5f, 1.2f, 0.5f, 1}, {7, 0, 1, -3, 0}};
static uint64_t *masks[N_MASKS]; /* each leaves other ids */

static void make_masks(uint32_t n_vocab)
{
    size_t n = (n_vocab + 63) / 64;
    for (uint32_t k = 0; k < N_MASKS; k++) {
        masks[k] = calloc(n, sizeof *masks[k]);
        if (!masks[k]) exit(1);
        for (size_t i = 0; i < n; i++) masks[k][i] = 0x9E3779B97F4A7C15u * (i + k + 1) >> k;
    }
}

/* Rows of all kinds, and some of which the row itself is to come. */
static DigestAsk ask_of(uint32_t i, uint32_t step)
{
    const DigestAsk kinds[] = {
        {.is_wanted = true},
        {.is_wanted = true, .wants_draw = true, .temperature = 1, .draw = 0.013 * (i + 1) + 0.1 * step},
        {.is_wanted = true, .temperature = 0.7f, .n_best = 256},
        {.is_wanted = false},
        {.is_wanted = true, .wants_plain_mass = true, .n_best = 20},
        {true, true, true, 1.3f, 66, 0.999},
    };
    DigestAsk ask = kinds[(i + step) % (sizeof kinds / sizeof *kinds)];
    if ((i + step) % 5 == 0) ask.edits = edits;
    if ((i + step) % 5 == 0) ask.n_edits = sizeof edits / sizeof *edits;
    if ((i + step) % 7 < 2) ask.mask = masks[i % N_MASKS];
    return ask;
}

static bool same_digest(const RowDigest *a, const DigestItem *a_items, const RowDigest *b, const DigestItem *b_items)
{
    return a->is_bad == b->is_bad && a->max == b->max && a->best == b->best && a->mass == b->mass &&
           a->plain_mass == b->plain_mass && a->least == b->least && a->n_listed == b->n_listed &&
           a->drawn == b->drawn && a->drawn_logit == b->drawn_logit &&
           (a->n_listed == 0 || a->n_listed > DIGEST_LIST || !memcmp(a_items, b_items, a->n_listed * sizeof *a_items));
}

static void check_step(Engine *engine, float *logits, const DigestAsk *asks, uint32_t step)
{
    static DigestItem items[DIGEST_LIST];
    Error error;
    size_t n_vocab = engine_shape(engine)->n_vocab;
    float *row = malloc(n_vocab * sizeof *row);
    for (uint32_t i = 0; row && i < N_SEQS; i++) {
        const DigestItem *list = NULL;
        const RowDigest *got = engine_digest(engine, i, &list);
        RowDigest want;
        memcpy(row, logits + i * n_vocab, n_vocab * sizeof *row);
        device_report(!got == !asks[i].is_wanted, "step %u, row %u: a digest %d", step, i, got != NULL);
        device_report(engine_bring_rows(engine, &i, 1, &error), "step %u, row %u is brought", step, i);
        if (!got) {
            device_report(!memcmp(row, logits + i * n_vocab, n_vocab * sizeof *row), "step %u, row %u came", step, i);
            continue;
        }
        DigestAsk ask = asks[i]; /* the row has its edits */
        device_report(ask.n_edits == 0 || logits[i * n_vocab + edits[0].id] == -INFINITY, "step %u, row %u: a ban",
                      step, i);
        ask.n_edits = 0;
        const DigestParams params = {.logits = logits + i * n_vocab,
                                     .n_rows = 1,
                                     .n_vocab = (uint32_t)n_vocab,
                                     .asks = &ask,
                                     .digests = &want,
                                     .items = items};
        device_report(digest_ref(&params) && same_digest(&want, items, got, list),
                      "step %u, row %u: best %u %u, listed %u %u, drawn %u %u", step, i, want.best, got->best,
                      want.n_listed, got->n_listed, want.drawn, got->drawn);
    }
    free(row);
}

void try_model_digests(Device *device, const char *path)
{
    const PairParams params = {path, KV_BF16, false, CONTEXT, N_SEQS, N_SEQS * N_PROMPT};
    Pair pair = pair_open(device, &params, false);
    Error error;
    uint32_t tokens[N_SEQS * N_PROMPT];
    SeqId seqs[N_SEQS];
    BatchSpan spans[N_SEQS];
    DigestAsk asks[N_SEQS];
    device_report(engine_makes_digests(pair.gpu), "digests are made");
    make_masks(engine_shape(pair.gpu)->n_vocab);
    model_text(pair.gpu, 3, tokens, N_SEQS * N_PROMPT);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        seqs[i] = model_seq(pair.gpu);
        model_feed(pair.gpu, seqs[i], ROWS_PREFILL, tokens + i * N_PROMPT, N_PROMPT, 0, NULL);
    }
    for (uint32_t step = 0; step < N_STEPS; step++) {
        float *logits = NULL;
        for (uint32_t i = 0; i < N_SEQS; i++) {
            asks[i] = ask_of(i, step);
            spans[i] = (BatchSpan){seqs[i], i, 1, N_PROMPT + step, LOGITS_LAST, ROWS_DECODE};
            device_report(engine_seq_reserve(pair.gpu, seqs[i], 1, &error), "pages");
        }
        const Batch batch = {tokens + step * N_SEQS, N_SEQS, spans, N_SEQS, asks};
        bool ok = engine_step(pair.gpu, &batch, &logits, &error);
        device_report(ok, "a step with digests: %s", ok ? "" : error.text);
        if (ok) check_step(pair.gpu, logits, asks, step);
    }
    for (uint32_t i = 0; i < N_SEQS; i++) engine_seq_close(pair.gpu, seqs[i]);
    for (uint32_t k = 0; k < N_MASKS; k++) free(masks[k]);
    pair_close(&pair);
}
