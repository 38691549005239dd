/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "server/generation_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Its beginning, for who has asked to see it. */
static void log_prompt(const Server *server, const Request *request)
{
    enum { SHOWN_TOKENS = 1024 };
    Buffer text;
    Error ignored;
    TokStream stream = {0};
    buffer_init(&text, 64 << 10);
    for (uint32_t i = 0; i < request->n_prompt && i < SHOWN_TOKENS; i++)
        if (!tok_stream_push(&stream, server->model->tokenizer, request->prompt[i], true, &text, &ignored)) break;
    LogField fields[] = {
        {"prompt_tokens", LOG_WHOLE, .whole = request->n_prompt},
        {"text", LOG_WORD, .word = text.n ? text.data : ""},
    };
    log_fields(LOG_INFO, request->id, "prompt", fields, sizeof fields / sizeof *fields);
    buffer_done(&text);
}

static void init_ids(Generation *generation, const Request *request, uint32_t part)
{
    TokenContext context = {request->cache_salt, request->n_cache_salt};
    uint64_t hash = token_memory_hash(generation->server->memory, &context, request->prompt, request->n_prompt);
    for (uint32_t i = 0; i < generation->n_choices; i++)
        answer_ids_init(&generation->ids[part * generation->n_choices + i], hash, &generation->hashes);
}

static bool submit_part(Generation *generation, Request **request, uint32_t index, Error *error)
{
    Server *server = generation->server;
    Part *part = &generation->parts[index];
    uint32_t n_prompt = (*request)->n_prompt;
    (*request)->id = ++server->last_id;
    part->entry = (InboxEntry){.id = (*request)->id, .on_event = generation_on_event};
    part->generation = generation;
    part->index = index;
    part->n_prompt = n_prompt;
    if (server->limits.log_prompts) log_prompt(server, *request);
    if (generation->ids) init_ids(generation, *request, index);
    if (!worker_submit(server->worker, *request, error)) return false;
    *request = NULL;
    part->open = true;
    generation->n_open++;
    if (!server->n_live++) server->work_since_usec = clock_now_usec();
    inbox_add(&server->inbox, &part->entry);
    return true;
}

static void fill_answer(Generation *generation, const ApiJob *job, const GenerationPlan *plan)
{
    ApiAnswer *answer = &generation->answer;
    answer->kind = plan->kind;
    answer->created_unix = clock_unix_seconds();
    answer->model = plan->model;
    answer->fingerprint = job->model->fingerprint;
    answer->attention = plan->attention.name;
    answer->tokenizer = job->model->tokenizer;
    answer->want_logprobs = plan->want_logprobs;
    answer->n_top_logprobs = plan->n_top_logprobs;
    answer->include_usage = plan->include_usage;
    answer->stream = plan->stream;
    answer->short_call_ids = plan->short_call_ids;
    answer->n_choices = plan->n_requests * plan->n_choices;
}

/* Takes the plan's map. */
static Generation *generation_new(ApiJob *job, GenerationPlan *plan, Error *error)
{
    Generation *generation = calloc(1, sizeof *generation);
    if (!generation) goto no_memory;
    generation->server = job->server;
    memcpy(generation->request_id, plan->request_id, sizeof plan->request_id);
    generation->n_choices = plan->n_choices;
    generation->progress = plan->progress;
    generation->hashes = plan->hashes;
    generation->map = plan->map;
    generation->parts = calloc(plan->n_requests, sizeof *generation->parts);
    fill_answer(generation, job, plan);
    if (plan->kind == ANSWER_CHAT) {
        generation->ids = calloc(generation->answer.n_choices, sizeof *generation->ids);
        if (!generation->ids) goto no_memory;
    }
    if (!generation->parts || !api_answer_init(&generation->answer, error)) goto no_memory;
    generation->n_parts = plan->n_requests;
    generation->n_choices_left = generation->answer.n_choices;
    generation->arrival_usec = plan->requests[0]->arrival_usec;
    plan->map = NULL;
    if (plan->grammar) {
        generation->grammar = grammar_take(plan->grammar);
        memcpy(generation->grammar_field, plan->grammar_field, sizeof plan->grammar_field);
        generation->answer.notes = grammar_notes(plan->grammar, &generation->answer.n_notes);
    }
    return generation;

no_memory:
    if (generation) {
        free(generation->parts);
        free(generation->ids);
    }
    free(generation);
    error_set(error, ERR_NO_MEMORY, "no memory for a request");
    return NULL;
}

static bool add_echoes(Generation *generation, GenerationPlan *plan, Error *error)
{
    for (uint32_t i = 0; i < generation->answer.n_choices; i++) {
        const Buffer *echo = &plan->echo[i / generation->n_choices];
        if (echo->n && !api_answer_add_text(&generation->answer, i, echo->data, echo->n, error)) return false;
    }
    return true;
}

/* Roles of chat, echoed prompts of completions. */
static bool open_stream(Generation *generation, Error *error)
{
    Buffer frames;
    JsonOut out;
    generation_begin_frames(&out, &frames);
    for (uint32_t i = 0; i < generation->answer.n_choices; i++) {
        if (generation->answer.kind == ANSWER_CHAT) api_answer_write_role(&generation->answer, i, &out);
        if (generation->answer.choices[i].parts.n) api_answer_write_delta(&generation->answer, i, &out);
    }
    bool ok = json_end(&out, error) && exchange_stream_begin(generation->exchange, error);
    generation->last_write_usec = clock_now_usec();
    if (ok && frames.n) (void)!exchange_stream_write(generation->exchange, frames.data, frames.n);
    buffer_done(&frames);
    return ok;
}

static bool launch(Generation *generation, GenerationPlan *plan, Error *error)
{
    if (!add_echoes(generation, plan, error)) return false;
    for (uint32_t i = 0; i < plan->n_requests; i++)
        if (!submit_part(generation, &plan->requests[i], i, error)) return false;
    snprintf(generation->answer.id, sizeof generation->answer.id, "%s-%08llx%016llx",
             plan->kind == ANSWER_CHAT ? "chatcmpl" : "cmpl", (unsigned long long)generation->answer.created_unix,
             (unsigned long long)generation->parts[0].entry.id);
    return !plan->stream || open_stream(generation, error);
}

static void reply_failed(ApiJob *job, int kind, const Error *error)
{
    if (!job->exchange) return;
    if (kind == ERR_BUSY)
        server_reply_busy(job->server, job->exchange, error);
    else
        server_reply_error(job->exchange, kind, error);
}

static bool was_aborted(const ApiJob *job, const GenerationPlan *plan)
{
    const AbortedIds *ids = &job->server->aborted;
    const Caller *caller = exchange_caller(job->exchange);
    const char *owner = caller->account ? caller->account->name : "";
    return aborted_has(ids, plan->request_id, owner, job->arrival_usec) ||
           (caller->is_named_by_client && aborted_has(ids, caller->request_id, owner, job->arrival_usec));
}

/* Why the request must not begin, as an HttpErrorKind; 0: it may. */
static int refuse(const ApiJob *job, const GenerationPlan *plan, Error *error)
{
    int refusal = server_late_refusal(job->server);
    if (refusal) {
        (void)error_set(error, ERR_BUSY, "%s", server_refusal_text(refusal));
    } else if (was_aborted(job, plan)) {
        job->server->metrics.aborted[METRICS_ABORT]++;
        (void)error_set(error, ERR_CANCELLED, "the request was aborted");
        refusal = ERR_CANCELLED;
    }
    return refusal;
}

/* What the key was charged for a request of which nothing is served. */
static void return_charge(const Exchange *exchange, uint64_t n_tokens)
{
    const Caller *caller = exchange_caller(exchange);
    account_return(caller->account, caller->is_charged, n_tokens, clock_now_usec());
}

/* All prompts of the plan are charged to the key, or none and the request is refused. */
static bool charge(uint64_t n_tokens, Exchange *exchange)
{
    Error error;
    int retry_s = 0;
    if (account_take_prompt(exchange_caller(exchange)->account, n_tokens, clock_now_usec(), &retry_s, &error))
        return true;
    return_charge(exchange, 0);
    server_reply_limited(exchange, &error, retry_s);
    return false;
}

static void begin(ApiJob *job, GenerationPlan *plan)
{
    Error error;
    uint64_t n_tokens = 0;
    for (uint32_t i = 0; i < plan->n_requests; i++) n_tokens += plan->requests[i]->n_prompt;
    if (!charge(n_tokens, job->exchange)) return;
    Generation *generation = generation_new(job, plan, &error);
    if (generation) generation_link(generation, job->exchange);
    if (generation && launch(generation, plan, &error)) return;
    if (generation) generation_free(generation);
    if (job->exchange) return_charge(job->exchange, n_tokens);
    reply_failed(job, (int)error.code, &error);
}

static void on_prepared(ApiJob *job)
{
    GenerationPlan *plan = job->user;
    Error error = {.code = ERR_NONE};
    int refusal;
    if (!job->exchange) {
        generation_plan_free(plan);
        return;
    }
    if (job->failed) {
        if (job->error.code == ERR_BUSY || job->error.code == ERR_NO_MEMORY) return_charge(job->exchange, 0);
        reply_failed(job, job->fault ? job->fault : (int)job->error.code, &job->error);
    } else if ((refusal = refuse(job, plan, &error)) != 0) {
        if (refusal != ERR_CANCELLED) return_charge(job->exchange, 0);
        reply_failed(job, refusal, &error);
    } else {
        begin(job, plan);
    }
    generation_plan_free(plan);
}

void generation_start(Server *server, Exchange *exchange, AnswerKind kind, bool (*run)(ApiJob *job, Error *error))
{
    GenerationPlan *plan = calloc(1, sizeof *plan);
    if (!plan) {
        Error error;
        (void)error_set(&error, ERR_NO_MEMORY, "no memory for a request");
        server_reply_error(exchange, ERR_NO_MEMORY, &error);
        return;
    }
    plan->kind = kind;
    if (!api_job_start(server, exchange, plan, run, on_prepared)) generation_plan_free(plan);
}
