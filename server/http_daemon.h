/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libmicrohttpd inside the libuv loop. Owns connections, their deadlines and the bytes on their way out; knows nothing
 * of the API. An Exchange is one request and its answer. Everything runs on the loop thread; nothing here blocks.
 *
 * A client that closes, or half-closes, its side while it waits counts as gone.
 */
#pragma once
#include "base/buffer.h"
#include <uv.h>

typedef struct HttpDaemon HttpDaemon;
typedef struct Exchange Exchange;
typedef struct Caller Caller; /* who asks; the API's own */

/* An exchange that is over. */
typedef struct HttpClosed {
    const char *method, *path;
    unsigned status; /* 0: no answer went out */
    int error_kind;  /* of its reply, or told in its stream */
    bool is_whole;   /* the answer was made to its end; else the client left before */
    uint64_t usec;   /* since its head was complete */
    bool is_logged;  /* exchange_set_logged */
    Caller *caller;  /* exchange_set_caller, NULL: was not; now the receiver's */
} HttpClosed;

typedef struct HttpParams {
    uv_loop_t *loop;
    int listen_fd; /* the daemon's once it has started */
    uint64_t max_body_bytes;
    uint64_t max_held_bytes; /* bodies and answers of all requests; beyond it, bodies are refused with 429 */
    size_t max_output_bytes; /* a client with more unsent must take as much again every slow_client_ms, or is cut off */
    uint32_t slow_client_ms;
    uint32_t head_timeout_ms; /* from a connection's start, or its last answer, to the end of the next head */
    uint32_t body_timeout_ms; /* from the end of a head to the end of its body */
    uint32_t max_connections;
    void *arg;
    /* The head is complete. May reply (refuse) already; must not begin a stream. */
    void (*on_head)(void *arg, Exchange *exchange);
    /* Head and body are complete and nothing was replied: reply or begin a stream, now or later. */
    void (*on_request)(void *arg, Exchange *exchange);
    /* The head of an answer is made: exchange_add_header may add to it. allow: what it has as Allow, or NULL. */
    void (*on_answer)(void *arg, Exchange *exchange, const char *allow);
    /* An exchange is over, well or not. */
    void (*on_closed)(void *arg, const HttpClosed *closed);
} HttpParams;

LW_CHECK bool http_daemon_start(const HttpParams *params, HttpDaemon **ret_daemon, Error *error);
/* No new connections; answers carry Connection: close. NULL, one not yet started, is fine here and below. */
void http_daemon_quiesce(HttpDaemon *daemon);
uint32_t http_daemon_open_exchanges(const HttpDaemon *daemon);
/* No request is open, nor on its way on a connection that was just made. */
bool http_daemon_is_idle(const HttpDaemon *daemon);
/* Cuts what is open and frees; its uv handles need one more turn of the loop to close. NULL is fine. */
void http_daemon_stop(HttpDaemon *daemon);

const char *exchange_method(const Exchange *exchange);
const char *exchange_path(const Exchange *exchange);
/* The first one of its connection. */
bool exchange_is_first(const Exchange *exchange);
/* Value of a request header or NULL; valid while the exchange lives. */
const char *exchange_header(const Exchange *exchange, const char *name);
const Buffer *exchange_body(const Exchange *exchange);
/* Hands the body's bytes over; the caller frees them. */
char *exchange_take_body(Exchange *exchange, size_t *ret_n);
/* on_closed(owner) tells once that the exchange is over; its pointer is dead after that. */
void exchange_set_owner(Exchange *exchange, void (*on_closed)(void *owner), void *owner);
/* Whoever asks; stays with the exchange to its end. */
void exchange_set_caller(Exchange *exchange, Caller *caller);
Caller *exchange_caller(const Exchange *exchange);
/* The same for all that comes from one address (IPv6: one network); 0: it has none. */
uint64_t exchange_peer(const Exchange *exchange);
/* In on_answer alone. */
void exchange_add_header(Exchange *exchange, const char *name, const char *value);
/* It has its line in the log. */
void exchange_set_logged(Exchange *exchange);

/* A name of NULL ends a list. */
typedef struct HttpHeader {
    const char *name, *value;
} HttpHeader;

typedef struct HttpReply {
    unsigned status;
    int error_kind;            /* an HttpErrorKind or ErrorCode, for the statistics; 0: none */
    const char *content_type;  /* NULL: no body */
    Buffer *body;              /* its bytes are taken; NULL: empty */
    const char *allow;         /* 405 and OPTIONS */
    const char *challenge;     /* 401: WWW-Authenticate */
    int retry_after_s;         /* 0: not said; -1: not at all, where a client would by the status alone */
    const HttpHeader *headers; /* more of them; NULL: none */
    bool close;                /* end the connection after this answer */
} HttpReply;

/* One reply an exchange; its second one, or one after a stream began, is ignored. */
void exchange_reply(Exchange *exchange, const HttpReply *reply);
bool exchange_replied(const Exchange *exchange);

/* 200 with SSE headers; then writes; then the end. */
LW_CHECK bool exchange_stream_begin(Exchange *exchange, Error *error);
/* False when the client is too slow or memory is out; on_closed follows. */
LW_CHECK bool exchange_stream_write(Exchange *exchange, const char *bytes, size_t n);
/* close: the connection ends with the stream. */
void exchange_stream_end(Exchange *exchange, bool close);
/* The stream tells of this error, as HttpReply.error_kind does. */
void exchange_stream_failed(Exchange *exchange, int error_kind);
