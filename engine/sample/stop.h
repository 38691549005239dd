/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop strings in a stream of text: holds back the shortest tail that could still become a stop string, so none of its
 * characters ever leaves. The string that completes first in the stream wins (of two that end together, the longer),
 * wherever the pushes split the text. Engine thread.
 */
#pragma once
#include "base/buffer.h"

enum { STOP_MAX_STRINGS = 16 };

typedef struct StopStrings {
    const char *const *text; /* [n], each n_bytes[i] > 0 bytes */
    const size_t *n_bytes;
    uint32_t n;   /* at most 16 */
    bool include; /* include_stop_str_in_output */
} StopStrings;

typedef struct StopMatcher StopMatcher;

/* The strings are borrowed; ERR_INVALID for an empty one or too many. */
LW_CHECK bool stop_new(const StopStrings *strings, StopMatcher **ret_matcher, Error *error);
void stop_free(StopMatcher *matcher); /* NULL is fine */
/* Forgets the text so far: another stream begins. */
void stop_reset(StopMatcher *matcher);
/*
 * Feeds text; appends to out what is safe to send. *ret_stopped: a stop string is complete; the text was cut at its
 * start (behind it with include), and later pushes give nothing. After an error only reset or free.
 */
LW_CHECK bool stop_push(StopMatcher *matcher, const char *text, size_t n, Buffer *out, bool *ret_stopped, Error *error);
/* The end came otherwise: appends what was held back. */
LW_CHECK bool stop_flush(StopMatcher *matcher, Buffer *out, Error *error);
