/* SPDX-License-Identifier: Apache-2.0 */
/* The table of routes, and what is checked before any handler runs: path, method, key, media type, readiness. */
#pragma once
#include "server/api.h"

/* Bits of Route.flags. */
enum {
    ROUTE_OPEN = 1,       /* needs no key */
    ROUTE_MODEL = 2,      /* needs a loaded model and a server that is not draining */
    ROUTE_JSON = 4,       /* takes a JSON body */
    ROUTE_PREFIX = 8,     /* what follows the path is the handler's */
    ROUTE_WATCH = 16,     /* any key will do */
    ROUTE_ADMIN = 32,     /* takes an admin's key */
    ROUTE_COUNT = 64,     /* is one of the requests that a key is limited to */
    ROUTE_GENERATE = 128, /* its outcomes are counted */
};

typedef struct Route {
    const char *method, *path;
    unsigned flags;
    ApiHandler *handler;
} Route;

/* NULL behind the last. */
const Route *routes_row(size_t i);
/* NULL: there is none. */
const Route *routes_find(const char *method, const char *path);

/* HttpParams.on_head and .on_request; arg is the Server. */
void routes_on_head(void *arg, Exchange *exchange);
void routes_on_request(void *arg, Exchange *exchange);
/* The line of an exchange that has none yet: at debug for status routes and for what was only read. */
void routes_log(const HttpClosed *closed);
