/* SPDX-License-Identifier: Apache-2.0 */
/* What the server is at, as a line in the log now and then while it is busy. Loop thread. */
#pragma once
#include "scheduler/messages.h"

typedef struct StatusLine {
    EngineStats last; /* at the line before */
    uint64_t last_usec;
} StatusLine;

/* One line, unless nothing runs, waits or was computed since the call before. now_usec: monotonic. */
void status_line_write(StatusLine *line, const EngineStats *stats, uint64_t now_usec);
