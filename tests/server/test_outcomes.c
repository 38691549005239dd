/* SPDX-License-Identifier: Apache-2.0 */
/* longwave_generation_requests_total: each request once, whether it is streamed or not, and by whose doing it ended. */
#include "tests/server/expect.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COMPLETIONS "/v1/completions"
#define OUTCOME(word) "longwave_generation_requests_total", "outcome=\"" word "\"}"
#define ABORTED(word) "longwave_requests_aborted_total", "reason=\"" word "\"}"
#define TOLD(word) "longwave_requests_rejected_total", "reason=\"" word "\"}"

/* Of the sample with that label; -1: there is none. */
static int sample(Fixture *fixture, const char *name, const char *label)
{
    Buffer in;
    int number = -1;
    http_ask(fixture_port(fixture), "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", &in);
    for (const char *line = in.data; line && number < 0; line = strchr(line, '\n')) {
        line += *line == '\n';
        size_t n = strcspn(line, "\n");
        const char *found = memmem(line, n, label, strlen(label));
        if (!strncmp(line, name, strlen(name)) && found) number = atoi(found + strlen(label));
    }
    buffer_done(&in);
    return number;
}

static void expect_sample(Fixture *fixture, const char *name, const char *label, int wanted)
{
    int number = sample(fixture, name, label);
    for (int i = 0; i < 3000 && number < wanted; i++) { /* what a client left behind is seen a little later */
        nanosleep(&(struct timespec){.tv_nsec = 10000000L}, NULL);
        number = sample(fixture, name, label);
    }
    cr_expect_eq(number, wanted, "%s{%s is %d, not %d", name, label, number, wanted);
}

static Fixture *start(uint32_t step_usec)
{
    FixtureOptions options = fixture_defaults();
    options.step_usec = step_usec;
    return fixture_start(&options);
}

Test(outcomes, a_failure_counts_once_streamed_or_not)
{
    Fixture *fixture = start(100);
    expect_post(fixture, COMPLETIONS, "{\"prompt\":[0],\"max_tokens\":3}", 500, "non_finite_logits");
    expect_sample(fixture, OUTCOME("failure"), 1);
    expect_sample(fixture, TOLD("non_finite_logits"), 1);
    expect_post(fixture, COMPLETIONS, "{\"prompt\":[0],\"max_tokens\":3,\"stream\":true}", 200, "non_finite_logits");
    expect_sample(fixture, OUTCOME("failure"), 2);
    expect_sample(fixture, ABORTED("failure"), 2);
    expect_sample(fixture, TOLD("non_finite_logits"), 2);
    expect_sample(fixture, OUTCOME("done"), 0);
    fixture_stop(fixture);
}

Test(outcomes, what_a_client_did_wrong_is_no_failure)
{
    Fixture *fixture = start(100);
    expect_post(fixture, COMPLETIONS, "{\"prompt\":[0,0],\"max_tokens\":3}", 400, "invalid_schema");
    expect_post(fixture, COMPLETIONS, "{\"prompt\":[0,0],\"max_tokens\":3,\"stream\":true}", 200, "invalid_schema");
    expect_sample(fixture, ABORTED("refused"), 2);
    expect_post(fixture, COMPLETIONS, "{\"prompt\":7}", 400, "invalid_value");
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"a\",\"model\":\"other\"}", 404, "model_not_found");
    expect_sample(fixture, OUTCOME("bad_request"), 4);
    expect_sample(fixture, OUTCOME("failure"), 0);
    expect_sample(fixture, ABORTED("failure"), 0);
    fixture_stop(fixture);
}

Test(outcomes, answers_and_departures_are_told_apart_and_other_routes_do_not_count)
{
    Fixture *fixture = start(20000);
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"abc\",\"max_tokens\":2}", 200, "\"text\"");
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"abc\",\"max_tokens\":2,\"stream\":true}", 200, "[DONE]");
    expect_post(fixture, "/tokenize", "{\"content\":\"abc\"}", 200, "tokens");
    expect_post(fixture, "/tokenize", "{}", 400, "invalid_value");
    for (int stream = 0; stream < 2; stream++) {
        Buffer in;
        buffer_init(&in, 1 << 20);
        int fd = http_connect(fixture_port(fixture));
        cr_assert(http_send_post(fd, COMPLETIONS, "",
                                 stream ? "{\"prompt\":\"abc\",\"max_tokens\":400,\"stream\":true}"
                                        : "{\"prompt\":\"abc\",\"max_tokens\":400}"));
        if (stream) cr_expect_neq(http_read(fd, &in, "data: ", 3000), HTTP_EOF);
        close(fd);
        buffer_done(&in);
        expect_sample(fixture, OUTCOME("cancelled"), stream + 1);
    }
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"abc\",\"max_tokens\":400,\"timeout_s\":0.01}", 504, "timeout");
    expect_sample(fixture, OUTCOME("timeout"), 1);
    expect_sample(fixture, OUTCOME("done"), 2);
    expect_sample(fixture, OUTCOME("bad_request"), 0);
    fixture_stop(fixture);
}
