/* SPDX-License-Identifier: Apache-2.0 */
/* A client's request through the whole server and its real engine thread, and sessions through the worker. */
#include "engine/text/tokenizer.h"
#include "tests/robustness/paths.h"
#include "tests/support/http_client.h"
#include "tests/support/joined_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000, ANSWER_BYTES = 1 << 18 };

/* ---- requests ---- */

static const char chat_body[] =
    "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"one two\"}],\"seed\":7,\"max_tokens\":5,"
    "\"ignore_eos\":true,\"n\":2,\"logprobs\":true,\"top_logprobs\":2,\"stop\":\"never seen\",\"stream\":true,"
    "\"stream_options\":{\"include_usage\":true},"
    "\"longwave\":{\"progress\":true,\"attention\":{\"preset\":\"lserve-4k\",\"budget\":512}}}";

static const char completion_body[] =
    "{\"prompt\":[\"The quick\",[3,4,5]],\"max_tokens\":4,\"ignore_eos\":true,\"seed\":7,\"logprobs\":2,\"echo\":true,"
    "\"request_id\":\"mine\",\"cache_salt\":\"s\"}";

/* Memory for answers is taken once, in the run that is not judged. */
static Buffer *answer_buffer(void)
{
    static Buffer in;
    Error error;
    if (!in.max) buffer_init(&in, 1 << 20);
    if (!buffer_reserve(&in, ANSWER_BYTES, &error)) abort();
    buffer_clear(&in);
    return &in;
}

/* Numbers that differ from run to run are left out: what is behind each of these keys, as often as it comes. */
static void digest_texts(const Buffer *in, const char *key, Buffer *digest)
{
    for (const char *at = in->data; (at = strstr(at, key));) {
        at += strlen(key);
        digest_add(digest, at, strcspn(at, "\""));
    }
}

/* The client got an answer, an error in words, or lost its connection; never may it wait for ever. */
static bool judge_answer(World *world, const Buffer *in, HttpEnd end, Buffer *digest, Error *error)
{
    if (end == HTTP_TIMEOUT) {
        world->broken = "the client is left without an end";
        return error_set(error, ERR_NO_MEMORY, "no end");
    }
    bool is_done = http_count(in, "data: [DONE]") || http_count(in, "\"usage\":{");
    if (http_status(in) != 200 || http_count(in, "{\"error\"") || !is_done)
        return error_set(error, ERR_NO_MEMORY, "%.200s", in->n > 200 ? in->data + in->n - 200 : "a short answer");
    digest_texts(in, "\"content\":\"", digest);
    digest_texts(in, "\"text\":\"", digest);
    digest_texts(in, "\"finish_reason\":\"", digest);
    digest_count(digest, http_count(in, "\"finish_reason\":\"length\""));
    return true;
}

static bool ask(World *world, uint16_t port, const char *request, Buffer *digest, Error *error)
{
    Buffer *in = answer_buffer();
    int fd = http_connect(port);
    if (fd < 0) return error_set(error, ERR_NO_MEMORY, "no connection");
    HttpEnd end = http_send(fd, request) ? http_read(fd, in, NULL, PATIENCE_MS) : HTTP_RESET;
    close(fd);
    return judge_answer(world, in, end, digest, error);
}

static bool run_request(World *world, const char *path, const char *body, Buffer *digest, Error *error)
{
    static char request[4096];
    JoinedServer *joined = UNTOUCHED;
    JoinedParams params = {
        .worker = {.engine = world->engine, .max_queue = 4, .max_batch = 2, .prefill_chunk = 8, .cache = CACHE_ON},
        .model = {.context = engine_context(world->engine),
                  .tokenizer = engine_tokenizer(world->engine),
                  .chat_template = engine_chat_template(world->engine)},
    };
    server_defaults(&params.server);
    snprintf(request, sizeof request,
             "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             path, strlen(body), body);
    if (!joined_start(&params, &joined, error)) {
        if (joined != UNTOUCHED) world->broken = "joined_start touched its output";
        return false;
    }
    bool ok = ask(world, joined_port(joined), request, digest, error);
    if (joined_stop(joined)) world->broken = "handles are left in the loop";
    return ok;
}

static bool run_chat(World *world, Buffer *digest, Error *error)
{
    return run_request(world, "/v1/chat/completions", chat_body, digest, error);
}

static bool run_completion(World *world, Buffer *digest, Error *error)
{
    return run_request(world, "/v1/completions", completion_body, digest, error);
}

static bool run_echo(World *world, Buffer *digest, Error *error)
{
    return run_request(world, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":0,\"echo\":true}", digest, error);
}

/* ---- sessions ---- */

enum { N_SAVED = 150 };

/* The result of the only call or request under way. */
static bool await_end(Worker *worker, uint32_t *ret_tokens, Error *error)
{
    Event event;
    for (;;) {
        if (!worker_poll(worker, &event)) {
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
            continue;
        }
        bool is_over = event.kind == EVENT_DONE || event.kind == EVENT_FAILED || event.kind == EVENT_SESSION;
        Error cause = {.code = ERR_NONE};
        if (event.kind == EVENT_FAILED) cause = *event.error;
        if (event.kind == EVENT_SESSION) {
            cause = event.session->error;
            *ret_tokens = event.session->n_moved_tokens;
        }
        event_done(&event);
        if (!is_over) continue;
        if (cause.code != ERR_NONE) *error = cause;
        return cause.code == ERR_NONE;
    }
}

static const uint32_t *saved_ids(void)
{
    static uint32_t ids[N_SAVED];
    for (uint32_t i = 0; i < N_SAVED; i++) ids[i] = 10 + i % 60;
    return ids;
}

static bool compute(Worker *worker, Error *error)
{
    uint32_t unused;
    Request *request = request_new(1, 1 << 16);
    if (!request) return error_set(error, ERR_NO_MEMORY, "no memory for a request");
    request->prompt = saved_ids();
    request->n_prompt = N_SAVED;
    request->max_tokens = 1;
    request->n_choices = 1;
    request->sampling.top_k = 1;
    if (worker_submit(worker, request, error)) return await_end(worker, &unused, error);
    request_free(request);
    return false;
}

static bool call(Worker *worker, SessionOp op, Buffer *digest, Error *error)
{
    SessionCall *made;
    uint32_t n_tokens = 0;
    if (!session_call_new(2, op, "one", &made, error)) return false;
    if (!session_call_set_tokens(made, saved_ids(), N_SAVED, "salt", 0, error) ||
        !worker_session(worker, made, error)) {
        session_call_free(made);
        return false;
    }
    if (!await_end(worker, &n_tokens, error)) return false;
    digest_count(digest, n_tokens);
    return true;
}

static bool run_sessions(World *world, Buffer *digest, Error *error)
{
    Worker *worker = UNTOUCHED;
    const WorkerParams params = {.engine = world->engine,
                                 .max_queue = 1,
                                 .prefill_chunk = 32,
                                 .cache = CACHE_ON,
                                 .session_dir = world->session_dir};
    if (!worker_start(&params, &worker, error)) {
        if (worker != UNTOUCHED) world->broken = "worker_start touched its output";
        return false;
    }
    bool ok = compute(worker, error) && call(worker, SESSION_SAVE, digest, error) &&
              call(worker, SESSION_RESTORE, digest, error) && call(worker, SESSION_DELETE, digest, error);
    worker_free(worker);
    return ok;
}

const Path server_paths[] = {
    {"chat_over_http", run_chat},
    {"completion_over_http", run_completion},
    {"echo_over_http", run_echo},
    {"sessions", run_sessions},
    {0},
};
