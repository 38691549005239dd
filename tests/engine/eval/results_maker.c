/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/engine/eval/results_maker.h"

#include <criterion/criterion.h>
#include <string.h>

enum { MAX_N = 256 };

const SummaryRules results_maker_rules = {.n_depths = 4, .least_dense = 0.6, .max_mean = 0.01, .max_worst = 0.02};

static Error error;

cJSON *results_maker_identity(void)
{
    cJSON *identity = cJSON_CreateObject();
    cr_assert(cJSON_AddStringToObject(identity, "model", "0123") && cJSON_AddNumberToObject(identity, "seed", 7));
    return identity;
}

Results results_maker_new(void)
{
    Results results;
    cJSON *identity = results_maker_identity();
    cr_assert(results_new(identity, &results, &error), "%s", error.text);
    cJSON_Delete(identity);
    return results;
}

void results_maker_answers(Results *results, AnswersKey key, const char *right, double log_prob)
{
    Answer answers[MAX_N];
    EvalQuestion questions[MAX_N];
    uint32_t n = (uint32_t)strlen(right);
    for (uint32_t i = 0; i < n; i++) {
        answers[i] = (Answer){right[i] == '1', log_prob};
        questions[i] = (EvalQuestion){.needle = key.length * i / n};
    }
    const AnswersCell cell = {key, questions, answers, n, 2, 1, {250, 50, 1200}};
    cr_assert(results_add_answers(results, &cell, &error), "%s", error.text);
}

void results_maker_rows(Results *results, RowsKey key, uint32_t n, double kl)
{
    double kls[MAX_N], nll[MAX_N], dense[MAX_N];
    bool same[MAX_N];
    for (uint32_t i = 0; i < n; i++) {
        kls[i] = kl;
        same[i] = i % 4 != 0;
        nll[i] = 2.5;
        dense[i] = 2;
    }
    const RowsCell cell = {key, n, kls, same, nll, dense, 1, {100, 0, 400}};
    cr_assert(results_add_rows(results, &cell, &error), "%s", error.text);
}

Summary results_maker_summary(const Results *results, Arena *arena)
{
    Summary summary;
    arena_init(arena, 4096, SIZE_MAX);
    cr_assert(summary_make(results, "dense", &results_maker_rules, arena, &summary, &error), "%s", error.text);
    return summary;
}
