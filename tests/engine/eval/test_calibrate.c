/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/answer_probe.h"
#include "engine/eval/calibrate.h"
#include "engine/eval/files.h"
#include "tests/support/engine_rig.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LENGTH = 1024, N_KV_HEADS = 2, N_HEADS = 4, KILLED_AT = 4, N_QUESTIONS = 4 };

static Error error;
static char model_path[256], output[64], other[64];
static EngineParams engine_params;
static const uint32_t lengths[] = {LENGTH};

static void save_model(const char *setting)
{
    TinyModel model = tiny_model_default();
    cr_assert(tiny_model_set(&model, "context=2048") && tiny_model_set(&model, "head_dim=64") &&
              (!setting || tiny_model_set(&model, setting)));
    cr_assert(tiny_model_temp(&model, model_path, sizeof model_path, &error), "%s", error.text);
}

static void begin(void)
{
    save_model(NULL);
    snprintf(output, sizeof output, "/tmp/lw-calibrate-%ld.json", (long)getpid());
    snprintf(other, sizeof other, "/tmp/lw-calibrate-%ld-other.json", (long)getpid());
    engine_params =
        (EngineParams){.model_path = model_path, .n_threads = 1, .kv_types = kv_types_all(KV_F16), .world = 1};
}

static void end(void)
{
    unlink(model_path);
    unlink(output);
    unlink(other);
}

TestSuite(test_calibrate, .init = begin, .fini = end);

static CalibrateParams params_of(const char *path)
{
    return (CalibrateParams){.engine = &engine_params,
                             .kv_type = "f16",
                             .output = path,
                             .sparsity = 0.5,
                             .tasks = "passkey:repeats=1,words",
                             .length = LENGTH,
                             .n_prompts = 1,
                             .per_haystack = N_QUESTIONS,
                             .max_open = 3,
                             .sink = 64,
                             .recent = 64,
                             .recent_prefill = 128,
                             .policies = "dense",
                             .lengths = lengths,
                             .n_lengths = 1,
                             .seed = 5};
}

static Calibrate *calibrated(const CalibrateParams *params)
{
    Calibrate *calibrate;
    cr_assert(calibrate_new(params, &calibrate, &error), "%s", error.text);
    cr_assert(calibrate_run(calibrate, &error), "%s", error.text);
    return calibrate;
}

static char *text_of(const char *path)
{
    Buffer text;
    buffer_init(&text, CALIBRATION_MAX_BYTES);
    cr_assert(file_read(path, &text, &error), "%s", error.text);
    return buffer_take(&text);
}

static void write_text(const char *path, const char *text)
{
    cr_assert(file_replace(path, text, strlen(text), &error), "%s", error.text);
}

/* What a fresh run with the parameters writes. */
static char *run_text(const CalibrateParams *params)
{
    calibrate_free(calibrated(params));
    return text_of(params->output);
}

static double nll_of(AnswerProbe *probe)
{
    double nll;
    uint32_t right;
    cr_assert(answer_probe_run(probe, 2, &nll, &right, &error), "%s", error.text);
    cr_assert_leq(right, N_QUESTIONS);
    return nll;
}

/* Of one layer, whose keys and values are the same under all roles. */
Test(test_calibrate, a_limited_head_sees_what_a_streaming_one_does)
{
    static const uint8_t streams[N_KV_HEADS] = {0, 1};
    static const HeadRoles roles = {"late", streams};
    const AttnPolicy policies[] = {
        {.name = "dense"}, {.name = "dense", .roles = &roles, .sink = 64, .recent_prefill = 128, .recent_decode = 128}};
    EngineParams params = engine_rig_params(kv_types_all(KV_F16), 16, 512);
    params.policies = policies;
    params.n_policies = 2;
    Engine *engine = ENGINE_RIG(params, "context=2048", "layers=1");
    TaskSpec task;
    PromptFrame frame;
    Haystack haystack;
    AnswerProbe *dense, *streaming;
    cr_assert(task_parse("kv", 2, &task, &error) && prompt_frame_init(engine_tokenizer(engine), NULL, &frame, &error));
    const TaskInput input = {engine_tokenizer(engine), &frame, &task, 1, 1500, N_QUESTIONS, 0};
    cr_assert(task_make(&input, &haystack, &error), "%s", error.text);
    cr_assert(answer_probe_new(engine, 0, &haystack, &dense, &error), "%s", error.text);
    cr_assert(answer_probe_new(engine, 1, &haystack, &streaming, &error), "%s", error.text);
    double whole = nll_of(dense);
    engine_limit_head(engine, 0, 0, 1, 64, 128);
    double limited = nll_of(dense);
    engine_limit_head(engine, 0, 0, 0, 0, PLAN_ALL);
    cr_expect_eq(limited, nll_of(streaming));
    cr_expect_neq(limited, whole);
    cr_expect_eq(nll_of(dense), whole, "nothing stays of a limit");
    engine_limit_head(engine, 0, 0, 1, 0, 2048);
    cr_expect_eq(nll_of(dense), whole, "a limit beyond the context is none");
    answer_probe_free(dense);
    answer_probe_free(streaming);
    haystack_done(&haystack);
    prompt_frame_done(&frame);
    engine_close(engine);
}

Test(test_calibrate, heads_with_the_least_loss_stream_and_the_file_can_be_served)
{
    const CalibrateParams params = params_of(output);
    Calibrate *calibrate = calibrated(&params);
    const Calibration *found = calibrate_found(calibrate);
    double scores[N_HEADS];
    uint32_t n_streaming = 0;
    calibration_scores(found, scores);
    for (uint32_t i = 0; i < N_HEADS; i++) {
        cr_assert(isfinite(scores[i]) && found->is_ranked[i]);
        n_streaming += found->streams[i];
        for (uint32_t j = 0; j < N_HEADS; j++)
            if (found->streams[i] && !found->streams[j]) cr_expect_leq(scores[i], scores[j]);
    }
    cr_expect_eq(n_streaming, N_HEADS / 2);
    cr_assert_eq(found->n_checked, 2);
    for (uint32_t i = 0; i < 2; i++) {
        cr_expect_eq(found->checked[i].questions, N_QUESTIONS);
        cr_expect_neq(found->checked[i].loss, 0);
    }
    char list[128];
    Engine *engine;
    EngineParams serving = engine_params;
    snprintf(list, sizeof list, "mine=%s", output);
    serving.roles = list;
    serving.max_sequences = serving.max_batch_rows = serving.max_logit_rows = 4;
    cr_assert(engine_open(&serving, &engine, &error), "%s", error.text);
    const AttnPolicy *policy = engine_policy(engine, 1);
    cr_expect_arr_eq(policy->roles->streams, found->streams, N_HEADS);
    cr_expect(policy->sink == 64 && policy->recent_decode == 64 && policy->recent_prefill == 128);
    engine_close(engine);
    unlink(model_path);
    save_model("seed=99");
    cr_expect_not(engine_open(&serving, &engine, &error));
    cr_expect(strstr(error.text, "is for the model"), "%s", error.text);
    calibrate_free(calibrate);
}

Test(test_calibrate, a_seed_makes_a_file)
{
    CalibrateParams params = params_of(output), again = params_of(other);
    char *first = run_text(&params), *second = run_text(&again);
    cr_expect_str_eq(first, second);
    free(second);
    unlink(other);
    again.seed++;
    second = run_text(&again);
    cr_expect_str_neq(first, second);
    free(second);
    free(first);
}

/* A policy's own ranges are not silently those of the file: what the engine cannot have is refused. */
Test(test_calibrate, ranges_of_the_found_roles_are_not_passed_over)
{
    CalibrateParams params = params_of(output);
    Calibrate *calibrate;
    params.policies = "dense:roles=found:roles_recent=128";
    cr_assert(calibrate_new(&params, &calibrate, &error), "%s", error.text);
    cr_expect_not(calibrate_run(calibrate, &error));
    cr_expect(strstr(error.text, "ranges"), "%s", error.text);
    calibrate_free(calibrate);
}

/* ---- going on ---- */

static void die(void *arg, double fraction)
{
    uint32_t *n_calls = arg;
    (void)fraction;
    if (++*n_calls == KILLED_AT) _exit(9);
}

static void count(void *arg, double fraction)
{
    uint32_t *n_calls = arg;
    cr_assert(fraction >= 0 && fraction <= 1 + 1e-9, "%g", fraction);
    ++*n_calls;
}

static void run_until_killed(const char *path)
{
    pid_t child = fork();
    if (child == 0) {
        uint32_t n_calls = 0;
        CalibrateParams params = params_of(path);
        Calibrate *calibrate;
        params.progress = die;
        params.progress_arg = &n_calls;
        _exit(calibrate_new(&params, &calibrate, &error) && calibrate_run(calibrate, &error) ? 0 : 1);
    }
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

Test(test_calibrate, a_run_that_was_killed_goes_on)
{
    CalibrateParams params = params_of(output), whole = params_of(other);
    uint32_t n_calls = 0, n_whole = 0;
    run_until_killed(output);
    char *partial = text_of(output);
    cr_assert(strstr(partial, "\"loss") && !strstr(partial, "\"streaming\""));
    params.progress = whole.progress = count;
    params.progress_arg = &n_calls;
    whole.progress_arg = &n_whole;
    char *resumed = run_text(&params), *fresh = run_text(&whole);
    cr_expect_str_eq(resumed, fresh);
    cr_expect_lt(n_calls, n_whole, "what was measured is not measured again");
    free(partial);
    free(resumed);
    free(fresh);
}

Test(test_calibrate, another_sparsity_needs_no_other_ranking)
{
    CalibrateParams params = params_of(output);
    uint32_t n_calls = 0;
    free(run_text(&params));
    params.progress = count;
    params.progress_arg = &n_calls;
    free(run_text(&params));
    cr_expect_eq(n_calls, 0, "all is there");
    params.sparsity = 0.3;
    Calibrate *calibrate = calibrated(&params);
    cr_expect_eq(n_calls, 4, "the check alone: of two tasks, dense and under the roles");
    cr_expect_eq(calibrate_found(calibrate)->streams[0] + calibrate_found(calibrate)->streams[1] +
                     calibrate_found(calibrate)->streams[2] + calibrate_found(calibrate)->streams[3],
                 1);
    calibrate_free(calibrate);
}

/* ---- crossover ---- */

Test(test_calibrate, policies_are_timed_and_asked)
{
    CalibrateParams params = params_of(output);
    params.policies = "dense,lserve-4k:budget=512,dense:roles=found";
    Calibrate *calibrate = calibrated(&params);
    const Calibration *found = calibrate_found(calibrate);
    cr_assert_eq(found->n_cells, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const CrossoverCell *cell = &found->cells[i];
        cr_expect(cell->usec > 0 && cell->dense_usec > 0 && cell->length == LENGTH);
        cr_expect_eq(cell->questions, 2 * N_QUESTIONS);
    }
    cr_expect(calibration_cell(found, "dense:roles=found", LENGTH) != NULL);
    cr_expect_null(calibration_cell(found, "dense:roles=found", LENGTH + 1));
    calibrate_free(calibrate);
    uint32_t n_calls = 0;
    params.progress = count;
    params.progress_arg = &n_calls;
    free(run_text(&params));
    cr_expect_eq(n_calls, 0, "cells stay");
}

Test(test_calibrate, a_crossover_holds_for_all_that_is_longer)
{
    CrossoverCell cells[] = {
        {"a", 1024, 9, 5, 5, 100, 90}, {"a", 2048, 9, 5, 5, 100, 110}, {"a", 8192, 9, 5, 6, 100, 40},
        {"a", 4096, 9, 5, 5, 100, 60}, {"b", 1024, 9, 5, 4, 100, 10},  {"c", 1024, 9, 5, 5, 100, 100},
    };
    const Calibration found = {.cells = cells, .n_cells = 6};
    cr_expect_eq(calibration_crossover(&found, "a"), 4096);
    cr_expect_eq(calibration_crossover(&found, "b"), 0, "answers are lost");
    cr_expect_eq(calibration_crossover(&found, "c"), 0, "not faster");
    cr_expect_eq(calibration_crossover(&found, "d"), 0);
}

/* ---- gates ---- */

Test(test_calibrate, gates_rank_instead)
{
    CalibrateParams params = params_of(output);
    params.gates = "0.1\t0.9\n0.3\t2\n";
    params.n_gates_bytes = strlen(params.gates);
    Calibrate *calibrate = calibrated(&params);
    cr_expect_arr_eq(calibrate_found(calibrate)->streams, ((uint8_t[]){1, 0, 1, 0}), N_HEADS);
    char *text = text_of(output);
    cr_expect(strstr(text, "\"gate\"") && !strstr(text, "\"losses\""));
    free(text);
    calibrate_free(calibrate);
    params.gates = "0.1\t0.9\n0.3\t1\n\n";
    params.n_gates_bytes = strlen(params.gates);
    cr_expect_not(calibrate_new(&params, &calibrate, &error));
    cr_expect(strstr(error.text, "another 'gates'"), "%s", error.text);
    params.gates = "0.1\t0.9\n";
    params.n_gates_bytes = strlen(params.gates);
    cr_expect_not(calibrate_new(&params, &calibrate, &error));
    cr_expect_str_eq(error.param, "gates");
}

/* ---- refusals ---- */

static void expect_refused(const CalibrateParams *params, const char *param, const char *word)
{
    Calibrate *calibrate = NULL;
    cr_expect_not(calibrate_new(params, &calibrate, &error), "%s", word);
    cr_expect_null(calibrate);
    if (param) cr_expect_str_eq(error.param, param);
    cr_expect(strstr(error.text, word), "%s: %s", word, error.text);
}

Test(test_calibrate, wrong_wishes_are_refused)
{
    const CalibrateParams good = params_of(output);
    CalibrateParams bad = good;
    bad.sink = 65;
    expect_refused(&bad, "sink", "65");
    bad = good;
    bad.recent = 0;
    expect_refused(&bad, "recent", "recent");
    bad = good;
    bad.recent_prefill = 0;
    expect_refused(&bad, "recent_prefill", "recent_prefill");
    bad = good;
    bad.recent = bad.recent_prefill = LENGTH;
    expect_refused(&bad, "length", "show nothing");
    bad = good;
    bad.tasks = "passkey,riddle";
    expect_refused(&bad, "tasks", "riddle");
    bad.tasks = "words,words";
    expect_refused(&bad, "tasks", "twice");
    bad = good;
    bad.policies = "lserve-4k,lserve-4k";
    expect_refused(&bad, "policies", "twice");
    bad.policies = "lserve-4k:roles=mine";
    expect_refused(&bad, "policies", "found");
    cr_expect_neq(access(output, F_OK), 0, "nothing was written");
}

Test(test_calibrate, files_of_others_are_refused)
{
    CalibrateParams params = params_of(output);
    free(run_text(&params));
    params.length = LENGTH + 64;
    expect_refused(&params, NULL, "another 'length'");
    params = params_of(output);
    unlink(model_path);
    save_model("seed=99");
    expect_refused(&params, NULL, "is of the model");
}

Test(test_calibrate, broken_files_are_refused)
{
    const CalibrateParams params = params_of(output);
    char *good = run_text(&params);
    static const struct {
        const char *from, *to, *word;
    } changes[] = {
        {"\"longwave_calibration\":\t1", "\"longwave_calibration\":\t2", "is no file"},
        {"\"model\":\t\"", "\"model\":\t\"x", "is of the model"},
        {"\"model\":\t\"", "\"model\":\t\"0123456789012345678901234567", "'model'"},
        {"\"sparsity\":\t0.5", "\"sparsity\":\t\"\"", "'sparsity'"},
        {"\"layer\":\t1,\n\t\t\t\"head\"", "\"layer\":\t2,\n\t\t\t\"head\"", "'layer'"},
        {"\"head\":\t1", "\"head\":\t-1", "'head'"},
        {"\"head\":\t1", "\"head\":\t0.5", "'head'"},
        {"\"losses\":\t[", "\"losses\":\t[0, 0, ", "'losses'"},
        {"\"losses\":\t[", "\"losses\":\t[1e300, ", "'losses'"},
        {"\"losses\":\t[", "\"losses\":\t[null, ", "'losses'"},
        {"\"questions\":\t4", "\"questions\":\t1e99", "'questions'"},
        {"\"ranking\":\t[", "\"ranking\":\t3, \"x\": [", "'ranking'"},
        {"\"task\":\t\"", "\"task\":\t3, \"x\": \"", "'task'"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const char *at = strstr(good, changes[i].from);
        cr_assert(at, "%s", changes[i].from);
        Buffer text;
        buffer_init(&text, CALIBRATION_MAX_BYTES);
        cr_assert(buffer_append(&text, good, (size_t)(at - good), &error) &&
                  buffer_append_text(&text, changes[i].to, &error) &&
                  buffer_append_text(&text, at + strlen(changes[i].from), &error));
        write_text(output, text.data);
        expect_refused(&params, NULL, changes[i].word);
        cr_expect(strstr(error.text, output), "%s", error.text);
        buffer_done(&text);
    }
    static const char *const texts[] = {
        "", "{", "[]", "3", "{\"longwave_calibration\":1}", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_text(output, texts[i]);
        expect_refused(&params, NULL, output);
    }
    free(good);
}

Test(test_calibrate, what_cannot_be_written_is_known_at_the_beginning)
{
    CalibrateParams params = params_of("/nonexistent/roles.json");
    uint32_t n_calls = 0;
    Calibrate *calibrate;
    params.progress = count;
    params.progress_arg = &n_calls;
    cr_expect_not(calibrate_new(&params, &calibrate, &error));
    cr_expect(error.code == ERR_IO && n_calls == 0 && strstr(error.text, params.output), "%s", error.text);
    params.output = output;
    cr_assert(calibrate_new(&params, &calibrate, &error), "%s", error.text);
    Calibrate *second;
    cr_expect_not(calibrate_new(&params, &second, &error), "two at once would undo each other's work");
    cr_expect(error.code == ERR_BUSY && strstr(error.text, output), "%s", error.text);
    calibrate_free(calibrate);
}
