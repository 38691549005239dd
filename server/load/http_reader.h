/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads one HTTP/1.1 answer as its bytes come: status, the headers that matter here, and the body by its length, in
 * chunks, or until the connection ends. Answers of status 1xx are passed over. One thread.
 */
#pragma once
#include "base/buffer.h"

typedef enum HttpReadState {
    HTTP_READ_HEAD,
    HTTP_READ_LENGTH,     /* of the body, 'left' bytes are to come */
    HTTP_READ_CHUNK_SIZE, /* a line */
    HTTP_READ_CHUNK,      /* 'left' bytes of it are to come */
    HTTP_READ_CHUNK_END,  /* the line behind it */
    HTTP_READ_TRAILER,
    HTTP_READ_UNTIL_CLOSE,
    HTTP_READ_DONE,
} HttpReadState;

typedef struct HttpReader {
    HttpReadState state;
    uint64_t left;
    Buffer line; /* the part of a line that is there */
    uint32_t head_bytes;
    int status; /* 0: not known yet */
    bool has_length, is_chunked;
    bool keeps;             /* the connection may be used again */
    uint32_t retry_after_s; /* 0: not said */
} HttpReader;

/* A piece of the body; false: the rest is not wanted, *error says why. */
typedef bool (*HttpBody)(void *arg, const char *bytes, size_t n, Error *error);

void http_reader_init(HttpReader *reader);
void http_reader_done(HttpReader *reader);
void http_reader_restart(HttpReader *reader); /* for the next answer */
/* Bytes behind the answer's end are an error. */
LW_CHECK bool http_reader_feed(HttpReader *reader, const char *bytes, size_t n, HttpBody body, void *arg, Error *error);
/* The connection has ended: true if the answer is whole by that. */
LW_CHECK bool http_reader_close(HttpReader *reader, Error *error);
