/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recorded trace: a JSON object a line with "at" (seconds since the start, not falling), "prompt" (text) or
 * "prompt_tokens", and "answer_tokens". Immutable; any thread.
 */
#pragma once
#include "base/error.h"

#include <stdint.h>

typedef struct ReplayEntry {
    uint64_t at_usec;
    char *prompt; /* NULL: one of prompt_tokens is made up */
    uint32_t prompt_tokens, answer_tokens;
} ReplayEntry;

typedef struct Replay {
    ReplayEntry *entries; /* [n] */
    uint32_t n, capacity;
} Replay;

enum { REPLAY_MAX_TOKENS = 1 << 24 };

/* An error names the file and the line. */
LW_CHECK bool replay_load(const char *path, Replay *ret_replay, Error *error);
void replay_done(Replay *replay);
