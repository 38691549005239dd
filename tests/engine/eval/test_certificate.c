/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/certificate.h"
#include "base/rng.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Error error;

static const Certificate good = {.model = 0xFEDCBA9876543210u,
                                 .policy = "lserve-4k:budget=1024",
                                 .roles = 0x0123456789ABCDEFu,
                                 .kv_type = "full=int8,stream=bf16",
                                 .crossover = 1024,
                                 .length = 8192,
                                 .questions = 500,
                                 .tasks = 3,
                                 .mean_loss = 0.004,
                                 .worst_loss = 0.012,
                                 .kv_share = 0.22};

static const char text_good[] =
    "{\"longwave_certificate\":1,\"model\":\"fedcba9876543210\",\"policy\":\"dense\",\"kv_type\":\"f16\","
    "\"roles\":\"0000000000000000\",\"crossover\":0,\"length\":8192,\"questions\":100,\"tasks\":3,\"mean_loss\":-0.5,"
    "\"worst_loss\":0,\"kv_share\":1}";

static char *temporary(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/lw-certificate-%ld", (long)getpid());
    return path;
}

static void put(const char *bytes, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s.certificate.json", temporary());
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(bytes, 1, n, file) == n && !fclose(file));
}

static void clean(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s.certificate.json", temporary());
    unlink(path);
}

Test(test_certificate, what_is_written_is_read, .fini = clean)
{
    Certificate read;
    cr_assert(certificate_save(temporary(), &good, &error), "%s", error.text);
    cr_assert(certificate_load(temporary(), good.model, &read, &error), "%s", error.text);
    cr_assert_eq(read.model, good.model);
    cr_assert_str_eq(read.policy, good.policy);
    cr_assert_str_eq(read.kv_type, good.kv_type);
    cr_assert_eq(read.roles, good.roles);
    cr_assert(read.crossover == 1024 && read.length == 8192 && read.questions == 500 && read.tasks == 3);
    cr_assert(read.mean_loss == 0.004 && read.worst_loss == 0.012 && read.kv_share == 0.22);
}

Test(test_certificate, of_another_model_or_missing_it_is_told_apart, .fini = clean)
{
    Certificate read = {.length = 77};
    cr_assert_not(certificate_load(temporary(), good.model, &read, &error));
    cr_assert_eq(error.code, ERR_NOT_FOUND);
    cr_assert(certificate_save(temporary(), &good, &error));
    cr_assert_not(certificate_load(temporary(), good.model + 1, &read, &error));
    cr_assert_eq(error.code, ERR_INVALID);
    cr_assert_eq(read.length, 77);
}

Test(test_certificate, what_does_not_pass_is_not_written, .fini = clean)
{
    Certificate bad[6] = {good, good, good, good, good, good};
    bad[0].mean_loss = 0.011;
    bad[1].worst_loss = 0.021;
    bad[2].questions = 99;
    bad[3].tasks = 2;
    snprintf(bad[4].policy, sizeof bad[4].policy, "a\"b");
    bad[5].worst_loss = -0.1; /* better than the mean */
    for (int i = 0; i < 6; i++) {
        cr_assert_not(certificate_save(temporary(), &bad[i], &error), "%d", i);
        cr_assert_neq(access(temporary(), F_OK), 0);
    }
    Certificate read;
    cr_assert_not(certificate_load(temporary(), good.model, &read, &error));
    cr_assert_eq(error.code, ERR_NOT_FOUND);
}

static bool parses(const char *text)
{
    Certificate read;
    error = (Error){0};
    return certificate_parse(text, strlen(text), &read, &error);
}

/* The good text with one part replaced. */
static bool parses_with(const char *from, const char *to)
{
    char text[1024];
    const char *at = strstr(text_good, from);
    cr_assert(at, "%s", from);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - text_good), text_good, to, at + strlen(from));
    return parses(text);
}

Test(test_certificate, hostile_texts_are_refused)
{
    cr_assert(parses(text_good), "%s", error.text);
    static const char *const changes[][2] = {
        {"\"longwave_certificate\":1", "\"longwave_certificate\":2"},
        {"\"longwave_certificate\":1,", ""},
        {"fedcba9876543210", "fedcba987654321"},
        {"fedcba9876543210", "fedcba987654321G"},
        {"\"fedcba9876543210\"", "7"},
        {"\"dense\"", "\"\""},
        {"\"dense\"", "\"de\\u0000nse\""},
        {"\"dense\"", "\"den\\nse\""},
        {"\"dense\"", "[]"},
        {"\"f16\"", "null"},
        {"8192", "0"},
        {"8192", "8192.5"},
        {"8192", "1e99"},
        {"8192", "-1"},
        {"8192", "\"8192\""},
        {"\"questions\":100", "\"questions\":100,\"questions\":100"},
        {"\"questions\":100", "\"questions\":99"},
        {"\"tasks\":3", "\"tasks\":2"},
        {"\"tasks\":3", "\"task\":3"},
        {"-0.5", "0.5"},
        {"-0.5", "NaN"},
        {"\"worst_loss\":0", "\"worst_loss\":-0.6"},
        {"\"kv_share\":1}", "\"kv_share\":1}x"},
        {"\"kv_share\":1}", "\"kv_share\":1"},
        {"{\"longwave", "[{\"longwave"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        cr_assert_not(parses_with(changes[i][0], changes[i][1]), "%s -> %s", changes[i][0], changes[i][1]);
        cr_assert_eq(error.code, ERR_INVALID);
    }
    cr_assert_not(parses(""));
    char longer[CERTIFICATE_MAX_BYTES + 2];
    memset(longer, ' ', sizeof longer);
    cr_assert_not(certificate_parse(longer, sizeof longer, &(Certificate){0}, &error));
    cr_assert_eq(error.code, ERR_TOO_LARGE);
    char *policy = malloc(CERTIFICATE_MAX_POLICY + 3);
    memset(policy, 'a', CERTIFICATE_MAX_POLICY + 2);
    policy[0] = policy[CERTIFICATE_MAX_POLICY + 1] = '"';
    policy[CERTIFICATE_MAX_POLICY + 2] = '\0';
    cr_assert_not(parses_with("\"dense\"", policy));
    free(policy);
}

/* Any byte changed, any cut: an error or a certificate whose numbers are in range; never more is read than there is. */
Test(test_certificate, broken_files_never_break_the_reader, .fini = clean)
{
    Rng rng = rng_for(9, 9);
    size_t n = sizeof text_good - 1;
    for (int i = 0; i < 20000; i++) {
        size_t length = i % 3 ? n : rng_below(&rng, (uint32_t)n);
        char *text = malloc(length + 1);
        Certificate read;
        memcpy(text, text_good, length);
        for (uint32_t k = rng_below(&rng, 4); length && k > 0; k--)
            text[rng_below(&rng, (uint32_t)length)] = (char)rng_next(&rng);
        char *exact = malloc(length ? length : 1);
        memcpy(exact, text, length);
        if (certificate_parse(exact, length, &read, &error)) {
            cr_assert(read.tasks >= CERTIFICATE_MIN_TASKS && read.questions >= CERTIFICATE_MIN_QUESTIONS);
            cr_assert(read.mean_loss <= CERTIFICATE_MAX_MEAN_LOSS && read.worst_loss <= CERTIFICATE_MAX_WORST_LOSS);
            cr_assert(memchr(read.policy, '\0', sizeof read.policy));
        }
        free(exact);
        free(text);
    }
    put("{", 1);
    Certificate read;
    cr_assert_not(certificate_load(temporary(), 1, &read, &error));
    cr_assert_eq(error.code, ERR_INVALID);
}

/* What a certificate names is a policy that is dense up to the crossover, or is refused. */
Test(test_certificate, names_a_policy)
{
    PolicySpec spec;
    Certificate certificate = good;
    certificate.crossover = 2048;
    cr_assert(certificate_policy(&certificate, &spec, &error), "%s", error.text);
    cr_assert(spec.policy.selection.budget == 1024 && spec.policy.selection.bypass == 2048);
    certificate.crossover = 100;
    cr_assert(certificate_policy(&certificate, &spec, &error));
    cr_assert_eq(spec.policy.selection.bypass, 1024);
    snprintf(certificate.policy, sizeof certificate.policy, "lserve-4k:recent=100");
    cr_assert_not(certificate_policy(&certificate, &spec, &error));
    snprintf(certificate.policy, sizeof certificate.policy, "no-such-preset");
    cr_assert_not(certificate_policy(&certificate, &spec, &error));
}
