/* SPDX-License-Identifier: Apache-2.0 */
#include "server/load/http_reader.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_LINE_BYTES = 16 << 10, MAX_HEAD_BYTES = 64 << 10, MAX_SIZE_DIGITS = 15, MAX_RETRY_S = 3600 };

void http_reader_init(HttpReader *reader)
{
    *reader = (HttpReader){0};
    buffer_init(&reader->line, MAX_LINE_BYTES);
    http_reader_restart(reader);
}

void http_reader_done(HttpReader *reader)
{
    buffer_done(&reader->line);
}

void http_reader_restart(HttpReader *reader)
{
    Buffer line = reader->line;
    buffer_clear(&line);
    *reader = (HttpReader){.line = line, .state = HTTP_READ_HEAD, .keeps = true};
}

static bool read_status(HttpReader *reader, const char *line, Error *error)
{
    bool ok = !strncmp(line, "HTTP/1.", 7) && (line[7] == '0' || line[7] == '1') && line[8] == ' ' &&
              strspn(line + 9, "0123456789") == 3 && line[9] >= '1' && line[9] <= '5' && (!line[12] || line[12] == ' ');
    if (!ok) return error_set(error, ERR_INVALID, "the answer is not HTTP/1.1: '%.60s'", line);
    reader->status = atoi(line + 9);
    reader->keeps = line[7] == '1';
    return true;
}

static bool read_length(const char *text, int base, uint64_t *ret_length, Error *error)
{
    size_t n = strspn(text, base == 16 ? "0123456789abcdefABCDEF" : "0123456789");
    size_t end = n + strspn(text + n, " \t");
    if (n == 0 || n > MAX_SIZE_DIGITS || (text[end] && text[end] != ';'))
        return error_set(error, ERR_INVALID, "'%.60s' is no length", text);
    *ret_length = strtoull(text, NULL, base);
    return true;
}

/* The value, if the line is this header. */
static const char *value_of(const char *line, const char *name)
{
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0 || line[n] != ':') return NULL;
    return line + n + 1 + strspn(line + n + 1, " \t");
}

/* Is it one of the names, which commas separate? */
static bool has_name(const char *names, const char *name)
{
    for (size_t n; *names; names += n) {
        names += strspn(names, ", \t");
        n = strcspn(names, ", \t");
        if (n == strlen(name) && !strncasecmp(names, name, n)) return true;
    }
    return false;
}

static bool read_header(HttpReader *reader, const char *line, Error *error)
{
    const char *value;
    if ((value = value_of(line, "Content-Length"))) {
        reader->has_length = true;
        return read_length(value, 10, &reader->left, error);
    }
    if ((value = value_of(line, "Transfer-Encoding"))) {
        if (strcasecmp(value, "chunked") != 0)
            return error_set(error, ERR_UNSUPPORTED, "an answer with Transfer-Encoding '%.60s'", value);
        reader->is_chunked = true;
    } else if ((value = value_of(line, "Connection"))) {
        if (has_name(value, "close")) reader->keeps = false;
    } else if ((value = value_of(line, "Retry-After"))) {
        unsigned long seconds = strtoul(value, NULL, 10);
        reader->retry_after_s = seconds < MAX_RETRY_S ? (uint32_t)seconds : MAX_RETRY_S;
    }
    return true;
}

static void end_head(HttpReader *reader)
{
    if (reader->status < 200) {
        uint32_t head_bytes = reader->head_bytes;
        http_reader_restart(reader);
        reader->head_bytes = head_bytes; /* else a server could send such heads for ever */
    } else if (reader->status == 204 || reader->status == 304) {
        reader->state = HTTP_READ_DONE;
    } else if (reader->is_chunked) {
        reader->state = HTTP_READ_CHUNK_SIZE;
    } else if (reader->has_length) {
        reader->state = reader->left ? HTTP_READ_LENGTH : HTTP_READ_DONE;
    } else {
        reader->state = HTTP_READ_UNTIL_CLOSE;
        reader->keeps = false;
    }
}

static bool take_line(HttpReader *reader, const char *line, Error *error)
{
    switch (reader->state) {
    case HTTP_READ_HEAD:
        if (reader->status == 0) return read_status(reader, line, error);
        if (*line) return read_header(reader, line, error);
        end_head(reader);
        return true;
    case HTTP_READ_CHUNK_SIZE:
        if (!read_length(line, 16, &reader->left, error)) return false;
        reader->state = reader->left ? HTTP_READ_CHUNK : HTTP_READ_TRAILER;
        return true;
    case HTTP_READ_CHUNK_END:
        reader->state = HTTP_READ_CHUNK_SIZE;
        return !*line || error_set(error, ERR_INVALID, "a chunk is longer than it says");
    default: /* a trailer */
        if (!*line) reader->state = HTTP_READ_DONE;
        return true;
    }
}

/* Up to the end of a line; returns the bytes taken, 0 on an error. */
static size_t feed_line(HttpReader *reader, const char *bytes, size_t n, Error *error)
{
    const char *end = memchr(bytes, '\n', n);
    size_t taken = end ? (size_t)(end - bytes) + 1 : n;
    reader->head_bytes += (uint32_t)taken;
    if (reader->state == HTTP_READ_HEAD && reader->head_bytes > MAX_HEAD_BYTES) {
        error_set(error, ERR_TOO_LARGE, "headers of more than %d bytes", MAX_HEAD_BYTES);
        return 0;
    }
    if (!buffer_append(&reader->line, bytes, taken, error)) return 0;
    if (!end) return taken;
    Buffer *line = &reader->line;
    line->n--;
    if (line->n && line->data[line->n - 1] == '\r') line->n--;
    while (line->n > 1 && (line->data[line->n - 1] == ' ' || line->data[line->n - 1] == '\t')) line->n--;
    line->data[line->n] = '\0';
    if (strlen(line->data) != line->n) {
        error_set(error, ERR_INVALID, "a NUL in a header");
        return 0;
    }
    bool ok = take_line(reader, line->data, error);
    buffer_clear(line);
    return ok ? taken : 0;
}

static bool feed_body(HttpReader *reader, const char *bytes, size_t n, HttpBody body, void *arg, Error *error)
{
    if (!body(arg, bytes, n, error)) return false;
    if (reader->state == HTTP_READ_UNTIL_CLOSE) return true;
    reader->left -= n;
    if (reader->left == 0) reader->state = reader->state == HTTP_READ_CHUNK ? HTTP_READ_CHUNK_END : HTTP_READ_DONE;
    return true;
}

bool http_reader_feed(HttpReader *reader, const char *bytes, size_t n, HttpBody body, void *arg, Error *error)
{
    while (n > 0) {
        size_t taken = n;
        switch (reader->state) {
        case HTTP_READ_DONE:
            return error_set(error, ERR_INVALID, "bytes behind the answer");
        case HTTP_READ_LENGTH:
        case HTTP_READ_CHUNK:
            if (taken > reader->left) taken = reader->left;
            if (!feed_body(reader, bytes, taken, body, arg, error)) return false;
            break;
        case HTTP_READ_UNTIL_CLOSE:
            if (!feed_body(reader, bytes, taken, body, arg, error)) return false;
            break;
        default:
            taken = feed_line(reader, bytes, n, error);
            if (!taken) return false;
        }
        bytes += taken;
        n -= taken;
    }
    return true;
}

bool http_reader_close(HttpReader *reader, Error *error)
{
    reader->keeps = false;
    if (reader->state == HTTP_READ_UNTIL_CLOSE) reader->state = HTTP_READ_DONE;
    return reader->state == HTTP_READ_DONE || error_set(error, ERR_IO, "the connection ended within the answer");
}
