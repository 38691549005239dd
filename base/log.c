/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_int current_level = LOG_INFO;
static atomic_int current_format = LOG_TEXT;
static _Atomic uint64_t lost_lines, untold_lines;

static const char *const level_names[] = {
    [LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};

enum { MESSAGE_BYTES = 1024, LINE_BYTES = 4096 }; /* a pipe takes 4096 bytes at once, so lines of threads never mix */

void log_configure(LogLevel level, LogFormat format)
{
    atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
    atomic_store_explicit(&current_format, (int)format, memory_order_relaxed);
}

uint64_t log_lost(void)
{
    return atomic_load_explicit(&lost_lines, memory_order_relaxed);
}

bool log_enabled(LogLevel level)
{
    return (int)level <= atomic_load_explicit(&current_level, memory_order_relaxed);
}

/* Appends one code point of *text as it may stand inside a JSON string and moves on; false when there is no room. */
static bool put_escaped(char *out, size_t room, size_t *n, const unsigned char **text)
{
    char piece[8];
    const unsigned char *p = *text;
    size_t bytes;
    if (utf8_step(p, strnlen((const char *)p, 4), &bytes) != UTF8_WHOLE)
        snprintf(piece, sizeof piece, "\xEF\xBF\xBD");
    else if (*p == '"' || *p == '\\')
        snprintf(piece, sizeof piece, "\\%c", *p);
    else if (*p == '\n')
        snprintf(piece, sizeof piece, "\\n");
    else if (*p < 0x20 || *p == 0x7F)
        snprintf(piece, sizeof piece, "\\u%04x", *p);
    else
        snprintf(piece, sizeof piece, "%.*s", (int)bytes, (const char *)p);
    size_t length = strlen(piece);
    if (*n + length > room) return false;
    memcpy(out + *n, piece, length);
    *n += length;
    *text = p + bytes;
    return true;
}

/* A line under way; behind its text there is always room for what closes it. */
typedef struct Line {
    LogFormat format;
    size_t n;
    char bytes[LINE_BYTES];
} Line;

static const char dots[] = "...";
enum { TAIL_BYTES = 3 + 3 }; /* the dots and what ends a line */

static void put(Line *line, const char *text)
{
    size_t n = strlen(text);
    memcpy(line->bytes + line->n, text, n);
    line->n += n;
}

/* The text as it may stand between quotes; false: it was cut. */
static bool put_text(Line *line, const char *text, bool is_cut)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at && put_escaped(line->bytes, LINE_BYTES - TAIL_BYTES, &line->n, &at)) {
    }
    if (!*at && !is_cut) return true;
    put(line, dots);
    return false;
}

static void begin(Line *line, LogLevel level, uint64_t request)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    char when[40], who[40] = "";
    size_t n = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(when + n, sizeof when - n, ".%03dZ", (int)(now.tv_nsec / 1000000));
    line->format = (LogFormat)atomic_load_explicit(&current_format, memory_order_relaxed);
    bool json = line->format == LOG_JSON;
    if (request) snprintf(who, sizeof who, json ? "\"request\":%llu," : "request=%llu ", (unsigned long long)request);
    const char *fmt = json ? "{\"time\":\"%s\",\"level\":\"%s\",%s\"msg\":\"" : "time=%s level=%s %smsg=\"";
    line->n = (size_t)snprintf(line->bytes, LINE_BYTES, fmt, when, level_names[level], who);
}

/* All of it or not at all, as far as anybody may rely on it. */
static bool write_out(const Line *line)
{
    ssize_t n;
    do n = write(STDERR_FILENO, line->bytes, line->n);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)line->n;
}

static void tell_lost(uint64_t n)
{
    char text[64];
    Line line;
    begin(&line, LOG_WARN, 0);
    snprintf(text, sizeof text, "%llu lines of the log were lost", (unsigned long long)n);
    (void)put_text(&line, text, false);
    put(&line, line.format == LOG_JSON ? "\"}\n" : "\"\n");
    if (!write_out(&line)) atomic_fetch_add_explicit(&untold_lines, n, memory_order_relaxed);
}

static void end(Line *line)
{
    put(line, line->format == LOG_JSON ? "}\n" : "\n");
    if (!write_out(line)) {
        atomic_fetch_add_explicit(&lost_lines, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&untold_lines, 1, memory_order_relaxed);
        return;
    }
    uint64_t untold = atomic_exchange_explicit(&untold_lines, 0, memory_order_relaxed);
    if (untold) tell_lost(untold);
}

void log_write(LogLevel level, uint64_t request, const char *fmt, ...)
{
    if (!log_enabled(level)) return;
    int saved_errno = errno;
    char message[MESSAGE_BYTES];
    Line line;
    va_list args;
    va_start(args, fmt);
    bool cut = vsnprintf(message, sizeof message, fmt, args) >= (int)sizeof message;
    va_end(args);
    begin(&line, level, request);
    (void)put_text(&line, message, cut);
    put(&line, "\"");
    end(&line);
    errno = saved_errno;
}

/* false: the line is full. */
static bool put_field(Line *line, const LogField *field)
{
    char text[128], value[64];
    const char *fmt = line->format == LOG_JSON ? ",\"%s\":%s" : " %s=%s";
    if (field->kind == LOG_WHOLE)
        snprintf(value, sizeof value, "%llu", (unsigned long long)field->whole);
    else if (field->kind == LOG_REAL)
        snprintf(value, sizeof value, isfinite(field->real) ? "%.3f" : "null", field->real);
    else
        snprintf(value, sizeof value, "%s", field->kind == LOG_WORD ? "\"" : field->whole ? "true" : "false");
    int n = snprintf(text, sizeof text, fmt, field->key, value);
    if (n >= (int)sizeof text || line->n + (size_t)n + TAIL_BYTES > LINE_BYTES) return false;
    put(line, text);
    if (field->kind != LOG_WORD) return true;
    bool whole = put_text(line, field->word, false);
    put(line, "\"");
    return whole;
}

void log_fields(LogLevel level, uint64_t request, const char *msg, const LogField *fields, size_t n)
{
    if (!log_enabled(level)) return;
    int saved_errno = errno;
    Line line;
    begin(&line, level, request);
    bool goes_on = put_text(&line, msg, false);
    put(&line, "\"");
    for (size_t i = 0; i < n && goes_on; i++)
        if (fields[i].kind != LOG_WORD || fields[i].word) goes_on = put_field(&line, &fields[i]);
    end(&line);
    errno = saved_errno;
}
