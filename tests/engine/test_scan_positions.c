/* SPDX-License-Identifier: Apache-2.0 */
/* Scans go by the positions that attention goes by: true ones in the trained context, moved ones beyond it. */
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { N = 640, TRAINED = 320, N_POLICIES = 3 };

#define SELECTING(of_scan, moved)                                                                                      \
    {                                                                                                                  \
        .name = #of_scan,                                                                                              \
        .selection = {.planner = "hip",                                                                                \
                      .stages = {{SCAN_EXACT, 16, 48, 1}},                                                             \
                      .n_stages = 1,                                                                                   \
                      .sink = 64,                                                                                      \
                      .recent = 64,                                                                                    \
                      .row_stride = 1,                                                                                 \
                      .scan_positions = of_scan},                                                                      \
        .positions = moved                                                                                             \
    }

static float *run(Engine *engine, PolicyId policy)
{
    uint32_t tokens[N];
    float *logits = engine_rig_logits(engine, N);
    SeqId seq = engine_rig_seq(engine, policy);
    engine_rig_text(engine, 5, tokens, N);
    engine_rig_feed(engine, seq, ROWS_PREFILL, tokens, TRAINED - 64, 0, logits);
    size_t row = engine_shape(engine)->n_vocab;
    engine_rig_feed(engine, seq, ROWS_DECODE, tokens + TRAINED - 64, N - TRAINED + 64, 1,
                    logits + (TRAINED - 64) * row);
    engine_seq_close(engine, seq);
    return logits;
}

Test(test_scan_positions, change_where_the_trained_context_ends)
{
    static const AttnPolicy policies[N_POLICIES] = {
        {.name = "dense"},
        SELECTING(SCAN_TRUE, POSITIONS_PACKED),
        SELECTING(SCAN_RELATIVE, POSITIONS_PACKED),
    };
    EngineParams params = engine_rig_params(kv_types_all(KV_F16), 1, N);
    params.policies = policies;
    params.n_policies = N_POLICIES;
    params.context = N;
    Engine *engine = ENGINE_RIG(params, "layers=2", "context=320");
    size_t row = engine_shape(engine)->n_vocab;
    float *dense = run(engine, 0), *by_true = run(engine, 1), *by_relative = run(engine, 2);
    cr_expect(memcmp(dense, by_true, TRAINED * row * sizeof *dense) != 0, "something is left out");
    cr_expect(!memcmp(by_true, by_relative, TRAINED * row * sizeof *by_true));
    cr_expect(memcmp(by_true + TRAINED * row, by_relative + TRAINED * row, (N - TRAINED) * row * sizeof *by_true) != 0);
    free(dense);
    free(by_true);
    free(by_relative);
    engine_close(engine);
}
