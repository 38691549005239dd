/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/gguf_impl.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAME_BYTES = 65535 };

void gguf_printable(char *text, size_t size, GgufString bytes)
{
    size_t take = bytes.n < size - 1 ? bytes.n : size - 1;
    for (size_t i = 0; i < take; i++) {
        unsigned char c = (unsigned char)bytes.data[i];
        text[i] = c < 0x20 || c >= 0x7F ? '?' : (char)c;
    }
    text[take] = '\0';
}

const char *gguf_path_end(const char *path)
{
    size_t n = strlen(path);
    if (n <= 120) return path;
    path += n - 120;
    while ((*path & 0xC0) == 0x80) path++; /* never half a code point */
    return path;
}

int gguf_compare_strings(GgufString a, GgufString b)
{
    int order = memcmp(a.data, b.data, a.n < b.n ? a.n : b.n);
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

bool gguf_fail(GgufReader *r, ErrorCode code, const char *fmt, ...)
{
    char why[200], name[101] = "", subject[140];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    if (r->name.data) {
        gguf_printable(name, sizeof name, r->name);
        snprintf(subject, sizeof subject, "%s '%s'", r->kind, name);
    } else if (!strcmp(r->kind, "header")) {
        snprintf(subject, sizeof subject, "header");
    } else {
        snprintf(subject, sizeof subject, "%s number %" PRIu64, r->kind, r->index);
    }
    return error_set_param(r->error, code, name, "%s: %s at offset %" PRIu64 ": %s", gguf_path_end(r->part->path),
                           subject, r->start, why);
}

uint64_t gguf_bytes_left(const GgufReader *r)
{
    return r->part->n_bytes - r->at;
}

bool gguf_read_bytes(GgufReader *r, void *out, size_t n, const char *what)
{
    if (gguf_bytes_left(r) < n)
        return gguf_fail(r, ERR_INVALID, "the file ends at %" PRIu64 ", inside the %s", r->part->n_bytes, what);
    memcpy(out, r->part->base + r->at, n);
    r->at += n;
    return true;
}

bool gguf_read_u32(GgufReader *r, uint32_t *ret, const char *what)
{
    return gguf_read_bytes(r, ret, sizeof *ret, what);
}

bool gguf_read_u64(GgufReader *r, uint64_t *ret, const char *what)
{
    return gguf_read_bytes(r, ret, sizeof *ret, what);
}

bool gguf_read_string(GgufReader *r, GgufString *ret, const char *what)
{
    uint64_t n = 0;
    if (!gguf_read_u64(r, &n, what)) return false;
    if (n > gguf_bytes_left(r))
        return gguf_fail(r, ERR_INVALID, "%s of %" PRIu64 " bytes, but the file has %" PRIu64 " left", what, n,
                         gguf_bytes_left(r));
    *ret = (GgufString){(const char *)r->part->base + r->at, (size_t)n};
    r->at += n;
    return true;
}

void gguf_begin(GgufReader *r, const char *kind, uint64_t index)
{
    r->kind = kind;
    r->index = index;
    r->start = r->at;
    r->name = (GgufString){0};
}

bool gguf_read_name(GgufReader *r, GgufString *ret)
{
    GgufString name = {0};
    if (!gguf_read_string(r, &name, "name")) return false;
    if (name.n == 0 || name.n > MAX_NAME_BYTES)
        return gguf_fail(r, ERR_INVALID, "name of %zu bytes; 1 to %d are allowed", name.n, (int)MAX_NAME_BYTES);
    r->name = name;
    *ret = name;
    return true;
}
