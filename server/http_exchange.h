/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of http_daemon, shared by its two files: daemon (loop, connections) and exchange (one request). Loop thread.
 */
#pragma once
#include "server/http_daemon.h"
#include <microhttpd.h>

typedef struct HttpConnection HttpConnection;
struct HttpConnection {
    HttpConnection *next, **link;
    int fd;
    uint64_t deadline_usec; /* 0: none, the client waits for us */
    uint64_t fresh_until_usec; /* its first request is on its way; 0: that has come */
};

struct HttpDaemon {
    HttpParams params;
    struct MHD_Daemon *mhd;
    uv_poll_t poll;
    uv_timer_t timer, tick;
    uv_prepare_t prepare;
    int n_handles;
    bool dirty, connection_closed, quiesced;
    HttpConnection *connections;
    Exchange *exchanges;
    uint32_t n_exchanges;
    uint64_t held_bytes; /* by all exchanges */
};

struct Exchange {
    HttpDaemon *daemon;
    struct MHD_Connection *mhd;
    HttpConnection *connection;
    Exchange *next, **link;
    void (*on_closed)(void *owner); /* may be NULL */
    void *owner;
    Caller *caller;
    char *method, *path;
    Buffer body;
    uint64_t dropped_bytes; /* of a body over the limit */
    struct MHD_Response *response;
    unsigned status;
    int error_kind;
    uv_poll_t *watch;                     /* for the client's departure */
    Buffer out;                           /* of a stream */
    size_t n_sent;                        /* of out */
    uint64_t taken_bytes;                 /* of the stream, by the socket */
    uint64_t late_usec, late_taken_bytes; /* since when, and since which byte, too much is unsent; 0: it is not */
    uint64_t held_bytes;                  /* its body and its answer */
    uint64_t begun_usec;
    bool is_logged, is_first;
    bool dispatched, streaming, stream_ended, close_after, suspended, queued, dead;
};

enum MHD_Result http_on_access(void *arg, struct MHD_Connection *mhd, const char *url, const char *method,
                               const char *version, const char *upload, size_t *upload_n, void **user);
void http_on_completed(void *arg, struct MHD_Connection *mhd, void **user, enum MHD_RequestTerminationCode why);
void http_on_timer(uv_timer_t *timer);
/* Marks it dead and lets MHD find out. */
void http_exchange_kill(Exchange *exchange);
