/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_job.h"
#include "base/clock.h"

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

static void finish(ApiJob *job, int status)
{
    if (status) job->failed = !error_set(&job->error, ERR_CANCELLED, "the client left");
    job->server->metrics.preparing--;
    job->server->metrics.unknown_fields += job->unknown_fields;
    if (job->exchange) exchange_set_owner(job->exchange, NULL, NULL);
    if (job->done)
        job->done(job);
    else
        reply(job);
    job_free(job);
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

static void wait_to_compile(ApiJob *job)
{
    Server *server = job->server;
    if (!server->to_compile) server->to_compile_end = &server->to_compile;
    job->next_to_compile = NULL;
    *server->to_compile_end = job;
    server->to_compile_end = &job->next_to_compile;
}

/* The job at *link leaves the list. */
static ApiJob *take_waiting(Server *server, ApiJob **link)
{
    ApiJob *job = *link;
    *link = job->next_to_compile;
    if (!*link) server->to_compile_end = link;
    return job;
}

static bool is_same_grammar(const ApiJob *a, const ApiJob *b)
{
    return !memcmp(&a->grammar, &b->grammar, sizeof a->grammar);
}

static bool is_being_compiled(const Server *server, const ApiJob *job)
{
    for (size_t i = 0; i < SERVER_MAX_COMPILING; i++)
        if (server->compiling[i] && is_same_grammar(server->compiling[i], job)) return true;
    return false;
}

static ApiJob **free_place(Server *server)
{
    for (size_t i = 0; i < SERVER_MAX_COMPILING; i++)
        if (!server->compiling[i]) return &server->compiling[i];
    return NULL;
}

static void start_compiling(Server *server)
{
    ApiJob **link = &server->to_compile, **place;
    while (*link && (place = free_place(server))) {
        if (!(*link)->exchange)
            finish(take_waiting(server, link), UV_ECANCELED);
        else if (is_being_compiled(server, *link))
            link = &(*link)->next_to_compile;
        else
            start(*place = take_waiting(server, link), true);
    }
}

/* Those that waited for the same grammar look it up. */
static void end_compiling(ApiJob *job)
{
    Server *server = job->server;
    server->metrics.compiles++;
    for (size_t i = 0; i < SERVER_MAX_COMPILING; i++)
        if (server->compiling[i] == job) server->compiling[i] = NULL;
    for (ApiJob **link = &server->to_compile; *link;) {
        if (is_same_grammar(*link, job))
            start(take_waiting(server, link), false);
        else
            link = &(*link)->next_to_compile;
    }
}

static void on_done(uv_work_t *work, int status)
{
    ApiJob *job = work->data;
    Server *server = job->server;
    if (job->may_compile) end_compiling(job);
    if (!status && job->wants_compiler)
        wait_to_compile(job);
    else
        finish(job, status);
    start_compiling(server);
}

/* A job that waits for a thread is not done at all. */
static void on_closed(void *owner)
{
    ApiJob *job = owner;
    job->exchange = NULL;
    atomic_store(&job->is_left, true);
    (void)uv_cancel((uv_req_t *)&job->work);
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
    server->metrics.preparing++;
    start(job, false);
    return true;
}
