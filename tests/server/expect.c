/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/server/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void expect_post(Fixture *fixture, const char *path, const char *body, unsigned status, const char *needle)
{
    Buffer in;
    http_post(fixture_port(fixture), path, body, &in);
    cr_expect(http_status(&in) == status, "%s: wanted %u, got: %s", body, status, in.data);
    cr_expect(strstr(in.data, needle) != NULL, "%s: no '%s' in: %s", body, needle, in.data);
    buffer_done(&in);
}

int read_metric(Fixture *fixture, const char *name)
{
    Buffer in;
    char sample[80];
    snprintf(sample, sizeof sample, "\n%s{", name);
    http_ask(fixture_port(fixture), "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", &in);
    const char *line = strstr(in.data, sample);
    cr_assert(line != NULL, "no %s", name);
    int number = atoi(strchr(line, ' ') + 1);
    buffer_done(&in);
    return number;
}

void await_metric(Fixture *fixture, const char *name, int wanted)
{
    int number = read_metric(fixture, name);
    for (int i = 0; i < 6000 && number != wanted; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000L}, NULL);
        number = read_metric(fixture, name);
    }
    cr_assert_eq(number, wanted, "%s is %d, not %d", name, number, wanted);
}
