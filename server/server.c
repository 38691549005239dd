/* SPDX-License-Identifier: Apache-2.0 */
#include "server/server.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/answer_ids.h"
#include "server/caller.h"
#include "server/generation.h"
#include "server/heartbeat.h"
#include "server/listen.h"
#include "server/routes.h"
#include "server/service_manager.h"
#include "server/shutdown.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    EVENTS_PER_TURN = 4096,
    TOKEN_MEMORY_BYTES = 64 << 20,
    GRAMMAR_CACHE_BYTES = 512 << 20,
    STATUS_NAME_BYTES = 100,
    GRAMMAR_FAILURE_USEC = 60000000
};

void server_defaults(ServerParams *params)
{
    *params = (ServerParams){
        .listen_fd = -1,
        .host = "127.0.0.1",
        .port = 8080,
        .max_body_bytes = 32 << 20,
        .max_held_bytes = 256 << 20,
        .limits = {.max_queue = 256, .max_queue_tokens = 4 << 20, .has_page = true},
        .max_connections = 4096,
        .max_stream_bytes = 256 << 10,
        .slow_client_ms = 10000,
        .head_timeout_ms = 60000,
        .body_timeout_ms = 60000,
        .ping_ms = 15000,
        .stall_ms = 30000,
        .status_ms = 10000,
        .drain_timeout_ms = 60000,
    };
}

/* ---- answers ---- */

void server_reply_json(Exchange *exchange, Buffer *body)
{
    exchange_reply(exchange, &(HttpReply){.status = 200, .content_type = "application/json", .body = body});
}

static void reply_error(Exchange *exchange, int kind, const Error *error, int retry_after_s)
{
    Buffer body;
    JsonOut out;
    const HttpErrorRow *row = http_error_row(kind);
    buffer_init(&body, 8192);
    json_begin(&out, &body);
    http_error_write(&out, kind, error);
    if (!json_end(&out, &(Error){0})) buffer_clear(&body); /* the status alone rather than half an object */
    exchange_reply(exchange, &(HttpReply){.status = row->status,
                                          .error_kind = kind,
                                          .content_type = "application/json",
                                          .body = &body,
                                          .retry_after_s = retry_after_s,
                                          .challenge = row->status == 401 ? "Bearer" : NULL});
    buffer_done(&body);
}

void server_reply_error(Exchange *exchange, int kind, const Error *error)
{
    reply_error(exchange, kind, error, http_error_row(kind)->retry_after_s);
}

void server_reply_limited(Exchange *exchange, const Error *error, int retry_after_s)
{
    reply_error(exchange, HTTP_ERR_RATE, error, retry_after_s);
}

void server_reply_busy(Server *server, Exchange *exchange, const Error *error)
{
    reply_error(exchange, ERR_BUSY, error, (int)worker_retry_after_seconds(server->worker));
}

int server_refusal(const Server *server)
{
    if (server->phase == PHASE_READY) return worker_has_failed(server->worker) ? HTTP_ERR_DEVICE_FAILED : 0;
    return server->phase == PHASE_LOADING ? HTTP_ERR_LOADING : HTTP_ERR_DRAINING;
}

int server_late_refusal(const Server *server)
{
    return server->phase == PHASE_DRAINING ? 0 : server_refusal(server);
}

const char *server_refusal_text(int refusal)
{
    switch (refusal) {
    case HTTP_ERR_LOADING:
        return "the model is still loading";
    case HTTP_ERR_DEVICE_FAILED:
        return "the device has failed; the server must be started again";
    case HTTP_ERR_UNHEALTHY:
        return "the engine has stalled";
    default:
        return "the server is shutting down";
    }
}

/* ---- callbacks ---- */

static void count_outcome(Server *server, const HttpClosed *closed)
{
    const Route *route = routes_find(closed->method, closed->path);
    if (!route || !(route->flags & ROUTE_GENERATE)) return;
    RequestOutcome outcome = closed->error_kind ? http_error_row(closed->error_kind)->outcome : OUTCOME_DONE;
    metrics_count_outcome(&server->metrics, closed->is_whole ? outcome : OUTCOME_CANCELLED);
}

static void on_exchange_closed(void *arg, const HttpClosed *closed)
{
    Server *server = arg;
    if (closed->status) metrics_count_status(&server->metrics, closed->status);
    if (closed->error_kind) metrics_count_rejected(&server->metrics, closed->error_kind);
    count_outcome(server, closed);
    if (!closed->is_logged) routes_log(closed);
    caller_free(closed->caller);
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

static void on_status(uv_timer_t *timer)
{
    Server *server = timer->data;
    const EngineStats *stats = &server->metrics.engine;
    status_line_write(&server->status_line, stats, clock_now_usec());
    if (server->phase == PHASE_READY)
        service_notify("STATUS=%u running, %u waiting", (unsigned)stats->running, (unsigned)stats->waiting);
}

/* ---- life ---- */

/* A socket that was passed to us belongs to who made it. */
static void remove_socket_file(const Server *server)
{
    if (server->params.listen_fd < 0) listen_remove(server->params.host);
}

static bool start_http(Server *server, Error *error)
{
    const ServerParams *params = &server->params;
    int fd = params->listen_fd;
    if (fd < 0 && !listen_open(params->host, params->port, &fd, &server->port, error)) return false;
    server->is_local = listen_is_local(fd);
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
        .on_answer = caller_on_answer,
        .on_closed = on_exchange_closed,
    };
    if (http_daemon_start(&http, &server->http, error)) return true;
    if (params->listen_fd < 0) close(fd);
    remove_socket_file(server);
    return false;
}

static void start_handles(Server *server)
{
    uv_loop_t *loop = server->params.loop;
    uv_timer_t *timers[] = {&server->ping, &server->drain, &server->status, &server->heartbeat, &server->compile};
    uv_async_init(loop, &server->wake, on_wake);
    server->wake.data = server;
    server->n_handles = 1;
    for (size_t i = 0; i < sizeof timers / sizeof *timers; i++, server->n_handles++) {
        uv_timer_init(loop, timers[i]);
        timers[i]->data = server;
    }
    for (size_t i = 0; i < sizeof server->signals / sizeof *server->signals; i++, server->n_handles++) {
        uv_signal_init(loop, &server->signals[i]);
        server->signals[i].data = server;
    }
    uint64_t period_ms = server->params.ping_ms / GENERATION_PING_PARTS + 1;
    uv_timer_start(&server->ping, on_ping, period_ms, period_ms);
    uv_timer_start(&server->status, on_status, server->params.status_ms, server->params.status_ms);
    heartbeat_start(server);
}

static void warn_if_open(const Server *server)
{
    if (!server->is_local && !auth_account(server->auth, 0))
        log_warn("there is no API key: whoever reaches the address that this server listens on may use it");
}

/* What the options of ServerAccess become. */
typedef struct Access {
    Auth *auth;
    Cors *cors;
    Hosts *hosts;
} Access;

static void free_access(Access *access)
{
    auth_free(access->auth);
    cors_free(access->cors);
    hosts_free(access->hosts);
}

static bool load_access(const ServerAccess *values, Access *ret_access, Error *error)
{
    Access access = {0};
    if (auth_load(values->api_key_file, values->api_key, &access.auth, error) &&
        cors_new(values->cors_origins, &access.cors, error) && hosts_new(values->allowed_hosts, &access.hosts, error)) {
        *ret_access = access;
        return true;
    }
    free_access(&access);
    return false;
}

/* What was there before is the caller's. */
static Access swap_access(Server *server, const Access *access)
{
    Access old = {server->auth, server->cors, server->hosts};
    server->auth = access->auth;
    server->cors = access->cors;
    server->hosts = access->hosts;
    return old;
}

static void drop_access(Server *server)
{
    Access old = swap_access(server, &(Access){0});
    free_access(&old);
}

bool server_start(const ServerParams *params, Server **ret_server, Error *error)
{
    Server *server = calloc(1, sizeof *server);
    if (!server) return error_set(error, ERR_NO_MEMORY, "no memory for the server");
    server->params = *params;
    server->limits = params->limits;
    server->start_unix = (uint64_t)clock_unix_seconds();
    server->status_line.last_usec = clock_now_usec();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of that write alone */
    Access access;
    if (!load_access(&params->access, &access, error)) goto fail;
    (void)swap_access(server, &access);
    server->is_local = listen_is_local(params->listen_fd);
    if (params->listen_fd >= 0)
        server->port = listen_port(params->listen_fd); /* whoever connects waits until there is an answer */
    else if (!start_http(server, error))
        goto fail;
    warn_if_open(server);
    start_handles(server);
    *ret_server = server;
    return true;

fail:
    drop_access(server);
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
    const TokenMemoryParams memory = {.tokenizer = model->tokenizer,
                                      .max_bytes = TOKEN_MEMORY_BYTES,
                                      .max_entry_bytes = ANSWER_IDS_MAX_BYTES,
                                      .marks = model->style ? model->style->control_ids : NULL,
                                      .n_marks = model->style ? model->style->n_control_ids : 0};
    const GrammarCacheParams grammars = {
        .tokenizer = model->tokenizer, .max_bytes = GRAMMAR_CACHE_BYTES, .failure_usec = GRAMMAR_FAILURE_USEC};
    if (!server->memory && !token_memory_new(&memory, &server->memory, error)) return false;
    if (!server->grammars && !grammar_cache_new(&grammars, &server->grammars, error)) return false;
    if (!server->http && server->phase == PHASE_LOADING && !start_http(server, error)) return false;
    if (!worker_start(&with_wake, &server->worker, error)) return false;
    server->model = model;
    server->max_queue = params->max_queue;
    server->has_sessions = params->session_dir;
    worker_set_queue(server->worker, server->limits.max_queue, server->limits.max_queue_tokens);
    if (server->phase != PHASE_LOADING) return true; /* STOPPING=1 was the last word */
    server->phase = PHASE_READY;
    /* A name is what the file says: a line end in it would begin another message. */
    const char *name = model->names[0];
    int n = 0;
    while (n < STATUS_NAME_BYTES && (unsigned char)name[n] >= ' ') n++;
    service_notify("READY=1\nSTATUS=serving '%.*s'", n, name);
    return true;
}

void server_tell_loading(Server *server, double fraction)
{
    atomic_store(&server->load_percent, (unsigned)(fraction * 100));
    atomic_fetch_add(&server->load_steps, 1);
}

bool server_reload(Server *server, const ServerLimits *limits, const ServerAccess *access, Error *error)
{
    Access fresh;
    if (!load_access(access, &fresh, error)) return false;
    auth_take_over(fresh.auth, server->auth);
    Access old = swap_access(server, &fresh);
    free_access(&old);
    server->limits = *limits;
    warn_if_open(server);
    if (!server->worker) return true;
    worker_set_queue(server->worker, limits->max_queue, limits->max_queue_tokens);
    worker_set_stall(server->worker, limits->max_stall_ms);
    if (limits->max_queue > server->max_queue) log_warn("max_queue: %u, more needs a restart", server->max_queue);
    return true;
}

static void on_handle_closed(uv_handle_t *handle)
{
    Server *server = handle->data;
    if (--server->n_handles) return;
    drop_access(server);
    token_memory_free(server->memory);
    grammar_cache_free(server->grammars);
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
    if (!server->http && server->params.listen_fd >= 0) close(server->params.listen_fd);
    http_daemon_stop(server->http);
    server->http = NULL; /* timers go on while jobs are waited for */
    remove_socket_file(server);
    while (server->n_jobs) uv_run(loop, UV_RUN_ONCE); /* jobs of clients that are gone now */
    stop_worker(server);
    uv_handle_t *handles[] = {
        (uv_handle_t *)&server->wake,       (uv_handle_t *)&server->ping,       (uv_handle_t *)&server->drain,
        (uv_handle_t *)&server->status,     (uv_handle_t *)&server->heartbeat,  (uv_handle_t *)&server->compile,
        (uv_handle_t *)&server->signals[0], (uv_handle_t *)&server->signals[1], (uv_handle_t *)&server->signals[2]};
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++) uv_close(handles[i], on_handle_closed);
    while (uv_run(loop, UV_RUN_DEFAULT)) {
    } /* a uv_stop that is still pending ends a run early */
}
