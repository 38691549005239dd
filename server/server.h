/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server as one object: socket, keys, routes, metrics, the worker's events, signals and drain. It listens from
 * server_start on and answers 503 'loading' until server_attach; connections to a socket that was passed to it wait.
 * Everything runs on the thread that runs the loop.
 */
#pragma once
#include "engine/text/answer_style.h"
#include "scheduler/worker.h"
#include "server/api_longwave.h"
#include <uv.h>

typedef struct Server Server;

/* What may change while the server runs. */
typedef struct ServerLimits {
    uint32_t max_queue;          /* waiting requests, besides those that the engine computes at once */
    uint64_t max_queue_tokens;   /* their prompt tokens */
    uint32_t max_output_tokens;  /* 0: the context */
    uint32_t max_stall_ms;       /* what prefill may add between two tokens; 0: the default */
    uint32_t request_timeout_ms; /* 0: none */
    bool log_prompts;            /* the beginning of every prompt goes to the log */
    bool has_page;               /* browsers get a page at / */
} ServerLimits;

/* Who may do what: the values of the options. */
typedef struct ServerAccess {
    const char *api_key_file, *api_key, *cors_origins, *allowed_hosts; /* NULL: not given */
} ServerAccess;

typedef struct ServerParams {
    uv_loop_t *loop;
    int listen_fd;    /* a listening socket, the server's once it has started; -1: host and port say where */
    const char *host; /* must outlive the server */
    uint16_t port;    /* 0: any free one */
    ServerAccess access;
    uint64_t max_body_bytes;
    uint64_t max_held_bytes; /* bodies and answers of all clients */
    ServerLimits limits;
    uint32_t max_connections;
    size_t max_stream_bytes; /* unsent output beyond which a client must take as much again every slow_client_ms */
    uint32_t slow_client_ms;
    uint32_t head_timeout_ms, body_timeout_ms;
    uint32_t ping_ms;             /* silence on a stream after which a comment line is sent */
    uint32_t stall_ms;            /* a busy engine without a sign of life (one a layer) for so long is dead */
    uint32_t status_ms;           /* between two status lines while busy */
    uint32_t drain_timeout_ms;    /* 0: none */
    void (*on_reload)(void *arg); /* SIGHUP; may be NULL */
    void *reload_arg;
} ServerParams;

void server_defaults(ServerParams *params);

/* What the API tells and needs of the model; immutable, must outlive the server. */
typedef struct ServedModel {
    const char *const *names; /* [n_names], the first one is canonical */
    size_t n_names;
    const char *architecture, *fingerprint;
    const char *kv_type; /* the option's value */
    const char *device;
    uint64_t weight_bytes, buffer_bytes, memory_bytes; /* held where it computes; what there is */
    bool kv_on_gpu;
    uint32_t kv_page_tokens, n_kv_pages;
    uint64_t size_bytes;
    int64_t created_unix;
    uint32_t context; /* beyond the trained one only with positions that are not told */
    const Tokenizer *tokenizer;
    const ChatTemplate *chat_template; /* NULL: the model has none */
    const AnswerStyle *style;          /* NULL: answers are text */
    ServedPolicies policies;           /* by PolicyId */
} ServedModel;

LW_CHECK bool server_start(const ServerParams *params, Server **ret_server, Error *error);
uint16_t server_port(const Server *server);
/*
 * Starts the engine thread and becomes ready. wake and wake_arg of the params are set here; their max_queue is the most
 * that the limits can allow.
 */
LW_CHECK bool server_attach(Server *server, const ServedModel *model, const WorkerParams *params, Error *error);

/*
 * New limits and access for what comes in from now on. False: the keys cannot be read, and nothing has changed.
 * A max_queue beyond what the worker was started with is cut to that, and the log says so.
 */
LW_CHECK bool server_reload(Server *server, const ServerLimits *limits, const ServerAccess *access, Error *error);

/* How far the model is loaded, 0 to 1, for the service manager; any thread. */
void server_tell_loading(Server *server, double fraction);
/* SIGTERM and SIGINT: the first one drains, the second one stops at once. SIGHUP: on_reload. */
LW_CHECK bool server_watch_signals(Server *server, Error *error);
/* No new requests; the loop is stopped (uv_stop) when the open ones are answered or the time is over. */
void server_drain(Server *server);
bool server_draining(const Server *server);
/* Fails what is open, in band, and stops the loop soon. */
void server_stop(Server *server);
/* The same, with a reason of its own for what is open: the model cannot be relied on. */
void server_fail(Server *server, const Error *why);
/* After uv_run returned: stops the engine thread, closes the socket and all handles. NULL is fine. */
void server_free(Server *server);
