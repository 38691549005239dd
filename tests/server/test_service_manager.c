/* SPDX-License-Identifier: Apache-2.0 */
/* Every test runs in a process of its own, so the environment may be changed. */
#include "server/service_manager.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* The runner's own descriptors are in the way: each case is a child of the test. */
static bool holds(bool (*check)(void))
{
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (!pid) _exit(check() ? 0 : 1);
    int status = 1;
    waitpid(pid, &status, 0);
    return !status;
}

static bool pass(int fd, const char *n, long pid)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", pid);
    setenv("LISTEN_PID", text, 1);
    setenv("LISTEN_FDS", n, 1);
    return fd < 0 || dup2(fd, 3) == 3;
}

static int listening_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX}; /* any abstract name */
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return fd >= 0 && !bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)) && !listen(fd, 1) ? fd : -2;
}

static bool takes(int wanted)
{
    Error error;
    int fd = -7;
    return service_take_socket(&fd, &error) && fd == wanted;
}

static bool refuses(void)
{
    Error error;
    int fd = -7;
    return !service_take_socket(&fd, &error) && fd == -7;
}

static bool takes_it_once(void)
{
    return pass(listening_socket(), "1", getpid()) && takes(3) && (fcntl(3, F_GETFL) & O_NONBLOCK) &&
           (fcntl(3, F_GETFD) & FD_CLOEXEC) && !getenv("LISTEN_FDS") && !getenv("LISTEN_PID") && takes(-1);
}

static bool leaves_that_of_another(void)
{
    return pass(listening_socket(), "1", getpid() + 1) && takes(-1);
}

static bool takes_none_of_none(void)
{
    return takes(-1) && pass(-1, "0", getpid()) && takes(-1) && pass(-1, "1 ", getpid()) && takes(-1);
}

static bool refuses_two(void)
{
    return pass(listening_socket(), "2", getpid()) && refuses();
}

static bool refuses_datagrams(void)
{
    return pass(socket(AF_UNIX, SOCK_DGRAM, 0), "1", getpid()) && refuses();
}

static bool refuses_what_does_not_listen(void)
{
    return pass(socket(AF_UNIX, SOCK_STREAM, 0), "1", getpid()) && refuses();
}

static bool refuses_what_is_closed(void)
{
    close(3);
    return pass(-1, "1", getpid()) && refuses();
}

Test(service_manager, sockets)
{
    cr_expect(holds(takes_it_once));
    cr_expect(holds(leaves_that_of_another));
    cr_expect(holds(takes_none_of_none));
    cr_expect(holds(refuses_two));
    cr_expect(holds(refuses_datagrams));
    cr_expect(holds(refuses_what_does_not_listen));
    cr_expect(holds(refuses_what_is_closed));
}

Test(service_manager, notifies_the_abstract_and_the_path)
{
    char path[64], text[64];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(path, sizeof path, "@longwave-test-%d", (int)getpid());
    for (int round = 0; round < 2; round++) {
        socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
        memcpy(address.sun_path, path, strlen(path) + 1);
        if (!round) address.sun_path[0] = '\0';
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        cr_assert(!bind(fd, (struct sockaddr *)&address, n));
        setenv("NOTIFY_SOCKET", path, 1);
        service_notify("STATUS=%d at work", 3);
        ssize_t got = recv(fd, text, sizeof text - 1, 0);
        cr_assert_gt(got, 0);
        text[got] = '\0';
        cr_expect_str_eq(text, "STATUS=3 at work");
        close(fd);
        if (round) unlink(path);
        snprintf(path, sizeof path, "/tmp/longwave-test-%d", (int)getpid());
    }
    setenv("NOTIFY_SOCKET", "relative", 1);
    service_notify("READY=1");
    setenv("NOTIFY_SOCKET", "", 1);
    service_notify("READY=1");
}

Test(service_manager, watchdog_time)
{
    char pid[32];
    cr_expect_eq(service_watchdog_usec(), 0);
    setenv("WATCHDOG_USEC", "30000000", 1);
    cr_expect_eq(service_watchdog_usec(), 30000000);
    setenv("WATCHDOG_PID", "1", 1);
    cr_expect_eq(service_watchdog_usec(), 0);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    cr_expect_eq(service_watchdog_usec(), 30000000);
    setenv("WATCHDOG_USEC", "-1", 1);
    cr_expect_eq(service_watchdog_usec(), 0);
}
