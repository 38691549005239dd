/* SPDX-License-Identifier: Apache-2.0 */
#include "server/load/sse_reader.h"

#include <string.h>

enum { MAX_EVENT_BYTES = 4 << 20 };

void sse_reader_init(SseReader *reader)
{
    buffer_init(&reader->line, MAX_EVENT_BYTES);
    buffer_init(&reader->data, MAX_EVENT_BYTES);
    reader->has_data = false;
}

void sse_reader_done(SseReader *reader)
{
    buffer_done(&reader->line);
    buffer_done(&reader->data);
}

void sse_reader_restart(SseReader *reader)
{
    buffer_clear(&reader->line);
    buffer_clear(&reader->data);
    reader->has_data = false;
}

/* An empty line ends an event, which without data is passed over; of several data lines a newline stands between. */
static bool take_line(SseReader *reader, const char *line, size_t n, SseEvent event, void *arg, Error *error)
{
    if (n && line[n - 1] == '\r') n--;
    if (n == 0) {
        bool has_text = reader->data.n && reader->data.data[strspn(reader->data.data, "\n")];
        bool ok = !has_text || event(arg, reader->data.data, reader->data.n, error);
        buffer_clear(&reader->data);
        reader->has_data = false;
        return ok;
    }
    if (n < 5 || memcmp(line, "data:", 5) != 0) return true;
    size_t from = n > 5 && line[5] == ' ' ? 6 : 5;
    if (reader->has_data && !buffer_append_text(&reader->data, "\n", error)) return false;
    reader->has_data = true;
    return buffer_append(&reader->data, line + from, n - from, error);
}

bool sse_reader_feed(SseReader *reader, const char *bytes, size_t n, SseEvent event, void *arg, Error *error)
{
    while (n > 0) {
        const char *end = memchr(bytes, '\n', n);
        if (!end) return buffer_append(&reader->line, bytes, n, error);
        size_t n_line = (size_t)(end - bytes);
        bool ok;
        if (reader->line.n) {
            ok = buffer_append(&reader->line, bytes, n_line, error) &&
                 take_line(reader, reader->line.data, reader->line.n, event, arg, error);
            buffer_clear(&reader->line);
        } else {
            ok = take_line(reader, bytes, n_line, event, arg, error);
        }
        if (!ok) return false;
        bytes = end + 1;
        n -= n_line + 1;
    }
    return true;
}
