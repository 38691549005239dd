/* SPDX-License-Identifier: Apache-2.0 */
#include "server/json_out.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void json_begin(JsonOut *out, Buffer *buffer)
{
    out->buffer = buffer;
    out->failed = false;
}

void json_bytes(JsonOut *out, const char *text, size_t n)
{
    if (!out->failed && !buffer_append(out->buffer, text, n, &out->error)) out->failed = true;
}

void json_raw(JsonOut *out, const char *text)
{
    json_bytes(out, text, strlen(text));
}

void json_rawf(JsonOut *out, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof text) {
        json_bytes(out, text, (size_t)n);
        return;
    }
    if (!out->failed) out->failed = !error_set(&out->error, ERR_INTERNAL, "JSON fragment '%s' does not fit", fmt);
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7F && c != '"' && c != '\\';
}

/* Writes one character that may not be copied as it is; returns the bytes it took from the text. */
static size_t write_special(JsonOut *out, const char *text, size_t n)
{
    unsigned char c = (unsigned char)text[0];
    if (c < 0x20 || c == 0x7F || c == '"' || c == '\\') {
        static const char named[] = "\"\"\\\\\nn\rr\tt\bb\ff";
        const char *at = c ? memchr(named, c, sizeof named - 1) : NULL;
        if (at)
            json_bytes(out, (char[]){'\\', at[1]}, 2);
        else
            json_rawf(out, "\\u%04x", c);
        return 1;
    }
    size_t used;
    if (utf8_step((const uint8_t *)text, n, &used) == UTF8_WHOLE)
        json_bytes(out, text, used);
    else
        json_raw(out, "\uFFFD");
    return used;
}

void json_string_n(JsonOut *out, const char *text, size_t n)
{
    json_raw(out, "\"");
    for (size_t i = 0; i < n && !out->failed;) {
        size_t start = i;
        while (i < n && is_plain((unsigned char)text[i])) i++;
        json_bytes(out, text + start, i - start);
        if (i < n) i += write_special(out, text + i, n - i);
    }
    json_raw(out, "\"");
}

void json_string(JsonOut *out, const char *text)
{
    json_string_n(out, text, strlen(text));
}

void json_real(JsonOut *out, double value, int digits)
{
    if (isfinite(value))
        json_rawf(out, "%.*g", digits, value);
    else
        json_raw(out, "null");
}

bool json_end(const JsonOut *out, Error *error)
{
    if (out->failed) *error = out->error;
    return !out->failed;
}
