/* SPDX-License-Identifier: Apache-2.0 */
#include "server/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static const char *unix_path(const char *host)
{
    return strncmp(host, "unix:", 5) ? NULL : host + 5;
}

static bool close_failed(int fd, const char *what, const char *where, Error *error)
{
    error_set_param(error, ERR_IO, "host", "host: cannot %s %s: %s", what, where, strerror(errno));
    close(fd);
    return false;
}

/* A socket file that nobody listens on is left over from a crash. */
static void remove_if_dead(const char *path, const struct sockaddr_un *address)
{
    struct stat st;
    if (lstat(path, &st) || !S_ISSOCK(st.st_mode)) return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) && errno == ECONNREFUSED) unlink(path);
    close(fd);
}

static bool listen_unix(const char *path, int *ret_fd, Error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (!n || n >= sizeof address.sun_path)
        return error_set_param(error, ERR_INVALID, "host", "host: a Unix socket path has 1 to %zu bytes",
                               sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, n);
    remove_if_dead(path, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return error_set(error, ERR_IO, "socket: %s", strerror(errno));
    mode_t old = umask(0117); /* owner and group */
    int failed = bind(fd, (const struct sockaddr *)&address, sizeof address);
    umask(old);
    if (failed) return close_failed(fd, "bind", path, error);
    if (listen(fd, BACKLOG)) return close_failed(fd, "listen on", path, error);
    *ret_fd = fd;
    return true;
}

static bool listen_address(const struct addrinfo *info, const char *name, int *ret_fd, Error *error)
{
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return error_set(error, ERR_IO, "socket: %s", strerror(errno));
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, info->ai_addr, info->ai_addrlen)) return close_failed(fd, "bind", name, error);
    if (listen(fd, BACKLOG)) return close_failed(fd, "listen on", name, error);
    *ret_fd = fd;
    return true;
}

uint16_t listen_port(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t n = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &n)) return 0;
    if (address.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    return address.ss_family == AF_INET ? ntohs(((struct sockaddr_in *)&address)->sin_port) : 0;
}

bool listen_is_local(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t n = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &n)) return false;
    if (address.ss_family == AF_INET6) {
        const struct in6_addr *own = &((struct sockaddr_in6 *)&address)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(own) || (IN6_IS_ADDR_V4MAPPED(own) && own->s6_addr[12] == IN_LOOPBACKNET);
    }
    if (address.ss_family != AF_INET) return true;
    return ntohl(((struct sockaddr_in *)&address)->sin_addr.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
}

bool listen_open(const char *host, uint16_t port, int *ret_fd, uint16_t *ret_port, Error *error)
{
    const char *path = unix_path(host);
    if (path) {
        if (!listen_unix(path, ret_fd, error)) return false;
        *ret_port = 0;
        return true;
    }
    char service[8], name[300];
    snprintf(service, sizeof service, "%u", port);
    snprintf(name, sizeof name, "%.250s port %u", host, port);
    struct addrinfo *list, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    int code = getaddrinfo(host, service, &hints, &list);
    if (code)
        return error_set_param(error, ERR_INVALID, "host", "cannot resolve host '%.200s': %s", host,
                               gai_strerror(code));
    bool ok = false;
    for (const struct addrinfo *info = list; info && !ok; info = info->ai_next)
        ok = listen_address(info, name, ret_fd, error);
    freeaddrinfo(list);
    if (ok) *ret_port = listen_port(*ret_fd);
    return ok;
}

void listen_remove(const char *host)
{
    const char *path = unix_path(host);
    if (path) unlink(path);
}
