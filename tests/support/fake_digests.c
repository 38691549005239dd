/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of a fake engine's rows. What stands for a digested row among the logits until it is brought is no number. */
#include "tests/support/fake_engine_impl.h"
#include "tests/support/tiny_vocab.h"

#include <math.h>
#include <string.h>

bool engine_makes_digests(const Engine *engine)
{
    return engine->params.makes_digests;
}

void fake_digests_make(Engine *engine, const Batch *batch)
{
    FakeDigests *made = &engine->digests;
    size_t n_vocab = tiny_vocab_size();
    made->n = 0;
    if (!batch->asks || !fake_keeps(engine, batch->n_rows == batch->n_spans)) return;
    const DigestParams params = {.logits = engine->logits,
                                 .n_rows = batch->n_rows,
                                 .n_vocab = (uint32_t)n_vocab,
                                 .asks = batch->asks,
                                 .digests = made->digests,
                                 .items = made->items};
    if (!fake_keeps(engine, digest_ref(&params))) return;
    made->n = batch->n_rows;
    for (uint32_t i = 0; i < made->n; i++) {
        made->is_there[i] = batch->asks[i].is_wanted;
        if (!made->is_there[i]) continue;
        if (engine->params.short_digests && batch->asks[i].n_best) made->digests[i].n_listed = DIGEST_LIST + 1;
        memcpy(made->rows + i * n_vocab, engine->logits + i * n_vocab, n_vocab * sizeof *made->rows);
        for (size_t j = 0; j < n_vocab; j++) engine->logits[i * n_vocab + j] = NAN;
        engine->counts.digests++;
    }
}

const RowDigest *engine_digest(const Engine *engine, uint32_t row, const DigestItem **ret_items)
{
    const FakeDigests *made = &engine->digests;
    if (row >= made->n || !made->is_there[row]) return NULL;
    *ret_items = made->items + (size_t)row * DIGEST_LIST;
    return &made->digests[row];
}

bool engine_bring_rows(Engine *engine, const uint32_t *rows, uint32_t n, Error *error)
{
    const FakeDigests *made = &engine->digests;
    size_t n_vocab = tiny_vocab_size();
    for (uint32_t i = 0; i < n; i++) {
        if (!fake_keeps(engine, rows[i] < made->n && made->is_there[rows[i]]))
            return error_set(error, ERR_INTERNAL, "row %u came as no digest", rows[i]);
        memcpy(engine->logits + rows[i] * n_vocab, made->rows + rows[i] * n_vocab, n_vocab * sizeof *made->rows);
        engine->counts.brought_rows++;
    }
    return true;
}
