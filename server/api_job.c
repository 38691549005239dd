/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_job.h"
#include "base/clock.h"

#include <stdlib.h>

/* uv's pool has four threads. */
enum { MAX_ANSWER_BYTES = 256 << 20, MAX_COMPILING = 2 };

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
    if (job->wants_compiler && !job->may_compile) return;
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
    job->server->n_jobs--;
    job->server->metrics.unknown_fields += job->unknown_fields;
    if (job->exchange) exchange_set_owner(job->exchange, NULL, NULL);
    if (job->done)
        job->done(job);
    else
        reply(job);
    job_free(job);
}

/* ---- jobs that compile, in the order of their coming ---- */

static void wait_to_compile(ApiJob *job)
{
    Server *server = job->server;
    if (server->last_to_compile)
        server->last_to_compile->next_to_compile = job;
    else
        server->first_to_compile = job;
    server->last_to_compile = job;
}

static ApiJob *next_to_compile(Server *server)
{
    ApiJob *job = server->first_to_compile;
    server->first_to_compile = job->next_to_compile;
    if (!server->first_to_compile) server->last_to_compile = NULL;
    return job;
}

static void on_done(uv_work_t *work, int status);

static void start_compiling(Server *server)
{
    while (server->first_to_compile && server->n_compiling < MAX_COMPILING) {
        ApiJob *job = next_to_compile(server);
        if (!job->exchange) {
            finish(job, UV_ECANCELED);
            continue;
        }
        server->n_compiling++;
        job->may_compile = true;
        job->fault = 0;
        uv_queue_work(server->params.loop, &job->work, on_work, on_done);
    }
}

static void on_done(uv_work_t *work, int status)
{
    ApiJob *job = work->data;
    Server *server = job->server;
    if (job->may_compile) server->n_compiling--;
    if (!status && job->wants_compiler && !job->may_compile)
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
    server->n_jobs++;
    uv_queue_work(server->params.loop, &job->work, on_work, on_done); /* fails only without a callback */
    return true;
}
