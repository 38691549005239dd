/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http_exchange.h"
#include "base/clock.h"
#include "server/http_error.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum {
    STREAM_BLOCK_BYTES = 1024,    /* for clients that take no chunks; every stream holds it */
    STREAM_HARD_BYTES = 64 << 20, /* one frame may be large (a long echo); nothing may be larger than this */
    SMALL_BODY_BYTES = 64 << 10,  /* a refused body up to here is read, so that the connection stays usable */
    DROPPED_BODY_FACTOR = 2,      /* a chunked body beyond this many times the limit is cut off */
};

static void resume(Exchange *exchange)
{
    exchange->daemon->dirty = true;
    if (!exchange->suspended) return;
    exchange->suspended = false;
    MHD_resume_connection(exchange->mhd);
}

static void suspend(Exchange *exchange)
{
    exchange->suspended = true;
    MHD_suspend_connection(exchange->mhd);
}

void http_exchange_kill(Exchange *exchange)
{
    exchange->dead = true;
    resume(exchange);
}

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

static void watch_stop(Exchange *exchange)
{
    if (!exchange->watch) return;
    uv_poll_stop(exchange->watch);
    uv_close((uv_handle_t *)exchange->watch, free_handle);
    exchange->watch = NULL;
}

static void on_departure(uv_poll_t *poll, int status, int events)
{
    Exchange *exchange = poll->data;
    if (status >= 0 && !(events & UV_DISCONNECT)) return;
    watch_stop(exchange);
    http_exchange_kill(exchange);
}

/* A suspended connection is not watched by MHD, and one that only writes notices a departure late. */
static void watch_start(Exchange *exchange)
{
    if (exchange->watch) return;
    uv_poll_t *watch = malloc(sizeof *watch);
    if (!watch) return;
    watch->data = exchange;
    if (uv_poll_init(exchange->daemon->params.loop, watch, exchange->connection->fd)) {
        free(watch);
        return;
    }
    uv_poll_start(watch, UV_DISCONNECT, on_departure);
    exchange->watch = watch;
}

/* ---- answers ---- */

/* Bodies and answers of all clients together have a limit too. */
static void hold(Exchange *exchange, size_t n)
{
    exchange->held_bytes += n;
    exchange->daemon->held_bytes += n;
}

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
    if (value) (void)MHD_add_response_header(response, name, value); /* fails only without memory */
}

void exchange_reply(Exchange *exchange, const HttpReply *reply)
{
    if (exchange_replied(exchange)) return;
    size_t n = reply->body ? reply->body->n : 0;
    char *bytes = n ? buffer_take(reply->body) : NULL;
    exchange->response = n ? MHD_create_response_from_buffer_with_free_callback(n, bytes, free)
                           : MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (!exchange->response) {
        free(bytes);
        http_exchange_kill(exchange);
        return;
    }
    exchange->status = reply->status;
    exchange->error_kind = reply->error_kind;
    hold(exchange, n);
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%d", reply->retry_after_s);
    add_header(exchange->response, "Content-Type", reply->content_type);
    add_header(exchange->response, "Allow", reply->allow);
    add_header(exchange->response, "WWW-Authenticate", reply->challenge);
    add_header(exchange->response, "Retry-After", reply->retry_after_s > 0 ? seconds : NULL);
    add_header(exchange->response, "x-should-retry", reply->retry_after_s < 0 ? "false" : NULL);
    for (const HttpHeader *header = reply->headers; header && header->name; header++)
        add_header(exchange->response, header->name, header->value);
    add_header(exchange->response, "Connection", reply->close || exchange->daemon->quiesced ? "close" : NULL);
    exchange->daemon->params.on_answer(exchange->daemon->params.arg, exchange, reply->allow);
    resume(exchange);
}

bool exchange_replied(const Exchange *exchange)
{
    return exchange->response || exchange->dead;
}

static ssize_t read_stream(void *arg, uint64_t position, char *bytes, size_t max)
{
    (void)position;
    Exchange *exchange = arg;
    if (exchange->dead) return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t left = exchange->out.n - exchange->n_sent, n = left < max ? left : max;
    if (n) {
        memcpy(bytes, exchange->out.data + exchange->n_sent, n);
        exchange->n_sent += n;
        exchange->taken_bytes += n;
        return (ssize_t)n;
    }
    if (exchange->stream_ended) return MHD_CONTENT_READER_END_OF_STREAM;
    suspend(exchange); /* returning 0 without it would spin */
    return 0;
}

bool exchange_stream_begin(Exchange *exchange, Error *error)
{
    exchange->response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, read_stream, exchange, NULL);
    if (!exchange->response) return error_set(error, ERR_NO_MEMORY, "no memory for a stream");
    exchange->status = 200;
    exchange->streaming = true;
    buffer_init(&exchange->out, STREAM_HARD_BYTES);
    add_header(exchange->response, "Content-Type", "text/event-stream; charset=utf-8");
    add_header(exchange->response, "Cache-Control", "no-cache");
    add_header(exchange->response, "X-Accel-Buffering", "no");
    add_header(exchange->response, "Connection", exchange->daemon->quiesced ? "close" : NULL);
    exchange->daemon->params.on_answer(exchange->daemon->params.arg, exchange, NULL);
    resume(exchange);
    return true;
}

/* Never moves more than was sent: a large frame leaves in small pieces. */
static void drop_sent(Exchange *exchange)
{
    if (exchange->n_sent < exchange->out.n - exchange->n_sent) return;
    buffer_consume(&exchange->out, exchange->n_sent);
    exchange->n_sent = 0;
}

/*
 * Much may be unsent because one frame is large. Too slow is who, with more unsent than the limit, takes less than the
 * limit in a whole span of patience.
 */
static bool is_too_slow(Exchange *exchange)
{
    const HttpParams *params = &exchange->daemon->params;
    uint64_t now = clock_now_usec();
    if (exchange->out.n - exchange->n_sent <= params->max_output_bytes) {
        exchange->late_usec = 0;
    } else if (!exchange->late_usec || exchange->taken_bytes - exchange->late_taken_bytes >= params->max_output_bytes) {
        exchange->late_usec = now;
        exchange->late_taken_bytes = exchange->taken_bytes;
    }
    return exchange->late_usec && now - exchange->late_usec > params->slow_client_ms * UINT64_C(1000);
}

bool exchange_stream_write(Exchange *exchange, const char *bytes, size_t n)
{
    Error error;
    if (exchange->dead) return false;
    drop_sent(exchange);
    if (!is_too_slow(exchange) && buffer_append(&exchange->out, bytes, n, &error)) {
        resume(exchange);
        return true;
    }
    /* MHD asks for content only when the socket takes some: a client that does not read must lose its socket. */
    shutdown(exchange->connection->fd, SHUT_RDWR);
    http_exchange_kill(exchange);
    return false;
}

void exchange_stream_end(Exchange *exchange, bool close)
{
    exchange->stream_ended = true;
    exchange->close_after = close;
    resume(exchange);
}

void exchange_stream_failed(Exchange *exchange, int error_kind)
{
    exchange->error_kind = error_kind;
}

/* ---- framing ---- */

typedef struct Framing {
    unsigned lengths, codings, hosts;
    const char *length, *coding;
    bool malformed;
} Framing;

/* RFC 9110, 5.6.2. MHD lets a blank before the colon pass as part of the name. */
static bool is_token(const char *name)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    size_t n = 0;
    while ((name[n] >= '0' && name[n] <= '9') || ((name[n] | 0x20) >= 'a' && (name[n] | 0x20) <= 'z') ||
           (name[n] && strchr(marks, name[n])))
        n++;
    return n && !name[n];
}

/* MHD puts a folded value behind the name of its header. */
static bool is_folded(const char *name, const char *plain)
{
    size_t n = strlen(plain);
    return !strncasecmp(name, plain, n) && name[n];
}

static enum MHD_Result count_framing(void *arg, enum MHD_ValueKind kind, const char *name, const char *value)
{
    (void)kind;
    Framing *framing = arg;
    framing->malformed |= !is_token(name) || is_folded(name, "Content-Length") || is_folded(name, "Transfer-Encoding");
    framing->hosts += !strcasecmp(name, "Host");
    if (!strcasecmp(name, "Content-Length")) {
        framing->lengths++;
        framing->length = value ? value : "";
    } else if (!strcasecmp(name, "Transfer-Encoding")) {
        framing->codings++;
        framing->coding = value ? value : "";
    }
    return MHD_YES;
}

static void refuse(Exchange *exchange, int kind, const char *text)
{
    const HttpErrorRow *row = http_error_row(kind);
    Error error = {.code = ERR_INVALID};
    snprintf(error.text, sizeof error.text, "%s", text);
    Buffer body;
    buffer_init(&body, 4096);
    JsonOut out;
    json_begin(&out, &body);
    http_error_write(&out, kind, &error);
    exchange_reply(exchange, &(HttpReply){.status = row->status,
                                          .error_kind = kind,
                                          .content_type = "application/json",
                                          .body = &body,
                                          .retry_after_s = row->retry_after_s,
                                          .close = true});
    buffer_done(&body);
}

/*
 * What MHD lets pass and proxies disagree about. *ret_length: bytes of the body as announced, UINT64_MAX when chunked.
 */
static bool check_framing(Exchange *exchange, uint64_t *ret_length)
{
    Framing framing = {0};
    MHD_get_connection_values(exchange->mhd, MHD_HEADER_KIND, count_framing, &framing);
    *ret_length = framing.codings ? UINT64_MAX : 0;
    if (framing.malformed || framing.hosts > 1)
        refuse(exchange, HTTP_ERR_FRAMING, framing.malformed ? "malformed header" : "more than one Host header");
    else if (framing.lengths + framing.codings > 1)
        refuse(exchange, HTTP_ERR_FRAMING, "more than one Content-Length or Transfer-Encoding header");
    else if (framing.codings && strcasecmp(framing.coding, "chunked"))
        refuse(exchange, HTTP_ERR_TRANSFER_CODING, "the only transfer coding is 'chunked'");
    else if (framing.lengths && (!*framing.length || framing.length[strspn(framing.length, "0123456789")]))
        refuse(exchange, HTTP_ERR_FRAMING, "Content-Length is not a number");
    else if (framing.lengths)
        *ret_length = strtoull(framing.length, NULL, 10); /* saturates */
    if (exchange_replied(exchange)) return false;
    if (*ret_length == UINT64_MAX && framing.codings) return true;
    if (*ret_length <= exchange->daemon->params.max_body_bytes) return true;
    refuse(exchange, HTTP_ERR_BODY_SIZE, "the request body is larger than this server takes");
    return false;
}

/* ---- life ---- */

static Exchange *exchange_new(HttpDaemon *daemon, struct MHD_Connection *mhd, const char *url, const char *method)
{
    HttpConnection *connection = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    Exchange *exchange = connection ? calloc(1, sizeof *exchange) : NULL;
    if (!exchange) return NULL;
    exchange->daemon = daemon;
    exchange->mhd = mhd;
    exchange->connection = connection;
    exchange->method = strdup(method);
    exchange->path = strdup(url);
    exchange->begun_usec = clock_now_usec();
    buffer_init(&exchange->body, (size_t)daemon->params.max_body_bytes);
    if (!exchange->method || !exchange->path) {
        free(exchange->method);
        free(exchange->path);
        free(exchange);
        return NULL;
    }
    exchange->next = daemon->exchanges;
    exchange->link = &daemon->exchanges;
    if (exchange->next) exchange->next->link = &exchange->next;
    daemon->exchanges = exchange;
    daemon->n_exchanges++;
    return exchange;
}

static enum MHD_Result queue_response(Exchange *exchange)
{
    exchange->connection->deadline_usec = 0;
    exchange->queued = true;
    return MHD_queue_response(exchange->mhd, exchange->status, exchange->response);
}

static enum MHD_Result begin(HttpDaemon *daemon, struct MHD_Connection *mhd, const char *url, const char *method,
                             void **user)
{
    Exchange *exchange = exchange_new(daemon, mhd, url, method);
    if (!exchange) return MHD_NO;
    *user = exchange;
    exchange->connection->deadline_usec = clock_now_usec() + daemon->params.body_timeout_ms * UINT64_C(1000);
    exchange->is_first = exchange->connection->fresh_until_usec != 0;
    exchange->connection->fresh_until_usec = 0;
    uint64_t length;
    if (!check_framing(exchange, &length)) return queue_response(exchange);
    daemon->params.on_head(daemon->params.arg, exchange);
    if (exchange->dead) return MHD_NO;
    /* MHD takes an answer now or after the whole body; now means that the connection is lost. */
    return exchange->response && length > SMALL_BODY_BYTES ? queue_response(exchange) : MHD_YES;
}

static void drop_body(Exchange *exchange)
{
    buffer_done(&exchange->body);
    exchange->daemon->held_bytes -= exchange->held_bytes;
    exchange->held_bytes = 0;
}

static void store(Exchange *exchange, const char *bytes, size_t n)
{
    Error error;
    if (exchange->daemon->held_bytes + n > exchange->daemon->params.max_held_bytes)
        refuse(exchange, ERR_BUSY, "too many large requests are under way; try again later");
    else if (!buffer_append(&exchange->body, bytes, n, &error))
        refuse(exchange, ERR_NO_MEMORY, "no memory for the request body");
    else
        hold(exchange, n);
    if (exchange_replied(exchange)) drop_body(exchange);
}

static bool take_upload(Exchange *exchange, const char *bytes, size_t n)
{
    uint64_t max = exchange->daemon->params.max_body_bytes;
    if (exchange->response) return true; /* refused: read and dropped */
    if (!exchange->dropped_bytes && n <= max - exchange->body.n) {
        store(exchange, bytes, n);
        return !exchange->dead;
    }
    if (!exchange->dropped_bytes) exchange->dropped_bytes = exchange->body.n;
    drop_body(exchange);
    exchange->dropped_bytes += n;
    return exchange->dropped_bytes / DROPPED_BODY_FACTOR <= max;
}

static void dispatch(Exchange *exchange)
{
    exchange->dispatched = true;
    exchange->connection->deadline_usec = 0;
    if (exchange->dropped_bytes)
        refuse(exchange, HTTP_ERR_BODY_SIZE, "the request body is larger than this server takes");
    if (!exchange_replied(exchange)) exchange->daemon->params.on_request(exchange->daemon->params.arg, exchange);
}

enum MHD_Result http_on_access(void *arg, struct MHD_Connection *mhd, const char *url, const char *method,
                               const char *version, const char *upload, size_t *upload_n, void **user)
{
    (void)version;
    Exchange *exchange = *user;
    if (!exchange) return begin(arg, mhd, url, method, user);
    if (*upload_n) {
        size_t n = *upload_n;
        *upload_n = 0;
        return take_upload(exchange, upload, n) ? MHD_YES : MHD_NO;
    }
    if (!exchange->dispatched) dispatch(exchange);
    if (exchange->dead) return MHD_NO;
    if (exchange->response) {
        if (exchange->streaming) watch_start(exchange);
        return queue_response(exchange);
    }
    watch_start(exchange);
    suspend(exchange);
    return MHD_YES;
}

void http_on_completed(void *arg, struct MHD_Connection *mhd, void **user, enum MHD_RequestTerminationCode why)
{
    (void)mhd;
    (void)why;
    HttpDaemon *daemon = arg;
    Exchange *exchange = *user;
    if (!exchange) return;
    *user = NULL;
    watch_stop(exchange); /* before MHD closes the descriptor */
    if (exchange->on_closed) exchange->on_closed(exchange->owner);
    exchange->connection->deadline_usec = clock_now_usec() + daemon->params.head_timeout_ms * UINT64_C(1000);
    if (exchange->close_after) shutdown(exchange->connection->fd, SHUT_RDWR); /* its headers promised keep-alive */
    *exchange->link = exchange->next;
    if (exchange->next) exchange->next->link = exchange->link;
    daemon->n_exchanges--;
    if (exchange->response) MHD_destroy_response(exchange->response);
    drop_body(exchange);
    buffer_done(&exchange->out);
    const HttpClosed closed = {.method = exchange->method,
                               .path = exchange->path,
                               .status = exchange->queued ? exchange->status : 0,
                               .error_kind = exchange->error_kind,
                               .is_whole = exchange->queued && (!exchange->streaming || exchange->stream_ended),
                               .usec = clock_now_usec() - exchange->begun_usec,
                               .is_logged = exchange->is_logged,
                               .caller = exchange->caller};
    daemon->params.on_closed(daemon->params.arg, &closed);
    free(exchange->method);
    free(exchange->path);
    free(exchange);
}

/* ---- reading ---- */

const char *exchange_method(const Exchange *exchange)
{
    return exchange->method;
}

const char *exchange_path(const Exchange *exchange)
{
    return exchange->path;
}

bool exchange_is_first(const Exchange *exchange)
{
    return exchange->is_first;
}

const char *exchange_header(const Exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->mhd, MHD_HEADER_KIND, name);
}

const Buffer *exchange_body(const Exchange *exchange)
{
    return &exchange->body;
}

char *exchange_take_body(Exchange *exchange, size_t *ret_n)
{
    *ret_n = exchange->body.n;
    return buffer_take(&exchange->body);
}

void exchange_set_owner(Exchange *exchange, void (*on_closed)(void *owner), void *owner)
{
    exchange->on_closed = on_closed;
    exchange->owner = owner;
}

void exchange_set_caller(Exchange *exchange, Caller *caller)
{
    exchange->caller = caller;
}

uint64_t exchange_peer(const Exchange *exchange)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(exchange->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info ? info->client_addr : NULL;
    uint64_t network = 0;
    if (!address) return 0;
    if (address->sa_family == AF_INET) return ((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr;
    if (address->sa_family != AF_INET6) return 0;
    const struct in6_addr *full = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(full)) /* its IPv4 address stands behind 12 bytes that all of them share */
        memcpy(&network, full->s6_addr + 12, 4);
    else
        memcpy(&network, full, sizeof network);
    return network;
}

Caller *exchange_caller(const Exchange *exchange)
{
    return exchange->caller;
}

void exchange_add_header(Exchange *exchange, const char *name, const char *value)
{
    add_header(exchange->response, name, value);
}

void exchange_set_logged(Exchange *exchange)
{
    exchange->is_logged = true;
}
