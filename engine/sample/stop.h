/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop strings in a stream of text: holds back bytes that could still become a stop string, so none of its characters
 * ever leaves. Engine thread.
 */
#pragma once
#include "base/buffer.h"

typedef struct StopStrings {
    const char *const *text; /* [n], each n_bytes[i] > 0 bytes */
    const size_t *n_bytes;
    uint32_t n; /* at most 16 */
    bool include; /* include_stop_str_in_output */
} StopStrings;

typedef struct StopMatcher StopMatcher;

LW_CHECK bool stop_new(const StopStrings *strings, StopMatcher **ret_matcher, Error *error);
void stop_free(StopMatcher *matcher);
/* Feeds text; appends to out what is safe to send. *ret_stopped: a stop string is complete, the earliest one wins. */
LW_CHECK bool stop_push(StopMatcher *matcher, const char *text, size_t n, Buffer *out, bool *ret_stopped, Error *error);
/* The end came otherwise: appends what was held back. */
LW_CHECK bool stop_flush(StopMatcher *matcher, Buffer *out, Error *error);
