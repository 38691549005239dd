/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that wait for their turn to compile a grammar, which does not come. */
#include "tests/server/expect.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COMPLETIONS "/v1/completions"
static const char by_choice[] = "{\"prompt\":\"a\",\"max_tokens\":1,\"choice\":[\"a\"]}";

static Fixture *start(void)
{
    FixtureOptions options = fixture_defaults();
    options.compiles_never = true;
    return fixture_start(&options);
}

static int n_waiting(Fixture *fixture)
{
    Buffer in;
    http_ask(fixture_port(fixture), "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", &in);
    const char *line = strstr(in.data, "\nlongwave_grammar_compiles_waiting{");
    cr_assert_not_null(line);
    int n = atoi(strchr(line, ' ') + 1);
    buffer_done(&in);
    return n;
}

/* Until so many wait; a minute is for ever. */
static void await_waiting(Fixture *fixture, int n)
{
    for (int i = 0; i < 6000 && n_waiting(fixture) != n; i++) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    cr_assert(eq(int, n_waiting(fixture), n));
}

static int post(Fixture *fixture, const char *body)
{
    int fd = http_connect(fixture_port(fixture));
    cr_assert(http_send_post(fd, COMPLETIONS, "", body));
    return fd;
}

Test(compiling, the_time_of_a_request_ends_its_waiting)
{
    Fixture *fixture = start();
    int fd = post(fixture, by_choice);
    await_waiting(fixture, 1);
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"a\",\"regex\":\"b\",\"timeout_s\":0.2}", 504,
                "\"code\":\"timeout\"");
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"a\",\"regex\":\"b\",\"timeout_s\":0.1,\"stream\":true}", 504,
                "\"code\":\"timeout\"");
    cr_expect(eq(int, n_waiting(fixture), 1), "who has no such limit waits on");
    close(fd);
    await_waiting(fixture, 0);
    fixture_stop(fixture);
}

Test(compiling, who_leaves_waits_no_longer)
{
    enum { CLIENTS = 6 };
    Fixture *fixture = start();
    int fds[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) fds[i] = post(fixture, by_choice);
    await_waiting(fixture, CLIENTS);
    for (int i = 0; i < CLIENTS; i += 2) close(fds[i]);
    await_waiting(fixture, CLIENTS / 2);
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"a\",\"max_tokens\":1}", 200, "\"length\"");
    cr_expect_eq(fake_worker_stats().submitted, 1);
    fixture_halt(fixture); /* with three that wait */
    fixture_stop(fixture);
    for (int i = 1; i < CLIENTS; i += 2) close(fds[i]);
}
