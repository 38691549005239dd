/* SPDX-License-Identifier: Apache-2.0 */
/* What came out of a scheduler or worker, per request; and requests made from a few words. Test code. One thread. */
#pragma once
#include "scheduler/messages.h"

enum { RECORDER_MAX_REQUESTS = 16, RECORDER_MAX_CHOICES = 8, RECORDER_MAX_TOKENS = 256 };

typedef struct ChoiceRecord {
    char text[4096]; /* [n_text] joined texts of its token events, the prompt's not; NUL behind, perhaps inside too */
    size_t n_text;
    uint32_t ids[RECORDER_MAX_TOKENS];
    EventToken tokens[RECORDER_MAX_TOKENS];
    uint32_t n_tokens;
    bool is_done;
    FinishReason finish;
} ChoiceRecord;

typedef struct RequestRecord {
    ChoiceRecord choices[RECORDER_MAX_CHOICES];
    char prompt_text[4096]; /* [n_prompt_text] */
    size_t n_prompt_text;
    EventToken prompt[RECORDER_MAX_TOKENS];
    uint32_t n_prompt;
    uint32_t n_started, n_progress, n_done, n_failed; /* events */
    uint32_t n_after_last;                            /* events after the last one: must stay 0 */
    uint32_t progress_done;
    RequestTimings timings;
    Error error;
} RequestRecord;

typedef struct Recorder {
    RequestRecord requests[RECORDER_MAX_REQUESTS]; /* by id */
    char order[1024];                              /* "1S 1D 2S ": Started, Done, Failed, STOPPED as "X" */
    uint32_t n_stats, n_stopped, n_events;
    EngineStats stats;
} Recorder;

/* Takes the event and frees its payload. */
void recorder_take(Recorder *recorder, Event *event);

/* A request with the words' bytes as prompt tokens, greedy, 8 tokens at most. */
Request *request_of(RequestId id, const char *prompt);
/* A stop string; the text is borrowed. */
void request_set_stop(Request *request, const char *text);
/* The token of one byte. */
uint32_t byte_id(char byte);
