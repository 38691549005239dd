/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/eval.h"
#include "engine/eval/files.h"
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH = 1600 };

static Error error;
static char path[64];
static const uint32_t lengths[] = {LENGTH};

static void name_file(void)
{
    snprintf(path, sizeof path, "/tmp/lw-eval-%ld.json", (long)getpid());
}

static void remove_file(void)
{
    unlink(path);
}

static Engine *open_engine(void)
{
    EngineParams params = engine_rig_params(kv_types_all(KV_F16), 24, 512);
    params.max_logit_rows = 64;
    return ENGINE_RIG(params, "context=4096", "head_dim=64");
}

static EvalParams params_of(Engine *engine, const char *policies)
{
    return (EvalParams){.engine = engine,
                        .policies = policies,
                        .tasks = "passkey:repeats=1,words:near=1:repeats=2",
                        .lengths = lengths,
                        .n_lengths = 1,
                        .n_questions = 8,
                        .per_haystack = 4,
                        .n_depths = 5,
                        .max_open = 3,
                        .n_positions = 2,
                        .n_rows = 6,
                        .recall_stride = 3,
                        .question_rows = ROWS_DECODE,
                        .seed = 5,
                        .kv_type = "f16"};
}

static Eval *measured(const EvalParams *params)
{
    Eval *eval;
    cr_assert(eval_new(params, &eval, &error), "%s", error.text);
    cr_assert(eval_measure(eval, &error), "%s", error.text);
    return eval;
}

static const RowsSummary *rows_of(const Summary *s, const char *policy, const char *kind)
{
    for (uint32_t i = 0; i < s->n_rows; i++)
        if (s->rows[i].position == SUMMARY_ALL && !strcmp(s->rows[i].policy, policy) && !strcmp(s->rows[i].kind, kind))
            return &s->rows[i];
    return NULL;
}

/* A policy that shows everything is dense to the bit; one that leaves much out is not, and reads less. */
Test(test_eval, policies_are_compared_with_dense)
{
    Engine *engine = open_engine();
    const char *full = "lserve-4k:budget=4096", *few = "lserve-4k:budget=448:refresh=1", *random_k = "dense:k=0.01";
    const EvalParams params =
        params_of(engine, "lserve-4k:budget=4096,lserve-4k:budget=448:refresh=1,dense:k=0.01,dense");
    Eval *eval = measured(&params);
    const Summary *s = eval_report(eval)->summary;
    cr_assert_eq(s->n_tasks, 8);
    for (uint32_t i = 0; i < s->n_tasks; i++) cr_assert(s->tasks[i].n == 8 && s->tasks[i].has_dense);
    const RowsSummary *of_full = rows_of(s, full, "decode"), *of_few = rows_of(s, few, "decode");
    cr_assert(of_full && of_few && of_full->n == 12);
    cr_assert(of_full->kl.value == 0 && of_full->top.value == 1 && of_full->nll_change.value == 0);
    cr_assert(of_full->counts.kv_bytes == of_full->counts.dense_bytes && !of_full->counts.select_bytes);
    cr_assert_gt(of_few->kl.value, 0);
    cr_assert(of_few->counts.kv_bytes < of_few->counts.dense_bytes / 2 && of_few->counts.select_bytes > 0);
    cr_assert_null(rows_of(s, few, "prefill")); /* its prompts are dense */
    cr_assert_gt(rows_of(s, random_k, "prefill")->kl.value, 0);
    const TaskSummary *task = summary_task(s, full, "passkey:repeats=1", LENGTH);
    cr_assert(task->log_prob_change.value == 0 && task->change.value == 0);
    cr_assert_neq(summary_task(s, few, "passkey:repeats=1", LENGTH)->log_prob_change.value, 0);
    cr_assert_eq(s->n_estimates, 2); /* of one that leaves nothing out there are none to be right or wrong */
    for (uint32_t i = 0; i < s->n_estimates; i++) {
        const EstimateSummary *e = &s->estimates[i];
        bool is_few = !strcmp(e->policy, few);
        cr_assert_eq(e->n, is_few ? 12 : 0);
        if (!is_few) continue;

        cr_assert(e->missing > 0 && e->missing < 1 && e->estimated > e->missing / 4 && e->estimated < 4 * e->missing);
    }
    cr_assert_eq(s->n_recalls, 2);
    for (uint32_t i = 0; i < s->n_recalls; i++) {
        const RecallSummary *r = &s->recalls[i];
        cr_assert_str_eq(r->policy, few);
        cr_assert(r->recall > 0 && r->recall <= 1);
        cr_assert(r->range_mass <= r->mass + 1e-6 && r->mass <= 1 + 1e-6 && r->best_mass <= 1 + 1e-6);
    }
    eval_free(eval);
    engine_close(engine);
}

/* What prompts read to select counts as what decoded rows do: all keys between the ranges for each block of 64. */
Test(test_eval, prefilled_rows_count_what_selecting_reads)
{
    Engine *engine = open_engine();
    EvalParams params = params_of(engine, "oracle:budget=512:prefill_from=0");
    params.tasks = NULL;
    Eval *eval = measured(&params);
    const Summary *s = eval_report(eval)->summary;
    const RowsSummary *rows = rows_of(s, "oracle:budget=512:prefill_from=0", "prefill");
    cr_assert(rows && rows->n == 12);
    uint64_t block = rows->counts.dense_bytes / rows->n / 2; /* keys, which one row reads densely */
    cr_expect(rows->counts.select_bytes > 2 * block * 8 / 10 && rows->counts.select_bytes < 4 * block);
    cr_expect_lt(rows->counts.kv_bytes, rows->counts.dense_bytes / 2);
    eval_free(eval);
    engine_close(engine);
}

/* Lists by exact scores of whole pages hold more of the attention than those of any other page would. */
Test(test_eval, exact_lists_recall_what_they_can)
{
    Engine *engine = open_engine();
    EvalParams params =
        params_of(engine, "lserve-4k:scan=exact:unit=16:budget=512:refresh=1,lserve-4k:budget=512:refresh=1");
    params.tasks = NULL;
    Eval *eval = measured(&params);
    const Summary *s = eval_report(eval)->summary;
    cr_assert_eq(s->n_recalls, 4);
    for (uint32_t i = 0; i < s->n_recalls; i++) {
        const RecallSummary *exact = &s->recalls[i];
        if (!strstr(exact->policy, "exact")) continue;
        for (uint32_t j = 0; j < s->n_recalls; j++)
            if (s->recalls[j].position == exact->position) cr_assert_geq(exact->recall, s->recalls[j].recall);
    }
    eval_free(eval);
    engine_close(engine);
}

static char *file_text(void)
{
    Buffer text;
    buffer_init(&text, 1 << 24);
    cr_assert(file_read(path, &text, &error), "%s", error.text);
    return buffer_take(&text);
}

/* What is in the file is not measured again, policies may join later, and the answers are those of one run. */
Test(test_eval, work_goes_on_where_it_ended, .init = name_file, .fini = remove_file)
{
    Engine *engine = open_engine();
    EvalParams params = params_of(engine, "dense");
    params.results_path = path;
    eval_free(measured(&params));
    char *before = file_text();
    eval_free(measured(&params));
    char *again = file_text();
    cr_assert_str_eq(before, again); /* times too: nothing ran */
    params.policies = "lserve-4k:budget=448";
    Eval *both = measured(&params);
    EvalParams alone = params;
    alone.results_path = NULL;
    Eval *fresh = measured(&alone);
    const Summary *a = eval_report(both)->summary, *b = eval_report(fresh)->summary;
    cr_assert(a->n_tasks == 4 && b->n_tasks == 4);
    for (uint32_t i = 0; i < b->n_tasks; i++) {
        const TaskSummary *x = summary_task(a, b->tasks[i].policy, b->tasks[i].task, LENGTH), *y = &b->tasks[i];
        cr_assert(x && x->right == y->right && x->log_prob_change.value == y->log_prob_change.value);
        cr_assert(!memcmp(&x->counts, &y->counts, sizeof x->counts));
    }
    eval_free(both);
    static const uint32_t longer[] = {LENGTH, LENGTH + 300};
    EvalParams later = params;
    later.lengths = longer;
    later.n_lengths = 2;
    Eval *more;
    cr_assert(eval_new(&later, &more, &error), "lengths may join later: %s", error.text);
    eval_free(more);
    eval_free(fresh);
    free(before);
    free(again);
    params.seed++;
    Eval *other;
    cr_assert_not(eval_new(&params, &other, &error));
    cr_assert(strstr(error.text, "seed"), "%s", error.text);
    engine_close(engine);
}

/* Decoded rows without the prefilled ones that belong to them, as a run that broke off leaves them. */
Test(test_eval, what_is_missing_of_a_place_is_measured, .init = name_file, .fini = remove_file)
{
    Engine *engine = open_engine();
    EvalParams params = params_of(engine, "dense:k=0.01");
    params.tasks = NULL;
    params.results_path = path;
    eval_free(measured(&params));
    char *whole = file_text();
    cJSON *root = cJSON_Parse(whole), *rows = cJSON_GetObjectItem(root, "rows");
    int n = cJSON_GetArraySize(rows);
    for (int i = n - 1; i >= 0; i--)
        if (!strcmp(results_text(cJSON_GetArrayItem(rows, i), "kind"), "prefill")) cJSON_DeleteItemFromArray(rows, i);
    cr_assert_lt(cJSON_GetArraySize(rows), n);
    char *part = cJSON_PrintUnformatted(root);
    cr_assert(file_replace(path, part, strlen(part), &error));
    Eval *again = measured(&params);
    cr_assert_eq(cJSON_GetArraySize(cJSON_GetObjectItem(eval_report(again)->results->root, "rows")), n);
    eval_free(again);
    cJSON_Delete(root);
    cJSON_free(part);
    free(whole);
    engine_close(engine);
}

/* Arrays are not kept with the results: whoever asks for them later gets them, and the results stay. */
Test(test_eval, what_was_measured_can_still_be_traced, .init = name_file, .fini = remove_file)
{
    Engine *engine = open_engine();
    EvalParams params = params_of(engine, "lserve-4k:budget=448:refresh=1");
    char folder[80], array[128];
    params.tasks = NULL;
    params.n_positions = 1;
    params.results_path = path;
    eval_free(measured(&params));
    char *before = file_text();
    snprintf(folder, sizeof folder, "%s.d", path);
    cr_assert_not(mkdir(folder, 0755));
    params.trace_dir = folder;
    eval_free(measured(&params));
    char *after = file_text();
    cr_expect_str_eq(before, after);
    static const char *const names[] = {"plans", "lists", "scores", "masses"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(array, sizeof array, "%s/lserve-4k_budget_448_refresh_1-%d-%s.npy", folder, LENGTH - 7, names[i]);
        cr_expect_not(unlink(array), "%s", array);
    }
    cr_expect_not(rmdir(folder));
    params.recall_stride = 0;
    Eval *none;
    cr_expect_not(eval_new(&params, &none, &error), "there would be nothing in the folder");
    free(before);
    free(after);
    engine_close(engine);
}

/* Questions asked alone, in other company, or as rows of the prompt: dense gives the same answers. */
Test(test_eval, company_changes_no_answer)
{
    Engine *engine = open_engine();
    EvalParams params = params_of(engine, "dense");
    double want = 0;
    for (int i = 0; i < 3; i++) {
        params.max_open = i == 0 ? 1 : 20;
        params.question_rows = i == 2 ? ROWS_PREFILL : ROWS_DECODE;
        Eval *eval = measured(&params);
        const cJSON *cell = cJSON_GetObjectItem(eval_report(eval)->results->root, "answers")->child;
        double sum = 0;
        for (; cell; cell = cell->next) {
            const cJSON *value;
            cJSON_ArrayForEach(value, cJSON_GetObjectItem(cell, "log_probs")) sum += value->valuedouble;
        }
        if (i == 0) want = sum;
        cr_assert(sum < 0 && sum == want, "%.17g, not %.17g", sum, want);
        eval_free(eval);
    }
    engine_close(engine);
}

static const cJSON *answers_of(const Eval *eval)
{
    return cJSON_GetObjectItem(eval_report(eval)->results->root, "answers")->child;
}

/* Selection begins behind the question: it is more of the prompt, which is dense, and what is counted is the answer. */
Test(test_eval, answers_to_prefilled_questions_are_decoded)
{
    Engine *engine = open_engine();
    const char *few = "lserve-4k:budget=448:refresh=1";
    EvalParams params = params_of(engine, few);
    params.tasks = "passkey:repeats=1";
    params.n_positions = 0;
    Eval *decoded = measured(&params);
    params.question_rows = ROWS_PREFILL;
    Eval *prefilled = measured(&params);
    const TaskSummary *all = summary_task(eval_report(decoded)->summary, few, params.tasks, LENGTH);
    const TaskSummary *answers = summary_task(eval_report(prefilled)->summary, few, params.tasks, LENGTH);
    cr_assert(answers->log_prob_change.value != 0 && answers->log_prob_change.value != all->log_prob_change.value);
    cr_assert(answers->counts.select_bytes > 0 && answers->counts.kv_bytes < answers->counts.dense_bytes / 2);
    cr_assert_lt(answers->counts.dense_bytes, all->counts.dense_bytes / 2);
    eval_free(decoded);
    eval_free(prefilled);
    engine_close(engine);
}

static double log_probs_of(const Eval *eval, const char *policy)
{
    const TaskSummary *task = summary_task(eval_report(eval)->summary, policy, "passkey:repeats=1", LENGTH);
    cr_assert_not_null(task, "%s", policy);
    return task->log_prob_change.value;
}

/* A tail as long as the prompt leaves nothing that selects in it, whichever rows the question is. */
Test(test_eval, the_last_rows_of_prompts_are_dense)
{
    static const char tail[] = "vertical-slash:budget=512:dense_tail=4096", plain[] = "vertical-slash:budget=512",
                      late[] = "vertical-slash:budget=512:prefill_from=all",
                      of_question[] = "vertical-slash:budget=512:dense_tail=4";
    Engine *engine = open_engine();
    char policies[256];
    snprintf(policies, sizeof policies, "%s,%s,%s,%s", plain, tail, late, of_question);
    EvalParams params = params_of(engine, policies);
    params.tasks = "passkey:repeats=1";
    params.n_positions = 0;
    Eval *decoded = measured(&params);
    cr_expect_eq(log_probs_of(decoded, tail), log_probs_of(decoded, late));
    cr_expect_neq(log_probs_of(decoded, plain), log_probs_of(decoded, late));
    params.question_rows = ROWS_PREFILL;
    Eval *prefilled = measured(&params);
    cr_expect_neq(log_probs_of(prefilled, of_question), log_probs_of(prefilled, plain), "rows of the question");
    cr_expect_eq(log_probs_of(prefilled, tail), log_probs_of(prefilled, late), "rows before the question");
    eval_free(decoded);
    eval_free(prefilled);
    engine_close(engine);
}

/* Prompts by their numbers: those of one run, whoever measures which. */
Test(test_eval, work_is_divided_by_prompts)
{
    Engine *engine = open_engine();
    EvalParams params = params_of(engine, "dense");
    params.tasks = "passkey:repeats=1";
    params.n_positions = 0;
    Eval *whole = measured(&params);
    params.n_questions = params.per_haystack;
    params.first_haystack = 1;
    Eval *second = measured(&params);
    const cJSON *want = answers_of(whole)->next, *got = answers_of(second);
    cr_assert(want && got && !want->next && !got->next);
    static const char *const same[] = {"haystack", "right", "log_probs", "needles"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        cr_assert(cJSON_Compare(cJSON_GetObjectItem(want, same[i]), cJSON_GetObjectItem(got, same[i]), true), "%s",
                  same[i]);
    eval_free(whole);
    eval_free(second);
    engine_close(engine);
}

Test(test_eval, what_cannot_be_measured_is_refused)
{
    Engine *engine = open_engine();
    static const uint32_t too_long[] = {5000};
    EvalParams good = params_of(engine, "dense"), bad[6] = {good, good, good, good, good, good};
    bad[0].policies = "nothing";
    bad[1].policies = "lserve-4k:budget=100";
    bad[2].policies = "dense:roles=half";
    bad[3].tasks = "kv,kv";
    bad[4].lengths = too_long;
    bad[5].text = "short";
    bad[5].n_text_bytes = 5;
    for (int i = 0; i < 6; i++) {
        Eval *eval;
        cr_assert_not(eval_new(&bad[i], &eval, &error), "%d", i);
    }
    Eval *eval = measured(&good);
    const char *policy;
    cr_assert_not(eval_certify(eval, "/nonexistent/model", &policy, &error));
    cr_assert_eq(error.code, ERR_NOT_FOUND);
    eval_free(eval);
    engine_close(engine);
}
