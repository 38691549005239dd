/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/rope_override.h"
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static Error error;

#define expect_near(is, want) cr_expect(fabs((is) - (want)) <= 1e-12 * fabs(want), "%.17g, not %.17g", is, want)

static void theta_of(const char *text, const char *name, double *ret_theta, ModelShape *ret_shape)
{
    RopeOverride override;
    *ret_shape = *shape_by_name(name);
    cr_assert(rope_override_parse(text, &override, &error), "%s", error.text);
    cr_assert(rope_override_apply(&override, ret_shape, &error), "%s", error.text);
    cr_assert(family_rope_theta(ret_shape, NULL, ret_theta, &error), "%s", error.text);
}

Test(test_rope_override, wavelengths)
{
    ModelShape shape = *shape_by_name("smollm2-135m");
    double own[32], theta[64];
    cr_assert(family_rope_theta(&shape, NULL, own, &error));

    theta_of("plain=4", "smollm2-135m", theta, &shape);
    cr_expect(!memcmp(theta, own, sizeof own) && shape.train_context == 32768 && shape.rope_context == 32768);

    theta_of("linear=4", "smollm2-135m", theta, &shape);
    for (uint32_t j = 0; j < 32; j++) expect_near(theta[j], own[j] / 4);

    theta_of("ntk=4", "smollm2-135m", theta, &shape);
    expect_near(theta[0], own[0] / 4);
    expect_near(theta[31], 1.0);
    for (uint32_t j = 1; j < 32; j++) cr_expect(theta[j] * 4 > own[j] && theta[j] <= own[j]);

    theta_of("yarn=4", "smollm2-135m", theta, &shape);
    expect_near(theta[0], own[0] / 4); /* turns less than once in 8192 */
    expect_near(theta[31], own[31]);   /* turns more than 32 times */
    expect_near((double)shape.rope_magnitude, (double)(float)(1 + 0.1 * log(4)));
    cr_expect_eq(shape.rope_original_context, 8192);

    theta_of("yarn=1", "smollm2-135m", theta, &shape);
    for (uint32_t j = 0; j < 32; j++) expect_near(theta[j], own[j]);
    theta_of("linear=1024", "qwen2.5-7b-1m", theta, &shape);
    cr_expect_eq(shape.train_context, 1u << 28, "no context is longer");
}

Test(test_rope_override, what_is_refused)
{
    static const char *const texts[] = {"",   "yarn",  "yarn=",   "yarn=x",  "yarn=2x", "yarn=0.5",
                                        "=2", "yar=2", "yarnx=2", "ntk=1e9", "ntk=nan", "linear=-2"};
    RopeOverride override = {ROPE_NTK, 3};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cr_expect(!rope_override_parse(texts[i], &override, &error), "'%s'", texts[i]);
        cr_expect_str_eq(error.param, "rope");
    }
    cr_expect(override.kind == ROPE_NTK && override.factor == 3, "outputs stay");

    override = (RopeOverride){ROPE_YARN, 2};
    ModelShape gemma = *shape_by_name("gemma3-270m"), before = gemma;
    cr_expect(!rope_override_apply(&override, &gemma, &error) && !memcmp(&gemma, &before, sizeof gemma));
    ModelShape twice = *shape_by_name("smollm2-135m");
    cr_expect(rope_override_apply(&override, &twice, &error));
    cr_expect(!rope_override_apply(&override, &twice, &error) && twice.train_context == 16384);
    override.kind = ROPE_NTK;
    twice.rope_dim = 2;
    cr_expect(!rope_override_apply(&override, &twice, &error));
    cr_expect(rope_override_apply(NULL, &twice, &error));
}

/* An engine takes the longer context, computes otherwise from the second token on, and names its pages otherwise. */
Test(test_rope_override, engine)
{
    enum { N = 8 };
    static const RopeOverride stretched = {ROPE_LINEAR, 2};
    EngineParams params = engine_rig_params(kv_types_all(KV_F32), 1, N);
    Engine *own = ENGINE_RIG(params, "type=F32");
    params.rope = &stretched;
    params.context = 2 * engine_context(own);
    Engine *other = ENGINE_RIG(params, "type=F32");
    cr_expect_eq(engine_context(other), 2 * engine_context(own));
    cr_expect_neq(engine_policy_fingerprint(own, 0), engine_policy_fingerprint(other, 0));
    cr_expect_eq(engine_model_fingerprint(own), engine_model_fingerprint(other));

    uint32_t tokens[N];
    float *a = engine_rig_logits(own, N), *b = engine_rig_logits(own, N);
    size_t row = engine_shape(own)->n_vocab;
    engine_rig_text(own, 1, tokens, N);
    engine_rig_feed(own, engine_rig_seq(own, 0), ROWS_PREFILL, tokens, N, 0, a);
    engine_rig_feed(other, engine_rig_seq(other, 0), ROWS_PREFILL, tokens, N, 0, b);
    cr_expect(!memcmp(a, b, row * sizeof *a), "position 0 has no angle");
    for (uint32_t i = 1; i < N; i++) cr_expect(memcmp(a + i * row, b + i * row, row * sizeof *a) != 0, "row %u", i);
    free(a);
    free(b);
    engine_close(own);
    engine_close(other);
}
