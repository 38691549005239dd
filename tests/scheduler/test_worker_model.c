/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler on the real engine with a tiny model: what must not depend on chunks, choices and company. */
#include "scheduler/worker.h"
#include "base/clock.h"
#include "tests/scheduler/recorder.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static Engine *open_engine(void)
{
    TinyModel model = tiny_model_default();
    char path[64];
    Error error;
    Engine *engine = NULL;
    cr_assert(tiny_model_temp(&model, path, sizeof path, &error), "%s", error.text);
    const EngineParams params = {.model_path = path,
                                 .max_sequences = 1,
                                 .max_batch_rows = 64,
                                 .max_logit_rows = 16,
                                 .n_threads = 1,
                                 .kv_types = {{KV_F32, KV_F32, KV_F32}},
                                 .world = 1};
    bool ok = engine_open(&params, &engine, &error);
    unlink(path);
    cr_assert(ok, "%s", error.text);
    return engine;
}

/* Runs the requests to their ends. */
static Recorder *run(uint32_t prefill_chunk, Request **requests, uint32_t n)
{
    Recorder *recorder = calloc(1, sizeof *recorder);
    cr_assert_not_null(recorder);
    Engine *engine = open_engine();
    const WorkerParams params = {.engine = engine, .max_queue = n, .prefill_chunk = prefill_chunk, .max_events = 8};
    Worker *worker;
    Error error;
    cr_assert(worker_start(&params, &worker, &error), "%s", error.text);
    for (uint32_t i = 0; i < n; i++) cr_assert(worker_submit(worker, requests[i], &error), "%s", error.text);
    uint64_t end_usec = clock_now_usec() + 60 * 1000000;
    for (uint32_t n_over = 0; n_over < n;) {
        Event event;
        if (worker_poll(worker, &event)) {
            n_over += event.kind == EVENT_DONE || event.kind == EVENT_FAILED;
            recorder_take(recorder, &event);
        } else {
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        }
        cr_assert_lt(clock_now_usec(), end_usec);
    }
    worker_free(worker);
    engine_close(engine);
    return recorder;
}

static Request *prompt_of_40(RequestId id, float temperature)
{
    Request *request = request_of(id, "The quick brown fox jumps over the dog. ");
    request->max_tokens = 48;
    request->ignore_eos = true;
    request->sampling.temperature = temperature;
    request->sampling.seed = 11;
    request->want_prompt_logprobs = id % 2 == 0;
    return request;
}

Test(worker_model, text_does_not_depend_on_chunks_choices_or_company)
{
    Recorder *want = run(64, (Request *[]){prompt_of_40(1, 0), prompt_of_40(2, 0), prompt_of_40(3, 0.9f)}, 3);
    const uint32_t chunks[] = {1, 7, 39, 40};
    for (uint32_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        Request *requests[] = {prompt_of_40(4, 0), prompt_of_40(5, 0.9f)};
        requests[0]->n_choices = 2;
        Recorder *got = run(chunks[i], requests, 2);
        const ChoiceRecord *greedy = &want->requests[1].choices[0], *seeded = &want->requests[3].choices[0];
        for (int c = 0; c < 2; c++)
            cr_assert_eq(memcmp(got->requests[4].choices[c].ids, greedy->ids, sizeof greedy->ids), 0);
        cr_assert_eq(memcmp(got->requests[5].choices[0].ids, seeded->ids, sizeof seeded->ids), 0);
        for (uint32_t at = 1; at < 40; at++)
            cr_assert_eq(got->requests[4].prompt[at].sample.logprob, want->requests[2].prompt[at].sample.logprob);
        free(got);
    }
    cr_assert_eq(want->requests[1].choices[0].n_tokens, 48);
    cr_assert_eq(memcmp(want->requests[2].choices[0].ids, want->requests[1].choices[0].ids, 48 * sizeof(uint32_t)), 0);
    cr_assert_neq(memcmp(want->requests[3].choices[0].ids, want->requests[1].choices[0].ids, 48 * sizeof(uint32_t)), 0);
    free(want);
}

/* The log-probability of a generated token is what echoing it as a prompt gives. */
Test(worker_model, prompt_logprobs_agree_with_those_of_generation)
{
    Request *request = prompt_of_40(1, 0);
    request->max_tokens = 20;
    request->want_logprobs = true;
    Recorder *generated = run(64, &request, 1);
    const ChoiceRecord *choice = &generated->requests[1].choices[0];
    uint32_t all[60];
    request = prompt_of_40(2, 0);
    memcpy(all, request->prompt, 40 * sizeof *all);
    memcpy(all + 40, choice->ids, 20 * sizeof *all);
    request->prompt = all;
    request->n_prompt = 60;
    request->max_tokens = 0;
    Recorder *echoed = run(64, &request, 1);
    cr_assert_eq(echoed->requests[2].n_prompt, 60);
    for (int i = 0; i < 20; i++)
        cr_assert_float_eq(echoed->requests[2].prompt[40 + i].sample.logprob, choice->tokens[i].sample.logprob, 1e-6);
    free(generated);
    free(echoed);
}
