/* SPDX-License-Identifier: Apache-2.0 */
/* Grouped positions (SelfExtend) in an engine; the kernel's arithmetic has tests of its own. */
#include "engine/select/policy_check.h"
#include "engine/select/presets.h"
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 300, NEAR = 64 };

static Error error;

static const AttnPolicy policies[] = {
    {.name = "dense"},
    {.name = "alone", .positions = POSITIONS_GROUPED, .group = 1, .near = NEAR},
    {.name = "fours", .positions = POSITIONS_GROUPED, .group = 4, .near = NEAR},
};

static Engine *open_engine(uint32_t context)
{
    EngineParams params = engine_rig_params(kv_types_all(KV_F16), 3, N);
    params.policies = policies;
    params.n_policies = 3;
    params.context = context;
    return ENGINE_RIG(params, "type=F32");
}

static float *run(Engine *engine, PolicyId policy, const uint32_t *tokens, uint32_t chunk)
{
    float *logits = engine_rig_logits(engine, N);
    SeqId seq = engine_rig_seq(engine, policy);
    engine_rig_feed(engine, seq, ROWS_PREFILL, tokens, N - 20, chunk, logits);
    engine_rig_feed(engine, seq, ROWS_DECODE, tokens + N - 20, 20, 1,
                    logits + (size_t)(N - 20) * engine_shape(engine)->n_vocab);
    engine_seq_close(engine, seq);
    return logits;
}

/* Groups of one token are true positions; larger ones differ as soon as a key is not near, and in no row before. */
Test(test_grouped, rows)
{
    Engine *engine = open_engine(512);
    uint32_t tokens[N], n_same = 0;
    engine_rig_text(engine, 3, tokens, N);
    size_t row_floats = engine_shape(engine)->n_vocab, row_bytes = row_floats * sizeof(float);
    float *dense = run(engine, 0, tokens, 0), *alone = run(engine, 1, tokens, 0), *fours = run(engine, 2, tokens, 0);
    for (size_t i = 0; i < N * row_floats; i++) cr_assert_float_eq(dense[i], alone[i], 1e-4, "row %zu", i / row_floats);
    cr_expect(!memcmp(dense, fours, NEAR * row_bytes), "all keys are near; row 64 sees key 0 at 64 either way");
    for (uint32_t i = NEAR + 1; i < N; i++)
        n_same += !memcmp(dense + i * row_floats, fours + i * row_floats, row_bytes);
    cr_expect_eq(n_same, 0);
    float *chunks = run(engine, 2, tokens, 37);
    cr_expect(!memcmp(chunks, fours, N * row_bytes), "chunks change nothing");
    free(dense);
    free(alone);
    free(fours);
    free(chunks);
    engine_close(engine);
}

Test(test_grouped, contexts_beyond_training)
{
    Engine *engine = open_engine(2048);
    cr_expect(engine_shape(engine)->train_context < 2048 && engine_context(engine) == 2048);
    uint32_t tokens[N];
    engine_rig_text(engine, 3, tokens, N);
    SeqId seq = engine_rig_seq(engine, 2);
    float *logits = engine_rig_logits(engine, N);
    for (uint32_t i = 0; i < 6; i++) engine_rig_feed(engine, seq, ROWS_PREFILL, tokens, N, 0, logits);
    for (size_t i = 0; i < (size_t)N * engine_shape(engine)->n_vocab; i++) cr_assert(isfinite(logits[i]));
    free(logits);
    engine_close(engine);
}

Test(test_grouped, what_is_refused)
{
    static const HeadRoles roles = {"some", NULL};
    const AttnPolicy good = policies[2];
    cr_expect(policy_check(&good, &error));
    AttnPolicy bad[8];
    for (size_t i = 0; i < 8; i++) bad[i] = good;
    bad[0].group = 0;
    bad[1].near = 0;
    bad[2].near = 65;
    bad[3].group = 128; /* more than near */
    bad[4].group = 1 << 20;
    bad[5].roles = &roles;
    bad[6].wavelength.k_decode = 2;
    bad[7].wavelength.linear = 100;
    for (size_t i = 0; i < 8; i++) cr_expect(!policy_check(&bad[i], &error), "case %zu", i);
    AttnPolicy other = good;
    other.near = 128;
    cr_expect(!policy_equals(&good, &other) && policy_hash(&good) != policy_hash(&other));
}

Test(test_grouped, preset)
{
    const AttnPolicy *preset = preset_find("self-extend");
    AttnPolicy asked = {.name = "before"};
    cr_assert(preset && policy_check(preset, &error));
    const AttnWish wish = {.preset = "self-extend"},
                   windowed = {.preset = "self-extend", .has_wavelength = true, .k_decode = 2};
    cr_assert(wish_apply(&wish, &policies[0], &asked, &error), "%s", error.text);
    cr_expect(policy_equals(&asked, preset) && asked.group == 8 && asked.near == 1024);
    cr_expect(!wish_apply(&windowed, &policies[0], &asked, &error), "grouped positions have no bands");
}
