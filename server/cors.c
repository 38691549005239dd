/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cors.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_ORIGINS = 64, MAX_ORIGIN_BYTES = 256, MAX_ASKED_BYTES = 2048 };

#define PREFLIGHT_SECONDS "600"
#define READABLE                                                                                                       \
    "x-request-id, traceparent, Retry-After, x-should-retry, x-ratelimit-limit-requests, x-ratelimit-limit-tokens, "   \
    "x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens, x-ratelimit-reset-requests, "                       \
    "x-ratelimit-reset-tokens"

struct Cors {
    bool all;
    size_t n;
    char *text; /* what the origins point into */
    const char *origins[MAX_ORIGINS];
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

static bool add_origin(Cors *cors, const char *text, Error *error)
{
    if (!strcmp(text, "*")) {
        cors->all = true;
        return true;
    }
    if (!is_origin(text))
        return error_set_param(error, ERR_INVALID, "cors_origins",
                               "cors_origins: '%.100s' is no origin such as https://example.org:8000, and not *", text);
    if (cors->n == MAX_ORIGINS)
        return error_set_param(error, ERR_TOO_LARGE, "cors_origins", "cors_origins has more than %d origins",
                               MAX_ORIGINS);
    cors->origins[cors->n++] = text;
    return true;
}

bool cors_new(const char *list, Cors **ret_cors, Error *error)
{
    Cors *cors = calloc(1, sizeof *cors);
    if (cors) cors->text = strdup(list ? list : "");
    if (!cors || !cors->text) {
        free(cors);
        return error_set(error, ERR_NO_MEMORY, "no memory for cors_origins");
    }
    char *rest = NULL;
    for (char *one = strtok_r(cors->text, ", ", &rest); one; one = strtok_r(NULL, ", ", &rest))
        if (!add_origin(cors, one, error)) {
            cors_free(cors);
            return false;
        }
    *ret_cors = cors;
    return true;
}

void cors_free(Cors *cors)
{
    if (!cors) return;
    free(cors->text);
    free(cors);
}

/* Scheme and host have no case. */
static bool allows(const Cors *cors, const char *origin)
{
    if (cors->all) return true;
    for (size_t i = 0; i < cors->n; i++)
        if (!strcasecmp(cors->origins[i], origin)) return true;
    return false;
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
    if (!cors->all && cors->n) add(arg, "Vary", "Origin");
    if (!ask->origin || !allows(cors, ask->origin)) return;
    add(arg, "Access-Control-Allow-Origin", cors->all ? "*" : ask->origin);
    add(arg, "Access-Control-Expose-Headers", READABLE);
    if (!ask->method || !allow) return;
    add(arg, "Access-Control-Allow-Methods", allow);
    /* '*' would leave Authorization out. */
    if (ask->headers && is_name_list(ask->headers)) add(arg, "Access-Control-Allow-Headers", ask->headers);
    add(arg, "Access-Control-Max-Age", PREFLIGHT_SECONDS);
}
