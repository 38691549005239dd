/* SPDX-License-Identifier: Apache-2.0 */
#include "server/routes.h"
#include "base/log.h"
#include "server/api.h"
#include "server/caller.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define ROUTE_WORK (ROUTE_MODEL | ROUTE_JSON | ROUTE_COUNT)

static const Route routes[] = {
    {"POST", "/v1/chat/completions", ROUTE_WORK | ROUTE_GENERATE, api_chat},
    {"POST", "/v1/completions", ROUTE_WORK | ROUTE_GENERATE, api_completions},
    {"GET", "/v1/models", ROUTE_MODEL, api_models},
    {"GET", "/v1/models/", ROUTE_MODEL | ROUTE_PREFIX, api_model},
    {"POST", "/v1/abort", ROUTE_JSON, api_abort},
    {"POST", "/v1/sessions/", ROUTE_MODEL | ROUTE_JSON | ROUTE_PREFIX | ROUTE_ADMIN, api_session_post},
    {"DELETE", "/v1/sessions/", ROUTE_MODEL | ROUTE_PREFIX | ROUTE_ADMIN, api_session_delete},
    {"POST", "/tokenize", ROUTE_WORK, api_tokenize},
    {"POST", "/detokenize", ROUTE_WORK, api_detokenize},
    {"POST", "/apply-template", ROUTE_WORK, api_apply_template},
    {"GET", "/livez", ROUTE_OPEN, api_livez},
    {"GET", "/readyz", ROUTE_OPEN, api_readyz},
    {"GET", "/health", ROUTE_OPEN, api_readyz},
    {"GET", "/metrics", ROUTE_WATCH, api_metrics},
    {"GET", "/openapi.json", ROUTE_OPEN, api_openapi},
    {"GET", "/", ROUTE_OPEN, api_page},
};

enum { N_ROUTES = sizeof routes / sizeof *routes };

static bool path_matches(const Route *route, const char *path)
{
    if (!(route->flags & ROUTE_PREFIX)) return !strcmp(route->path, path);
    size_t n = strlen(route->path);
    return !strncmp(route->path, path, n) && path[n];
}

static bool method_matches(const Route *route, const char *method)
{
    return !strcmp(route->method, method) || (!strcmp(route->method, "GET") && !strcmp(method, "HEAD"));
}

/* NULL when the path or its method is unknown; *ret_known: the row that has the path. */
static const Route *find_route(const char *method, const char *path, const Route **ret_known)
{
    *ret_known = NULL;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!path_matches(&routes[i], path)) continue;
        *ret_known = &routes[i];
        if (method_matches(&routes[i], method)) return &routes[i];
    }
    return NULL;
}

const Route *routes_row(size_t i)
{
    return i < N_ROUTES ? &routes[i] : NULL;
}

const Route *routes_find(const char *method, const char *path)
{
    const Route *known;
    return find_route(method, path, &known);
}

/* All methods of the path, for Allow. */
static void list_methods(const char *path, char text[static 64])
{
    size_t n = 0;
    for (size_t i = 0; i < N_ROUTES; i++)
        if (path_matches(&routes[i], path))
            n += (size_t)snprintf(text + n, 64 - n, "%s, %s", routes[i].method,
                                  strcmp(routes[i].method, "GET") ? "" : "HEAD, ");
    snprintf(text + n, 64 - n, "OPTIONS");
}

static void reply_no_route(Exchange *exchange, const Route *known)
{
    Error error;
    const char *method = exchange_method(exchange), *path = exchange_path(exchange);
    if (!known) {
        (void)error_set(&error, ERR_NOT_FOUND, "unknown URL: %.20s %.200s", method, path);
        server_reply_error(exchange, HTTP_ERR_URL, &error);
        return;
    }
    char allow[64];
    list_methods(path, allow);
    if (!strcmp(method, "OPTIONS")) {
        exchange_reply(exchange, &(HttpReply){.status = 204, .allow = allow});
        return;
    }
    (void)error_set(&error, ERR_INVALID, "%.20s is not allowed for %.200s, only %s", method, path, allow);
    Buffer body;
    buffer_init(&body, 4096);
    JsonOut out;
    json_begin(&out, &body);
    http_error_write(&out, HTTP_ERR_METHOD, &error);
    exchange_reply(exchange, &(HttpReply){.status = http_error_row(HTTP_ERR_METHOD)->status,
                                          .error_kind = HTTP_ERR_METHOD,
                                          .allow = allow,
                                          .content_type = "application/json",
                                          .body = &body});
    buffer_done(&body);
}

/* application/json or application/<anything>+json, parameters ignored. */
static bool is_json_type(const char *value)
{
    size_t n = strcspn(value, "; \t");
    if (n == strlen("application/json") && !strncasecmp(value, "application/json", n)) return true;
    return n > strlen("application/+json") && !strncasecmp(value, "application/", strlen("application/")) &&
           !strncasecmp(value + n - strlen("+json"), "+json", strlen("+json"));
}

static bool check_media_type(Exchange *exchange, Error *error)
{
    const char *type = exchange_header(exchange, "Content-Type");
    const char *coding = exchange_header(exchange, "Content-Encoding");
    /*
     * No type at all is taken for JSON, but not from a web page: with one that browsers send unasked, any page could
     * post to a server on its reader's machine.
     */
    if (!type && exchange_header(exchange, "Origin"))
        return error_set(error, ERR_UNSUPPORTED, "a request with an Origin needs the Content-Type application/json");
    if (type && !is_json_type(type))
        return error_set(error, ERR_UNSUPPORTED, "Content-Type must be application/json, not '%.100s'", type);
    if (coding && strcasecmp(coding, "identity"))
        return error_set(error, ERR_UNSUPPORTED, "Content-Encoding '%.100s' is not supported", coding);
    return true;
}

static void reply_refusal(Exchange *exchange, int kind)
{
    Error error;
    (void)error_set(&error, ERR_BUSY, "%s", server_refusal_text(kind));
    server_reply_error(exchange, kind, &error);
}

/* Rights of which one is enough. */
static unsigned rights_wanted(const Route *route)
{
    if (route->flags & ROUTE_ADMIN) return RIGHT_ADMIN;
    return route->flags & ROUTE_WATCH ? RIGHT_WATCH | RIGHT_USE : RIGHT_USE;
}

/* False: refused. */
static bool check_key(const Server *server, Exchange *exchange, Caller *caller, const Route *route)
{
    Error error;
    if (route->flags & ROUTE_OPEN) return true;
    if (!caller_authenticate(caller, server, exchange)) {
        (void)error_set(&error, ERR_INVALID, "missing or wrong API key; send it as 'Authorization: Bearer KEY'");
        server_reply_error(exchange, HTTP_ERR_KEY, &error);
        return false;
    }
    if (caller->rights & rights_wanted(route)) return true;
    (void)error_set(&error, ERR_INVALID, "this key may not use %.20s %.200s%s", route->method, route->path,
                    route->flags & ROUTE_ADMIN ? ", which takes one with scope=admin" : "");
    server_reply_error(exchange, HTTP_ERR_FORBIDDEN, &error);
    return false;
}

/* In a drain: who was connected before, but had not said yet what for, is not sent away. */
static int refusal_of(const Server *server, const Exchange *exchange)
{
    return exchange_is_first(exchange) ? server_late_refusal(server) : server_refusal(server);
}

static void check_head(const Server *server, Exchange *exchange, Caller *caller, const Route *route)
{
    Error error;
    int retry_s = 0;
    if (!check_key(server, exchange, caller, route)) return;
    if ((route->flags & ROUTE_JSON) && !check_media_type(exchange, &error))
        server_reply_error(exchange, HTTP_ERR_MEDIA_TYPE, &error);
    else if ((route->flags & ROUTE_MODEL) && refusal_of(server, exchange))
        reply_refusal(exchange, refusal_of(server, exchange));
    else if ((route->flags & ROUTE_COUNT) && !caller_enter(caller, &retry_s, &error))
        server_reply_limited(exchange, &error, retry_s);
}

/*
 * With keys a page of another name has none and gets nothing; without them, on an address that only this machine
 * reaches, such a page is all that has to be kept out, and a name that is not this machine's is how it is known.
 */
static bool check_host(const Server *server, Exchange *exchange)
{
    Error error;
    const char *host = exchange_header(exchange, "Host");
    bool is_guarded = server->is_local && server->port && !auth_account(server->auth, 0);
    if (hosts_allow(server->hosts, host, is_guarded)) return true;
    (void)error_set(&error, ERR_INVALID, "the name '%.100s' is not one of this server's: see its option allowed_hosts",
                    host);
    server_reply_error(exchange, HTTP_ERR_HOST, &error);
    return false;
}

void routes_on_head(void *arg, Exchange *exchange)
{
    const Route *known, *route = find_route(exchange_method(exchange), exchange_path(exchange), &known);
    Caller *caller = caller_of(exchange);
    if (!caller) {
        Error error;
        (void)error_set(&error, ERR_NO_MEMORY, "no memory for a request");
        server_reply_error(exchange, ERR_NO_MEMORY, &error);
    } else if (check_host(arg, exchange)) {
        if (route)
            check_head(arg, exchange, caller, route);
        else
            reply_no_route(exchange, known);
    }
}

void routes_on_request(void *arg, Exchange *exchange)
{
    Server *server = arg;
    const Route *known, *route = find_route(exchange_method(exchange), exchange_path(exchange), &known);
    const char *tail = exchange_path(exchange) + strlen(route->path);
    if ((route->flags & ROUTE_MODEL) && server_late_refusal(server)) /* the phase may have changed during the body */
        reply_refusal(exchange, server_late_refusal(server));
    else
        route->handler(server, exchange, tail);
}

void routes_log(const HttpClosed *closed)
{
    enum { FIELDS = 6 };
    const Route *known, *route = find_route(closed->method, closed->path, &known);
    bool is_read = route && !strcmp(route->method, "GET");
    bool is_quiet = route && ((route->flags & ROUTE_OPEN) || (is_read && closed->status < 400));
    const char *code = closed->error_kind ? http_error_row(closed->error_kind)->code : NULL;
    LogField fields[] = {
        {"method", LOG_WORD, .word = closed->method},
        {"route", LOG_WORD, .word = closed->path},
        {"status", LOG_WHOLE, .whole = closed->status},
        {"end", LOG_WORD, .word = closed->status ? closed->status < 400 ? "done" : "refused" : "client_gone"},
        {"code", LOG_WORD, .word = code},
        {"total_ms", LOG_REAL, .real = (double)closed->usec / 1e3},
        [FIELDS + CALLER_LOG_FIELDS - 1] = {NULL},
    };
    caller_log_fields(closed->caller, fields + FIELDS);
    log_fields(is_quiet ? LOG_DEBUG : LOG_INFO, 0, "request", fields, sizeof fields / sizeof *fields);
}
