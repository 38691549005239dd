/* SPDX-License-Identifier: Apache-2.0 */
/* Framing of server-sent events: appends to a Buffer, knows no socket. Any thread. */
#pragma once
#include "server/http_error.h"

#define SSE_PING ": ping\n\n"
#define SSE_DONE "data: [DONE]\n\n"

/* Between the two goes one JSON value without line ends. */
void sse_data_begin(JsonOut *out);
void sse_data_end(JsonOut *out);
/* A failure after the headers: error frame and [DONE]. */
void sse_failure(JsonOut *out, int kind, const Error *error);
