/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names that a request goes by outside: x-request-id, and W3C Trace Context (traceparent). Headers are untrusted:
 * what has not the right form counts as absent. Any thread.
 */
#pragma once
#include <stdbool.h>

enum { REQUEST_ID_BYTES = 128, TRACE_PARENT_BYTES = 55 };

/* 1 to 128 printable ASCII characters without blanks, quotes and backslashes. */
bool request_id_is_valid(const char *text);
/* "req_" and 32 hex digits, never the same twice. */
void request_id_make(char text[static REQUEST_ID_BYTES + 1]);

/* Hex texts; trace_id "": there is none. */
typedef struct Trace {
    char trace_id[33], span_id[17], flags[3]; /* the span is ours */
} Trace;

/* header: value of traceparent, or NULL. What it names is the parent of a span of our own. */
void trace_read(const char *header, Trace *ret_trace);
/* The header for those that go on from our span; the trace has an id. */
void trace_write(const Trace *trace, char text[static TRACE_PARENT_BYTES + 1]);
