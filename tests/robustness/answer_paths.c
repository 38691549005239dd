/* SPDX-License-Identifier: Apache-2.0 */
/* One request through engine thread, scheduler and sampler, and what becomes of its tokens as an answer of the API. */
#include "scheduler/worker.h"
#include "server/api_answer.h"
#include "server/sse.h"
#include "tests/robustness/paths.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TOKENS = 12, N_CHOICES = 2 };

static const char *const stop_text[] = {"never to be seen", "\xC3\xA9", "qqqq"};
static const size_t stop_bytes[] = {16, 2, 4};
static const uint32_t prompt_ids[] = {75, 104, 111, 111, 114, 35, 122, 114, 117, 111, 103};
static const LogitBias bias[] = {{100, 2.0f}, {101, 1.5f}};

static Request *make_request(RequestId id)
{
    Request *request = request_new(id, 1 << 20);
    if (!request) return NULL;
    request->prompt = prompt_ids;
    request->n_prompt = sizeof prompt_ids / sizeof *prompt_ids;
    request->max_tokens = MAX_TOKENS;
    request->min_tokens = 2;
    request->n_choices = N_CHOICES;
    request->stop = (StopStrings){.text = stop_text, .n_bytes = stop_bytes, .n = 3};
    request->want_logprobs = request->want_prompt_logprobs = true;
    request->n_top_logprobs = 3;
    request->sampling.seed = 9;
    request->sampling.top_k = 40;
    request->sampling.repetition_penalty = 1.1f;
    request->sampling.presence_penalty = 0.5f;
    request->sampling.bias = bias;
    request->sampling.n_bias = 2;
    return request;
}

/* What the loop thread does with events; after a failure of its own it cancels and waits for the last event. */
typedef struct Listener {
    ApiAnswer *answer; /* NULL: nobody wants the texts */
    JsonOut *frames;   /* NULL: one object at the end */
    bool failed;
    Error *error;
} Listener;

static bool take_event(Listener *listener, const Event *event)
{
    ApiAnswer *answer = listener->answer;
    if (!answer) return true;
    if (event->kind == EVENT_TOKENS) {
        if (event->tokens->is_prompt && answer->kind == ANSWER_CHAT) return true;
        if (!api_answer_add_tokens(answer, event->choice, event->tokens, listener->error)) return false;
        if (listener->frames) api_answer_write_delta(answer, event->choice, listener->frames);
    }
    if (event->kind == EVENT_CHOICE_DONE) {
        answer->choices[event->choice].finish = event->finish;
        if (listener->frames) api_answer_write_finish(answer, event->choice, false, listener->frames);
    }
    return !listener->frames || json_end(listener->frames, listener->error);
}

/* Until the last event of the request that was submitted last. */
static bool listen_to(Worker *worker, RequestId id, Listener *listener)
{
    Event event;
    for (bool is_over = false; !is_over;) {
        if (!worker_poll(worker, &event)) {
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
            continue;
        }
        is_over = event.kind == EVENT_DONE || event.kind == EVENT_FAILED;
        if (!listener->failed && event.kind == EVENT_FAILED) {
            listener->failed = true;
            *listener->error = *event.error;
        } else if (!listener->failed && !take_event(listener, &event)) {
            listener->failed = true;
            worker_cancel(worker, id);
        }
        event_done(&event);
    }
    return !listener->failed;
}

static bool ask(Worker *worker, RequestId id, Listener *listener)
{
    Request *request = make_request(id);
    if (!request) return error_set(listener->error, ERR_NO_MEMORY, "no memory for a request");
    if (!worker_submit(worker, request, listener->error)) {
        request_free(request);
        return false;
    }
    return listen_to(worker, id, listener);
}

/* A failed request must not harm the next one of the same worker. */
static bool run_worker(World *world, Listener *listener, Error *error)
{
    const WorkerParams params = {
        .engine = world->engine, .max_queue = 1, .prefill_chunk = 4, .max_events = 4, .cache = CACHE_ON};
    Worker *worker = UNTOUCHED;
    if (!worker_start(&params, &worker, error)) {
        if (worker != UNTOUCHED) world->broken = "worker_start touched its output";
        return false;
    }
    listener->error = error;
    bool ok = ask(worker, 1, listener);
    Error second_error;
    Listener second = {.error = &second_error};
    if (!ok && !ask(worker, 2, &second)) world->broken = "the next request of the same worker fails";
    worker_free(worker);
    return ok;
}

static ApiAnswer make_answer(const World *world, AnswerKind kind)
{
    return (ApiAnswer){.kind = kind,
                       .id = "id-1",
                       .created_unix = 5,
                       .model = "tiny",
                       .fingerprint = "fp",
                       .attention = {"dense", NULL},
                       .tokenizer = engine_tokenizer(world->engine),
                       .want_logprobs = true,
                       .n_top_logprobs = 3,
                       .n_choices = N_CHOICES};
}

static bool run_answer(World *world, AnswerKind kind, bool stream, Buffer *digest, Error *error)
{
    ApiAnswer answer = make_answer(world, kind);
    Buffer bytes;
    JsonOut out;
    if (!api_answer_init(&answer, error)) return false;
    answer.stream = stream;
    buffer_init(&bytes, 1 << 20);
    json_begin(&out, &bytes);
    Listener listener = {.answer = &answer, .frames = stream ? &out : NULL};
    bool ok = run_worker(world, &listener, error);
    if (ok) {
        if (stream)
            api_answer_write_usage_frame(&answer, &out);
        else
            api_answer_write_object(&answer, &out);
        ok = json_end(&out, error);
    }
    if (ok) digest_add(digest, bytes.data, bytes.n);
    buffer_done(&bytes);
    api_answer_done(&answer);
    return ok;
}

static bool run_chat_object(World *world, Buffer *digest, Error *error)
{
    return run_answer(world, ANSWER_CHAT, false, digest, error);
}

static bool run_completion_stream(World *world, Buffer *digest, Error *error)
{
    return run_answer(world, ANSWER_COMPLETION, true, digest, error);
}

static bool run_failure_frame(World *world, Buffer *digest, Error *error)
{
    Buffer bytes;
    JsonOut out;
    Error cause;
    (void)world;
    (void)error_set_param(&cause, ERR_CANCELLED, "x", "the request was \"cancelled\"");
    buffer_init(&bytes, 8192);
    json_begin(&out, &bytes);
    sse_failure(&out, (int)cause.code, &cause);
    bool ok = json_end(&out, error);
    if (ok) digest_add(digest, bytes.data, bytes.n);
    buffer_done(&bytes);
    return ok;
}

const Path answer_paths[] = {
    {"chat_answer", run_chat_object},
    {"completion_stream", run_completion_stream},
    {"failure_frame", run_failure_frame},
    {0},
};
