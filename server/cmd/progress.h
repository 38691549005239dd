/* SPDX-License-Identifier: Apache-2.0 */
/* A bar on stderr for long work; silent when stderr is no terminal. One thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct Progress {
    const char *label;
    bool shown; /* stderr is a terminal */
    uint64_t last_usec;
} Progress;

void progress_begin(Progress *progress, const char *label);
/* fraction in [0, 1]; draws at most 20 times a second. The signature is that of EngineParams.progress. */
void progress_update(void *progress, double fraction);
void progress_end(Progress *progress); /* removes the bar */
