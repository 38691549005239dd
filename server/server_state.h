/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the server, for the route handlers. Loop thread, but for the fields marked immutable. */
#pragma once
#include "engine/sample/grammar/cache.h"
#include "engine/text/token_memory.h"
#include "server/aborted.h"
#include "server/auth.h"
#include "server/compile_queue.h"
#include "server/cors.h"
#include "server/http_daemon.h"
#include "server/hosts.h"
#include "server/http_error.h"
#include "server/inbox.h"
#include "server/metrics.h"
#include "server/server.h"
#include "server/status_line.h"

#include <stdatomic.h>

typedef struct Generation Generation;

typedef enum ServerPhase { PHASE_LOADING, PHASE_READY, PHASE_DRAINING, PHASE_STOPPING } ServerPhase;

struct Server {
    ServerParams params; /* immutable */
    ServerLimits limits;
    Auth *auth;
    Cors *cors;
    Hosts *hosts;
    uint16_t port;
    uint64_t start_unix;
    bool is_local; /* the address that it listens on */
    HttpDaemon *http;
    ServerPhase phase;
    const ServedModel *model; /* NULL while loading, then immutable */
    Worker *worker;           /* NULL while loading */
    TokenMemory *memory;      /* of answers; NULL while loading, then any thread's */
    GrammarCache *grammars;   /* the same */
    Inbox inbox;
    Metrics metrics;
    Generation *generations;  /* open ones */
    uint32_t n_jobs;          /* in uv's pool, or waiting to compile */
    uint32_t n_live;          /* requests at the engine */
    uint64_t work_since_usec; /* when n_live became 1 */
    bool has_sessions;
    uint32_t max_queue; /* the most that the worker takes */
    StatusLine status_line;
    RequestId last_id;
    CompileQueue to_compile;
    AbortedIds aborted; /* while there are jobs */
    uv_async_t wake;
    uv_timer_t ping, drain, status, heartbeat, compile;
    uv_signal_t signals[3];
    uint64_t drain_until_usec;
    bool is_stalled, feeds_watchdog;        /* heartbeat.c */
    uint64_t ticked_usec, awake_since_usec; /* the same: the last tick, the first one after a time without */
    atomic_uint load_steps, load_percent;
    unsigned told_steps;
    int n_handles;
};

/* Counts and replies {"error":...}; allow: for 405. */
void server_reply_error(Exchange *exchange, int kind, const Error *error);
/* HTTP_ERR_RATE with that Retry-After; -1: clients are told not to try again. */
void server_reply_limited(Exchange *exchange, const Error *error, int retry_after_s);
/* ERR_BUSY, with a Retry-After from the measured throughput. */
void server_reply_busy(Server *server, Exchange *exchange, const Error *error);
void server_reply_json(Exchange *exchange, Buffer *body);
/* May work be done now? If not, the reason as an HttpErrorKind; 0: yes. */
int server_refusal(const Server *server);
/* The same for what was let in before: a drain waits for it. */
int server_late_refusal(const Server *server);
const char *server_refusal_text(int refusal);
