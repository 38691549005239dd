/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/smooth.h"
#include "engine/engine_state.h"
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum { N_TOKENS = 90, HEAD_DIM = 16, ROPE_DIM = 12 };

static Error error;

/* An engine whose keys have channels far larger than the rest: one that does not turn, one of a pair, a whole pair. */
static Engine *open_spread(void)
{
    EngineParams params = engine_rig_params(kv_types_all(KV_F32), 1, N_TOKENS);
    Engine *engine = ENGINE_RIG(params, "arch=qwen3", "layers=3", "rope_dim=12");
    for (uint32_t layer = 0; layer < engine->shape.n_layers; layer++) {
        float *k = (float *)(uintptr_t)engine->weights.layers[layer].k_norm; /* a copy of the engine's own */
        k[1] *= 40;
        k[7] *= -30;
        k[10] *= 25;
        k[11] *= 90;
    }
    return engine;
}

static float *run(Engine *engine)
{
    uint32_t tokens[N_TOKENS];
    float *logits = engine_rig_logits(engine, N_TOKENS);
    SeqId seq = engine_rig_seq(engine, 0);
    engine_rig_text(engine, 1, tokens, N_TOKENS);
    engine_rig_feed(engine, seq, ROWS_PREFILL, tokens, N_TOKENS, 40, logits);
    engine_seq_close(engine, seq);
    return logits;
}

Test(test_smooth, keys_come_closer_and_no_bit_of_a_result_changes)
{
    Engine *engine = open_spread();
    cr_assert(engine->shape.head_dim == HEAD_DIM && engine->shape.rope_dim == ROPE_DIM);
    float *plain = run(engine), before[HEAD_DIM], after = 0;
    const LayerWeights *w = &engine->weights.layers[1];
    for (int i = 0; i < HEAD_DIM; i++) before[i] = w->k_norm[i];
    const float *q = w->q_norm;
    cr_assert(smooth_keys(&engine->shape, &engine->weights, &error), "%s", error.text);
    for (int i = 0; i < HEAD_DIM; i++) {
        float moved = before[i] / w->k_norm[i];
        after = fmaxf(after, fabsf(w->k_norm[i]));
        cr_expect_eq(w->q_norm[i], q[i] * moved, "channel %d: what K loses Q gets", i);
        if (i >= HEAD_DIM - ROPE_DIM && i % 2) cr_expect_eq(moved, before[i - 1] / w->k_norm[i - 1], "pair of %d", i);
    }
    cr_expect_lt(after, 5, "the largest weight is %g", (double)after);
    float *smooth = run(engine);
    cr_expect_arr_eq(plain, smooth, (size_t)N_TOKENS * engine->shape.n_vocab * sizeof *plain);
    engine_close(engine);
    free(plain);
    free(smooth);
}

Test(test_smooth, weights_of_nothing_stay)
{
    Engine *engine = open_spread();
    float *k = (float *)(uintptr_t)engine->weights.layers[0].k_norm;
    k[4] = k[5] = 0;
    k[6] = INFINITY;
    cr_assert(smooth_keys(&engine->shape, &engine->weights, &error));
    const float *now = engine->weights.layers[0].k_norm;
    cr_expect(now[4] == 0 && now[5] == 0 && isinf(now[6]) && isfinite(now[7]));
    engine->weights.layers[1].q_norm = NULL;
    const float *alone = engine->weights.layers[1].k_norm;
    cr_assert(smooth_keys(&engine->shape, &engine->weights, &error));
    cr_expect_eq(engine->weights.layers[1].k_norm, alone, "nothing could take what it loses");
    engine_close(engine);
}

Test(test_smooth, only_for_keys_of_four_bits)
{
    for (KvType type = 0; type < KV_N_TYPES; type++) {
        Engine *engine = ENGINE_RIG(engine_rig_params(kv_types_all(type), 1, 4), "arch=qwen3");
        cr_expect_eq(engine->smoothed, type == KV_INT4, "%s", kv_type_info(type)->name);
        engine_close(engine);
    }
}
