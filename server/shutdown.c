/* SPDX-License-Identifier: Apache-2.0 */
#include "server/shutdown.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/generation.h"
#include "server/service_manager.h"

#include <signal.h>

enum { FLUSH_MS = 250, CHECK_MS = 50 };

void shutdown_check(Server *server)
{
    if (server->phase >= PHASE_DRAINING && http_daemon_is_idle(server->http)) uv_stop(server->params.loop);
}

static void on_flushed(uv_timer_t *timer)
{
    uv_stop(((Server *)timer->data)->params.loop);
}

static void on_drain_tick(uv_timer_t *timer)
{
    Server *server = timer->data;
    shutdown_check(server);
    if (server->drain_until_usec && clock_now_usec() > server->drain_until_usec) {
        log_warn("drain timeout: stopping with %u requests open", server->metrics.open_generations);
        server_stop(server);
    }
}

void server_drain(Server *server)
{
    if (server->phase >= PHASE_DRAINING) return;
    server->phase = PHASE_DRAINING;
    http_daemon_quiesce(server->http);
    service_notify("STOPPING=1");
    log_info("draining: %u requests open", http_daemon_open_exchanges(server->http));
    uint64_t timeout_ms = server->params.drain_timeout_ms;
    server->drain_until_usec = timeout_ms ? clock_now_usec() + timeout_ms * 1000 : 0;
    uv_timer_start(&server->drain, on_drain_tick, CHECK_MS, CHECK_MS);
}

bool server_draining(const Server *server)
{
    return server->phase >= PHASE_DRAINING;
}

void server_stop(Server *server)
{
    if (server->phase == PHASE_STOPPING) return;
    server_drain(server);
    server->phase = PHASE_STOPPING;
    Error error;
    (void)error_set(&error, ERR_BUSY, "the server is shutting down");
    generation_fail_all(server, HTTP_ERR_DRAINING, &error);
    uv_timer_start(&server->drain, on_flushed, FLUSH_MS, 0); /* the last frames want a turn of the loop */
}

void server_fail(Server *server, const Error *why)
{
    generation_fail_all(server, (int)why->code, why);
    server_stop(server);
}

static void on_signal(uv_signal_t *handle, int number)
{
    Server *server = handle->data;
    log_info("signal %d", number);
    if (number == SIGHUP) {
        if (server->params.on_reload) server->params.on_reload(server->params.reload_arg);
        return;
    }
    if (server_draining(server))
        server_stop(server);
    else
        server_drain(server);
}

bool server_watch_signals(Server *server, Error *error)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    for (int i = 0; i < 3; i++) {
        int code = uv_signal_start(&server->signals[i], on_signal, numbers[i]);
        if (code) return error_set(error, ERR_IO, "cannot watch signal %d: %s", numbers[i], uv_strerror(code));
    }
    return true;
}
