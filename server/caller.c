/* SPDX-License-Identifier: Apache-2.0 */
#include "server/caller.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Caller *caller_of(Exchange *exchange)
{
    Caller *caller = exchange_caller(exchange);
    if (caller) return caller;
    caller = calloc(1, sizeof *caller);
    if (!caller) return NULL;
    const char *given = exchange_header(exchange, "x-request-id");
    caller->is_named_by_client = given && request_id_is_valid(given);
    if (caller->is_named_by_client)
        snprintf(caller->request_id, sizeof caller->request_id, "%s", given);
    else
        request_id_make(caller->request_id);
    trace_read(exchange_header(exchange, "traceparent"), &caller->trace);
    exchange_set_caller(exchange, caller);
    return caller;
}

bool caller_authenticate(Caller *caller, const Server *server, const Exchange *exchange)
{
    AuthGrant grant;
    if (!auth_check(server->auth, exchange_header(exchange, "Authorization"), &grant)) return false;
    caller->account = account_ref(grant.account);
    caller->rights = grant.rights;
    return true;
}

bool caller_enter(Caller *caller, int *ret_retry_s, Error *error)
{
    caller->is_charged = account_enter(caller->account, clock_now_usec(), ret_retry_s, error);
    return caller->is_charged;
}

void caller_free(Caller *caller)
{
    if (!caller) return;
    if (caller->is_charged) account_leave(caller->account);
    account_unref(caller->account);
    free(caller);
}

static void add_header(void *arg, const char *name, const char *value)
{
    exchange_add_header(arg, name, value);
}

void caller_on_answer(void *arg, Exchange *exchange, const char *allow)
{
    const Server *server = arg;
    const Caller *caller = caller_of(exchange);
    AccountHeader headers[ACCOUNT_MAX_HEADERS];
    const CorsAsk ask = {.origin = exchange_header(exchange, "Origin"),
                         .method = strcmp(exchange_method(exchange), "OPTIONS")
                                       ? NULL
                                       : exchange_header(exchange, "Access-Control-Request-Method"),
                         .headers = exchange_header(exchange, "Access-Control-Request-Headers")};
    cors_answer(server->cors, &ask, allow, add_header, exchange);
    if (!caller) return;
    exchange_add_header(exchange, "x-request-id", caller->request_id);
    if (*caller->trace.trace_id) {
        char parent[TRACE_PARENT_BYTES + 1];
        trace_write(&caller->trace, parent);
        exchange_add_header(exchange, "traceparent", parent);
    }
    size_t n = account_headers(caller->account, clock_now_usec(), headers);
    for (size_t i = 0; i < n; i++) exchange_add_header(exchange, headers[i].name, headers[i].value);
}

void caller_log_fields(const Caller *caller, LogField fields[static CALLER_LOG_FIELDS])
{
    bool traced = caller && *caller->trace.trace_id;
    fields[0] = (LogField){"x_request_id", LOG_WORD, .word = caller ? caller->request_id : NULL};
    fields[1] = (LogField){"trace_id", LOG_WORD, .word = traced ? caller->trace.trace_id : NULL};
    fields[2] = (LogField){"span_id", LOG_WORD, .word = traced ? caller->trace.span_id : NULL};
    fields[3] = (LogField){"key", LOG_WORD, .word = caller && caller->account ? caller->account->name : NULL};
}
