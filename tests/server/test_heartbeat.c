/* SPDX-License-Identifier: Apache-2.0 */
/* A step that hangs: health routes and the service manager's watchdog. Each test is a process of its own. */
#include "tests/support/http_client.h"
#include "tests/support/server_fixture.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { STALL_MS = 300 };

static void nap_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static unsigned status_of(Fixture *fixture, const char *path, const char *needle)
{
    Buffer in;
    char request[128];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    http_ask(fixture_port(fixture), request, &in);
    unsigned status = http_status(&in);
    cr_expect(strstr(in.data, needle) != NULL, "%s: no '%s' in %s", path, needle, in.data);
    buffer_done(&in);
    return status;
}

/* Datagrams "WATCHDOG=1" within the time. */
static unsigned feeds_within(int fd, unsigned ms)
{
    char text[256];
    unsigned n = 0;
    for (unsigned i = 0; i < ms / 10; i++) {
        ssize_t got;
        while ((got = recv(fd, text, sizeof text, MSG_DONTWAIT)) > 0) n += got == 10 && !memcmp(text, "WATCHDOG=1", 10);
        nap_ms(10);
    }
    return n;
}

static int watch_notifications(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64];
    int n = snprintf(name, sizeof name, "@longwave-beat-%d", (int)getpid());
    memcpy(address.sun_path + 1, name + 1, (size_t)n - 1);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    cr_assert(!bind(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)));
    setenv("NOTIFY_SOCKET", name, 1);
    setenv("WATCHDOG_USEC", "150000", 1);
    return fd;
}

Test(heartbeat, a_hung_step_shows_and_starves_the_watchdog)
{
    int notified = watch_notifications();
    FixtureOptions options = fixture_defaults();
    options.step_usec = 1000;
    options.params.stall_ms = STALL_MS;
    Fixture *fixture = fixture_start(&options);
    /* Idle for longer than the limit, work at once after that: all is well. */
    cr_expect_gt(feeds_within(notified, 2 * STALL_MS), 5);
    int fd = http_connect(fixture_port(fixture));
    Buffer in;
    buffer_init(&in, 1 << 20);
    cr_assert(http_send_post(fd, "/v1/completions", "", "{\"prompt\":\"abc\",\"max_tokens\":400,\"stream\":true}"));
    cr_assert_eq(http_read(fd, &in, "data: ", 3000), HTTP_FOUND);
    cr_expect_eq(status_of(fixture, "/livez", "ok"), 200);
    fake_worker_hang(true);
    (void)feeds_within(notified, STALL_MS + 200);
    cr_expect_eq(feeds_within(notified, STALL_MS), 0);
    cr_expect_eq(status_of(fixture, "/livez", "\"code\":\"engine_stalled\""), 503);
    cr_expect_eq(status_of(fixture, "/readyz", "\"code\":\"engine_stalled\""), 503);
    cr_expect_eq(status_of(fixture, "/health", "\"code\":\"engine_stalled\""), 503);
    fake_worker_hang(false);
    cr_expect_eq(http_read(fd, &in, "[DONE]", 5000), HTTP_FOUND);
    cr_expect_eq(status_of(fixture, "/livez", "ok"), 200);
    cr_expect_gt(feeds_within(notified, STALL_MS), 2);
    close(fd);
    buffer_done(&in);
    fixture_stop(fixture);
    close(notified);
}

/* The last datagram that begins so, of those that come within the time. */
static bool last_of(int fd, const char *begin, unsigned ms, char text[static 256])
{
    char one[256];
    bool found = false;
    for (unsigned i = 0; i < ms / 10; i++) {
        ssize_t got;
        while ((got = recv(fd, one, sizeof one - 1, MSG_DONTWAIT)) > 0) {
            one[got] = '\0';
            if (strncmp(one, begin, strlen(begin))) continue;
            memcpy(text, one, sizeof one);
            found = true;
        }
        nap_ms(10);
    }
    return found;
}

Test(heartbeat, a_load_that_moves_gets_more_time)
{
    char text[256];
    int notified = watch_notifications();
    FixtureOptions options = fixture_defaults();
    options.loading = true;
    Fixture *fixture = fixture_start(&options);
    cr_expect_not(last_of(notified, "EXTEND", 300, text), "nothing has moved");
    fixture_tell_loading(fixture, 0.1);
    fixture_tell_loading(fixture, 0.375);
    cr_assert(last_of(notified, "EXTEND", 500, text));
    cr_expect_str_eq(text, "EXTEND_TIMEOUT_USEC=30000000\nSTATUS=loading the model, 37 %");
    cr_expect_not(last_of(notified, "EXTEND", 300, text), "nor does it any more");
    fixture_tell_loading(fixture, 0.375);
    cr_expect(last_of(notified, "EXTEND", 500, text), "the same percent is a sign of life");
    fixture_stop(fixture);
    close(notified);
}

Test(heartbeat, a_failed_device_is_not_healthy)
{
    int notified = watch_notifications();
    FixtureOptions options = fixture_defaults();
    Fixture *fixture = fixture_start(&options);
    cr_expect_gt(feeds_within(notified, 2 * STALL_MS), 2);
    cr_expect_eq(status_of(fixture, "/health", "ok"), 200);
    fake_worker_break_device(true);
    cr_expect_eq(status_of(fixture, "/livez", "\"code\":\"device_failed\""), 503);
    cr_expect_eq(status_of(fixture, "/readyz", "\"code\":\"device_failed\""), 503);
    cr_expect_eq(status_of(fixture, "/health", "\"code\":\"device_failed\""), 503);
    Buffer in;
    int fd = http_connect(fixture_port(fixture));
    buffer_init(&in, 1 << 20);
    cr_assert(http_send_post(fd, "/v1/completions", "", "{\"prompt\":\"abc\",\"max_tokens\":4}"));
    cr_expect_eq(http_read(fd, &in, "device_failed", 3000), HTTP_FOUND);
    (void)feeds_within(notified, STALL_MS);
    cr_expect_eq(feeds_within(notified, STALL_MS), 0);
    close(fd);
    buffer_done(&in);
    fixture_stop(fixture);
    close(notified);
}

Test(heartbeat, work_that_nobody_takes_up_is_a_stall)
{
    FixtureOptions options = fixture_defaults();
    options.params.stall_ms = STALL_MS;
    Fixture *fixture = fixture_start(&options);
    nap_ms(2 * STALL_MS);
    fake_worker_hang(true);
    int fd = http_connect(fixture_port(fixture));
    cr_assert(http_send_post(fd, "/v1/completions", "", "{\"prompt\":\"abc\",\"max_tokens\":4}"));
    nap_ms(STALL_MS / 2);
    cr_expect_eq(status_of(fixture, "/livez", "ok"), 200); /* it came in just now */
    nap_ms(STALL_MS);
    cr_expect_eq(status_of(fixture, "/livez", "engine_stalled"), 503);
    close(fd);
    fixture_stop(fixture);
}
