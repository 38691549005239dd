/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a stream of server-sent events into the data of each event. Comments and other fields are passed over. One
 * thread. */
#pragma once
#include "base/buffer.h"

typedef struct SseReader {
    Buffer line, data;
    bool has_data;
} SseReader;

/* data: n bytes and a NUL behind them; false: the rest is not wanted, *error says why. */
typedef bool (*SseEvent)(void *arg, const char *data, size_t n, Error *error);

void sse_reader_init(SseReader *reader);
void sse_reader_done(SseReader *reader);
void sse_reader_restart(SseReader *reader); /* for the next stream */
LW_CHECK bool sse_reader_feed(SseReader *reader, const char *bytes, size_t n, SseEvent event, void *arg, Error *error);
