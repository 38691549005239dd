/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one table from what went wrong to HTTP status and OpenAI error object. Kinds below ERR_COUNT are ErrorCodes; the
 * rest exist only on the HTTP side. Any thread.
 */
#pragma once
#include "server/json_out.h"

typedef enum HttpErrorKind {
    HTTP_ERR_MODEL = ERR_COUNT, /* the model asked for is not served */
    HTTP_ERR_URL,
    HTTP_ERR_METHOD,
    HTTP_ERR_KEY,
    HTTP_ERR_FORBIDDEN,
    HTTP_ERR_HOST,
    HTTP_ERR_RATE, /* of the key */
    HTTP_ERR_BODY_SIZE,
    HTTP_ERR_MEDIA_TYPE,
    HTTP_ERR_FRAMING,
    HTTP_ERR_TRANSFER_CODING,
    HTTP_ERR_LOADING,
    HTTP_ERR_DRAINING,
    HTTP_ERR_UNHEALTHY,
    HTTP_ERR_DEVICE_FAILED,
    HTTP_ERR_COUNT
} HttpErrorKind;

/* How a request ended, and so whose doing it was: what the page, the dashboard and the alert count alike. */
typedef enum RequestOutcome {
    OUTCOME_DONE,
    OUTCOME_BAD_REQUEST, /* the client asked for what it may not have, or what cannot be done */
    OUTCOME_REFUSED,     /* for load, a key's limit, or since the server loads or stops */
    OUTCOME_TIMEOUT,     /* its time was over */
    OUTCOME_CANCELLED,   /* the client left or aborted it */
    OUTCOME_FAILURE,     /* the server's own fault */
    OUTCOMES
} RequestOutcome;

typedef struct HttpErrorRow {
    unsigned status;
    const char *type;
    const char *code;  /* NULL: null */
    int retry_after_s; /* 0: not said; -1: clients are told not to try again */
    RequestOutcome outcome;
} HttpErrorRow;

/* kind: an ErrorCode or an HttpErrorKind; anything else is an internal error. */
const HttpErrorRow *http_error_row(int kind);
/* {"error":{...}} without a line end. */
void http_error_write(JsonOut *out, int kind, const Error *error);
