/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/files.h"
#include "base/rng.h"
#include "tests/engine/eval/results_maker.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Error error;
static char path[64];

static void name_file(void)
{
    snprintf(path, sizeof path, "/tmp/lw-results-%ld.json", (long)getpid());
}

static void remove_file(void)
{
    unlink(path);
}

static Results some_results(void)
{
    Results results = results_maker_new();
    const AnswersKey dense = {"dense", "kv", 1000, 0}, pages = {"pages", "kv", 1000, 0};
    results_maker_answers(&results, dense, "1111011111", -1);
    results_maker_answers(&results, pages, "1110111111", -1.5);
    results_maker_rows(&results, (RowsKey){"pages", "decode", 500}, 8, 0.25);
    results_maker_rows(&results, (RowsKey){"pages", "decode", 900}, 8, 0.75);
    const RecallCell first = {"pages", 500, 0, 1, 1, 0.5, 1, 0.25}, second = {"pages", 500, 1, 3, 0.2, 0.9, 1, 0.25};
    cr_assert(results_add_recall(&results, &first, &error) && results_add_recall(&results, &second, &error));
    const double estimated[] = {0.1, 0.2, 0.3, 0.05}, missing[] = {0.1, 0.5, 0.16, 0.101};
    const EstimatesCell estimates = {"pages", 500, 4, estimated, missing};
    cr_assert(results_add_estimates(&results, &estimates, &error));
    return results;
}

Test(test_results, a_file_gives_back_what_was_measured, .init = name_file, .fini = remove_file)
{
    Results written = some_results(), read;
    cJSON *identity = results_maker_identity();
    const AnswersKey key = {"pages", "kv", 1000, 0}, other = {"pages", "kv", 1000, 1};
    const RowsKey rows = {"pages", "decode", 900}, no_rows = {"pages", "prefill", 900};
    cr_assert(results_save(&written, path, &error), "%s", error.text);
    cr_assert(results_load(path, identity, &read, &error), "%s", error.text);
    cr_assert(cJSON_Compare(written.root, read.root, true));
    cr_assert(results_answers(&read, &key) && !results_answers(&read, &other));
    cr_assert(results_rows(&read, &rows) && !results_rows(&read, &no_rows));
    cr_assert(results_has_recall(&read, "pages", 500) && !results_has_recall(&read, "pages", 900));
    cr_assert_str_eq(results_text(results_answers(&read, &key), "right"), "1110111111");
    results_done(&written);
    results_done(&read);
    cJSON_Delete(identity);
}

/* What is broken is told, not kept as a number. */
Test(test_results, what_is_not_finite_is_refused)
{
    Results results = results_maker_new();
    const double good[] = {0.5, 0.25}, bad[] = {0.5, NAN};
    const RecallCell recall = {"pages", 500, 0, 1, 1, (double)INFINITY, 1, 0.25};
    const EstimatesCell estimates = {"pages", 500, 2, good, bad};
    cr_assert_not(results_add_estimates(&results, &estimates, &error));
    cr_expect(error.code == ERR_NON_FINITE && strstr(error.text, "'pages'") && strstr(error.text, "'missing'"), "%s",
              error.text);
    cr_assert_not(results_add_recall(&results, &recall, &error));
    cr_expect_not(results_has_recall(&results, "pages", 500) || results_has_estimates(&results, "pages", 500));
    results_done(&results);
}

Test(test_results, where_there_is_no_file_all_is_new, .init = name_file, .fini = remove_file)
{
    Results results;
    cJSON *identity = results_maker_identity();
    cr_assert(results_load(path, identity, &results, &error), "%s", error.text);
    cr_assert_null(cJSON_GetObjectItem(results.root, "answers")->child);
    results_done(&results);
    cJSON_Delete(identity);
}

/* What was measured otherwise must not be mixed in, and a broken file is not overwritten with a new one. */
Test(test_results, another_identity_or_a_broken_file_is_refused, .init = name_file, .fini = remove_file)
{
    Results written = some_results(), read;
    cJSON *identity = results_maker_identity();
    cr_assert(results_save(&written, path, &error));
    cr_assert(cJSON_ReplaceItemInObject(identity, "seed", cJSON_CreateNumber(8)));
    cr_assert_not(results_load(path, identity, &read, &error));
    cr_assert(strstr(error.text, "'seed'"), "%s", error.text);
    /* What a GPU measured says so, and what the CPU did says nothing. */
    cr_assert(cJSON_ReplaceItemInObject(identity, "seed", cJSON_CreateNumber(7)));
    cr_assert(results_load(path, identity, &read, &error), "%s", error.text);
    results_done(&read);
    cr_assert(cJSON_AddStringToObject(identity, "device", "gpu"));
    cr_assert_not(results_load(path, identity, &read, &error));
    cr_assert(strstr(error.text, "'device'"), "%s", error.text);
    cJSON *of_cpu = results_maker_identity();
    Results of_gpu;
    cr_assert(results_new(identity, &of_gpu, &error) && results_save(&of_gpu, path, &error));
    cr_assert_not(results_load(path, of_cpu, &read, &error));
    cr_assert(strstr(error.text, "'device'"), "%s", error.text);
    results_done(&of_gpu);
    cJSON_Delete(of_cpu);
    cr_assert(file_replace(path, "{\"longwave_eval\":1", 18, &error));
    cr_assert_not(results_load(path, identity, &read, &error));
    cr_assert_eq(error.code, ERR_INVALID);
    results_done(&written);
    cJSON_Delete(identity);
}

static const char document[] = "{\"longwave_eval\":1,\"identity\":{\"model\":\"0123\",\"seed\":7},\"answers\":[%s],"
                               "\"rows\":[],\"recall\":[],\"estimates\":[]}%s";

static void expect_refused(const char *answers, const char *behind, const char *why)
{
    char text[2048];
    Results read;
    cJSON *identity = results_maker_identity();
    snprintf(text, sizeof text, document, answers, behind);
    bool was_read = results_parse(text, strlen(text), identity, &read, &error);
    cr_expect_eq(was_read, !why, "%s: %s", text, error.text);
    if (was_read)
        results_done(&read);
    else if (why)
        cr_expect(strstr(error.text, why), "%s", error.text);
    cJSON_Delete(identity);
}

/* Nothing is lost without a word, and nothing is believed that cannot have been measured. */
Test(test_results, errors_name_the_place)
{
    char answers[512], byte[64];
    static const char item[] =
        "{\"policy\":\"%s\",\"task\":\"kv\",\"length\":1000,\"haystack\":0,\"right\":\"1\",\"log_probs\":[-1],"
        "\"needles\":[5],\"prefill_seconds\":1,\"seconds\":1,\"kv_bytes\":%s,\"select_bytes\":0,"
        "\"dense_bytes\":1}";
    snprintf(answers, sizeof answers, item, "dense", "1e15");
    expect_refused(answers, "", NULL);
    expect_refused(answers, " \r\n\t", NULL);
    snprintf(byte, sizeof byte, "byte %zu:", strlen(document) - 4 + strlen(answers) + 1);
    expect_refused(answers, " {}", byte);
    expect_refused(answers, "x", "byte");
    static const char *const wrong[][2] = {
        {"dense", "1e300"}, {"dense", "-1"}, {"dense", "null"}, {"\\u001b[31m", "1"}, {"d\xC3\xA4nse", "1"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(answers, sizeof answers, item, wrong[i][0], wrong[i][1]);
        expect_refused(answers, "", "item 0 of 'answers'");
    }
    expect_refused("],\"rows\":[", "", "'rows' comes twice");
}

/* Bytes changed at random: refused, or a document of which a summary can be made. */
Test(test_results, hostile_files_never_break_the_reader)
{
    Results results = some_results();
    cJSON *identity = results_maker_identity();
    char *text = cJSON_PrintUnformatted(results.root);
    size_t n = strlen(text);
    uint32_t n_read = 0;
    Rng rng = rng_for(3, 3);
    static const char signs[] = "{}[]\",:0123456789-e.tfnul\\";
    for (int i = 0; i < 3000; i++) {
        char *changed = malloc(n);
        Results read;
        memcpy(changed, text, n);
        for (uint32_t k = 1 + rng_below(&rng, 3); k > 0; k--)
            changed[rng_below(&rng, (uint32_t)n)] = signs[rng_below(&rng, sizeof signs - 1)];
        if (results_parse(changed, rng_below(&rng, 20) ? n : rng_below(&rng, (uint32_t)n), identity, &read, &error)) {
            Arena arena;
            results_maker_summary(&read, &arena);
            arena_done(&arena);
            results_done(&read);
            n_read++;
        }
        free(changed);
    }
    cr_assert_gt(n_read, 10); /* some changes are harmless */
    char deep[4096];
    memset(deep, '[', sizeof deep);
    cr_assert_not(results_parse(deep, sizeof deep, identity, &(Results){0}, &error));
    cJSON_free(text);
    results_done(&results);
    cJSON_Delete(identity);
}

Test(test_results, pairs_are_found_by_their_keys)
{
    Arena arena;
    Results results = some_results();
    Summary s = results_maker_summary(&results, &arena);
    const TaskSummary *dense = summary_task(&s, "dense", "kv", 1000), *pages = summary_task(&s, "pages", "kv", 1000);
    cr_assert(dense && pages && s.n_tasks == 2);
    cr_assert(dense->n == 10 && dense->right == 9 && dense->change.value == 0 && dense->n_depths == 4);
    cr_assert(pages->right == 9 && pages->dense_right == 9 && fabs(pages->log_prob_change.value + 0.5) < 1e-9);
    cr_assert_eq(pages->change.value, 0); /* one lost, one won */
    cr_assert_eq(pages->depth_n[0] + pages->depth_n[1] + pages->depth_n[2] + pages->depth_n[3], 10);
    cr_assert(pages->depth_right[1] == pages->depth_n[1] - 1);
    cr_assert(s.n_policies == 2 && s.policies[1].n_counted == 1 &&
              !summary_passes(&s.policies[1], &results_maker_rules));
    cr_assert_eq(s.n_rows, 3);
    for (uint32_t i = 0; i < s.n_rows; i++) {
        const RowsSummary *rows = &s.rows[i];
        double want = rows->position == 500 ? 0.25 : rows->position == 900 ? 0.75 : 0.5;
        cr_assert(fabs(rows->kl.value - want) < 1e-9);
        cr_assert(fabs(rows->perplexity - exp(2.5)) < 1e-9 && fabs(rows->dense_perplexity - exp(2)) < 1e-9);
        cr_assert(fabs(rows->top.value - 0.75) < 1e-9);
    }
    cr_assert(s.n_recalls == 1 && s.recalls[0].n == 4 && fabs(s.recalls[0].recall - 0.4) < 1e-9);
    cr_assert(fabs(s.recalls[0].mass - 0.8) < 1e-9);
    cr_assert(s.n_estimates == 1 && s.estimates[0].n == 4 && s.estimates[0].n_within == 2);
    cr_assert(fabs(s.estimates[0].estimated - 0.1625) < 1e-9 && fabs(s.estimates[0].missing - 0.21525) < 1e-9);
    arena_done(&arena);
    results_done(&results);
}

/* Of answers that the last row of the prompt tells whole no decoded row was asked. */
Test(test_results, a_task_without_decoded_rows_does_not_count)
{
    Results results = results_maker_new();
    const EvalQuestion questions[] = {{.needle = 1}, {.needle = 2}};
    const Answer answers[] = {{true, -1}, {true, -1}};
    const AnswersCell cell = {{"pages", "words", 1000, 0}, questions, answers, 2, 2, 1, {0}};
    AnswersCell dense = cell;
    dense.key.policy = "dense";
    cr_assert(results_add_answers(&results, &dense, &error) && results_add_answers(&results, &cell, &error));
    results_maker_answers(&results, (AnswersKey){"dense", "kv", 1000, 0}, "1111", -1);
    results_maker_answers(&results, (AnswersKey){"pages", "kv", 1000, 0}, "1111", -1);
    Arena arena;
    Summary s = results_maker_summary(&results, &arena);
    for (uint32_t i = 0; i < s.n_policies; i++) cr_expect(s.policies[i].n_tasks == 2 && s.policies[i].n_counted == 1);
    arena_done(&arena);
    results_done(&results);
}

/* A policy passes when it loses little on average and nowhere much, over the tasks that dense is good at. */
Test(test_results, what_passes)
{
    static const char ok[] =
        "1111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111"
        "111111";
    char one_lost[101], three_lost[101], weak[101];
    memset(one_lost, '1', 100);
    memset(three_lost, '1', 100);
    memset(weak, '0', 100);
    one_lost[100] = three_lost[100] = weak[100] = '\0';
    one_lost[7] = three_lost[7] = three_lost[8] = three_lost[9] = '0';
    static const char *const tasks[] = {"a", "b", "c"};
    Results results = results_maker_new();
    for (int t = 0; t < 3; t++) {
        results_maker_answers(&results, (AnswersKey){"dense", tasks[t], 1000, 0}, ok, -1);
        results_maker_answers(&results, (AnswersKey){"good", tasks[t], 1000, 0}, one_lost, -1);
        results_maker_answers(&results, (AnswersKey){"bad", tasks[t], 1000, 0}, t ? ok : three_lost, -1);
    }
    /* Dense does not manage it, so it says nothing. */
    results_maker_answers(&results, (AnswersKey){"dense", "d", 1000, 0}, weak, -1);
    results_maker_answers(&results, (AnswersKey){"good", "d", 1000, 0}, weak, -1);
    Arena arena;
    Summary s = results_maker_summary(&results, &arena);
    for (uint32_t i = 0; i < s.n_policies; i++) {
        const PolicySummary *p = &s.policies[i];
        bool is_bad = !strcmp(p->policy, "bad");
        cr_assert_eq(p->n_counted, 3);
        cr_assert_eq(summary_passes(p, &results_maker_rules), !is_bad, "%s", p->policy);
        if (is_bad) cr_assert(fabs(p->worst_change + 0.03) < 1e-9 && fabs(p->mean_change + 0.01) < 1e-9);
        cr_assert(p->change.low < p->mean_change && p->change.high > p->mean_change);
    }
    arena_done(&arena);
    results_done(&results);
}
