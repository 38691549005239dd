/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many clients at random against a whole server with the fake worker; then a drain with streams open. Every client that
 * stays gets a complete answer, and nothing is left running. For ThreadSanitizer: loop thread, engine thread and
 * libuv's pool.
 */
#include "tests/support/server_fixture.h"
#include "tests/tsan/clients.h"

#include <stdio.h>

enum { N_TURNS = 30 };

static void drain(void *fixture)
{
    fixture_drain(fixture);
}

int main(void)
{
    FixtureOptions options = fixture_defaults();
    options.step_usec = 100;
    options.max_queue = 1000;
    options.params.ping_ms = 20;
    options.params.head_timeout_ms = options.params.body_timeout_ms = 20000;
    Fixture *fixture = fixture_start(&options);
    uint32_t wrong = clients_run(fixture_port(fixture), N_TURNS) ? 1 : 0;
    wrong += clients_drain(fixture_port(fixture), drain, fixture) || !fixture_ended(fixture, 10000);
    fixture_stop(fixture);
    printf("tsan_server: %u passed, %u failed\n", 2 - wrong, wrong);
    return wrong != 0;
}
