/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_job.h"
#include "base/clock.h"
#include "server/caller.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ANSWER_BYTES = 256 << 20 };

static bool run_job(ApiJob *job, Error *error)
{
    if (!json_parse(job->body ? job->body : "", job->body_bytes, &job->json, error)) return false;
    if (!cJSON_IsObject(job->json))
        return error_set(error, ERR_INVALID, "the request body must be a JSON object, not %s",
                         json_type_name(job->json));
    return job->run(job, error);
}

static void on_work(uv_work_t *work)
{
    ApiJob *job = work->data;
    job->failed = !run_job(job, &job->error);
    cJSON_Delete(job->json);
    job->json = NULL;
    if (job->wants_compiler) return;
    free(job->body);
    job->body = NULL;
}

static void reply(ApiJob *job)
{
    if (!job->exchange) return;
    if (job->failed)
        server_reply_error(job->exchange, job->fault ? job->fault : (int)job->error.code, &job->error);
    else
        server_reply_json(job->exchange, &job->answer);
}

static void job_free(ApiJob *job)
{
    buffer_done(&job->answer);
    free(job->body);
    free(job);
}

static void finish(ApiJob *job)
{
    job->server->n_jobs--;
    job->server->metrics.unknown_fields += job->unknown_fields;
    if (job->exchange) exchange_set_owner(job->exchange, NULL, NULL);
    if (job->done)
        job->done(job);
    else
        reply(job);
    job_free(job);
}

static void fail(ApiJob *job, ErrorCode code, const char *why)
{
    job->failed = !error_set(&job->error, code, "%s", why);
    finish(job);
}

static void on_done(uv_work_t *work, int status);

static void start(ApiJob *job, bool may_compile)
{
    job->may_compile = may_compile;
    job->wants_compiler = false;
    job->fault = 0;
    uv_queue_work(job->server->params.loop, &job->work, on_work, on_done); /* fails only without a callback */
}

/* ---- jobs that compile ---- */

static ApiJob *job_of(CompileWait *wait)
{
    return wait ? (ApiJob *)(void *)((char *)wait - offsetof(ApiJob, compile)) : NULL;
}

static void on_late(uv_timer_t *timer);

static void watch_deadlines(Server *server)
{
    uint64_t first = compile_queue_deadline(&server->to_compile), now = clock_now_usec();
    if (!first)
        uv_timer_stop(&server->compile);
    else
        uv_timer_start(&server->compile, on_late, first > now ? (first - now) / 1000 + 1 : 0, 0);
}

/* Whoever may begin does; the others wait on. */
static void go_on(Server *server)
{
    ApiJob *job;
    while ((job = job_of(compile_queue_begin(&server->to_compile)))) start(job, true);
    server->metrics.waiting_to_compile = server->to_compile.n_waiting;
    watch_deadlines(server);
}

static void on_late(uv_timer_t *timer)
{
    Server *server = timer->data;
    ApiJob *job;
    while ((job = job_of(compile_queue_take_late(&server->to_compile, clock_now_usec()))))
        fail(job, ERR_DEADLINE, "the request's time was over while it waited for its grammar to be compiled");
    go_on(server);
}

/* The key's requests take turns with those of others; without keys, those of an address. */
static uint64_t client_of(const Exchange *exchange)
{
    const Caller *caller = exchange_caller(exchange);
    return caller && caller->account ? (uint64_t)(uintptr_t)caller->account : exchange_peer(exchange);
}

/* Those that waited for the same grammar look it up, unless it needs more time first. */
static void end_compiling(ApiJob *job)
{
    Server *server = job->server;
    ApiJob *other;
    compile_queue_end(&server->to_compile, &job->compile);
    if (job->wants_compiler) return;
    server->metrics.compiles += job->has_compiled;
    while ((other = job_of(compile_queue_take_same(&server->to_compile, &job->compile.grammar)))) start(other, false);
}

static void on_done(uv_work_t *work, int status)
{
    ApiJob *job = work->data;
    Server *server = job->server;
    if (status) job->wants_compiler = false;
    if (job->may_compile) end_compiling(job);
    if (status || (job->wants_compiler && !job->exchange)) {
        fail(job, ERR_CANCELLED, "the client left");
    } else if (job->wants_compiler) {
        job->compile.is_long = job->may_compile;
        job->compile.client = client_of(job->exchange);
        compile_queue_add(&server->to_compile, &job->compile);
    } else {
        finish(job);
    }
    go_on(server);
}

/* A job that waits, for a thread or to compile, is not done at all. */
static void on_closed(void *owner)
{
    ApiJob *job = owner;
    Server *server = job->server;
    job->exchange = NULL;
    atomic_store(&job->is_left, true);
    if (compile_queue_remove(&server->to_compile, &job->compile)) {
        fail(job, ERR_CANCELLED, "the client left");
        go_on(server);
    } else {
        (void)uv_cancel((uv_req_t *)&job->work);
    }
}

bool api_job_start(Server *server, Exchange *exchange, void *user, bool (*run)(ApiJob *, Error *),
                   void (*done)(ApiJob *))
{
    ApiJob *job = calloc(1, sizeof *job);
    if (!job) {
        Error error;
        (void)error_set(&error, ERR_NO_MEMORY, "no memory for a request");
        server_reply_error(exchange, ERR_NO_MEMORY, &error);
        return false;
    }
    *job = (ApiJob){.server = server,
                    .model = server->model,
                    .limits = server->limits,
                    .arrival_usec = clock_now_usec(),
                    .exchange = exchange,
                    .user = user,
                    .run = run,
                    .done = done};
    job->work.data = job;
    buffer_init(&job->answer, MAX_ANSWER_BYTES);
    job->body = exchange_take_body(exchange, &job->body_bytes);
    exchange_set_owner(exchange, on_closed, job);
    server->n_jobs++;
    start(job, false);
    return true;
}
