/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http_daemon.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/http_exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTION_MEMORY_BYTES = 32 << 10, /* head of a request; a longer one is 431 or 414 */
    IDLE_TIMEOUT_S = 75,                /* MHD's own, for clients that stop reading */
    MAX_SPINS = 8,
    TICK_MS = 250,
    FRESH_USEC = 1000000, /* a client that connects sends its head within */
};

static void pump(HttpDaemon *daemon)
{
    MHD_UNSIGNED_LONG_LONG timeout_ms = 0;
    int spins = 0;
    bool again;
    do {
        daemon->connection_closed = false;
        if (MHD_run(daemon->mhd) != MHD_YES) {
            log_error("libmicrohttpd cannot run any more");
            abort();
        }
        again = MHD_get_timeout(daemon->mhd, &timeout_ms) == MHD_YES && timeout_ms == 0;
        /* At its connection limit MHD takes the listening socket back only at the start of the next run. */
        again |= daemon->connection_closed;
    } while (again && ++spins < MAX_SPINS);
    daemon->dirty = false; /* what was resumed meanwhile shows as a timeout of 0 */
    if (MHD_get_timeout(daemon->mhd, &timeout_ms) == MHD_YES)
        uv_timer_start(&daemon->timer, http_on_timer, timeout_ms, 0);
    else
        uv_timer_stop(&daemon->timer);
}

void http_on_timer(uv_timer_t *timer)
{
    ((HttpDaemon *)timer->data)->dirty = true;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    ((HttpDaemon *)poll->data)->dirty = true;
}

/* Runs before the loop sleeps: whatever callbacks changed since the last turn goes out in one run. */
static void on_prepare(uv_prepare_t *prepare)
{
    HttpDaemon *daemon = prepare->data;
    if (daemon->dirty) pump(daemon);
}

/* All bytes are read and the other side has closed. */
static bool has_ended(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/*
 * Neither MHD's timeout (reset by every byte) nor the kernel ends a client that sends one byte a second. And MHD does
 * not see an end that came together with the last bytes: its epoll is edge-triggered, a short read tells it that all is
 * read.
 */
static void on_tick(uv_timer_t *timer)
{
    HttpDaemon *daemon = timer->data;
    uint64_t now = clock_now_usec();
    for (HttpConnection *connection = daemon->connections; connection; connection = connection->next)
        if (connection->deadline_usec && (now > connection->deadline_usec || has_ended(connection->fd))) {
            connection->deadline_usec = 0;
            shutdown(connection->fd, SHUT_RDWR);
        }
}

static void on_connection(void *arg, struct MHD_Connection *mhd, void **user, enum MHD_ConnectionNotificationCode code)
{
    HttpDaemon *daemon = arg;
    HttpConnection *connection = *user;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        daemon->connection_closed = true;
        if (!connection) return;
        *connection->link = connection->next;
        if (connection->next) connection->next->link = connection->link;
        free(connection);
        *user = NULL;
        return;
    }
    connection = calloc(1, sizeof *connection);
    if (!connection) return; /* the first request on it is refused */
    connection->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    uint64_t now = clock_now_usec();
    connection->deadline_usec = now + daemon->params.head_timeout_ms * UINT64_C(1000);
    connection->fresh_until_usec = now + FRESH_USEC;
    connection->next = daemon->connections;
    connection->link = &daemon->connections;
    if (connection->next) connection->next->link = &connection->next;
    daemon->connections = connection;
    *user = connection;
}

static void log_mhd(void *arg, const char *fmt, va_list args)
{
    (void)arg;
    char text[256];
    vsnprintf(text, sizeof text, fmt, args);
    text[strcspn(text, "\r\n")] = '\0';
    log_debug("http: %s", text);
}

static bool start_mhd(HttpDaemon *daemon, Error *error)
{
    const HttpParams *params = &daemon->params;
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    daemon->mhd = MHD_start_daemon(flags, 0, NULL, NULL, http_on_access, daemon, MHD_OPTION_EXTERNAL_LOGGER, log_mhd,
                                   NULL, MHD_OPTION_LISTEN_SOCKET, params->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
                                   (unsigned)params->max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
                                   (unsigned)IDLE_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                   (size_t)CONNECTION_MEMORY_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1,
                                   MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_NOTIFY_COMPLETED, http_on_completed,
                                   daemon, MHD_OPTION_NOTIFY_CONNECTION, on_connection, daemon, MHD_OPTION_END);
    if (daemon->mhd) return true;
    return error_set(error, ERR_IO, "libmicrohttpd did not start: %s", strerror(errno));
}

bool http_daemon_start(const HttpParams *params, HttpDaemon **ret_daemon, Error *error)
{
    HttpDaemon *daemon = calloc(1, sizeof *daemon);
    if (!daemon) return error_set(error, ERR_NO_MEMORY, "no memory for the HTTP daemon");
    daemon->params = *params;
    if (!start_mhd(daemon, error)) goto fail_mhd;
    int epoll_fd = MHD_get_daemon_info(daemon->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    int code = uv_poll_init(params->loop, &daemon->poll, epoll_fd);
    if (code) {
        error_set(error, ERR_IO, "cannot watch libmicrohttpd's descriptor: %s", uv_strerror(code));
        goto fail_poll;
    }
    uv_timer_init(params->loop, &daemon->timer);
    uv_timer_init(params->loop, &daemon->tick);
    uv_prepare_init(params->loop, &daemon->prepare);
    daemon->poll.data = daemon->timer.data = daemon->tick.data = daemon->prepare.data = daemon;
    uv_poll_start(&daemon->poll, UV_READABLE, on_readable);
    uv_timer_start(&daemon->tick, on_tick, TICK_MS, TICK_MS);
    uv_prepare_start(&daemon->prepare, on_prepare);
    daemon->dirty = true;
    daemon->n_handles = 4;
    *ret_daemon = daemon;
    return true;

fail_poll:
    (void)MHD_quiesce_daemon(daemon->mhd); /* or it would close the caller's socket */
    MHD_stop_daemon(daemon->mhd);
fail_mhd:
    free(daemon);
    return false;
}

void http_daemon_quiesce(HttpDaemon *daemon)
{
    if (!daemon || daemon->quiesced) return;
    daemon->quiesced = true;
    MHD_socket fd = MHD_quiesce_daemon(daemon->mhd);
    if (fd != MHD_INVALID_SOCKET) close(fd);
    daemon->dirty = true;
}

uint32_t http_daemon_open_exchanges(const HttpDaemon *daemon)
{
    return daemon ? daemon->n_exchanges : 0;
}

bool http_daemon_is_idle(const HttpDaemon *daemon)
{
    uint64_t now = clock_now_usec();
    if (!daemon) return true;
    for (const HttpConnection *connection = daemon->connections; connection; connection = connection->next)
        if (now < connection->fresh_until_usec) return false;
    return !daemon->n_exchanges;
}

static void on_handle_closed(uv_handle_t *handle)
{
    HttpDaemon *daemon = handle->data;
    if (--daemon->n_handles == 0) free(daemon);
}

void http_daemon_stop(HttpDaemon *daemon)
{
    if (!daemon) return;
    http_daemon_quiesce(daemon);
    /* MHD ends the process when it is stopped with a suspended connection. */
    for (Exchange *exchange = daemon->exchanges; exchange; exchange = exchange->next) http_exchange_kill(exchange);
    pump(daemon);
    uv_poll_stop(&daemon->poll);
    MHD_stop_daemon(daemon->mhd);
    uv_close((uv_handle_t *)&daemon->poll, on_handle_closed);
    uv_close((uv_handle_t *)&daemon->timer, on_handle_closed);
    uv_close((uv_handle_t *)&daemon->tick, on_handle_closed);
    uv_close((uv_handle_t *)&daemon->prepare, on_handle_closed);
}
