/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who sent a request and under which names it goes: one for each exchange, from its head to its end. Also the headers
 * that every answer has. Loop thread.
 */
#pragma once
#include "server/auth.h"
#include "server/server_state.h"
#include "server/trace.h"

struct Caller {
    Account *account; /* NULL: no key was given or wanted; counted */
    unsigned rights;
    bool is_charged;         /* account_leave is due */
    bool is_named_by_client; /* the request id */
    char request_id[REQUEST_ID_BYTES + 1];
    Trace trace;
};

/* The exchange's, made when it is first asked for; NULL when memory is out. */
Caller *caller_of(Exchange *exchange);
/* The key that the exchange shows. False: none of ours. */
LW_CHECK bool caller_authenticate(Caller *caller, const Server *server, const Exchange *exchange);
/* Charges a request to the account; as account_enter. */
LW_CHECK bool caller_enter(Caller *caller, int *ret_retry_s, Error *error);
void caller_free(Caller *caller); /* NULL is fine */

/* HttpParams.on_answer; arg: the Server. */
void caller_on_answer(void *arg, Exchange *exchange, const char *allow);

/* For a line in the log: request id, trace, key. */
enum { CALLER_LOG_FIELDS = 4 };
void caller_log_fields(const Caller *caller, LogField fields[static CALLER_LOG_FIELDS]);
