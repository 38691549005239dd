/* SPDX-License-Identifier: Apache-2.0 */
#include "server/heartbeat.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/service_manager.h"

enum { CHECK_MS = 1000, FEEDS_PER_SPAN = 3 };
static const unsigned long long MORE_TIME_USEC = 30000000;

/* Ticks come more often. Where none came, the whole process was held, or its machine, and nobody could show life. */
static bool was_held(const Server *server, uint64_t now)
{
    return server->ticked_usec && now >= server->ticked_usec + server->params.stall_ms * UINT64_C(1000);
}

bool heartbeat_is_alive(const Server *server)
{
    uint64_t now = clock_now_usec();
    if (!server->worker) return true;
    if (worker_has_failed(server->worker)) return false;
    if (!server->n_live && !worker_busy(server->worker)) return true;
    /* An engine that slept when work came in has shown no life for long, and need not have. */
    uint64_t seen = worker_heartbeat_usec(server->worker);
    if (seen < server->work_since_usec) seen = server->work_since_usec;
    if (seen < server->awake_since_usec) seen = server->awake_since_usec;
    return now < seen + server->params.stall_ms * UINT64_C(1000) || was_held(server, now);
}

/* A large model, or a long answer, takes what it takes; a load that does not move, or an engine, gets no more. */
static void ask_for_time(Server *server, bool is_alive)
{
    unsigned steps = atomic_load(&server->load_steps);
    if (server->phase >= PHASE_DRAINING && is_alive) {
        service_notify("EXTEND_TIMEOUT_USEC=%llu\nSTATUS=draining, %u requests open", MORE_TIME_USEC,
                       http_daemon_open_exchanges(server->http));
    } else if (server->phase == PHASE_LOADING && steps != server->told_steps) {
        service_notify("EXTEND_TIMEOUT_USEC=%llu\nSTATUS=loading the model, %u %%", MORE_TIME_USEC,
                       atomic_load(&server->load_percent));
        server->told_steps = steps;
    }
}

static void on_tick(uv_timer_t *timer)
{
    Server *server = timer->data;
    uint64_t now = clock_now_usec();
    if (was_held(server, now)) server->awake_since_usec = now;
    server->ticked_usec = now;
    bool is_alive = heartbeat_is_alive(server);
    if (is_alive == server->is_stalled) {
        server->is_stalled = !is_alive;
        if (is_alive)
            log_warn("the engine goes on");
        else if (worker_has_failed(server->worker))
            log_error("the device has failed: nothing is computed any more until the server is started again");
        else
            log_error("the engine has stalled: no sign of life for %u ms, with %u requests open",
                      server->params.stall_ms, server->n_live);
    }
    ask_for_time(server, is_alive);
    if (server->feeds_watchdog && is_alive) service_notify("WATCHDOG=1");
}

void heartbeat_start(Server *server)
{
    uint64_t watchdog_ms = service_watchdog_usec() / 1000, period_ms = server->params.stall_ms / FEEDS_PER_SPAN + 1;
    server->feeds_watchdog = watchdog_ms > 0;
    if (period_ms > CHECK_MS) period_ms = CHECK_MS;
    if (watchdog_ms && period_ms > watchdog_ms / FEEDS_PER_SPAN) period_ms = watchdog_ms / FEEDS_PER_SPAN + 1;
    uv_timer_start(&server->heartbeat, on_tick, period_ms, period_ms);
}
