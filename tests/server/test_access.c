/* SPDX-License-Identifier: Apache-2.0 */
/* Who may do what, over sockets with the fake worker: scopes, limits, origins, request ids, traces, and the log of
 * them. */
#include "tests/server/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLOSE "Host: localhost\r\nConnection: close\r\n"
#define KEY(key) "Authorization: Bearer " key "\r\n"
#define COMPLETION "{\"prompt\":\"abcd\",\"max_tokens\":2}"

static char key_path[] = "/tmp/lw-access-XXXXXX";

static Fixture *start_with(FixtureOptions options, const char *keys, const char *origins)
{
    int fd = mkstemp(key_path);
    cr_assert(fd >= 0 && write(fd, keys, strlen(keys)) == (ssize_t)strlen(keys));
    close(fd);
    options.params.access.api_key_file = key_path;
    options.params.access.cors_origins = origins;
    options.session_dir = "/nowhere";
    Fixture *fixture = fixture_start(&options);
    unlink(key_path);
    return fixture;
}

static Fixture *start(const char *keys, const char *origins)
{
    return start_with(fixture_defaults(), keys, origins);
}

static void ask(Fixture *fixture, const char *line, const char *headers, const char *body, Buffer *in)
{
    char *request = malloc(strlen(line) + strlen(headers) + strlen(body) + 256);
    cr_assert_not_null(request);
    sprintf(request, "%s HTTP/1.1\r\n" CLOSE "%sContent-Length: %zu\r\n\r\n%s", line, headers, strlen(body), body);
    http_ask(fixture_port(fixture), request, in);
    free(request);
}

static void expect(Fixture *fixture, const char *line, const char *headers, const char *body, unsigned status,
                   const char *needle)
{
    Buffer in;
    ask(fixture, line, headers, body, &in);
    cr_expect(http_status(&in) == status, "%s %s: wanted %u, got: %s", line, headers, status, in.data);
    cr_expect(strstr(in.data, needle) != NULL, "%s %s: no '%s' in: %s", line, headers, needle, in.data);
    buffer_done(&in);
}

static void expect_without(Fixture *fixture, const char *line, const char *headers, const char *needle)
{
    Buffer in;
    ask(fixture, line, headers, "", &in);
    cr_expect_null(strcasestr(in.data, needle), "%s %s: %s", line, headers, in.data);
    buffer_done(&in);
}

Test(access, scopes_open_what_they_name)
{
    Fixture *fixture = start("u:ku\nm:km scope=monitor\na:ka scope=admin\n", NULL);
    static const struct {
        const char *line, *body;
        unsigned status[3]; /* of user, monitor, admin */
    } rows[] = {
        {"POST /v1/completions", COMPLETION, {200, 403, 200}},
        {"POST /tokenize", "{\"content\":\"a\"}", {200, 403, 200}},
        {"GET /v1/models", "", {200, 403, 200}},
        {"GET /metrics", "", {200, 200, 200}},
        {"POST /v1/abort", "{\"request_id\":\"x\"}", {200, 403, 200}},
        {"POST /v1/sessions/s/save", "{\"prompt\":\"abc\"}", {403, 403, 200}},
        {"POST /v1/sessions/s/restore", "", {403, 403, 200}},
        {"DELETE /v1/sessions/s", "", {403, 403, 200}},
        {"GET /livez", "", {200, 200, 200}},
    };
    static const char *const keys[] = {KEY("ku"), KEY("km"), KEY("ka")};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < 3; k++)
            expect(fixture, rows[i].line, keys[k], rows[i].body, rows[i].status[k],
                   rows[i].status[k] == 403 ? "\"type\":\"permission_error\"" : "");
    expect(fixture, "POST /v1/sessions/s/save", KEY("kx"), "{}", 401, "invalid_api_key");
    fixture_stop(fixture);
}

Test(access, metrics_tell_of_keys_to_those_who_watch)
{
    Fixture *fixture = start("u:ku requests=1\nm:km scope=monitor\n", NULL);
    expect(fixture, "POST /v1/completions", KEY("ku"), COMPLETION, 200, "");
    expect(fixture, "POST /v1/completions", KEY("ku"), COMPLETION, 429, "rate_limit_exceeded");
    static const char *const lines[] = {
        "longwave_key_requests_total{model_name=\"tiny\",engine=\"0\",key=\"u\"} 1\n",
        "longwave_key_requests_total{model_name=\"tiny\",engine=\"0\",key=\"m\"} 0\n",
        "longwave_key_limited_total{model_name=\"tiny\",engine=\"0\",key=\"u\"} 1\n",
        "longwave_key_requests_open{model_name=\"tiny\",engine=\"0\",key=\"u\"} 0\n",
        "longwave_key_prompt_tokens_total{model_name=\"tiny\",engine=\"0\",key=\"u\"} 4\n",
        "longwave_key_generation_tokens_total{model_name=\"tiny\",engine=\"0\",key=\"u\"} 2\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        expect(fixture, "GET /metrics", KEY("km"), "", 200, lines[i]);
    expect_without(fixture, "GET /metrics", KEY("ku"), "longwave_key_");
    fixture_stop(fixture);
}

Test(access, limits_are_told_and_kept)
{
    Fixture *fixture = start("r:kr requests=2\nt:kt tokens=10\nc:kc concurrent=1\nfree:kf\n", NULL);
    expect(fixture, "POST /v1/completions", KEY("kr"), COMPLETION, 200, "x-ratelimit-limit-requests: 2\r\n");
    expect(fixture, "POST /v1/completions", KEY("kr"), "{", 400, "x-ratelimit-remaining-requests: 0\r\n");
    expect(fixture, "POST /v1/completions", KEY("kr"), COMPLETION, 429, "Retry-After: 30\r\n");
    expect(fixture, "POST /tokenize", KEY("kr"), "{\"content\":\"a\"}", 429, "\"type\":\"rate_limit_error\"");
    expect(fixture, "GET /v1/models", KEY("kr"), "", 200, "x-ratelimit-reset-requests: ");

    expect(fixture, "POST /v1/completions", KEY("kt"), "{\"prompt\":\"abcdefghijk\"}", 429, "x-should-retry: false");
    expect(fixture, "POST /v1/completions", KEY("kt"), "{\"prompt\":[\"abcd\",\"efgh\",\"ijkl\"]}", 429,
           "12 prompt tokens");
    expect(fixture, "POST /v1/completions", KEY("kt"), COMPLETION, 200, "x-ratelimit-remaining-tokens: 4\r\n");
    expect(fixture, "POST /v1/completions", KEY("kt"), "{\"prompt\":\"abc\",\"max_tokens\":40}", 200, "");
    expect(fixture, "POST /v1/completions", KEY("kt"), COMPLETION, 429, "10 tokens a minute");

    int fd = http_connect(fixture_port(fixture));
    Buffer in;
    buffer_init(&in, 1 << 20);
    cr_assert(
        http_send_post(fd, "/v1/completions", KEY("kc"), "{\"prompt\":\"a\",\"max_tokens\":400,\"stream\":true}"));
    cr_assert_eq(http_read(fd, &in, "data: ", 3000), HTTP_FOUND);
    expect(fixture, "POST /v1/completions", KEY("kc"), COMPLETION, 429, "1 requests at once");
    close(fd);
    buffer_done(&in);
    unsigned status = 429;
    for (int i = 0; i < 300 && status == 429; i++) {
        ask(fixture, "POST /v1/completions", KEY("kc"), COMPLETION, &in);
        status = http_status(&in);
        buffer_done(&in);
    }
    cr_expect_eq(status, 200);

    expect_without(fixture, "GET /v1/models", KEY("kf"), "x-ratelimit");
    fixture_stop(fixture);
}

Test(access, what_is_not_served_is_not_charged)
{
    static const char *const bodies[] = {"{\"prompt\":\"abcdefghijk\"}",   /* more than the key's tokens */
                                         "{\"prompt\":[\"abc\",\"def\"]}", /* the queue has a place for the first */
                                         COMPLETION};                      /* for none: what was cancelled waits */
    FixtureOptions options = fixture_defaults();
    options.step_usec = 20000;
    options.max_queue = 1;
    Fixture *fixture = start_with(options, "r:kr requests=2 tokens=10\nfree:kf\n", NULL);
    Buffer in;
    int fd = http_connect(fixture_port(fixture));
    buffer_init(&in, 1 << 20);
    cr_assert(
        http_send_post(fd, "/v1/completions", KEY("kf"), "{\"prompt\":\"a\",\"max_tokens\":400,\"stream\":true}"));
    cr_assert_eq(http_read(fd, &in, "data: ", 3000), HTTP_FOUND);
    buffer_done(&in);
    for (size_t i = 0; i < 3; i++) {
        ask(fixture, "POST /v1/completions", KEY("kr"), bodies[i], &in);
        cr_expect_eq(http_status(&in), 429);
        cr_expect_eq(strstr(in.data, "\"code\":\"queue_full\"") != NULL, i > 0, "%s", in.data);
        cr_expect(strstr(in.data, "x-ratelimit-remaining-requests: 2\r\n") != NULL, "%s", in.data);
        cr_expect(strstr(in.data, "x-ratelimit-remaining-tokens: 10\r\n") != NULL, "%s", in.data);
        cr_expect_eq(fake_worker_stats().submitted, i ? 2 : 1);
        buffer_done(&in);
    }
    close(fd);
    fixture_stop(fixture);
}

Test(access, streams_have_the_headers_too)
{
    Fixture *fixture = start("r:kr requests=2\n", "https://a.org");
    expect(fixture, "POST /v1/completions",
           KEY("kr") "x-request-id: abc\r\nOrigin: https://a.org\r\nContent-Type: application/json\r\n",
           "{\"prompt\":\"a\",\"max_tokens\":2,\"stream\":true}", 200, "x-ratelimit-remaining-requests: 1\r\n");
    expect(fixture, "POST /v1/completions",
           KEY("kr") "x-request-id: abc\r\nOrigin: https://a.org\r\nContent-Type: application/json\r\n",
           "{\"prompt\":\"a\",\"max_tokens\":2,\"stream\":true}", 200, "x-request-id: abc\r\n");
    fixture_stop(fixture);
}

static void start_long(Fixture *fixture, const char *headers, int *fd, Buffer *in)
{
    buffer_init(in, 1 << 20);
    *fd = http_connect(fixture_port(fixture));
    cr_assert(http_send_post(*fd, "/v1/completions", headers,
                             "{\"prompt\":\"a\",\"max_tokens\":400,\"stream\":true,\"request_id\":\"mine\"}"));
    cr_assert_eq(http_read(*fd, in, "data: ", 3000), HTTP_FOUND);
}

Test(access, only_an_administrator_ends_requests_of_others)
{
    Fixture *fixture = start("u:ku\nv:kv\na:ka scope=admin\n", NULL);
    static const char *const enders[] = {KEY("ku"), KEY("ka")};
    for (size_t i = 0; i < 2; i++) {
        Buffer in;
        int fd;
        start_long(fixture, KEY("ku") "x-request-id: outer\r\n", &fd, &in);
        expect(fixture, "POST /v1/abort", KEY("kv"), "{\"request_id\":\"mine\"}", 200, "{\"aborted\":0}");
        expect(fixture, "POST /v1/abort", KEY("kv"), "{\"request_id\":\"outer\"}", 200, "{\"aborted\":0}");
        expect(fixture, "POST /v1/abort", enders[i], i ? "{\"request_id\":\"outer\"}" : "{\"request_id\":\"mine\"}",
               200, "{\"aborted\":1}");
        cr_expect_eq(http_read(fd, &in, "[DONE]", 3000), HTTP_FOUND);
        close(fd);
        buffer_done(&in);
    }
    fixture_stop(fixture);
}

Test(access, request_ids_come_back_or_are_made)
{
    Fixture *fixture = start("u:ku\n", NULL);
    expect(fixture, "GET /livez", "x-request-id: mine-1\r\n", "", 200, "x-request-id: mine-1\r\n");
    expect(fixture, "GET /livez", "", "", 200, "x-request-id: req_");
    expect(fixture, "GET /livez", "x-request-id: a b\r\n", "", 200, "x-request-id: req_");
    expect(fixture, "GET /livez", "x-request-id: a\"b\r\n", "", 200, "x-request-id: req_");
    expect(fixture, "GET /nowhere", "x-request-id: mine-2\r\n", "", 404, "x-request-id: mine-2\r\n");
    expect(fixture, "GET /v1/models", "x-request-id: mine-3\r\n", "", 401, "x-request-id: mine-3\r\n");
    expect(fixture, "POST /tokenize", KEY("ku") "x-request-id: m\r\nContent-Length : 5\r\n", "", 400, "x-request-id: ");
    fixture_stop(fixture);
}

Test(access, traces_go_on)
{
    Fixture *fixture = start("u:ku\n", NULL);
    static const char id[] = "4bf92f3577b34da6a3ce929d0e0e4736";
    char header[200], wanted[100];
    snprintf(header, sizeof header, "traceparent: 00-%s-00f067aa0ba902b7-01\r\n", id);
    snprintf(wanted, sizeof wanted, "traceparent: 00-%s-", id);
    expect(fixture, "GET /livez", header, "", 200, wanted);
    expect_without(fixture, "GET /livez", "", "traceparent");
    expect_without(fixture, "GET /livez", "traceparent: 00-4bf9-00f067aa0ba902b7-01\r\n", "traceparent");
    fixture_stop(fixture);
}

Test(access, pages_of_the_list_may_read)
{
    Fixture *fixture = start("u:ku\n", "https://a.org");
    static const char preflight[] = "Origin: https://a.org\r\nAccess-Control-Request-Method: POST\r\n"
                                    "Access-Control-Request-Headers: authorization, x-stainless-os\r\n";
    expect(fixture, "OPTIONS /v1/chat/completions", preflight, "", 204,
           "Access-Control-Allow-Methods: POST, OPTIONS\r\n");
    expect(fixture, "OPTIONS /v1/chat/completions", preflight, "", 204,
           "Access-Control-Allow-Headers: authorization, x-stainless-os\r\n");
    expect(fixture, "GET /v1/models", KEY("ku") "Origin: https://a.org\r\n", "", 200,
           "Access-Control-Allow-Origin: https://a.org\r\n");
    expect(fixture, "GET /v1/models", "Origin: https://a.org\r\n", "", 401, "Access-Control-Allow-Origin: ");
    expect(fixture, "GET /v1/models", KEY("ku"), "", 200, "Vary: Origin\r\n");
    expect_without(fixture, "GET /v1/models", KEY("ku") "Origin: https://b.org\r\n", "Access-Control");
    expect_without(fixture, "OPTIONS /v1/models", "Origin: https://b.org\r\nAccess-Control-Request-Method: GET\r\n",
                   "Access-Control");
    /* What a browser sends from any page without asking first is not taken for JSON. */
    expect(fixture, "POST /tokenize", KEY("ku") "Origin: https://b.org\r\n", "{\"content\":\"a\"}", 415, "Origin");
    expect(fixture, "POST /tokenize", KEY("ku") "Origin: https://b.org\r\nContent-Type: text/plain\r\n",
           "{\"content\":\"a\"}", 415, "text/plain");
    expect(fixture, "POST /tokenize", KEY("ku"), "{\"content\":\"a\"}", 200, "count");
    fixture_stop(fixture);
}
