/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cors.h"
#include "server/name_list.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ORIGIN_BYTES = 256, MAX_ASKED_BYTES = 2048 };

#define PREFLIGHT_SECONDS "600"
#define READABLE                                                                                                       \
    "x-request-id, traceparent, Retry-After, x-should-retry, x-ratelimit-limit-requests, x-ratelimit-limit-tokens, "   \
    "x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens, x-ratelimit-reset-requests, "                       \
    "x-ratelimit-reset-tokens"

struct Cors {
    NameList origins;
};

/* scheme://host[:port] and nothing behind it, in printable ASCII. */
static bool is_origin(const char *text)
{
    const char *host = strstr(text, "://");
    if (!host || host == text || !host[3] || strlen(text) > MAX_ORIGIN_BYTES) return false;
    for (const char *at = text; *at; at++)
        if (*at <= ' ' || *at >= 0x7F || strchr("\"\\,", *at)) return false;
    return !strpbrk(host + 3, "/?#*");
}

static const NameListKind kind = {"cors_origins", "origin", "https://example.org:8000", is_origin};

bool cors_new(const char *list, Cors **ret_cors, Error *error)
{
    Cors *cors = calloc(1, sizeof *cors);
    if (!cors) return error_set(error, ERR_NO_MEMORY, "no memory for cors_origins");
    if (!name_list_read(&cors->origins, &kind, list, error)) {
        cors_free(cors);
        return false;
    }
    *ret_cors = cors;
    return true;
}

void cors_free(Cors *cors)
{
    if (!cors) return;
    name_list_done(&cors->origins);
    free(cors);
}

/* A list of header names may be repeated in an answer; anything else may not. */
static bool is_name_list(const char *text)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~, ";
    size_t n = strspn(text, allowed);
    return n && !text[n] && n <= MAX_ASKED_BYTES;
}

void cors_answer(const Cors *cors, const CorsAsk *ask, const char *allow,
                 void (*add)(void *arg, const char *name, const char *value), void *arg)
{
    if (!cors->origins.all && cors->origins.n) add(arg, "Vary", "Origin");
    if (!ask->origin || !name_list_has(&cors->origins, ask->origin)) return;
    add(arg, "Access-Control-Allow-Origin", cors->origins.all ? "*" : ask->origin);
    add(arg, "Access-Control-Expose-Headers", READABLE);
    if (!ask->method || !allow) return;
    add(arg, "Access-Control-Allow-Methods", allow);
    /* '*' would leave Authorization out. */
    if (ask->headers && is_name_list(ask->headers)) add(arg, "Access-Control-Allow-Headers", ask->headers);
    add(arg, "Access-Control-Max-Age", PREFLIGHT_SECONDS);
}
