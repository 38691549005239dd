/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler on the real engine with a tiny model: what must not depend on chunks, choices and company. */
#include "scheduler/worker.h"
#include "base/clock.h"
#include "engine/sample/grammar/vocab.h"
#include "tests/scheduler/recorder.h"
#include "tests/support/grammar_rig.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct Setting {
    uint32_t max_batch, prefill_chunk;
    uint32_t kv_tokens; /* of the dense policy, for which there is memory; 0: enough for all */
    CacheMode cache;
    const char *kv_types;
    uint32_t n_threads; /* 0: 1 */
} Setting;

static const uint8_t streams[] = {0, 1, 1, 0}; /* 2 layers, 2 KV heads */
static const HeadRoles roles = {.name = "half", .streams = streams};
static const AttnPolicy policies[] = {
    {.name = "dense"},
    {.name = "stream", .roles = &roles, .sink = 64, .recent_prefill = 64, .recent_decode = 64},
    {.name = "two windows", .roles = &roles, .sink = 64, .recent_prefill = 128, .recent_decode = 64},
};
enum { N_POLICIES = 3 };

static Engine *open_engine(const Setting *setting)
{
    TinyModel model = tiny_model_default();
    char path[64];
    Error error;
    Engine *engine = NULL;
    cr_assert(tiny_model_temp(&model, path, sizeof path, &error), "%s", error.text);
    EngineParams params = {.model_path = path,
                           .max_sequences = setting->max_batch,
                           .max_passes = 3,
                           .policies = policies,
                           .n_policies = N_POLICIES,
                           .max_batch_rows = 64,
                           .max_logit_rows = 16,
                           .n_threads = setting->n_threads ? setting->n_threads : 1,
                           .world = 1};
    cr_assert(kv_types_parse(setting->kv_types, &params.kv_types, &error), "%s", error.text);
    bool ok = engine_open(&params, &engine, &error);
    if (ok && setting->kv_tokens) {
        params.kv_bytes = engine_need_bytes(engine, 0, setting->kv_tokens);
        engine_close(engine);
        ok = engine_open(&params, &engine, &error);
    }
    unlink(path);
    cr_assert(ok, "%s", error.text);
    return engine;
}

/* Runs the requests to their ends. */
static Recorder *run_in(const Setting *setting, Request **requests, uint32_t n)
{
    Recorder *recorder = calloc(1, sizeof *recorder);
    cr_assert_not_null(recorder);
    Engine *engine = open_engine(setting);
    const WorkerParams params = {.engine = engine,
                                 .max_queue = n,
                                 .max_batch = setting->max_batch,
                                 .max_passes = 3,
                                 .prefill_chunk = setting->prefill_chunk,
                                 .max_stall_ms = 1,
                                 .max_swap_bytes = 1 << 24,
                                 .cache = setting->cache,
                                 .max_events = 8};
    Worker *worker;
    Error error;
    cr_assert(worker_start(&params, &worker, &error), "%s", error.text);
    for (uint32_t i = 0; i < n; i++) cr_assert(worker_submit(worker, requests[i], &error), "%s", error.text);
    uint64_t end_usec = clock_now_usec() + 60 * 1000000;
    for (uint32_t n_over = 0; n_over < n || recorder->stats.finished < n;) {
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
    cr_assert(setting->cache != CACHE_OFF || engine_kv_usage(engine).used_bytes == 0);
    engine_close(engine);
    return recorder;
}

static Recorder *run(uint32_t prefill_chunk, Request **requests, uint32_t n)
{
    const Setting setting = {.max_batch = 1, .prefill_chunk = prefill_chunk, .kv_types = "f32"};
    return run_in(&setting, requests, n);
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

/* Shared beginnings, own ends, answers that reach beyond the windows. */
static Request *request_of_many(RequestId id, uint32_t policy)
{
    static const char *const ends[] = {"lives by the river.", "sleeps.", "has eaten nothing for a week", "?"};
    char prompt[256];
    snprintf(prompt, sizeof prompt, "The quick brown fox jumps over the lazy dog, and the dog, as dogs are, %s%.*s",
             ends[id % 4], (int)(id * 13 % 90),
             "While it does so, it thinks of nothing, or of the things that foxes "
             "think of when nobody looks.");
    Request *request = request_of(id, prompt);
    request->max_tokens = 180;
    request->ignore_eos = true;
    request->policy = policy;
    request->n_choices = id == 3 ? 3 : 1;
    request->sampling.temperature = id % 2 ? 0 : 0.8f;
    request->sampling.seed = id;
    return request;
}

/* Work of all kinds for whoever picks: what came before counts, some ids are out, log-probabilities are told. */
static Request *with_sampling(Request *request)
{
    uint32_t kind = request->id % 4;
    if (kind == 1) request->sampling.repetition_penalty = 1.3f;
    if (kind == 1) request->sampling.presence_penalty = 0.5f;
    if (kind == 2) request->sampling.frequency_penalty = 0.7f;
    if (kind == 2) request->sampling.repeat_last_n = 32;
    request->ignore_eos = kind != 3;
    request->min_tokens = kind == 3 ? 60 : 0;
    request->want_logprobs = kind != 0;
    request->n_top_logprobs = kind;
    return request;
}

static void compare_logprobs(const ChoiceRecord *got, const ChoiceRecord *want)
{
    for (uint32_t i = 0; i < want->n_tokens; i++) {
        const SampleResult *a = &got->tokens[i].sample, *b = &want->tokens[i].sample;
        cr_expect(a->logprob == b->logprob && a->n_top == b->n_top, "token %u", i);
        for (uint32_t t = 0; t < b->n_top; t++)
            cr_expect(a->top[t].id == b->top[t].id && a->top[t].logprob == b->top[t].logprob, "token %u", i);
    }
}

static void compare_answers(const Recorder *got, const Recorder *want, RequestId id, const char *what)
{
    cr_expect_eq(got->requests[id].n_done, 1, "%s", got->requests[id].error.text);
    for (uint32_t c = 0; c < (id == 3 ? 3 : 1); c++)
        cr_expect_eq(memcmp(got->requests[id].choices[c].ids, want->requests[id].choices[c].ids,
                            sizeof want->requests[id].choices[c].ids),
                     0, "%s, request %u, choice %u", what, (unsigned)id, c);
    compare_logprobs(&got->requests[id].choices[0], &want->requests[id].choices[0]);
}

/*
 * Many at once, their prefill cut into pieces, in memory for two of them, or for three and the prefix cache: every
 * answer is the one that the request gets alone, and rows that three threads pick from tell what one thread does.
 */
Test(worker_model, in_little_memory_all_answers_are_those_of_requests_alone)
{
    enum { N = 9 };
    static const char *const types[] = {"f32", "full=int8,stream=bf16"};
    for (int t = 0; t < 2; t++) {
        const Setting alone = {.max_batch = 1, .prefill_chunk = 64, .kv_types = types[t]};
        const Setting tight = {
            .max_batch = 5, .prefill_chunk = 48, .kv_tokens = 640, .kv_types = types[t], .n_threads = t ? 1 : 3};
        Setting cached = tight;
        cached.kv_tokens = 1100;
        cached.cache = t ? CACHE_EXACT : CACHE_ON;
        Request *requests[2][N];
        for (RequestId id = 1; id <= N; id++)
            for (int i = 0; i < 2; i++) requests[i][id - 1] = with_sampling(request_of_many(id, id % N_POLICIES));
        Recorder *in_tight = run_in(&tight, requests[0], N), *in_cached = run_in(&cached, requests[1], N);
        cr_expect_gt(in_tight->stats.preempted, 0);
        cr_expect_gt(in_cached->stats.prefix_hit_tokens, 0);
        for (RequestId id = 1; id <= N; id++) {
            Recorder *want = run_in(&alone, (Request *[]){with_sampling(request_of_many(id, id % N_POLICIES))}, 1);
            compare_answers(in_tight, want, id, types[t]);
            compare_answers(in_cached, want, id, types[t]);
            free(want);
        }
        free(in_tight);
        free(in_cached);
    }
}

/* The same with a grammar, of which much is known ahead: preempted choices go on where they were in it. */
Test(worker_model, in_little_memory_answers_follow_their_grammar)
{
    enum { N = 6 };
    const Setting alone = {.max_batch = 1, .prefill_chunk = 64, .kv_types = "f32"};
    const Setting tight = {.max_batch = 4, .prefill_chunk = 48, .kv_tokens = 640, .kv_types = "f32"};
    Engine *engine = open_engine(&alone);
    GrammarVocab *vocab;
    GrammarRig grammar;
    Error error;
    cr_assert(grammar_vocab_of(engine_tokenizer(engine), &vocab, &error), "%s", error.text);
    grammar_rig_regex(&grammar, "([a-z]{3}, known ahead and long enough: [0-9]{2,5}; ){14}", vocab);
    Request *requests[N];
    for (RequestId id = 1; id <= N; id++) {
        requests[id - 1] = request_of_many(id, id % N_POLICIES);
        requests[id - 1]->grammar = grammar_take(grammar.grammar);
    }
    Recorder *got = run_in(&tight, requests, N);
    cr_expect_gt(got->stats.preempted, 0);
    for (RequestId id = 1; id <= N; id++) {
        Request *request = request_of_many(id, id % N_POLICIES);
        request->grammar = grammar_take(grammar.grammar);
        Recorder *want = run_in(&alone, &request, 1);
        compare_answers(got, want, id, "grammar");
        const ChoiceRecord *choice = &got->requests[id].choices[0];
        if (choice->finish == FINISH_STOP) cr_expect(grammar_rig_takes(&grammar, choice->text), "'%s'", choice->text);
        free(want);
    }
    free(got);
    grammar_rig_done(&grammar);
    grammar_vocab_free(vocab);
    engine_close(engine);
}
