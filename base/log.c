/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_int current_level = LOG_INFO;
static atomic_int current_format = LOG_TEXT;

static const char *const level_names[] = {
    [LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};

enum { MESSAGE_BYTES = 1024, LINE_BYTES = 4096 }; /* a pipe takes 4096 bytes at once, so lines of threads never mix */

void log_configure(LogLevel level, LogFormat format)
{
    atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
    atomic_store_explicit(&current_format, (int)format, memory_order_relaxed);
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

static size_t put_head(char *out, LogFormat format, LogLevel level, uint64_t request)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    char when[40], who[40] = "";
    size_t n = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(when + n, sizeof when - n, ".%03dZ", (int)(now.tv_nsec / 1000000));
    bool json = format == LOG_JSON;
    if (request) snprintf(who, sizeof who, json ? "\"request\":%llu," : "request=%llu ", (unsigned long long)request);
    const char *fmt = json ? "{\"time\":\"%s\",\"level\":\"%s\",%s\"msg\":\"" : "time=%s level=%s %smsg=\"";
    return (size_t)snprintf(out, LINE_BYTES, fmt, when, level_names[level], who);
}

void log_write(LogLevel level, uint64_t request, const char *fmt, ...)
{
    if (!log_enabled(level)) return;
    int saved_errno = errno;
    char message[MESSAGE_BYTES], line[LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    bool cut = vsnprintf(message, sizeof message, fmt, args) >= (int)sizeof message;
    va_end(args);
    LogFormat format = (LogFormat)atomic_load_explicit(&current_format, memory_order_relaxed);
    size_t n = put_head(line, format, level, request);
    const char *tail = format == LOG_JSON ? "\"}\n" : "\"\n";
    static const char dots[] = "...";
    size_t room = sizeof line - strlen(tail) - strlen(dots);
    const unsigned char *text = (const unsigned char *)message;
    while (*text && put_escaped(line, room, &n, &text)) {
    }
    if (cut || *text) {
        memcpy(line + n, dots, strlen(dots));
        n += strlen(dots);
    }
    memcpy(line + n, tail, strlen(tail));
    n += strlen(tail);
    while (write(STDERR_FILENO, line, n) < 0 && errno == EINTR) {
    }
    errno = saved_errno;
}
