/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/scheduler/recorder.h"
#include "tests/support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void append(char *text, size_t size, const char *more)
{
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s", more);
}

static void note(Recorder *recorder, RequestId id, char what)
{
    char entry[32];
    snprintf(entry, sizeof entry, "%u%c ", (unsigned)id, what);
    append(recorder->order, sizeof recorder->order, entry);
}

static void take_tokens(RequestRecord *record, uint32_t choice, const TokensPayload *payload)
{
    ChoiceRecord *c = &record->choices[choice];
    char *text = payload->is_prompt ? record->prompt_text : c->text;
    size_t *n_text = payload->is_prompt ? &record->n_prompt_text : &c->n_text;
    if (*n_text + payload->text_bytes >= sizeof c->text) abort();
    if (payload->text_bytes) memcpy(text + *n_text, payload->text, payload->text_bytes);
    *n_text += payload->text_bytes;
    for (uint32_t i = 0; i < payload->n_tokens; i++) {
        uint32_t *n = payload->is_prompt ? &record->n_prompt : &c->n_tokens;
        if (*n == RECORDER_MAX_TOKENS) abort();
        if (payload->is_prompt) {
            record->prompt[(*n)++] = payload->tokens[i];
        } else {
            c->ids[*n] = payload->tokens[i].sample.id;
            c->tokens[(*n)++] = payload->tokens[i];
        }
    }
}

static void take_request_event(Recorder *recorder, const Event *event)
{
    if (event->id >= RECORDER_MAX_REQUESTS || event->choice >= RECORDER_MAX_CHOICES) abort();
    RequestRecord *record = &recorder->requests[event->id];
    record->n_after_last += record->n_done + record->n_failed > 0;
    switch (event->kind) {
    case EVENT_STARTED:
        record->n_started++;
        note(recorder, event->id, 'S');
        break;
    case EVENT_PROGRESS:
        record->n_progress++;
        record->progress_done = event->progress.done;
        break;
    case EVENT_TOKENS:
        take_tokens(record, event->choice, event->tokens);
        break;
    case EVENT_CHOICE_DONE:
        record->choices[event->choice].is_done = true;
        record->choices[event->choice].finish = event->finish;
        break;
    case EVENT_DONE:
        record->n_done++;
        record->timings = event->timings;
        note(recorder, event->id, 'D');
        break;
    case EVENT_FAILED:
        record->n_failed++;
        record->error = *event->error;
        note(recorder, event->id, 'F');
        break;
    default:
        abort();
    }
}

void recorder_take(Recorder *recorder, Event *event)
{
    recorder->n_events++;
    if (event->kind == EVENT_STATS) {
        recorder->n_stats++;
        recorder->stats = *event->stats;
    } else if (event->kind == EVENT_STOPPED) {
        recorder->n_stopped++;
        append(recorder->order, sizeof recorder->order, "X ");
    } else {
        take_request_event(recorder, event);
    }
    event_done(event);
}

uint32_t byte_id(char byte)
{
    return TINY_FIRST_BYTE + (uint32_t)(unsigned char)byte;
}

Request *request_of(RequestId id, const char *prompt)
{
    Request *request = request_new(id, 1 << 20);
    if (!request) abort();
    size_t n = strlen(prompt);
    uint32_t *ids = arena_array(&request->arena, n + 1, sizeof *ids);
    if (!ids) abort();
    for (size_t i = 0; i < n; i++) ids[i] = byte_id(prompt[i]);
    request->prompt = ids;
    request->n_prompt = (uint32_t)n;
    request->max_tokens = 8;
    request->sampling.temperature = 0;
    return request;
}

void request_set_stop(Request *request, const char *text)
{
    const char **texts = arena_array(&request->arena, 1, sizeof *texts);
    size_t *n_bytes = arena_array(&request->arena, 1, sizeof *n_bytes);
    if (!texts || !n_bytes) abort();
    texts[0] = text;
    n_bytes[0] = strlen(text);
    request->stop = (StopStrings){.text = texts, .n_bytes = n_bytes, .n = 1};
}
