/* SPDX-License-Identifier: Apache-2.0 */
#include "server/server.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/generation.h"
#include "server/listen.h"
#include "server/routes.h"
#include "server/shutdown.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { EVENTS_PER_TURN = 4096 };

void server_defaults(ServerParams *params)
{
    *params = (ServerParams){
        .host = "127.0.0.1",
        .port = 8080,
        .max_body_bytes = 32 << 20,
        .max_held_bytes = 256 << 20,
        .max_queue_tokens = 4 << 20,
        .max_connections = 4096,
        .max_stream_bytes = 256 << 10,
        .slow_client_ms = 10000,
        .head_timeout_ms = 60000,
        .body_timeout_ms = 60000,
        .ping_ms = 15000,
        .stall_ms = 30000,
        .drain_timeout_ms = 60000,
    };
}

/* ---- answers ---- */

void server_reply_json(Exchange *exchange, Buffer *body)
{
    exchange_reply(exchange, &(HttpReply){.status = 200, .content_type = "application/json", .body = body});
}

void server_reply_error(Exchange *exchange, int kind, const Error *error)
{
    Buffer body;
    JsonOut out;
    const HttpErrorRow *row = http_error_row(kind);
    buffer_init(&body, 8192);
    json_begin(&out, &body);
    http_error_write(&out, kind, error);
    exchange_reply(exchange, &(HttpReply){.status = row->status,
                                          .content_type = "application/json",
                                          .body = &body,
                                          .retry_after_s = row->retry_after_s,
                                          .challenge = row->status == 401 ? "Bearer" : NULL});
    buffer_done(&body);
}

int server_refusal(const Server *server)
{
    if (server->phase == PHASE_READY) return 0;
    return server->phase == PHASE_LOADING ? HTTP_ERR_LOADING : HTTP_ERR_DRAINING;
}

/* ---- callbacks ---- */

static void on_exchange_closed(void *arg, unsigned status)
{
    Server *server = arg;
    if (status) metrics_count_status(&server->metrics, status);
    shutdown_check(server);
}

static void on_worker_wake(void *arg)
{
    uv_async_send(&((Server *)arg)->wake); /* the engine thread's only way in */
}

static void on_wake(uv_async_t *async)
{
    Server *server = async->data;
    if (!server->worker) return;
    /* Sends coalesce: drain the queue, but let the loop breathe under load. */
    if (inbox_drain(&server->inbox, server->worker, EVENTS_PER_TURN, &server->metrics.engine))
        uv_async_send(&server->wake);
}

static void on_ping(uv_timer_t *timer)
{
    generation_ping_all(timer->data, clock_now_usec());
}

/* ---- life ---- */

static bool start_http(Server *server, Error *error)
{
    const ServerParams *params = &server->params;
    int fd;
    if (!listen_open(params->host, params->port, &fd, &server->port, error)) return false;
    HttpParams http = {
        .loop = params->loop,
        .listen_fd = fd,
        .max_body_bytes = params->max_body_bytes,
        .max_held_bytes = params->max_held_bytes,
        .max_output_bytes = params->max_stream_bytes,
        .slow_client_ms = params->slow_client_ms,
        .head_timeout_ms = params->head_timeout_ms,
        .body_timeout_ms = params->body_timeout_ms,
        .max_connections = params->max_connections,
        .arg = server,
        .on_head = routes_on_head,
        .on_request = routes_on_request,
        .on_closed = on_exchange_closed,
    };
    if (http_daemon_start(&http, &server->http, error)) return true;
    close(fd);
    listen_remove(params->host);
    return false;
}

static void start_handles(Server *server)
{
    uv_loop_t *loop = server->params.loop;
    uv_async_init(loop, &server->wake, on_wake);
    uv_timer_init(loop, &server->ping);
    uv_timer_init(loop, &server->drain);
    uv_signal_init(loop, &server->signals[0]);
    uv_signal_init(loop, &server->signals[1]);
    server->wake.data = server->ping.data = server->drain.data = server;
    server->signals[0].data = server->signals[1].data = server;
    server->n_handles = 5;
    uint64_t period_ms = server->params.ping_ms / 4 + 1;
    uv_timer_start(&server->ping, on_ping, period_ms, period_ms);
}

bool server_start(const ServerParams *params, Server **ret_server, Error *error)
{
    Server *server = calloc(1, sizeof *server);
    if (!server) return error_set(error, ERR_NO_MEMORY, "no memory for the server");
    server->params = *params;
    signal(SIGPIPE, SIG_IGN);
    if (!auth_load(params->api_key_file, params->api_key, &server->auth, error)) goto fail;
    if (!start_http(server, error)) goto fail;
    start_handles(server);
    *ret_server = server;
    return true;

fail:
    auth_free(server->auth);
    free(server);
    return false;
}

uint16_t server_port(const Server *server)
{
    return server->port;
}

bool server_attach(Server *server, const ServedModel *model, const WorkerParams *params, Error *error)
{
    WorkerParams with_wake = *params;
    with_wake.wake = on_worker_wake;
    with_wake.wake_arg = server;
    if (!worker_start(&with_wake, &server->worker, error)) return false;
    server->model = model;
    if (server->phase == PHASE_LOADING) server->phase = PHASE_READY;
    return true;
}

static void on_handle_closed(uv_handle_t *handle)
{
    Server *server = handle->data;
    if (--server->n_handles) return;
    auth_free(server->auth);
    free(server);
}

static void stop_worker(Server *server)
{
    if (!server->worker) return;
    worker_stop(server->worker);
    while (inbox_drain(&server->inbox, server->worker, EVENTS_PER_TURN, &server->metrics.engine)) {
    }
    worker_free(server->worker);
    server->worker = NULL;
}

void server_free(Server *server)
{
    if (!server) return;
    uv_loop_t *loop = server->params.loop;
    Error error;
    (void)error_set(&error, ERR_BUSY, "the server is shutting down");
    server->phase = PHASE_STOPPING;
    uv_timer_stop(&server->drain); /* it asks the daemon, which is gone before the last job is */
    generation_fail_all(server, HTTP_ERR_DRAINING, &error);
    http_daemon_stop(server->http);
    listen_remove(server->params.host);
    while (server->n_jobs) uv_run(loop, UV_RUN_ONCE); /* jobs of clients that are gone now */
    stop_worker(server);
    uv_close((uv_handle_t *)&server->wake, on_handle_closed);
    uv_close((uv_handle_t *)&server->ping, on_handle_closed);
    uv_close((uv_handle_t *)&server->drain, on_handle_closed);
    uv_close((uv_handle_t *)&server->signals[0], on_handle_closed);
    uv_close((uv_handle_t *)&server->signals[1], on_handle_closed);
    while (uv_run(loop, UV_RUN_DEFAULT)) {
    } /* a uv_stop that is still pending ends a run early */
}
