/* SPDX-License-Identifier: Apache-2.0 */
#include "server/load/link.h"
#include "base/clock.h"
#include "server/load/http_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

/* A connection that the server closed while it idled breaks at once; later than this the request was being worked on.
 */
enum { RESEND_USEC = 1000000 };

/* A connection; lives until uv has closed it, when its link may be gone. */
typedef struct Wire {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    uv_connect_t connect;
    uv_write_t write;
    bool is_writing;
    Link *link; /* NULL: given up */
} Wire;

struct Link {
    LinkPeer *peer;
    const LinkEvents *events;
    void *arg;
    Wire *wire;            /* NULL: not connected */
    const Buffer *request; /* under way; NULL: none */
    HttpReader reader;
    uint64_t sent_usec;
    uint32_t address, n_tried; /* that which it connects to; those that failed */
    bool has_bytes;            /* of the answer */
    bool is_reused;            /* the wire carried a request before */
};

bool link_peer_find(LinkPeer *peer, uv_loop_t *loop, const char *host, uint16_t port, Error *error)
{
    peer->loop = loop;
    peer->n_addresses = peer->first = 0;
    peer->n_resent = 0;
    peer->path = strncmp(host, "unix:", 5) ? NULL : host + 5;
    if (peer->path) {
        if (strlen(peer->path) < sizeof((struct sockaddr_un *)0)->sun_path) return true;
        return error_set_param(error, ERR_INVALID, "host", "--host: the path of a Unix socket is too long");
    }
    char service[8];
    uv_getaddrinfo_t lookup;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    snprintf(service, sizeof service, "%u", port);
    int status = uv_getaddrinfo(loop, &lookup, NULL, host, service, &hints);
    if (status) return error_set_param(error, ERR_IO, "host", "--host: '%s': %s", host, uv_strerror(status));
    for (const struct addrinfo *at = lookup.addrinfo; at && peer->n_addresses < LINK_MAX_ADDRESSES; at = at->ai_next)
        memcpy(&peer->addresses[peer->n_addresses++], at->ai_addr, at->ai_addrlen);
    uv_freeaddrinfo(lookup.addrinfo);
    return true;
}

bool link_new(LinkPeer *peer, const LinkEvents *events, void *arg, Link **ret_link, Error *error)
{
    Link *link = calloc(1, sizeof *link);
    if (!link) return error_set(error, ERR_NO_MEMORY, "no memory for a connection");
    link->peer = peer;
    link->events = events;
    link->arg = arg;
    http_reader_init(&link->reader);
    *ret_link = link;
    return true;
}

static void free_wire(uv_handle_t *handle)
{
    free(handle->data);
}

static void close_wire(Link *link)
{
    Wire *wire = link->wire;
    if (!wire) return;
    wire->link = NULL;
    link->wire = NULL;
    uv_close(&wire->uv.handle, free_wire);
}

void link_drop(Link *link)
{
    close_wire(link);
    link->request = NULL;
}

void link_free(Link *link)
{
    if (!link) return;
    link_drop(link);
    http_reader_done(&link->reader);
    free(link);
}

static void end_request(Link *link, const Error *error)
{
    if (error || !link->reader.keeps || (link->wire && link->wire->is_writing)) close_wire(link);
    link->request = NULL;
    link->events->end(link->arg, error);
}

static void on_alloc(uv_handle_t *handle, size_t wanted, uv_buf_t *ret_buffer)
{
    (void)wanted;
    const Wire *wire = handle->data;
    *ret_buffer = wire->link ? uv_buf_init(wire->link->peer->bytes, LINK_READ_BYTES) : uv_buf_init(NULL, 0);
}

static int begin_wire(Link *link);
static int try_wires(Link *link);

static bool may_resend(const Link *link)
{
    return link->is_reused && !link->has_bytes && clock_now_usec() - link->sent_usec < RESEND_USEC;
}

/* A server may close a connection that has idled just when the next request goes out: that one goes again. */
static void fail(Link *link, const char *what, int status)
{
    Error error;
    if (may_resend(link)) {
        close_wire(link);
        link->peer->n_resent++;
        status = begin_wire(link);
        if (!status) return;
        what = "connecting";
    }
    error_set(&error, ERR_IO, "%s: %s", what, uv_strerror(status));
    end_request(link, &error);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    Link *link = ((Wire *)stream->data)->link;
    Error error;
    if (!link || n == 0) return;
    if (!link->request) { /* nothing was asked for: the server has closed it */
        close_wire(link);
        return;
    }
    if (n < 0) {
        if (n != UV_EOF || may_resend(link)) {
            fail(link, "reading the answer", (int)n);
            return;
        }
        bool is_whole = http_reader_close(&link->reader, &error);
        end_request(link, is_whole ? NULL : &error);
        return;
    }
    link->has_bytes = true;
    if (!http_reader_feed(&link->reader, buffer->base, (size_t)n, link->events->body, link->arg, &error))
        end_request(link, &error);
    else if (link->reader.state == HTTP_READ_DONE)
        end_request(link, NULL);
}

static void on_written(uv_write_t *write, int status)
{
    Wire *wire = write->handle->data;
    Link *link = wire->link;
    wire->is_writing = false;
    /* A server that refuses may answer and close before it has read all: its answer counts. */
    if (link && link->request && status && status != UV_EPIPE && status != UV_ECONNRESET)
        fail(link, "sending the request", status);
}

static void write_request(Link *link)
{
    Wire *wire = link->wire;
    const uv_buf_t buffer = uv_buf_init(link->request->data, (unsigned)link->request->n);
    int status = uv_write(&wire->write, &wire->uv.stream, &buffer, 1, on_written);
    wire->is_writing = !status;
    if (status) fail(link, "sending the request", status);
}

/* To the address behind the one that failed; false: all have been tried. */
static bool next_address(Link *link)
{
    if (++link->n_tried >= link->peer->n_addresses) return false;
    link->address = (link->address + 1) % link->peer->n_addresses;
    return true;
}

static void on_connected(uv_connect_t *connect, int status)
{
    Link *link = ((Wire *)connect->handle->data)->link;
    if (!link) return;
    if (status && next_address(link)) {
        close_wire(link);
        status = try_wires(link);
        if (!status) return;
    }
    if (!status) {
        link->peer->first = link->address;
        status = uv_read_start(&link->wire->uv.stream, on_alloc, on_read);
    }
    if (status)
        fail(link, "connecting", status);
    else
        write_request(link);
}

static int try_wire(Link *link)
{
    const LinkPeer *peer = link->peer;
    Wire *wire = calloc(1, sizeof *wire);
    if (!wire) return UV_ENOMEM;
    link->is_reused = false;
    int status = peer->path ? uv_pipe_init(peer->loop, &wire->uv.pipe, 0) : uv_tcp_init(peer->loop, &wire->uv.tcp);
    if (status) {
        free(wire);
        return status;
    }
    wire->link = link;
    wire->uv.handle.data = wire;
    link->wire = wire;
    if (peer->path) {
        uv_pipe_connect(&wire->connect, &wire->uv.pipe, peer->path, on_connected);
        return 0;
    }
    const struct sockaddr *address = (const struct sockaddr *)&peer->addresses[link->address];
    uv_tcp_nodelay(&wire->uv.tcp, 1);
    status = uv_tcp_connect(&wire->connect, &wire->uv.tcp, address, on_connected);
    if (status) close_wire(link);
    return status;
}

static int try_wires(Link *link)
{
    int status;
    do status = try_wire(link);
    while (status && next_address(link));
    return status;
}

static int begin_wire(Link *link)
{
    link->n_tried = 0;
    link->address = link->peer->first;
    return try_wires(link);
}

bool link_send(Link *link, const Buffer *request, Error *error)
{
    link->request = request;
    link->has_bytes = false;
    link->sent_usec = clock_now_usec();
    http_reader_restart(&link->reader);
    if (link->wire) {
        link->is_reused = true;
        write_request(link);
        return true;
    }
    int status = begin_wire(link);
    if (!status) return true;
    link->request = NULL;
    return error_set(error, ERR_IO, "connecting: %s", uv_strerror(status));
}

int link_status(const Link *link)
{
    return link->reader.status;
}

uint32_t link_retry_after_s(const Link *link)
{
    return link->reader.retry_after_s;
}
