/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENS = 70 };

typedef struct Seen {
    uint32_t n_calls, next_layer, n_layers;
    SeqId seq;
    uint32_t n_heads, head_dim;
    double q_sum;
} Seen;

static void look(void *arg, const LayerTrace *trace)
{
    Seen *seen = arg;
    cr_assert_eq(trace->layer, seen->next_layer);
    cr_assert_eq(trace->n_spans, 1);
    cr_assert_eq(trace->seqs[0], seen->seq);
    cr_assert_eq(trace->n_rows, trace->spans[0].n_rows);
    cr_assert_eq(trace->spans[0].plans[0].recent, PLAN_ALL);
    for (uint32_t i = 0; i < trace->n_rows * seen->n_heads * seen->head_dim; i++)
        seen->q_sum += trace->q[i] * trace->q[i];
    /* The newest key is stored already. */
    const KvSpan *span = &trace->spans[0];
    const KvPages *pages = &span->classes[span->heads[0].class_index];
    uint32_t last = span->first_pos + span->n_rows - 1, page = last / KV_PAGE_TOKENS;
    const KvLayout *layout;
    const char *slot = kv_pages_slot(pages, page, page, span->heads[0].slot, &layout);
    float k[KV_MAX_DIM], v[KV_MAX_DIM], norm = 0;
    kv_slot_get(layout, slot, last % KV_PAGE_TOKENS, k, v);
    for (uint32_t c = 0; c < layout->k_dim; c++) norm += k[c] * k[c];
    cr_assert_gt(norm, 0);
    seen->next_layer = (seen->next_layer + 1) % seen->n_layers;
    seen->n_calls++;
}

/* Every layer is seen once, its keys stored, and being looked at changes no bit. */
Test(test_trace, shows_each_layer_and_changes_nothing)
{
    Engine *engine = ENGINE_RIG(engine_rig_params(kv_types_all(KV_F16), 2, N_TOKENS), NULL);
    const ModelShape *shape = engine_shape(engine);
    uint32_t text[N_TOKENS];
    engine_rig_text(engine, 7, text, N_TOKENS);
    float *plain = engine_rig_logits(engine, N_TOKENS), *traced = engine_rig_logits(engine, N_TOKENS);
    SeqId first = engine_rig_seq(engine, 0), second = engine_rig_seq(engine, 0);
    engine_rig_feed(engine, first, ROWS_PREFILL, text, N_TOKENS, 0, plain);
    Seen seen = {.n_layers = shape->n_layers, .seq = second, .n_heads = shape->n_heads, .head_dim = shape->head_dim};
    engine_set_trace(engine, look, &seen);
    engine_rig_feed(engine, second, ROWS_PREFILL, text, N_TOKENS, 32, traced);
    engine_set_trace(engine, NULL, NULL);
    cr_assert_eq(seen.n_calls, 3 * shape->n_layers);
    cr_assert_gt(seen.q_sum, 0);
    cr_assert_arr_eq(plain, traced, (size_t)N_TOKENS * shape->n_vocab * sizeof *plain);
    free(plain);
    free(traced);
    engine_close(engine);
}
