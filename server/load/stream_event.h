/* SPDX-License-Identifier: Apache-2.0 */
/* What one event of an OpenAI stream says, of chat and of completions. Any thread. */
#pragma once
#include "base/buffer.h"

typedef struct StreamEvent {
    bool is_end;     /* [DONE] */
    bool has_tokens; /* text, reasoning or a piece of a call */
    bool has_usage;
    uint64_t prompt_tokens, cached_tokens, answer_tokens; /* with usage */
} StreamEvent;

/*
 * data: n bytes and a NUL behind them. Appends content to ret_content; NULL: it is not wanted. An error is also what
 * the server says of a failure in the middle of the stream.
 */
LW_CHECK bool stream_event_read(const char *data, size_t n, Buffer *ret_content, StreamEvent *ret_event, Error *error);

/* The message of an answer that is no stream: of its error object, or its first bytes. */
void stream_event_refusal(const char *body, size_t n, int status, Error *ret_error);
