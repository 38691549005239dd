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

#define WAITING "longwave_grammar_compiles_waiting"

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
    await_metric(fixture, WAITING, 1);
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"a\",\"regex\":\"b\",\"timeout_s\":0.2}", 504,
                "\"code\":\"timeout\"");
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"a\",\"regex\":\"b\",\"timeout_s\":0.1,\"stream\":true}", 504,
                "\"code\":\"timeout\"");
    cr_expect(eq(int, read_metric(fixture, WAITING), 1), "who has no such limit waits on");
    close(fd);
    await_metric(fixture, WAITING, 0);
    fixture_stop(fixture);
}

Test(compiling, who_leaves_waits_no_longer)
{
    enum { CLIENTS = 6 };
    Fixture *fixture = start();
    int fds[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) fds[i] = post(fixture, by_choice);
    await_metric(fixture, WAITING, CLIENTS);
    for (int i = 0; i < CLIENTS; i += 2) close(fds[i]);
    await_metric(fixture, WAITING, CLIENTS / 2);
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"a\",\"max_tokens\":1}", 200, "\"length\"");
    cr_expect_eq(fake_worker_stats().submitted, 1);
    fixture_halt(fixture); /* with three that wait */
    fixture_stop(fixture);
    for (int i = 1; i < CLIENTS; i += 2) close(fds[i]);
}
