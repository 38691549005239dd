/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buffer.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No buffer is larger, so that a size plus one and growth by a half never wrap. */
static const size_t limit_bytes = SIZE_MAX / 2 - 1;

void buffer_init(Buffer *buffer, size_t max_bytes)
{
    *buffer = (Buffer){.max = max_bytes < limit_bytes ? max_bytes : limit_bytes};
}

void buffer_done(Buffer *buffer)
{
    free(buffer->data);
    buffer_init(buffer, buffer->max);
}

void buffer_clear(Buffer *buffer)
{
    buffer->n = 0;
    if (buffer->data) buffer->data[0] = '\0';
}

bool buffer_reserve(Buffer *buffer, size_t n, Error *error)
{
    if (n > buffer->max - buffer->n) return error_set(error, ERR_TOO_LARGE, "more than %zu bytes", buffer->max);
    size_t need = buffer->n + n + 1;
    if (need <= buffer->capacity) return true;
    size_t capacity = buffer->capacity < 64 ? 64 : buffer->capacity;
    while (capacity < need) capacity += capacity / 2 + 1;
    if (capacity > buffer->max + 1) capacity = buffer->max + 1;
    char *data = realloc(buffer->data, capacity);
    if (!data) return error_set(error, ERR_NO_MEMORY, "no memory for %zu bytes", capacity);
    if (!buffer->data) data[0] = '\0';
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

bool buffer_append(Buffer *buffer, const void *bytes, size_t n, Error *error)
{
    if (!buffer_reserve(buffer, n, error)) return false;
    if (n) memcpy(buffer->data + buffer->n, bytes, n);
    buffer->n += n;
    buffer->data[buffer->n] = '\0';
    return true;
}

bool buffer_append_text(Buffer *buffer, const char *text, Error *error)
{
    return buffer_append(buffer, text, strlen(text), error);
}

bool buffer_printf(Buffer *buffer, Error *error, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) return error_set(error, ERR_INTERNAL, "format '%s' failed", fmt);
    if (!buffer_reserve(buffer, (size_t)n, error)) return false;
    va_start(args, fmt);
    vsnprintf(buffer->data + buffer->n, (size_t)n + 1, fmt, args);
    va_end(args);
    buffer->n += (size_t)n;
    return true;
}

static bool append_escape(Buffer *buffer, const uint8_t *at, size_t n, Error *error)
{
    if (*at == '\n') return buffer_append_text(buffer, "\\n", error);
    for (size_t i = 0; i < n; i++)
        if (!buffer_printf(buffer, error, "\\x%02x", at[i])) return false;
    return true;
}

bool buffer_append_clean(Buffer *buffer, const void *bytes, size_t n, Error *error)
{
    const uint8_t *at = bytes, *end = at + n;
    for (size_t len; at < end; at += len) {
        bool ok;
        if (utf8_step(at, (size_t)(end - at), &len) != UTF8_WHOLE || !*at)
            ok = buffer_append_text(buffer, "\uFFFD", error);
        else if (utf8_is_control(at, len))
            ok = append_escape(buffer, at, len, error);
        else
            ok = buffer_append(buffer, at, len, error);
        if (!ok) return false;
    }
    return true;
}

void buffer_consume(Buffer *buffer, size_t n)
{
    if (n >= buffer->n) {
        buffer_clear(buffer);
        return;
    }
    memmove(buffer->data, buffer->data + n, buffer->n - n + 1);
    buffer->n -= n;
}

char *buffer_take(Buffer *buffer)
{
    char *data = buffer->data ? buffer->data : calloc(1, 1);
    buffer_init(buffer, buffer->max);
    return data;
}
