/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"
#include "engine/eval/certificate.h"
#include "engine/eval/files.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static Error error;
static char model_path[256], certificate_file[300];

static const Certificate good = {.policy = "lserve-4k:budget=512:k_decode=4",
                                 .kv_type = "f16",
                                 .crossover = 640,
                                 .length = 1024,
                                 .questions = 200,
                                 .tasks = 3,
                                 .mean_loss = 0.005,
                                 .worst_loss = 0.01,
                                 .kv_share = 0.5};

static void make_model(void)
{
    TinyModel model = tiny_model_default();
    cr_assert(tiny_model_set(&model, "context=2048") && tiny_model_temp(&model, model_path, sizeof model_path, &error));
    snprintf(certificate_file, sizeof certificate_file, "%s.certificate.json", model_path);
}

static void remove_model(void)
{
    unlink(model_path);
    unlink(certificate_file);
}

/* rope NULL: the model's own positions */
static Engine *open_auto(const char *attention, KvType type, const RopeOverride *rope)
{
    Engine *engine;
    const EngineParams params = {.model_path = model_path,
                                 .attention = attention,
                                 .rope = rope,
                                 .max_sequences = 1,
                                 .max_batch_rows = 64,
                                 .max_logit_rows = 1,
                                 .n_threads = 1,
                                 .kv_types = kv_types_all(type),
                                 .world = 1};
    cr_assert(engine_open(&params, &engine, &error), "%s", error.text);
    return engine;
}

static uint64_t fingerprint(void)
{
    Engine *engine = open_auto(NULL, KV_F16, NULL);
    uint64_t model = engine_model_fingerprint(engine);
    engine_close(engine);
    return model;
}

static void save(Certificate certificate, uint64_t model)
{
    certificate.model = model;
    cr_assert(certificate_save(model_path, &certificate, &error), "%s", error.text);
}

static void is_dense(const char *attention, KvType type, const char *why)
{
    Engine *engine = open_auto(attention, type, NULL);
    const Error *told = engine_certificate_error(engine);
    cr_assert_eq(engine_default_policy(engine), 0);
    cr_assert_eq(told != NULL, why != NULL, "%s", told ? told->text : "nothing");
    if (why) cr_assert(strstr(told->text, why), "%s", told->text);
    engine_close(engine);
}

Test(test_auto_policy, follows_the_certificate, .init = make_model, .fini = remove_model)
{
    save(good, fingerprint());
    Engine *engine = open_auto("auto", KV_F16, NULL);
    PolicyId id = engine_default_policy(engine);
    const AttnPolicy *policy = engine_policy(engine, id);
    cr_assert(id != 0 && policy && !engine_certificate_error(engine));
    cr_assert_eq(engine_certified_tokens(engine), good.length);
    cr_assert_eq(engine_certified_from(engine), good.crossover, "its windows know no crossover: prompts do");
    cr_assert_str_eq(policy->name, good.policy);
    cr_assert(policy->selection.budget == 512 && policy->selection.bypass == 640 && policy->wavelength.k_decode == 4);
    SeqId seq;
    cr_assert(engine_seq_new(engine, id, &seq, &error), "%s", error.text);
    engine_close(engine);
    is_dense("dense", KV_F16, NULL);
    is_dense(NULL, KV_F16, NULL);
}

/* Rows before the crossover are dense, so prompts of all lengths may share what is cached. */
Test(test_auto_policy, what_selects_alone_is_dense_before_the_crossover, .init = make_model, .fini = remove_model)
{
    Certificate selects = good;
    snprintf(selects.policy, sizeof selects.policy, "lserve-4k:budget=512");
    save(selects, fingerprint());
    Engine *engine = open_auto("auto", KV_F16, NULL);
    cr_assert(engine_default_policy(engine) != 0);
    cr_assert(engine_certified_from(engine) == 0 && engine_certified_tokens(engine) == good.length);
    cr_assert_eq(engine_policy(engine, engine_default_policy(engine))->selection.bypass, good.crossover);
    engine_close(engine);
}

/* It says nothing about other positions than those that it was measured with. */
Test(test_auto_policy, stretched_positions_are_not_certified, .init = make_model, .fini = remove_model)
{
    RopeOverride rope;
    save(good, fingerprint());
    cr_assert(rope_override_parse("linear=2", &rope, &error), "%s", error.text);
    Engine *engine = open_auto("auto", KV_F16, &rope);
    const Error *told = engine_certificate_error(engine);
    cr_assert(engine_default_policy(engine) == 0 && told && strstr(told->text, "rope"));
    engine_close(engine);
}

/* What eval measures can be served without a certificate, by the same name. */
Test(test_auto_policy, a_policy_of_eval_may_be_the_default, .init = make_model, .fini = remove_model)
{
    Engine *engine = open_auto("lserve-4k:budget=512:unit=16:k_decode=4", KV_F16, NULL);
    const AttnPolicy *policy = engine_policy(engine, engine_default_policy(engine));
    cr_assert(policy && policy->selection.budget == 512 && policy->selection.stages[0].unit_tokens == 16);
    cr_assert_eq(engine_certified_tokens(engine), 0);
    engine_close(engine);
    static const char *const bad[] = {"no-such-preset", "lserve-4k:budget=", "lserve-4k:roles=half"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const EngineParams params = {.model_path = model_path,
                                     .attention = bad[i],
                                     .max_sequences = 1,
                                     .max_batch_rows = 64,
                                     .max_logit_rows = 1,
                                     .n_threads = 1,
                                     .kv_types = kv_types_all(KV_F16),
                                     .world = 1};
        cr_assert_not(engine_open(&params, &engine, &error), "%s", bad[i]);
        cr_expect_str_eq(error.param, "attention", "%s", error.text);
    }
}

/* The model is served all the same, and it is told why. */
Test(test_auto_policy, what_cannot_be_followed_leaves_dense, .init = make_model, .fini = remove_model)
{
    uint64_t model = fingerprint();
    is_dense("auto", KV_F16, NULL);
    save(good, model + 1);
    is_dense("auto", KV_F16, "another model");
    save(good, model);
    is_dense("auto", KV_INT8, "kv_type");
    Certificate other = good;
    snprintf(other.policy, sizeof other.policy, "lserve-4k:roles=half");
    save(other, model);
    is_dense("auto", KV_F16, "half");
    snprintf(other.policy, sizeof other.policy, "lserve-4k");
    other.roles = 5;
    save(other, model);
    is_dense("auto", KV_F16, "other head roles");
    snprintf(other.policy, sizeof other.policy, "no-such-preset");
    save(other, model);
    is_dense("auto", KV_F16, "no-such-preset");
    snprintf(other.policy, sizeof other.policy, "random");
    save(other, model);
    is_dense("auto", KV_F16, "comparison");
    snprintf(other.policy, sizeof other.policy, "no-such-preset");
    snprintf(other.kv_type, sizeof other.kv_type, "f99");
    save(other, model);
    is_dense("auto", KV_F16, "no-such-preset");
    cr_assert(file_replace(certificate_file, "{}", 2, &error));
    is_dense("auto", KV_F16, "longwave_certificate");
}
