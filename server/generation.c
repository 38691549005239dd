/* SPDX-License-Identifier: Apache-2.0 */
#include "server/generation.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/sse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ANSWER_BYTES = 512 << 20 };

/* One Request of a generation, as the inbox sees it. */
typedef struct Part {
    InboxEntry entry;
    Generation *generation;
    uint32_t index;
    uint32_t n_prompt;
    bool open, started;
} Part;

struct Generation {
    Server *server;
    Exchange *exchange; /* NULL: over for the client */
    Generation *next, **link;
    ApiAnswer answer;
    char request_id[130];
    uint32_t n_choices; /* of one part */
    uint32_t n_parts, n_open, n_choices_left;
    Part *parts;
    uint32_t last_choice; /* its finish frame waits for the timings */
    uint64_t arrival_usec, last_write_usec;
};

/* ---- end ---- */

static void plan_free(GenerationPlan *plan)
{
    for (uint32_t i = 0; i < plan->n_requests; i++) {
        request_free(plan->requests[i]);
        buffer_done(&plan->echo[i]);
    }
    free(plan);
}

static void part_close(Part *part)
{
    if (!part->open) return;
    part->open = false;
    inbox_remove(&part->generation->server->inbox, &part->entry);
    if (!part->started) part->generation->server->queued_tokens -= part->n_prompt;
    part->generation->n_open--;
}

/* Whatever still runs is cancelled; nobody waits for its events. */
static void generation_free(Generation *generation)
{
    Server *server = generation->server;
    for (uint32_t i = 0; i < generation->n_parts; i++) {
        Part *part = &generation->parts[i];
        if (part->open) worker_cancel(server->worker, part->entry.id);
        part_close(part);
    }
    if (generation->link) {
        *generation->link = generation->next;
        if (generation->next) generation->next->link = generation->link;
        server->metrics.open_generations--;
    }
    if (generation->exchange) exchange_set_owner(generation->exchange, NULL, NULL);
    api_answer_done(&generation->answer);
    free(generation->parts);
    free(generation);
}

static void on_closed(void *owner)
{
    Generation *generation = owner;
    generation->exchange = NULL;
    generation->server->metrics.client_gone++;
    generation_free(generation);
}

/* In band when the headers are out. */
static void generation_fail(Generation *generation, int kind, const Error *error)
{
    Buffer frame;
    JsonOut out;
    Error ignored;
    if (http_error_row(kind)->status == 500)
        log_write(LOG_ERROR, generation->parts[0].entry.id, "request failed: %s", error->text);
    if (!generation->answer.stream) {
        server_reply_error(generation->exchange, kind, error);
        generation_free(generation);
        return;
    }
    buffer_init(&frame, 8192);
    json_begin(&out, &frame);
    sse_failure(&out, kind, error);
    if (json_end(&out, &ignored) && exchange_stream_write(generation->exchange, frame.data, frame.n))
        exchange_stream_end(generation->exchange, true);
    buffer_done(&frame);
    generation_free(generation);
}

/* ---- writing ---- */

/* Sends frames; false: the client is cut off and on_closed will come, or the generation has failed and is gone. */
static bool send_frames(Generation *generation, JsonOut *out)
{
    Error error;
    if (!json_end(out, &error)) {
        generation_fail(generation, (int)error.code, &error);
        return false;
    }
    generation->last_write_usec = clock_now_usec();
    return exchange_stream_write(generation->exchange, out->buffer->data, out->buffer->n);
}

static void begin_frames(JsonOut *out, Buffer *frames)
{
    buffer_init(frames, MAX_ANSWER_BYTES);
    json_begin(out, frames);
}

/* What the choice has not sent yet; false as send_frames: the generation may be gone. */
static bool send_delta(Generation *generation, uint32_t choice)
{
    Buffer frames;
    JsonOut out;
    if (!api_answer_has_delta(&generation->answer, choice)) return true;
    begin_frames(&out, &frames);
    api_answer_write_delta(&generation->answer, choice, &out);
    bool ok = send_frames(generation, &out);
    buffer_done(&frames);
    return ok;
}

static void finish_stream(Generation *generation)
{
    Buffer frames;
    JsonOut out;
    begin_frames(&out, &frames);
    api_answer_write_finish(&generation->answer, generation->last_choice, true, &out);
    if (generation->answer.include_usage) api_answer_write_usage_frame(&generation->answer, &out);
    json_raw(&out, SSE_DONE);
    if (send_frames(generation, &out)) {
        exchange_stream_end(generation->exchange, false);
        generation_free(generation);
    }
    buffer_done(&frames);
}

static void finish_whole(Generation *generation)
{
    Buffer body;
    JsonOut out;
    Error error;
    begin_frames(&out, &body);
    api_answer_write_object(&generation->answer, &out);
    if (json_end(&out, &error)) {
        server_reply_json(generation->exchange, &body);
        generation_free(generation);
    } else {
        generation_fail(generation, (int)error.code, &error);
    }
    buffer_done(&body);
}

/* ---- events ---- */

static void on_tokens(Generation *generation, uint32_t choice, const TokensPayload *tokens)
{
    Error error;
    Metrics *metrics = &generation->server->metrics;
    uint64_t now = clock_now_usec();
    uint64_t *last = &generation->answer.choices[choice].last_token_usec;
    if (*last)
        metrics_observe(metrics, METRICS_INTER_TOKEN, (double)(now - *last) / 1e6);
    else
        metrics_observe(metrics, METRICS_TTFT, (double)(now - generation->arrival_usec) / 1e6);
    *last = now;
    if (!api_answer_add_tokens(&generation->answer, choice, tokens, &error)) {
        generation_fail(generation, (int)error.code, &error);
        return;
    }
    if (generation->answer.stream) (void)!send_delta(generation, choice);
}

/* Log-probabilities of the prompt come once, for all choices of a part. */
static void on_part_tokens(Part *part, uint32_t choice, const TokensPayload *tokens)
{
    Generation *generation = part->generation;
    uint32_t first = part->index * generation->n_choices;
    if (!tokens->is_prompt) {
        on_tokens(generation, first + choice, tokens);
        return;
    }
    Error error;
    for (uint32_t i = first; i < first + generation->n_choices; i++)
        if (!api_answer_add_tokens(&generation->answer, i, tokens, &error)) {
            generation_fail(generation, (int)error.code, &error);
            return;
        }
    if (!generation->answer.stream) return;
    for (uint32_t i = first, end = first + generation->n_choices; i < end; i++)
        if (!send_delta(generation, i)) return;
}

static void on_choice_done(Generation *generation, uint32_t choice, FinishReason finish)
{
    Buffer frames;
    JsonOut out;
    ApiChoice *state = &generation->answer.choices[choice];
    if (state->done) return;
    state->done = true;
    state->finish = finish;
    generation->server->metrics.finished[finish]++;
    generation->last_choice = choice;
    if (--generation->n_choices_left == 0 || !generation->answer.stream) return;
    begin_frames(&out, &frames);
    api_answer_write_finish(&generation->answer, choice, false, &out);
    (void)!send_frames(generation, &out);
    buffer_done(&frames);
}

static void observe_timings(Generation *generation, const RequestTimings *timings)
{
    Metrics *metrics = &generation->server->metrics;
    RequestTimings *sum = &generation->answer.timings;
    sum->queue_usec += timings->queue_usec;
    sum->prefill_usec += timings->prefill_usec;
    sum->decode_usec += timings->decode_usec;
    sum->prompt_tokens += timings->prompt_tokens;
    sum->cached_tokens += timings->cached_tokens;
    sum->completion_tokens += timings->completion_tokens;
    metrics->prompt_tokens += timings->prompt_tokens;
    metrics->cached_tokens += timings->cached_tokens;
    metrics_observe(metrics, METRICS_QUEUE, (double)timings->queue_usec / 1e6);
    metrics_observe(metrics, METRICS_PREFILL, (double)timings->prefill_usec / 1e6);
    metrics_observe(metrics, METRICS_DECODE, (double)timings->decode_usec / 1e6);
    metrics_observe(metrics, METRICS_E2E,
                    (double)(timings->queue_usec + timings->prefill_usec + timings->decode_usec) / 1e6);
    metrics_observe(metrics, METRICS_PROMPT_TOKENS, timings->prompt_tokens);
    metrics_observe(metrics, METRICS_GENERATION_TOKENS, timings->completion_tokens);
}

static void on_part_done(Part *part, const RequestTimings *timings)
{
    Generation *generation = part->generation;
    part_close(part);
    observe_timings(generation, timings);
    if (generation->n_open) return;
    if (generation->n_choices_left) {
        Error error;
        (void)error_set(&error, ERR_CANCELLED, "the request was cancelled before its answer was complete");
        generation_fail(generation, ERR_CANCELLED, &error);
    } else if (generation->answer.stream) {
        finish_stream(generation);
    } else {
        finish_whole(generation);
    }
}

static void on_event(InboxEntry *entry, Event *event)
{
    Part *part = (Part *)(void *)entry;
    Generation *generation = part->generation;
    uint32_t first = part->index * generation->n_choices;
    if (event->choice >= generation->n_choices) return;
    switch (event->kind) {
    case EVENT_STARTED:
        if (!part->started) generation->server->queued_tokens -= part->n_prompt;
        part->started = true;
        break;
    case EVENT_TOKENS:
        on_part_tokens(part, event->choice, event->tokens);
        break;
    case EVENT_CHOICE_DONE:
        on_choice_done(generation, first + event->choice, event->finish);
        break;
    case EVENT_DONE:
        on_part_done(part, &event->timings);
        break;
    case EVENT_FAILED: {
        Error error = *event->error;
        part_close(part);
        generation_fail(generation, (int)error.code, &error);
        break;
    }
    case EVENT_PROGRESS:
    case EVENT_STATS:
    case EVENT_STOPPED:
        break;
    }
}

/* ---- start ---- */

static bool submit_part(Generation *generation, Request **request, uint32_t index, Error *error)
{
    Server *server = generation->server;
    Part *part = &generation->parts[index];
    uint32_t n_prompt = (*request)->n_prompt;
    if (server->queued_tokens && server->queued_tokens + n_prompt > server->params.max_queue_tokens)
        return error_set(error, ERR_BUSY, "too many prompt tokens are waiting; try again later");
    (*request)->id = ++server->last_id;
    part->entry = (InboxEntry){.id = (*request)->id, .on_event = on_event};
    part->generation = generation;
    part->index = index;
    part->n_prompt = n_prompt;
    if (!worker_submit(server->worker, *request, error)) return false;
    *request = NULL;
    part->open = true;
    generation->n_open++;
    server->queued_tokens += n_prompt;
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
    answer->tokenizer = job->model->tokenizer;
    answer->want_logprobs = plan->want_logprobs;
    answer->n_top_logprobs = plan->n_top_logprobs;
    answer->include_usage = plan->include_usage;
    answer->stream = plan->stream;
    answer->n_choices = plan->n_requests * plan->n_choices;
}

static Generation *generation_new(ApiJob *job, const GenerationPlan *plan, Error *error)
{
    Generation *generation = calloc(1, sizeof *generation);
    if (!generation) goto no_memory;
    generation->server = job->server;
    memcpy(generation->request_id, plan->request_id, sizeof plan->request_id);
    generation->n_choices = plan->n_choices;
    generation->parts = calloc(plan->n_requests, sizeof *generation->parts);
    fill_answer(generation, job, plan);
    if (!generation->parts || !api_answer_init(&generation->answer, error)) goto no_memory;
    generation->n_parts = plan->n_requests;
    generation->n_choices_left = generation->answer.n_choices;
    generation->arrival_usec = plan->requests[0]->arrival_usec;
    return generation;

no_memory:
    if (generation) free(generation->parts);
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
    begin_frames(&out, &frames);
    for (uint32_t i = 0; i < generation->answer.n_choices; i++) {
        if (generation->answer.kind == ANSWER_CHAT) api_answer_write_role(&generation->answer, i, &out);
        if (generation->answer.choices[i].text.n) api_answer_write_delta(&generation->answer, i, &out);
    }
    bool ok = json_end(&out, error) && exchange_stream_begin(generation->exchange, error);
    generation->last_write_usec = clock_now_usec();
    if (ok && frames.n) (void)!exchange_stream_write(generation->exchange, frames.data, frames.n);
    buffer_done(&frames);
    return ok;
}

static void link_generation(Generation *generation, Exchange *exchange)
{
    Server *server = generation->server;
    generation->exchange = exchange;
    exchange_set_owner(exchange, on_closed, generation);
    generation->next = server->generations;
    generation->link = &server->generations;
    if (generation->next) generation->next->link = &generation->next;
    server->generations = generation;
    server->metrics.open_generations++;
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
    if (job->exchange) server_reply_error(job->exchange, kind, error);
}

static void on_prepared(ApiJob *job)
{
    GenerationPlan *plan = job->user;
    Error error = {.code = ERR_NONE};
    int refusal = server_refusal(job->server);
    if (!job->exchange) {
        plan_free(plan);
        return;
    }
    if (job->failed) {
        reply_failed(job, job->fault ? job->fault : (int)job->error.code, &job->error);
    } else if (refusal) {
        (void)error_set(&error, ERR_BUSY, "the server is shutting down");
        reply_failed(job, refusal, &error);
    } else {
        Generation *generation = generation_new(job, plan, &error);
        if (generation) link_generation(generation, job->exchange);
        if (!generation || !launch(generation, plan, &error)) {
            if (generation) generation_free(generation);
            reply_failed(job, (int)error.code, &error);
        }
    }
    plan_free(plan);
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
    if (!api_job_start(server, exchange, plan, run, on_prepared)) plan_free(plan);
}

/* ---- all of them ---- */

uint32_t generation_abort(Server *server, const char *id)
{
    uint32_t n = 0;
    Error error;
    (void)error_set(&error, ERR_CANCELLED, "the request was aborted");
    for (Generation *generation = server->generations, *next; generation; generation = next) {
        next = generation->next;
        if (strcmp(generation->answer.id, id) && strcmp(generation->request_id, id)) continue;
        generation_fail(generation, ERR_CANCELLED, &error);
        n++;
    }
    server->metrics.aborted += n;
    return n;
}

void generation_fail_all(Server *server, int kind, const Error *error)
{
    while (server->generations) generation_fail(server->generations, kind, error);
}

void generation_ping_all(Server *server, uint64_t now_usec)
{
    for (Generation *generation = server->generations; generation; generation = generation->next) {
        if (!generation->answer.stream) continue;
        if (now_usec - generation->last_write_usec < server->params.ping_ms * UINT64_C(1000)) continue;
        generation->last_write_usec = now_usec;
        (void)!exchange_stream_write(generation->exchange, SSE_PING, strlen(SSE_PING));
    }
}
