/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/http_client.h"
#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_MS = 10000 };

int http_connect(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) abort();
    if (!connect(fd, (struct sockaddr *)&address, sizeof address)) return fd;
    close(fd);
    return -1;
}

static bool send_bytes(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}

bool http_send(int fd, const char *text)
{
    return send_bytes(fd, text, strlen(text));
}

void http_format_post(Buffer *out, const char *path, const char *extra, const char *body)
{
    Error error;
    if (!buffer_printf(
            out, &error,
            "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n",
            path, strlen(body), extra) ||
        !buffer_append_text(out, body, &error))
        abort();
}

bool http_send_post(int fd, const char *path, const char *extra, const char *body)
{
    Buffer request;
    buffer_init(&request, SIZE_MAX / 2);
    http_format_post(&request, path, extra, body);
    bool ok = send_bytes(fd, request.data, request.n);
    buffer_done(&request);
    return ok;
}

HttpEnd http_read(int fd, Buffer *in, const char *needle, uint32_t timeout_ms)
{
    uint64_t deadline = clock_now_usec() + timeout_ms * UINT64_C(1000);
    Error error;
    for (;;) {
        if (needle && in->n && strstr(in->data, needle)) return HTTP_FOUND;
        uint64_t now = clock_now_usec();
        if (now >= deadline) return HTTP_TIMEOUT;
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (poll(&poll_fd, 1, (int)((deadline - now) / 1000 + 1)) <= 0) continue;
        if (!buffer_reserve(in, 1 << 16, &error)) abort();
        ssize_t n = recv(fd, in->data + in->n, 1 << 16, 0);
        if (n < 0) return HTTP_RESET;
        if (n == 0) return HTTP_EOF;
        in->n += (size_t)n;
        in->data[in->n] = '\0';
    }
}

void http_ask(uint16_t port, const char *request, Buffer *in)
{
    int fd = http_connect(port);
    buffer_init(in, SIZE_MAX / 2);
    Error error;
    if (!buffer_reserve(in, 1, &error)) abort();
    if (fd < 0) return;
    (void)!http_send(fd, request);
    (void)http_read(fd, in, NULL, PATIENCE_MS);
    close(fd);
}

void http_post(uint16_t port, const char *path, const char *body, Buffer *in)
{
    Buffer request;
    buffer_init(&request, SIZE_MAX / 2);
    http_format_post(&request, path, "Connection: close\r\n", body);
    http_ask(port, request.data, in);
    buffer_done(&request);
}

unsigned http_status(const Buffer *in)
{
    unsigned status = 0;
    return in->n && sscanf(in->data, "HTTP/1.1 %u ", &status) == 1 ? status : 0;
}

size_t http_count(const Buffer *in, const char *needle)
{
    size_t n = 0;
    for (const char *at = in->n ? in->data : ""; (at = strstr(at, needle)); at += strlen(needle)) n++;
    return n;
}
