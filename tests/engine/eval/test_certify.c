/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/certify.h"
#include "tests/engine/eval/results_maker.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { N_QUESTIONS = 120, N_LAYERS = 2, N_KV_HEADS = 2 };

static Error error;
static Results results;
static Arena arena;
static Summary summary;
static PolicySpec spec;
static ModelShape shape;
static RolesModel model;

static void begin(void)
{
    results = results_maker_new();
    shape = (ModelShape){.n_layers = N_LAYERS, .n_kv_heads = N_KV_HEADS};
    model = (RolesModel){&shape, 0xABCD};
    arena_init(&arena, 4096, SIZE_MAX);
}

static void end(void)
{
    results_done(&results);
    arena_done(&arena);
}

TestSuite(test_certify, .init = begin, .fini = end);

/* So many wrong answers of the policy more than dense has. */
static void measure(const char *policy, uint32_t length, uint32_t n_lost)
{
    static const char *const tasks[] = {"passkey", "kv", "multikey"};
    char dense[N_QUESTIONS + 1] = "", own[N_QUESTIONS + 1];
    memset(dense, '1', N_QUESTIONS);
    memcpy(own, dense, sizeof own);
    memset(own, '0', n_lost);
    for (size_t i = 0; i < 3; i++) {
        results_maker_answers(&results, (AnswersKey){"dense", tasks[i], length, 0}, dense, -1);
        results_maker_answers(&results, (AnswersKey){policy, tasks[i], length, 0}, own, -1);
    }
}

static bool judge(const char *policy, const Crossovers *crossovers, Certificate *certificate)
{
    cr_assert(policy_spec_parse(policy, strlen(policy), &spec, &error), "%s", error.text);
    cr_assert(summary_make(&results, "dense", &results_maker_rules, &arena, &summary, &error), "%s", error.text);
    const CertifyParams params = {&summary, &results_maker_rules, policy, &spec, crossovers, "f16", model.fingerprint};
    return certify(&params, certificate, &error);
}

/* A length speaks for prompts of more than half of it. */
Test(test_certify, prompts_shorter_than_what_was_measured_are_not_covered)
{
    static const char policy[] = "dense:k=2";
    Certificate certificate;
    measure(policy, 8192, 1);
    cr_assert(judge(policy, NULL, &certificate), "%s", error.text);
    cr_expect(certificate.crossover == 4097 && certificate.length == 8192, "%u", certificate.crossover);
    measure(policy, 2000, 0);
    cr_assert(judge(policy, NULL, &certificate), "%s", error.text);
    cr_expect_eq(certificate.crossover, 4097, "nobody looked between 2,000 and 4,096");
    measure(policy, 4096, 0);
    cr_assert(judge(policy, NULL, &certificate), "%s", error.text);
    cr_expect_eq(certificate.crossover, 2049, "2,000 is less than half of 4,096");
    measure(policy, 2048, 0);
    cr_assert(judge(policy, NULL, &certificate), "%s", error.text);
    cr_expect(certificate.crossover == 1001 && certificate.length == 8192, "%u", certificate.crossover);
    cr_expect(certificate.questions == N_QUESTIONS && certificate.tasks == 3 && certificate.model == 0xABCD);
    cr_expect_float_eq(certificate.mean_loss, 1.0 / N_QUESTIONS, 1e-9, "that of the worst length");
}

Test(test_certify, what_selects_holds_from_its_own_bypass_on)
{
    static const char policy[] = "lserve-4k:bypass=6000";
    Certificate certificate;
    measure(policy, 8192, 0);
    cr_assert(judge(policy, NULL, &certificate), "%s", error.text);
    cr_expect_eq(certificate.crossover, 6000);
    cr_expect_not(judge("lserve-4k", NULL, &certificate), "another one than was measured");
}

Test(test_certify, what_does_not_pass_is_told)
{
    Certificate certificate = {.length = 7};
    measure("dense:k=2", 8192, 4);
    cr_expect_not(judge("dense:k=2", NULL, &certificate));
    cr_expect(strstr(error.text, "loses 3.33 points"), "%s", error.text);
    measure("dense:k=4", 2048, 0);
    results_maker_answers(&results, (AnswersKey){"dense:k=4", "kv", 4096, 0}, "1111", -1);
    cr_expect_not(judge("dense:k=4", NULL, &certificate));
    cr_expect(strstr(error.text, "at 4096 tokens"), "%s", error.text);
    measure("lserve-8k", 8192, 0);
    cr_expect_not(judge("lserve-8k:bypass=9000", NULL, &certificate));
    measure("lserve-8k:bypass=9000", 8192, 0);
    cr_expect_not(judge("lserve-8k:bypass=9000", NULL, &certificate));
    cr_expect(strstr(error.text, "only where it is dense"), "%s", error.text);
    measure("oracle", 8192, 0);
    cr_expect_not(judge("oracle", NULL, &certificate), "a baseline");
    cr_expect(strstr(error.text, "comparison"), "%s", error.text);
    cr_expect_eq(certificate.length, 7);
}

static const char calibration[] =
    "{\"longwave_calibration\": 1, \"model\": \"%s\", \"sink\": 64, \"recent\": 64, \"recent_prefill\": 128,"
    " \"method\": {}, \"streaming\": [{\"layer\": 0, \"heads\": [1]}], \"crossover\": {\"machine\": \"m\", \"cells\": ["
    "{\"policy\": \"dense:roles=found\", \"length\": 2048, \"questions\": 4, \"dense_right\": 4, \"right\": 4,"
    " \"dense_usec\": 10, \"usec\": 11},"
    "{\"policy\": \"dense:roles=found\", \"length\": 6000, \"questions\": 4, \"dense_right\": 4, \"right\": 4,"
    " \"dense_usec\": 20, \"usec\": 11},"
    "{\"policy\": \"lserve-4k:unit=16:budget=1024\", \"length\": 6000, \"questions\": 4, \"dense_right\": 4,"
    " \"right\": 3, \"dense_usec\": 20, \"usec\": 11},"
    "{\"policy\": \"no-such-preset\", \"length\": 6000, \"questions\": 4, \"dense_right\": 4, \"right\": 4,"
    " \"dense_usec\": 20, \"usec\": 11}]}}";

static Crossovers parsed(void)
{
    Crossovers crossovers;
    char text[sizeof calibration + 32];
    snprintf(text, sizeof text, calibration, "000000000000abcd");
    cr_assert(crossovers_parse(text, strlen(text), &model, &arena, &crossovers, &error), "%s", error.text);
    return crossovers;
}

/* Fields may come in another order and roles under another name: it is the policy that counts. */
Test(test_certify, policies_hold_from_where_they_pay)
{
    Certificate certificate;
    Crossovers crossovers = parsed();
    static const char with_roles[] = "dense:roles=mine", selects[] = "lserve-4k:budget=1024:unit=16";
    measure(with_roles, 8192, 0);
    measure(selects, 8192, 0);
    measure("dense:k=2", 8192, 0);
    AttnPolicy mine = crossovers.roles;
    HeadRoles named = *mine.roles;
    named.name = "mine";
    mine.roles = &named;
    cr_assert(policy_spec_parse(with_roles, strlen(with_roles), &spec, &error) &&
              policy_spec_take_roles(&spec, &mine, 1, &error));
    cr_assert(summary_make(&results, "dense", &results_maker_rules, &arena, &summary, &error));
    CertifyParams params = {&summary, &results_maker_rules, with_roles, &spec, &crossovers, "f16", 1};
    cr_assert(certify(&params, &certificate, &error), "%s", error.text);
    cr_expect_eq(certificate.crossover, 6000);
    cr_expect_eq(certificate.roles, named.hash);
    named.hash++;
    cr_expect_not(certify(&params, &certificate, &error), "other roles");
    cr_expect(strstr(error.text, "no crossover"), "%s", error.text);
    cr_expect_not(judge(selects, &crossovers, &certificate));
    cr_expect(strstr(error.text, "pays at none"), "%s", error.text);
    cr_expect_not(judge("dense:k=2", &crossovers, &certificate));
    cr_expect(strstr(error.text, "no crossover of 'dense:k=2'"), "%s", error.text);
    crossovers_done(&crossovers);
}

Test(test_certify, files_that_are_no_calibration_of_the_model_are_refused)
{
    Crossovers crossovers;
    char text[sizeof calibration + 32];
    snprintf(text, sizeof text, calibration, "0000000000000001");
    cr_expect_not(crossovers_parse(text, strlen(text), &model, &arena, &crossovers, &error), "of another model");
    static const char *const bad[] = {"", "{}", "[1]", "{\"longwave_calibration\": 1}",
                                      "{\"recent\": 64, \"streaming\": []}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect_not(crossovers_parse(bad[i], strlen(bad[i]), &model, &arena, &crossovers, &error), "%s", bad[i]);
    /* Roles of a file by hand have no crossover, and no model that they are of. */
    cr_expect(strstr(error.text, "longwave calibrate"), "%s", error.text);
}
