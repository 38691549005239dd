/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* vsnprintf cuts anywhere; drop the bytes of a code point that lost its tail. */
static void cut_at_code_point(char *text, size_t size, int wanted)
{
    if (wanted < 0 || (size_t)wanted < size) return;
    size_t n = strlen(text);
    size_t start = n;
    while (start > 0 && ((unsigned char)text[start - 1] & 0xC0) == 0x80) start--;
    if (start == 0) return;
    unsigned char lead = (unsigned char)text[start - 1];
    size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (n - (start - 1) < need) text[start - 1] = '\0';
}

static void format(char *text, size_t size, const char *fmt, va_list args)
{
    cut_at_code_point(text, size, vsnprintf(text, size, fmt, args));
}

bool error_is_own(ErrorCode code)
{
    return code == ERR_NO_MEMORY || code == ERR_IO || code == ERR_DEVICE || code == ERR_NON_FINITE ||
           code == ERR_INTERNAL || code == ERR_NONE;
}

bool error_set(Error *error, ErrorCode code, const char *fmt, ...)
{
    Error made = {.code = code}; /* built aside: an argument may point into *error */
    va_list args;
    va_start(args, fmt);
    format(made.text, sizeof made.text, fmt, args);
    va_end(args);
    *error = made;
    return false;
}

bool error_set_param(Error *error, ErrorCode code, const char *param, const char *fmt, ...)
{
    Error made = {.code = code};
    cut_at_code_point(made.param, sizeof made.param, snprintf(made.param, sizeof made.param, "%s", param));
    va_list args;
    va_start(args, fmt);
    format(made.text, sizeof made.text, fmt, args);
    va_end(args);
    *error = made;
    return false;
}

bool error_prefix(Error *error, const char *fmt, ...)
{
    char context[sizeof error->text];
    va_list args;
    va_start(args, fmt);
    format(context, sizeof context, fmt, args);
    va_end(args);
    char tail[sizeof error->text];
    memcpy(tail, error->text, sizeof tail);
    cut_at_code_point(error->text, sizeof error->text,
                      snprintf(error->text, sizeof error->text, "%s: %s", context, tail));
    return false;
}
