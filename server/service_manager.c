/* SPDX-License-Identifier: Apache-2.0 */
#include "server/service_manager.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_PASSED_FD = 3 };

/* A whole number in the environment; false: there is none. */
static bool read_number(const char *name, uint64_t *ret_value)
{
    const char *text = getenv(name);
    if (!text || !*text || strlen(text) > 18 || text[strspn(text, "0123456789")]) return false;
    *ret_value = strtoull(text, NULL, 10);
    return true;
}

static bool is_listening(int fd)
{
    int type = 0, listens = 0;
    socklen_t n = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) || type != SOCK_STREAM) return false;
    n = sizeof listens;
    return !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) && listens;
}

bool service_take_socket(int *ret_fd, Error *error)
{
    uint64_t pid = 0, n = 0;
    bool is_ours = read_number("LISTEN_PID", &pid) && pid == (uint64_t)getpid() && read_number("LISTEN_FDS", &n);
    unsetenv("LISTEN_PID"); /* not for the children of this process */
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (!is_ours || !n) {
        *ret_fd = -1;
        return true;
    }
    int fd = FIRST_PASSED_FD, flags = fcntl(fd, F_GETFL);
    if (n != 1)
        return error_set_param(error, ERR_UNSUPPORTED, "host", "LISTEN_FDS is %llu; only one socket can be served",
                               (unsigned long long)n);
    if (flags < 0 || !is_listening(fd))
        return error_set_param(error, ERR_INVALID, "host", "descriptor %d of LISTEN_FDS is no listening stream socket",
                               fd);
    if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC))
        return error_set(error, ERR_IO, "descriptor %d of LISTEN_FDS: %s", fd, strerror(errno));
    *ret_fd = fd;
    return true;
}

void service_notify(const char *fmt, ...)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n_path = path ? strlen(path) : 0;
    if (n_path < 2 || n_path >= sizeof address.sun_path || (*path != '/' && *path != '@')) return;
    memcpy(address.sun_path, path, n_path);
    if (*path == '@') address.sun_path[0] = '\0'; /* of the abstract kind */
    char text[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0 || n >= (int)sizeof text) return;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    (void)sendto(fd, text, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&address,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n_path));
    close(fd);
}

uint64_t service_watchdog_usec(void)
{
    uint64_t usec = 0, pid = 0;
    if (!read_number("WATCHDOG_USEC", &usec)) return 0;
    if (getenv("WATCHDOG_PID") && (!read_number("WATCHDOG_PID", &pid) || pid != (uint64_t)getpid())) return 0;
    return usec;
}
