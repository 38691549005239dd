/* SPDX-License-Identifier: Apache-2.0 */
#include "server/generation.h"
#include "base/clock.h"
#include "server/generation_state.h"
#include "server/sse.h"

#include <stdio.h>
#include <string.h>

enum { MAX_ANSWER_BYTES = 512 << 20 };

/* ---- writing ---- */

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

void generation_begin_frames(JsonOut *out, Buffer *frames)
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
    generation_begin_frames(&out, &frames);
    api_answer_write_delta(&generation->answer, choice, &out);
    bool ok = send_frames(generation, &out);
    buffer_done(&frames);
    return ok;
}

/* All of it is written. */
static void generation_end(Generation *generation)
{
    generation_log(generation, "done", 200, NULL);
    exchange_set_logged(generation->exchange);
    generation_free(generation);
}

static void finish_stream(Generation *generation)
{
    Buffer frames;
    JsonOut out;
    generation_begin_frames(&out, &frames);
    api_answer_write_finish(&generation->answer, generation->last_choice, true, &out);
    if (generation->answer.include_usage) api_answer_write_usage_frame(&generation->answer, &out);
    json_raw(&out, SSE_DONE);
    if (send_frames(generation, &out)) {
        exchange_stream_end(generation->exchange, false);
        generation_end(generation);
    }
    buffer_done(&frames);
}

static void finish_whole(Generation *generation)
{
    Buffer body;
    JsonOut out;
    Error error;
    generation_begin_frames(&out, &body);
    api_answer_write_object(&generation->answer, &out);
    if (json_end(&out, &error)) {
        server_reply_json(generation->exchange, &body);
        generation_end(generation);
    } else {
        generation_fail(generation, (int)error.code, &error);
    }
    buffer_done(&body);
}

/* ---- events ---- */

static void observe_tokens(Generation *generation, const TokensPayload *tokens)
{
    Metrics *metrics = &generation->server->metrics;
    if (tokens->gap_usec) metrics_observe(metrics, METRICS_INTER_TOKEN, (double)tokens->gap_usec / 1e6);
    if (!generation->first_token_usec && tokens->step_usec > generation->arrival_usec)
        metrics_observe(metrics, METRICS_TTFT, (double)(tokens->step_usec - generation->arrival_usec) / 1e6);
    if (!generation->first_token_usec) generation->first_token_usec = clock_now_usec();
    generation->n_written += tokens->n_tokens;
    account_add_generated(generation->account, tokens->n_tokens, clock_now_usec());
}

static void on_tokens(Generation *generation, uint32_t choice, const TokensPayload *tokens)
{
    Error error;
    observe_tokens(generation, tokens);
    if (generation->ids) answer_ids_add(&generation->ids[choice], tokens);
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
    if (finish == FINISH_STOP && state->n_calls) finish = FINISH_TOOL_CALLS;
    state->finish = finish;
    generation->server->metrics.tool_calls += state->n_calls;
    if (generation->ids) answer_ids_keep(&generation->ids[choice], generation->server->memory);
    generation->server->metrics.finished[finish]++;
    generation->last_choice = choice;
    if (--generation->n_choices_left == 0 || !generation->answer.stream) return;
    generation_begin_frames(&out, &frames);
    api_answer_write_finish(&generation->answer, choice, false, &out);
    (void)!send_frames(generation, &out);
    buffer_done(&frames);
}

static void observe_timings(Metrics *metrics, const RequestTimings *timings)
{
    metrics_observe(metrics, METRICS_QUEUE, (double)timings->queue_usec / 1e6);
    metrics_observe(metrics, METRICS_PREFILL, (double)timings->prefill_usec / 1e6);
    metrics_observe(metrics, METRICS_DECODE, (double)timings->decode_usec / 1e6);
    metrics_observe(metrics, METRICS_E2E,
                    (double)(timings->queue_usec + timings->prefill_usec + timings->decode_usec) / 1e6);
    metrics_observe(metrics, METRICS_PROMPT_TOKENS, timings->prompt_tokens);
    metrics_observe(metrics, METRICS_GENERATION_TOKENS, timings->completion_tokens);
    const AttentionStats *attention = &timings->attention;
    attention_stats_add(&metrics->attention, attention);
    if (attention->n_estimates)
        metrics_observe(metrics, METRICS_MISSING_MASS, attention->estimated_mass / (double)attention->n_estimates);
    if (attention->n_audits)
        metrics_observe(metrics, METRICS_AUDITED_MASS, attention->audited_mass / (double)attention->n_audits);
    if (timings->n_audited)
        metrics_observe(metrics, METRICS_AUDITED_KL, timings->audited_kl / (double)timings->n_audited);
}

static void add_timings(RequestTimings *sum, const RequestTimings *timings)
{
    sum->queue_usec += timings->queue_usec;
    sum->prefill_usec += timings->prefill_usec;
    sum->decode_usec += timings->decode_usec;
    sum->prompt_tokens += timings->prompt_tokens;
    sum->cached_tokens += timings->cached_tokens;
    sum->completion_tokens += timings->completion_tokens;
    sum->reasoning_tokens += timings->reasoning_tokens;
    sum->n_preempted += timings->n_preempted;
    attention_stats_add(&sum->attention, &timings->attention);
    sum->n_audited += timings->n_audited;
    sum->audited_kl += timings->audited_kl;
}

static void set_divergence(Generation *generation, const RequestTimings *timings)
{
    static const char *const reasons[] = {[PREFIX_NEW] = "new",
                                          [PREFIX_DIFFERS] = "differs",
                                          [PREFIX_EVICTED] = "evicted",
                                          [PREFIX_WINDOW] = "no_checkpoint"};
    uint32_t end = timings->cache_end;
    if (end >= sizeof reasons / sizeof *reasons || !reasons[end]) return;
    generation->answer.divergence = (ApiDivergence){.reason = reasons[end],
                                                    .token = timings->known_tokens,
                                                    .place = prompt_map_find(generation->map, timings->known_tokens)};
}

static void on_part_done(Part *part, const RequestTimings *timings)
{
    Generation *generation = part->generation;
    generation_part_close(part);
    observe_timings(&generation->server->metrics, timings);
    add_timings(&generation->answer.timings, timings);
    if (!part->index) set_divergence(generation, timings);
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

/* processed: tokens of the prompt, those found in the cache among them. */
static void on_progress(Part *part, uint32_t processed, uint32_t total)
{
    Generation *generation = part->generation;
    uint64_t now_usec = clock_now_usec(); /* once: the first event is at 0 ms */
    Buffer frames;
    JsonOut out;
    if (!part->started) {
        part->started = true;
        part->started_usec = now_usec;
        part->n_cached = processed;
    }
    if (!generation->progress) return;
    ApiProgress progress = {.prompt = part->index,
                            .total = total,
                            .cached = part->n_cached,
                            .processed = processed,
                            .ms = (double)(now_usec - part->started_usec) / 1e3};
    generation_begin_frames(&out, &frames);
    api_answer_write_progress(&generation->answer, &progress, &out);
    (void)!send_frames(generation, &out);
    buffer_done(&frames);
}

void generation_on_event(InboxEntry *entry, Event *event)
{
    Part *part = (Part *)(void *)entry;
    Generation *generation = part->generation;
    uint32_t first = part->index * generation->n_choices;
    if (event->choice >= generation->n_choices) return;
    switch (event->kind) {
    case EVENT_STARTED:
    case EVENT_PROGRESS:
        on_progress(part, event->progress.done, event->progress.total);
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
        if (error.code == ERR_SCHEMA || error.code == ERR_TOO_LARGE) /* of the grammar, whose author is the client */
            snprintf(error.param, sizeof error.param, "%s", generation->grammar_field);
        generation_part_close(part);
        generation_fail(generation, (int)error.code, &error);
        break;
    }
    case EVENT_SESSION:
    case EVENT_STATS:
    case EVENT_STOPPED:
        break;
    }
}

static bool may_abort(const Generation *generation, const Caller *caller, const char *id)
{
    const Caller *own = exchange_caller(generation->exchange);
    if (!(caller->rights & RIGHT_ADMIN) && caller->account != generation->account) return false;
    return !strcmp(generation->answer.id, id) || !strcmp(generation->request_id, id) ||
           (own->is_named_by_client && !strcmp(own->request_id, id));
}

uint32_t generation_abort(Server *server, const Caller *caller, const char *id)
{
    uint32_t n = 0;
    Error error;
    (void)error_set(&error, ERR_CANCELLED, "the request was aborted");
    for (Generation *generation = server->generations, *next; generation; generation = next) {
        next = generation->next;
        if (!may_abort(generation, caller, id)) continue;
        generation_fail(generation, ERR_CANCELLED, &error);
        n++;
    }
    const char *owner = caller->rights & RIGHT_ADMIN ? NULL : caller->account ? caller->account->name : "";
    if (server->n_jobs) aborted_add(&server->aborted, id, owner, clock_now_usec());
    return n;
}

void generation_fail_all(Server *server, int kind, const Error *error)
{
    while (server->generations) generation_fail(server->generations, kind, error);
}

/* Streams that began together fall silent together: in small parts they hold nobody up. */
void generation_ping_all(Server *server, uint64_t now_usec)
{
    uint32_t n_left = server->metrics.open_generations / (GENERATION_PING_PARTS / 2) + 1;
    for (Generation *generation = server->generations; generation && n_left; generation = generation->next) {
        if (!generation->answer.stream) continue;
        if (now_usec - generation->last_write_usec < server->params.ping_ms * UINT64_C(1000)) continue;
        n_left--;
        generation->last_write_usec = now_usec;
        (void)!exchange_stream_write(generation->exchange, SSE_PING, strlen(SSE_PING));
    }
}
