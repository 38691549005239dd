/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/uri.h"

#include "base/numbers.h"

#include <stdio.h>
#include <string.h>

static bool is_scheme_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '-' ||
           c == '.';
}

/* Bytes of "scheme:", 0: none. */
static size_t scheme_bytes(const char *uri)
{
    size_t n = 0;
    while (is_scheme_char(uri[n])) n++;
    return n && uri[n] == ':' ? n + 1 : 0;
}

/* Bytes up to where the path begins. */
static size_t authority_end(const char *uri)
{
    size_t n = scheme_bytes(uri);
    if (!strncmp(uri + n, "//", 2)) n += 2 + strcspn(uri + n + 2, "/?");
    return n;
}

/* path: of n bytes, in place; "." and ".." go away. */
static void remove_dots(char *path)
{
    char *out = path;
    const char *in = path;
    while (*in) {
        size_t n = strcspn(in + (*in == '/'), "/") + (*in == '/');
        const char *name = in + (*in == '/');
        size_t name_bytes = n - (size_t)(name - in);
        bool up = name_bytes == 2 && !strncmp(name, "..", 2);
        if (up || (name_bytes == 1 && *name == '.')) {
            if (up)
                while (out > path && *--out != '/') continue;
            if (!in[n] && *in == '/') *out++ = '/';
        } else {
            memmove(out, in, n);
            out += n;
        }
        in += n;
    }
    *out = 0;
}

const char *uri_resolve(const char *base, const char *reference, Arena *arena)
{
    size_t keep = strlen(base);
    if (scheme_bytes(reference))
        keep = 0;
    else if (!strncmp(reference, "//", 2))
        keep = scheme_bytes(base);
    else if (*reference == '/')
        keep = authority_end(base);
    else if (*reference == '?')
        keep = strcspn(base, "?");
    else if (*reference) {
        size_t path = authority_end(base);
        keep = strcspn(base, "?");
        while (keep > path && base[keep - 1] != '/') keep--;
    }
    size_t n = keep + strlen(reference) + 2;
    char *uri = arena_alloc(arena, n);
    if (!uri) return NULL;
    bool joins = keep && *reference && *reference != '/' && *reference != '?' && keep == authority_end(base) &&
                 strstr(base, "//");
    snprintf(uri, n, "%.*s%s%s", (int)keep, base, joins ? "/" : "", reference);
    if (authority_end(uri) > scheme_bytes(uri)) remove_dots(uri + authority_end(uri));
    return uri;
}

const char *uri_unescape(const char *text, size_t n, Arena *arena)
{
    char *out = arena_alloc(arena, n + 1);
    if (!out) return NULL;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        int high = i + 2 < n && text[i] == '%' ? hex_value(text[i + 1]) : -1;
        int low = high >= 0 ? hex_value(text[i + 2]) : -1;
        bool escape = low >= 0 && (high || low);
        out[at++] = escape ? (char)(high * 16 + low) : text[i];
        if (escape) i += 2;
    }
    return out;
}
