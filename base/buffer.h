/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growable bytes with a maximum given at creation: everything fed from outside the process has one. The content is
 * always followed by a NUL that does not count. One thread at a time.
 */
#pragma once
#include "base/error.h"
#include <stdarg.h>
#include <stdint.h>

typedef struct Buffer {
    char *data; /* NULL until the first byte */
    size_t n;   /* bytes in use */
    size_t capacity;
    size_t max; /* bytes; appending beyond it fails with ERR_TOO_LARGE and changes nothing */
} Buffer;

void buffer_init(Buffer *buffer, size_t max_bytes); /* a maximum beyond SIZE_MAX / 2 is cut to it */
void buffer_done(Buffer *buffer);  /* frees the bytes; the buffer may be used again with the same maximum */
void buffer_clear(Buffer *buffer); /* keeps the memory */
LW_CHECK bool buffer_append(Buffer *buffer, const void *bytes, size_t n, Error *error);
LW_CHECK bool buffer_append_text(Buffer *buffer, const char *text, Error *error);
LW_CHECK bool buffer_printf(Buffer *buffer, Error *error, const char *fmt, ...) LW_PRINTF(3, 4);
/* As text that no terminal obeys and that stays one line: invalid UTF-8 and NUL become U+FFFD, a newline \n, other
 * controls (utf8_is_control) \xNN. */
LW_CHECK bool buffer_append_clean(Buffer *buffer, const void *bytes, size_t n, Error *error);
/* Makes room for n more bytes without adding them. */
LW_CHECK bool buffer_reserve(Buffer *buffer, size_t n, Error *error);
/* Drops the first n bytes. */
void buffer_consume(Buffer *buffer, size_t n);
/*
 * Hands the bytes over to the caller, who frees them; the buffer is empty after it. Never NULL but when memory is out.
 */
char *buffer_take(Buffer *buffer);
