/* SPDX-License-Identifier: Apache-2.0 */
/* The engine against recorded numbers of other programs (tests/golden/). */
#include "engine/engine.h"
#include "tests/support/golden.h"
#include "tests/support/ref_llama.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Error error;

static uint32_t *read_ids(const cJSON *array, uint32_t *ret_n)
{
    uint32_t n = (uint32_t)cJSON_GetArraySize(array), i = 0;
    uint32_t *ids = calloc(n, sizeof *ids);
    const cJSON *item;
    cJSON_ArrayForEach(item, array) ids[i++] = (uint32_t)item->valuedouble;
    *ret_n = n;
    return ids;
}

static Engine *open_case(const cJSON *json)
{
    TinyModel model = tiny_model_default();
    EngineParams params = {.max_sequences = 1,
                           .max_batch_rows = 128,
                           .max_logit_rows = 128,
                           .n_threads = 2,
                           .kv_types = {{KV_F32, KV_F32, KV_F32}},
                           .world = 1};
    const cJSON *setting;
    char path[256];
    Engine *engine;
    cJSON_ArrayForEach(setting, cJSON_GetObjectItem(json, "settings"))
        cr_assert(tiny_model_set(&model, setting->valuestring), "%s", setting->valuestring);
    cr_assert(tiny_model_temp(&model, path, sizeof path, &error), "%s", error.text);
    params.model_path = path;
    cr_assert(engine_open(&params, &engine, &error), "%s", error.text);
    unlink(path);
    return engine;
}

/* Log-probabilities of all rows. [n, n_vocab] */
static double *run_all(Engine *engine, const uint32_t *ids, uint32_t n)
{
    uint32_t n_vocab = engine_shape(engine)->n_vocab;
    double *logprobs = calloc((size_t)n * n_vocab, sizeof *logprobs);
    float *logits;
    SeqId seq;
    cr_assert(engine_seq_new(engine, 0, &seq, &error), "%s", error.text);
    BatchSpan span = {seq, 0, n, 0, LOGITS_ALL};
    cr_assert(engine_forward(engine, &(Batch){ids, n, &span, 1}, &logits, &error), "%s", error.text);
    for (size_t i = 0; i < (size_t)n * n_vocab; i++) logprobs[i] = (double)logits[i];
    for (uint32_t t = 0; t < n; t++) ref_log_softmax(logprobs + (size_t)t * n_vocab, n_vocab);
    return logprobs;
}

/* interfaces.md: fp32 tiny models against transformers differ by at most 1e-4. */
static void check_file(const char *file, int at_least)
{
    cJSON *cases = golden_load(file);
    const cJSON *json, *value;
    cr_assert_geq(cJSON_GetArraySize(cases), at_least);
    cJSON_ArrayForEach(json, cases)
    {
        Engine *engine = open_case(json);
        uint32_t n, i = 0, n_vocab = engine_shape(engine)->n_vocab;
        uint32_t *ids = read_ids(cJSON_GetObjectItem(json, "ids"), &n);
        double *logprobs = run_all(engine, ids, n), worst = 0;
        const cJSON *next = cJSON_GetObjectItem(json, "next"), *last = cJSON_GetObjectItem(json, "last");
        cr_assert(cJSON_GetArraySize(next) == (int)n - 1 && cJSON_GetArraySize(last) == (int)n_vocab);
        cJSON_ArrayForEach(value, next)
        {
            worst = fmax(worst, fabs(logprobs[(size_t)i * n_vocab + ids[i + 1]] - value->valuedouble));
            i++;
        }
        i = 0;
        cJSON_ArrayForEach(value, last) worst =
            fmax(worst, fabs(logprobs[(size_t)(n - 1) * n_vocab + i++] - value->valuedouble));
        char *settings = cJSON_PrintUnformatted(cJSON_GetObjectItem(json, "settings"));
        cr_expect_leq(worst, 1e-4, "%s: %g", settings, worst);
        cJSON_free(settings);
        engine_close(engine);
        free(ids);
        free(logprobs);
    }
    cJSON_Delete(cases);
}

static double number_at(const cJSON *json, const char *name, uint32_t i)
{
    return cJSON_GetArrayItem(cJSON_GetObjectItem(json, name), (int)i)->valuedouble;
}

/* The likeliest token of a row, and by how much it is likelier than the second. */
static uint32_t best_of(const double *row, uint32_t n, double *ret_margin)
{
    uint32_t best = row[1] > row[0], second = !best;
    for (uint32_t v = 2; v < n; v++) {
        if (row[v] > row[best]) {
            second = best;
            best = v;
        } else if (row[v] > row[second]) {
            second = v;
        }
    }
    *ret_margin = row[best] - row[second];
    return best;
}

typedef struct Agreement {
    double sum; /* of |differences| of the taken tokens' log-probabilities */
    uint32_t n, n_compared;
} Agreement;

/*
 * Greedy text is compared up to the first tie, theirs or ours, by feeding the reference's: rows do not depend on
 * chunks, so our own text is the same as long as every row prefers the same token.
 */
static void compare_greedy(Engine *engine, const cJSON *json, Agreement *agreement)
{
    static const double tie = 0.05; /* interfaces.md */
    uint32_t n_prompt, n, n_vocab = engine_shape(engine)->n_vocab, all[256];
    uint32_t *prompt = read_ids(cJSON_GetObjectItem(json, "prompt"), &n_prompt);
    uint32_t *ids = read_ids(cJSON_GetObjectItem(json, "ids"), &n);
    bool compares = true;
    cr_assert(n_prompt + n <= sizeof all / sizeof *all && n > 0);
    memcpy(all, prompt, n_prompt * sizeof *all);
    memcpy(all + n_prompt, ids, n * sizeof *all);
    double *logprobs = run_all(engine, all, n_prompt + n - 1), margin;
    for (uint32_t i = 0; i < n; i++) {
        const double *row = logprobs + (size_t)(n_prompt - 1 + i) * n_vocab;
        uint32_t best = best_of(row, n_vocab, &margin);
        compares = compares && margin >= tie && number_at(json, "margins", i) >= tie;
        cr_expect(!compares || best == ids[i], "'%s': token %u is %u, not %u",
                  cJSON_GetObjectItem(json, "text")->valuestring, i, best, ids[i]);
        agreement->sum += fabs(row[ids[i]] - number_at(json, "logprobs", i));
        agreement->n_compared += compares;
    }
    agreement->n += n;
    free(prompt);
    free(ids);
    free(logprobs);
}

Test(test_engine_golden, greedy_text_of_a_real_model_equals_the_reference)
{
    if (!test_model_path()) cr_skip("LONGWAVE_TEST_MODEL is not set");
    cJSON *golden = golden_load("smollm2_greedy.json");
    const cJSON *json, *cases = cJSON_GetObjectItem(golden, "cases");
    const EngineParams params = {.model_path = test_model_path(),
                                 .max_sequences = 20,
                                 .max_batch_rows = 256,
                                 .max_logit_rows = 256,
                                 .n_threads = 2,
                                 .kv_types = {{KV_F16, KV_F16, KV_F16}},
                                 .world = 1};
    Engine *engine;
    Agreement all = {0};
    cr_assert_eq(cJSON_GetArraySize(cases), 20);
    cr_assert(engine_open(&params, &engine, &error), "%s", error.text);
    cJSON_ArrayForEach(json, cases) compare_greedy(engine, json, &all);
    cr_expect_leq(all.sum / all.n, 0.02, "mean difference of %u log-probabilities: %g", all.n, all.sum / all.n);
    cr_expect_geq(all.n_compared, all.n * 3 / 4, "ties leave %u of %u tokens", all.n_compared, all.n);
    engine_close(engine);
    cJSON_Delete(golden);
}

Test(test_engine_golden, tiny_llamas_agree_with_transformers)
{
    check_file("tiny_llama.json", 4);
}

/* Contexts are longer than the windows. */
Test(test_engine_golden, tiny_models_of_other_families_agree_with_transformers)
{
    check_file("tiny_families.json", 13);
}

/* A text longer than the window, read in chunks. */
Test(test_engine_golden, gemma_agrees_with_the_reference_beyond_its_window)
{
    enum { CHUNK = 128 };
    const char *path = test_gemma_path();
    if (!path) cr_skip("LONGWAVE_TEST_GEMMA is not set");
    cJSON *golden = golden_load("gemma3.json");
    const EngineParams params = {.model_path = path,
                                 .context = 1024,
                                 .max_sequences = 1,
                                 .max_batch_rows = CHUNK,
                                 .max_logit_rows = CHUNK,
                                 .n_threads = 2,
                                 .kv_types = {{KV_F16, KV_F16, KV_F16}},
                                 .world = 1};
    Engine *engine;
    SeqId seq;
    uint32_t n;
    double sum = 0;
    uint32_t *ids = read_ids(cJSON_GetObjectItem(golden, "ids"), &n);
    cr_assert(engine_open(&params, &engine, &error), "%s", error.text);
    cr_assert(engine_seq_new(engine, 0, &seq, &error), "%s", error.text);
    uint32_t n_vocab = engine_shape(engine)->n_vocab, window = engine_shape(engine)->window_tokens;
    double *row = calloc(n_vocab, sizeof *row);
    cr_assert(row && n > window);
    for (uint32_t first = 0; first < n - 1; first += CHUNK) {
        float *logits;
        uint32_t n_rows = n - 1 - first < CHUNK ? n - 1 - first : CHUNK;
        BatchSpan span = {seq, 0, n_rows, first, LOGITS_ALL};
        cr_assert(engine_forward(engine, &(Batch){ids + first, n_rows, &span, 1}, &logits, &error), "%s", error.text);
        for (uint32_t t = 0; t < n_rows; t++) {
            for (uint32_t v = 0; v < n_vocab; v++) row[v] = (double)logits[(size_t)t * n_vocab + v];
            ref_log_softmax(row, n_vocab);
            sum += fabs(row[ids[first + t + 1]] - number_at(golden, "next", first + t));
        }
    }
    cr_expect_leq(sum / (n - 1), 0.02, "mean difference of %u log-probabilities: %g", n - 1, sum / (n - 1));
    free(row);
    free(ids);
    engine_close(engine);
    cJSON_Delete(golden);
}
