/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP side below the API: framing, limits, deadlines, methods, keys, readiness. */
#include "tests/support/http_client.h"
#include "tests/support/server_fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void expect_answer(uint16_t port, const char *request, unsigned status, const char *needle)
{
    Buffer in;
    http_ask(port, request, &in);
    cr_expect(http_status(&in) == status, "%.60s: wanted %u, got: %.200s", request, status, in.data);
    cr_expect(strstr(in.data, needle) != NULL, "%.60s: no '%s' in: %s", request, needle, in.data);
    buffer_done(&in);
}

/* libmicrohttpd 1.0 sees some of this before we do: 400 and a page of its own then. */
static void expect_refusal(uint16_t port, const char *request, unsigned status, const char *code)
{
    Buffer in;
    http_ask(port, request, &in);
    bool by_library = MHD_VERSION >= 0x01000000 && strstr(in.data, "<html>");
    cr_expect(http_status(&in) == (by_library ? 400 : status), "%s: wanted %u, got: %.200s", request, status, in.data);
    cr_expect(by_library || strstr(in.data, code) != NULL, "%s: no '%s' in: %s", request, code, in.data);
    buffer_done(&in);
}

#define POST "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
#define BODY "{\"content\":\"a\"}"

Test(http, framing_that_proxies_disagree_about_is_refused)
{
    FixtureOptions options = fixture_defaults();
    Fixture *fixture = fixture_start(&options);
    uint16_t port = fixture_port(fixture);
    expect_answer(port, POST "Content-Length: 15\r\n\r\n" BODY, 200, "\"count\":1");
    expect_answer(port, POST "Transfer-Encoding: chunked\r\n\r\nf\r\n" BODY "\r\n0\r\n\r\n", 200, "\"count\":1");
    expect_refusal(port, POST "Content-Length: 15\r\nTransfer-Encoding: chunked\r\n\r\nf\r\n" BODY "\r\n0\r\n\r\n", 400,
                   "invalid_framing");
    expect_refusal(port, POST "Content-Length: 15\r\nContent-Length: 15\r\n\r\n" BODY, 400, "invalid_framing");
    expect_refusal(port, POST "Transfer-Encoding: gzip\r\n\r\n", 501, "unsupported_transfer_encoding");
    expect_refusal(port, POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
                   "invalid_framing");
    expect_answer(port, POST "Content-Length: 15x\r\n\r\n" BODY, 400, "");
    expect_answer(port, POST "Content-Length: -5\r\n\r\n" BODY, 400, "");
    expect_answer(port, "GET /health HTTP/1.1\r\n\r\n", 400, "");
    expect_refusal(port, POST "Content-Length : 15\r\n\r\n" BODY, 400, "invalid_framing");
    expect_refusal(port, POST "Content-Length: 15\r\nTransfer-Encoding : chunked\r\n\r\n" BODY, 400, "invalid_framing");
    expect_refusal(port, POST "Content-Length:\r\n 15\r\n\r\n" BODY, 400, "invalid_framing");
    expect_refusal(port, POST "Transfer-Encoding:\r\n chunked\r\n\r\nf\r\n" BODY "\r\n0\r\n\r\n", 400,
                   "invalid_framing");
    expect_refusal(port, POST "Host: y\r\nContent-Length: 15\r\n\r\n" BODY, 400, "more than one Host");
    expect_answer(port, POST "X-a_b.~!: 1\r\nContent-Length: 15\r\n\r\n" BODY, 200, "\"count\":1");
    expect_answer(port, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200,
                  "{\"status\":\"ok\"}");
    fixture_stop(fixture);
}

Test(http, bodies_are_limited)
{
    FixtureOptions options = fixture_defaults();
    options.params.max_body_bytes = 1000;
    Fixture *fixture = fixture_start(&options);
    uint16_t port = fixture_port(fixture);
    Buffer in;
    expect_answer(port, POST "Content-Length: 104857600\r\n\r\n", 413, "request_too_large");
    expect_answer(port, POST "Content-Length: 99999999999999999999999\r\n\r\n", 413, "");
    char body[1002];
    memset(body, ' ', sizeof body);
    memcpy(body, BODY, strlen(BODY));
    body[1000] = '\0';
    http_post(port, "/tokenize", body, &in);
    cr_expect_eq(http_status(&in), 200);
    buffer_done(&in);
    body[1000] = ' ';
    body[1001] = '\0';
    http_post(port, "/tokenize", body, &in);
    cr_expect_eq(http_status(&in), 413);
    buffer_done(&in);
    char chunked[1400];
    snprintf(chunked, sizeof chunked, POST "Transfer-Encoding: chunked\r\n\r\n3e9\r\n%s\r\n0\r\n\r\n", body);
    expect_answer(port, chunked, 413, "request_too_large");
    fixture_stop(fixture);
}

/* Its last bytes and its end may come in one event. */
Test(http, a_client_that_leaves_within_its_body_is_noticed)
{
    enum { CLIENTS = 8 };
    FixtureOptions options = fixture_defaults();
    options.params.body_timeout_ms = options.params.drain_timeout_ms = 60000;
    Fixture *fixture = fixture_start(&options);
    for (int i = 0; i < CLIENTS; i++) {
        int fd = http_connect(fixture_port(fixture));
        cr_assert(http_send(fd, POST "Content-Length: 15\r\n\r\n{\"con"));
        close(fd);
    }
    expect_answer(fixture_port(fixture), "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200,
                  "ok");
    fixture_drain(fixture);
    cr_expect(fixture_ended(fixture, 10000));
    fixture_stop(fixture);
}

Test(http, bodies_of_all_clients_together_are_limited)
{
    FixtureOptions options = fixture_defaults();
    options.params.body_timeout_ms = 60000;
    options.params.max_held_bytes = 4000;
    Fixture *fixture = fixture_start(&options);
    uint16_t port = fixture_port(fixture);
    int fd = http_connect(port);
    char part[3996];
    memset(part, ' ', sizeof part - 1);
    part[sizeof part - 1] = '\0';
    cr_assert(http_send(fd, POST "Content-Length: 5000\r\n\r\n") && http_send(fd, part));
    unsigned status = 0;
    Buffer in;
    for (int i = 0; i < 100 && status != 429; i++) { /* the part may still be on its way */
        http_post(port, "/tokenize", BODY, &in);
        status = http_status(&in);
        if (status == 429) cr_expect(strstr(in.data, "Retry-After: ") != NULL);
        buffer_done(&in);
    }
    cr_expect_eq(status, 429);
    close(fd);
    for (int i = 0; i < 300 && status != 200; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        http_post(port, "/tokenize", BODY, &in);
        status = http_status(&in);
        buffer_done(&in);
    }
    cr_expect_eq(status, 200);
    fixture_stop(fixture);
}

Test(http, slow_clients_are_closed_at_the_deadline)
{
    static const char *const starts[] = {"", "POST /tokenize HTTP/1.1\r\nHo", POST "Content-Length: 100\r\n\r\n"};
    FixtureOptions options = fixture_defaults();
    options.params.head_timeout_ms = options.params.body_timeout_ms = 400;
    Fixture *fixture = fixture_start(&options);
    for (size_t i = 0; i < 3; i++) {
        int fd = http_connect(fixture_port(fixture));
        Buffer in;
        buffer_init(&in, 1 << 20);
        cr_assert(http_send(fd, starts[i]));
        HttpEnd end = HTTP_TIMEOUT;
        for (int turn = 0; turn < 30 && end == HTTP_TIMEOUT; turn++) {
            if (*starts[i]) (void)http_send(fd, " ");
            end = http_read(fd, &in, NULL, 100);
        }
        cr_expect(end == HTTP_EOF || end == HTTP_RESET, "case %zu ends with %d", i, (int)end);
        close(fd);
        buffer_done(&in);
    }
    fixture_stop(fixture);
}

Test(http, methods_and_paths)
{
    FixtureOptions options = fixture_defaults();
    Fixture *fixture = fixture_start(&options);
    uint16_t port = fixture_port(fixture);
    expect_answer(port, "GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404, "unknown_url");
    expect_answer(port, "GET /%ff%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404, "unknown_url");
    expect_answer(port, "GET /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405,
                  "Allow: POST, OPTIONS\r\n");
    expect_answer(port, "DELETE /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405,
                  "method_not_allowed");
    expect_answer(port, "OPTIONS /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 204,
                  "Allow: GET, HEAD, OPTIONS\r\n");
    expect_answer(port, "GET /v1/models/alias/tiny HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200,
                  "\"id\":\"alias/tiny\"");
    expect_answer(port, "GET /v1/models/other HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404,
                  "model_not_found");
    expect_answer(port, POST "Content-Type: text/plain\r\nContent-Length: 15\r\n\r\n" BODY, 415,
                  "unsupported_media_type");
    expect_answer(port, POST "Content-Encoding: gzip\r\nContent-Length: 15\r\n\r\n" BODY, 415,
                  "unsupported_media_type");
    expect_answer(port, POST "Content-Type: application/json; charset=utf-8\r\nContent-Length: 15\r\n\r\n" BODY, 200,
                  "");
    Buffer in;
    http_ask(port, "HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", &in);
    cr_expect_eq(http_status(&in), 200);
    cr_expect(strstr(in.data, "{") == NULL, "HEAD has a body: %s", in.data);
    buffer_done(&in);
    fixture_stop(fixture);
}

Test(http, connections_are_kept_and_pipelined)
{
    static const char get[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    FixtureOptions options = fixture_defaults();
    Fixture *fixture = fixture_start(&options);
    int fd = http_connect(fixture_port(fixture));
    Buffer in, request;
    buffer_init(&in, 1 << 20);
    buffer_init(&request, 1 << 20);
    http_format_post(&request, "/v1/completions", "", "{\"prompt\":\"abc\",\"max_tokens\":3,\"stream\":true}");
    http_format_post(&request, "/v1/completions", "", "{\"prompt\":\"abc\",\"max_tokens\":2}");
    cr_assert(http_send(fd, request.data) && http_send(fd, get) && http_send(fd, get));
    cr_expect_eq(http_read(fd, &in, "{\"status\":\"ok\"}HTTP", 3000), HTTP_FOUND);
    while (http_count(&in, "{\"status\":\"ok\"}") < 2 && http_read(fd, &in, NULL, 100) == HTTP_TIMEOUT) {
    }
    cr_expect_eq(http_count(&in, "HTTP/1.1 200"), 4);
    close(fd);
    buffer_done(&in);
    buffer_done(&request);
    fixture_stop(fixture);
}

Test(http, keys_open_all_but_health)
{
    FixtureOptions options = fixture_defaults();
    options.params.access.api_key = "k1";
    Fixture *fixture = fixture_start(&options);
    uint16_t port = fixture_port(fixture);
    expect_answer(port, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 401,
                  "invalid_api_key");
    expect_answer(port, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 401,
                  "WWW-Authenticate: Bearer");
    expect_answer(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 401,
                  "invalid_api_key");
    expect_answer(port, POST "Authorization: Bearer k2\r\nContent-Length: 15\r\n\r\n" BODY, 401, "invalid_api_key");
    expect_answer(port, POST "Content-Length: 900000\r\n\r\n", 401, "Connection: close");
    expect_answer(port, POST "Authorization: Bearer k1\r\nContent-Length: 15\r\n\r\n" BODY, 200, "\"count\":1");
    expect_answer(port, "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200, "ok");
    expect_answer(port, "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200, "ok");
    fixture_stop(fixture);
}

Test(http, a_loading_server_answers)
{
    FixtureOptions options = fixture_defaults();
    options.loading = true;
    Fixture *fixture = fixture_start(&options);
    uint16_t port = fixture_port(fixture);
    expect_answer(port, "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200, "ok");
    expect_answer(port, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 503,
                  "\"code\":\"loading\"");
    expect_answer(port, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 503,
                  "Retry-After: ");
    expect_answer(port, POST "Content-Length: 15\r\n\r\n" BODY, 503, "\"code\":\"loading\"");
    expect_answer(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200, "longwave_");
    fixture_stop(fixture);
}

/* The daemon goes at once, the server waits for its jobs: the timer of the drain must not ask the daemon meanwhile. */
Test(http, a_drain_ends_though_jobs_of_lost_clients_still_run)
{
    enum { CLIENTS = 8, CONTENT_BYTES = 1 << 20 };
    FixtureOptions options = fixture_defaults();
    options.params.max_body_bytes = 2 * CONTENT_BYTES;
    Fixture *fixture = fixture_start(&options);
    char *body = malloc(CONTENT_BYTES + 32);
    cr_assert_not_null(body);
    int n = sprintf(body, "{\"content\":\"%0*d\"}", CONTENT_BYTES, 0);
    memset(body + n - 2 - CONTENT_BYTES, 'e', CONTENT_BYTES);
    int fds[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = http_connect(fixture_port(fixture));
        cr_assert(http_send_post(fds[i], "/tokenize", "", body));
    }
    free(body);
    expect_answer(fixture_port(fixture), "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200,
                  "ok");
    for (int i = 0; i < CLIENTS; i++) close(fds[i]);
    fixture_drain(fixture);
    cr_expect(fixture_ended(fixture, 20000));
    fixture_stop(fixture);
}

Test(http, many_connections_over_the_limit_are_served_in_turn)
{
    enum { CLIENTS = 40 };
    FixtureOptions options = fixture_defaults();
    options.params.max_connections = 8;
    Fixture *fixture = fixture_start(&options);
    int fds[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = http_connect(fixture_port(fixture));
        cr_assert(http_send(fds[i], "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    }
    for (int i = 0; i < CLIENTS; i++) {
        Buffer in;
        buffer_init(&in, 1 << 16);
        cr_expect_eq(http_read(fds[i], &in, "ok", 3000), HTTP_FOUND, "client %d", i);
        buffer_done(&in);
        close(fds[i]);
    }
    fixture_stop(fixture);
}
