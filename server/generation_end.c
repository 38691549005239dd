/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "server/generation_state.h"
#include "server/sse.h"

#include <stdlib.h>
#include <string.h>

void generation_plan_free(GenerationPlan *plan)
{
    for (uint32_t i = 0; i < plan->n_requests; i++) {
        request_free(plan->requests[i]);
        buffer_done(&plan->echo[i]);
    }
    grammar_release(plan->grammar);
    prompt_map_free(plan->map);
    free(plan);
}

void generation_part_close(Part *part)
{
    if (!part->open) return; /* then it has no generation yet, perhaps */
    Server *server = part->generation->server;
    part->open = false;
    inbox_remove(&server->inbox, &part->entry);
    server->n_live--;
    part->generation->n_open--;
}

void generation_free(Generation *generation)
{
    Server *server = generation->server;
    for (uint32_t i = 0; i < generation->n_parts; i++) {
        Part *part = &generation->parts[i];
        if (part->open) worker_cancel(server->worker, part->entry.id);
        generation_part_close(part);
    }
    if (generation->link) {
        *generation->link = generation->next;
        if (generation->next) generation->next->link = generation->link;
        server->metrics.open_generations--;
    }
    if (generation->exchange) exchange_set_owner(generation->exchange, NULL, NULL);
    for (uint32_t i = 0; generation->ids && i < generation->answer.n_choices; i++) answer_ids_done(&generation->ids[i]);
    free(generation->ids);
    account_unref(generation->account);
    prompt_map_free(generation->map);
    grammar_release(generation->grammar);
    api_answer_done(&generation->answer);
    free(generation->parts);
    free(generation);
}

/* ---- the line in the log ---- */

/* Of a request that did not come to its end: what was seen of it here. */
static RequestTimings seen_timings(const Generation *generation)
{
    uint64_t now = clock_now_usec();
    uint64_t started = generation->parts[0].started ? generation->parts[0].started_usec : now;
    uint64_t first = generation->first_token_usec ? generation->first_token_usec : now;
    if (first < started) first = started; /* another prompt's */
    RequestTimings timings = {.queue_usec = started - generation->arrival_usec,
                              .prefill_usec = first - started,
                              .decode_usec = now - first,
                              .completion_tokens = generation->n_written};
    for (uint32_t i = 0; i < generation->n_parts; i++) {
        timings.prompt_tokens += generation->parts[i].n_prompt;
        timings.cached_tokens += generation->parts[i].n_cached;
    }
    return timings;
}

/* The reason of all choices; NULL when none is done. */
static const char *finish_word(const ApiAnswer *answer)
{
    const char *word = NULL;
    for (uint32_t i = 0; i < answer->n_choices; i++) {
        if (!answer->choices[i].done) continue;
        const char *own = api_finish_name(answer->choices[i].finish);
        if (word && strcmp(word, own)) return "mixed";
        word = own;
    }
    return word;
}

void generation_log(const Generation *generation, const char *end, unsigned status, const char *code)
{
    enum { FIELDS = 17 };
    const ApiAnswer *answer = &generation->answer;
    bool is_done = !strcmp(end, "done");
    RequestTimings timings = is_done ? answer->timings : seen_timings(generation);
    LogField fields[] = {
        {"id", LOG_WORD, .word = answer->id},
        {"request_id", LOG_WORD, .word = *generation->request_id ? generation->request_id : NULL},
        {"route", LOG_WORD, .word = answer->kind == ANSWER_CHAT ? "/v1/chat/completions" : "/v1/completions"},
        {"status", LOG_WHOLE, .whole = status},
        {"end", LOG_WORD, .word = end},
        {"code", LOG_WORD, .word = code},
        {"finish", LOG_WORD, .word = finish_word(answer)},
        {"stream", LOG_FLAG, .whole = answer->stream},
        {"choices", LOG_WHOLE, .whole = answer->n_choices},
        {"prompt_tokens", LOG_WHOLE, .whole = timings.prompt_tokens},
        {"cached_tokens", LOG_WHOLE, .whole = timings.cached_tokens},
        {"completion_tokens", LOG_WHOLE, .whole = timings.completion_tokens},
        {"preemptions", LOG_WHOLE, .whole = timings.n_preempted},
        {"queue_ms", LOG_REAL, .real = (double)timings.queue_usec / 1e3},
        {"prefill_ms", LOG_REAL, .real = (double)timings.prefill_usec / 1e3},
        {"decode_ms", LOG_REAL, .real = (double)timings.decode_usec / 1e3},
        {"tokens_per_second", LOG_REAL, .real = api_per_second(timings.completion_tokens, timings.decode_usec)},
        [FIELDS + CALLER_LOG_FIELDS - 1] = {NULL},
    };
    caller_log_fields(exchange_caller(generation->exchange), fields + FIELDS);
    log_fields(status == 500 ? LOG_ERROR : LOG_INFO, generation->parts[0].entry.id, "request", fields,
               sizeof fields / sizeof *fields);
}

/* ---- ends ---- */

static void on_closed(void *owner)
{
    Generation *generation = owner;
    exchange_set_logged(generation->exchange);
    generation->server->metrics.aborted[METRICS_GONE]++;
    generation_log(generation, "client_gone", generation->answer.stream ? 200 : http_error_row(ERR_CANCELLED)->status,
                   NULL);
    generation->exchange = NULL;
    generation_free(generation);
}

void generation_link(Generation *generation, Exchange *exchange)
{
    Server *server = generation->server;
    generation->exchange = exchange;
    generation->account = account_ref(exchange_caller(exchange)->account);
    exchange_set_owner(exchange, on_closed, generation);
    generation->next = server->generations;
    generation->link = &server->generations;
    if (generation->next) generation->next->link = &generation->next;
    server->generations = generation;
    server->metrics.open_generations++;
}

static void fail_stream(Generation *generation, int kind, const Error *error)
{
    Buffer frame;
    JsonOut out;
    Error ignored;
    buffer_init(&frame, 8192);
    json_begin(&out, &frame);
    sse_failure(&out, kind, error);
    if (json_end(&out, &ignored)) (void)!exchange_stream_write(generation->exchange, frame.data, frame.n);
    exchange_stream_failed(generation->exchange, kind);
    exchange_stream_end(generation->exchange, true); /* without a frame too: nobody else would end it */
    buffer_done(&frame);
}

static MetricsAbort abort_reason(int kind)
{
    if (kind == HTTP_ERR_DRAINING) return METRICS_SHUTDOWN;
    switch (http_error_row(kind)->outcome) {
    case OUTCOME_CANCELLED:
        return METRICS_ABORT;
    case OUTCOME_TIMEOUT:
        return METRICS_TIMEOUT;
    case OUTCOME_FAILURE:
        return METRICS_FAILURE;
    default:
        return METRICS_REFUSED;
    }
}

void generation_fail(Generation *generation, int kind, const Error *error)
{
    const HttpErrorRow *row = http_error_row(kind);
    bool stream = generation->answer.stream;
    if (row->status == 500) log_write(LOG_ERROR, generation->parts[0].entry.id, "request failed: %s", error->text);
    generation_log(generation, kind == ERR_CANCELLED ? "aborted" : "failed", stream ? 200 : row->status, row->code);
    exchange_set_logged(generation->exchange);
    generation->server->metrics.aborted[abort_reason(kind)]++;
    if (stream)
        fail_stream(generation, kind, error);
    else
        server_reply_error(generation->exchange, kind, error);
    generation_free(generation);
}
