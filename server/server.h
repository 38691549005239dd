/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server as one object: socket, keys, routes, metrics, the worker's events, signals and drain. It listens from
 * server_start on and answers 503 'loading' until server_attach. Everything runs on the thread that runs the loop.
 */
#pragma once
#include "engine/text/chat_template.h"
#include "scheduler/worker.h"
#include <uv.h>

typedef struct Server Server;

typedef struct ServerParams {
    uv_loop_t *loop;
    const char *host; /* must outlive the server */
    uint16_t port;    /* 0: any free one */
    const char *api_key_file, *api_key;
    uint64_t max_body_bytes;
    uint64_t max_held_bytes;    /* bodies and answers of all clients */
    uint64_t max_queue_tokens;  /* prompt tokens of waiting requests */
    uint32_t max_output_tokens; /* 0: the context */
    uint32_t max_connections;
    size_t max_stream_bytes; /* unsent output beyond which a client must take as much again every slow_client_ms */
    uint32_t slow_client_ms;
    uint32_t head_timeout_ms, body_timeout_ms;
    uint32_t ping_ms;  /* silence on a stream after which a comment line is sent */
    uint32_t stall_ms; /* a busy engine without a sign of life (one a layer) for so long is dead */
    uint32_t drain_timeout_ms, request_timeout_ms; /* 0: none */
} ServerParams;

void server_defaults(ServerParams *params);

/* What the API tells and needs of the model; immutable, must outlive the server. */
typedef struct ServedModel {
    const char *const *names; /* [n_names], the first one is canonical */
    size_t n_names;
    const char *architecture, *fingerprint;
    uint64_t size_bytes;
    int64_t created_unix;
    uint32_t context;
    const Tokenizer *tokenizer;
    const ChatTemplate *chat_template; /* NULL: the model has none */
} ServedModel;

LW_CHECK bool server_start(const ServerParams *params, Server **ret_server, Error *error);
uint16_t server_port(const Server *server);
/* Starts the engine thread and becomes ready. wake and wake_arg of the params are set here. */
LW_CHECK bool server_attach(Server *server, const ServedModel *model, const WorkerParams *params, Error *error);

/* SIGTERM and SIGINT: the first one drains, the second one stops at once. */
LW_CHECK bool server_watch_signals(Server *server, Error *error);
/* No new requests; the loop is stopped (uv_stop) when the open ones are answered or the time is over. */
void server_drain(Server *server);
bool server_draining(const Server *server);
/* Fails what is open, in band, and stops the loop soon. */
void server_stop(Server *server);
/* After uv_run returned: stops the engine thread, closes the socket and all handles. NULL is fine. */
void server_free(Server *server);
