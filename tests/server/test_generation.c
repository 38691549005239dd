/* SPDX-License-Identifier: Apache-2.0 */
/* Chat and completions over sockets with the fake worker: streams, departures, queue, failures, aborts, drain. */
#include "tests/server/expect.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define COMPLETIONS "/v1/completions"
#define CHAT "/v1/chat/completions"

static Fixture *start(uint32_t step_usec)
{
    FixtureOptions options = fixture_defaults();
    options.step_usec = step_usec;
    return fixture_start(&options);
}

static void nap_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* Waits until the counter is there; false: it did not come. */
static bool wait_for(uint64_t (*read)(void), uint64_t wanted)
{
    for (int i = 0; i < 3000; i++) {
        if (read() >= wanted) return true;
        nap_ms(10);
    }
    return false;
}

static uint64_t n_cancelled(void)
{
    return fake_worker_stats().cancelled;
}

static uint64_t n_submitted(void)
{
    return fake_worker_stats().submitted;
}

static uint64_t n_tokens(void)
{
    return fake_worker_stats().tokens;
}

/* Joins the strings behind a key, in order. */
static void join(const Buffer *in, const char *key, Buffer *out)
{
    Error error;
    buffer_init(out, 1 << 20);
    cr_assert(buffer_append_text(out, "", &error));
    for (const char *at = in->data; (at = strstr(at, key));) {
        at += strlen(key);
        const char *end = strchr(at, '"');
        cr_assert(end != NULL);
        cr_assert(buffer_append(out, at, (size_t)(end - at), &error));
    }
}

Test(generation, a_stream_has_its_frames_in_order)
{
    Fixture *fixture = start(500);
    Buffer in;
    http_post(
        fixture_port(fixture), CHAT,
        "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":20,\"stream\":true}",
        &in);
    cr_expect_eq(http_status(&in), 200);
    cr_expect(strstr(in.data, "Content-Type: text/event-stream; charset=utf-8\r\n") != NULL);
    cr_expect(strstr(in.data, "X-Accel-Buffering: no\r\n") != NULL);
    cr_expect_eq(http_count(&in, "data: [DONE]"), 1);
    cr_expect_eq(http_count(&in, "\"role\":\"assistant\",\"content\":\"\"}"), 1);
    cr_expect_eq(http_count(&in, "\"delta\":{}"), 1);
    cr_expect_eq(http_count(&in, "\"finish_reason\":\"length\""), 1);
    cr_expect_eq(http_count(&in, "\"finish_reason\":"), http_count(&in, "data: {"));
    cr_expect_eq(http_count(&in, "\"system_fingerprint\":\"fp_test\""), http_count(&in, "data: {"));
    cr_expect_eq(http_count(&in, "\"usage\""), 0);
    cr_expect_eq(http_count(&in, "\"longwave\":{\"timings\""), 1);
    const char *role = strstr(in.data, "\"role\""), *finish = strstr(in.data, "\"delta\":{}"),
               *done = strstr(in.data, "[DONE]");
    cr_expect(role < finish && finish < done);
    buffer_done(&in);
    fixture_stop(fixture);
}

Test(generation, joined_deltas_equal_the_whole_answer)
{
    static const char whole_body[] = "{\"prompt\":\"D\xC3\xA9j\xC3\xA0 vu the water\",\"max_tokens\":40}";
    static const char stream_body[] =
        "{\"prompt\":\"D\xC3\xA9j\xC3\xA0 vu the water\",\"max_tokens\":40,\"stream\":true}";
    Fixture *fixture = start(200);
    Buffer whole, stream, whole_text, stream_text;
    http_post(fixture_port(fixture), COMPLETIONS, whole_body, &whole);
    http_post(fixture_port(fixture), COMPLETIONS, stream_body, &stream);
    join(&whole, "\"text\":\"", &whole_text);
    join(&stream, "\"text\":\"", &stream_text);
    cr_expect(whole_text.n > 20);
    cr_expect(eq(str, whole_text.data, stream_text.data));
    buffer_done(&whole);
    buffer_done(&stream);
    buffer_done(&whole_text);
    buffer_done(&stream_text);
    fixture_stop(fixture);
}

Test(generation, progress_comes_when_asked)
{
    Fixture *fixture = start(200);
    Buffer in;
    http_post(fixture_port(fixture), COMPLETIONS,
              "{\"prompt\":\"abc\",\"max_tokens\":3,\"stream\":true,\"longwave\":{\"progress\":true}}", &in);
    cr_expect_eq(http_count(&in, "\"choices\":[],\"longwave\":{\"progress\":{\"prompt\":0,\"total\":3,\"cached\":1,"
                                 "\"processed\":1,\"ms\":0.000}"),
                 1, "%s", in.data);
    buffer_done(&in);
    http_post(fixture_port(fixture), COMPLETIONS, "{\"prompt\":\"abc\",\"max_tokens\":3,\"stream\":true}", &in);
    cr_expect_eq(http_count(&in, "progress"), 0);
    buffer_done(&in);
    fixture_stop(fixture);
}

/* The fake engine says that one token was cached and that the third one differs. */
Test(generation, the_answer_tells_what_the_cache_knew)
{
    Fixture *fixture = start(100);
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"abc\",\"max_tokens\":1}", 200,
                "\"cache\":{\"matched\":1,\"divergence\":{\"message\":null,\"character\":2,\"token\":2,"
                "\"reason\":\"differs\"}}");
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"abc\",\"max_tokens\":1}", 200,
                "\"prompt_tokens_details\":{\"cached_tokens\":1}");
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"abc\",\"max_tokens\":1,\"stream\":true}", 200,
                "\"cache\":{\"matched\":1,");
    fixture_stop(fixture);
}

Test(generation, usage_comes_only_when_asked)
{
    Fixture *fixture = start(200);
    Buffer in;
    http_post(fixture_port(fixture), COMPLETIONS,
              "{\"prompt\":\"abc\",\"max_tokens\":3,\"stream\":true,\"stream_options\":{\"include_usage\":true}}", &in);
    cr_expect_eq(
        http_count(&in, "\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":3,\"total_tokens\":6"), 1);
    cr_expect_eq(http_count(&in, "\"usage\":null"), http_count(&in, "data: {") - 1);
    buffer_done(&in);
    http_post(fixture_port(fixture), COMPLETIONS,
              "{\"prompt\":\"abc\",\"max_tokens\":3,\"stream\":true,\"stream_options\":{\"include_usage\":false}}",
              &in);
    cr_expect_eq(http_count(&in, "\"usage\""), 0);
    cr_expect_eq(http_count(&in, "\"choices\":[]"), 0);
    buffer_done(&in);
    fixture_stop(fixture);
}

Test(generation, several_prompts_and_choices_have_indices)
{
    Fixture *fixture = start(100);
    Buffer in;
    http_post(fixture_port(fixture), COMPLETIONS, "{\"prompt\":[\"a\",\"b\"],\"n\":2,\"max_tokens\":1,\"echo\":true}",
              &in);
    cr_expect(strstr(in.data, "\"choices\":[{\"index\":0,\"text\":\"aa\"") != NULL, "%s", in.data);
    cr_expect(strstr(in.data, "{\"index\":1,\"text\":\"aa\"") && strstr(in.data, "{\"index\":2,\"text\":\"bb\""), "%s",
              in.data);
    cr_expect(strstr(in.data, "{\"index\":3,\"text\":\"bb\"") != NULL, "%s", in.data);
    buffer_done(&in);
    http_post(fixture_port(fixture), COMPLETIONS, "{\"prompt\":[[100],[101,102]],\"max_tokens\":2,\"stream\":true}",
              &in);
    cr_expect_eq(http_count(&in, "\"finish_reason\":\"length\""), 2);
    cr_expect_eq(http_count(&in, "data: [DONE]"), 1);
    buffer_done(&in);
    fixture_stop(fixture);
}

Test(generation, logprobs_are_finite_in_both_forms)
{
    Fixture *fixture = start(100);
    expect_post(
        fixture, CHAT,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":1,\"logprobs\":true,\"top_logprobs\":2}",
        200, "\"top_logprobs\":[{\"token\":\"<|im_start|>\",\"logprob\":-0.5,\"bytes\":[60,124");
    expect_post(fixture, CHAT,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":1,\"logprobs\":true}", 200,
                "\"top_logprobs\":[]}]");
    expect_post(
        fixture, COMPLETIONS, "{\"prompt\":\"ab\",\"max_tokens\":1,\"logprobs\":2,\"echo\":true}", 200,
        "\"logprobs\":{\"tokens\":[\"a\",\"b\",\"a\"],\"token_logprobs\":[null,-0.5,-0.5],\"top_logprobs\":[null,{"
        "\"<|im_start|>\":-0.5,\"<|im_end|>\":-9999},{\"<|im_start|>\":-0.5,\"<|im_end|>\":-9999}],"
        "\"text_offset\":[0,1,2]}");
    fixture_stop(fixture);
}

Test(generation, bad_requests_name_their_fault)
{
    static const struct {
        const char *path, *body, *needle;
        unsigned status;
    } cases[] = {
        {CHAT, "{:", "not valid JSON", 400},
        {CHAT, "", "empty", 400},
        {CHAT, "null", "must be a JSON object, not null", 400},
        {CHAT, "{\"messages\":[],\"messages\":[]}", "duplicate key", 400},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]}", "NUL in a string", 400},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}", "lone surrogate", 400},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":\"false\"}", "\"param\":\"stream\"",
         400},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":\"5\"}",
         "\"param\":\"max_tokens\"", 400},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"model\":\"other\"}",
         "\"code\":\"model_not_found\"", 404},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{}]}", "\"param\":\"tools[0].type\"",
         400},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tool_choice\":\"required\"}",
         "\"param\":\"tool_choice\"", 400},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"longwave\":{\"attention\":\"sparse\"}}",
         "this server has 'dense', 'dense' with roles 'half'", 400},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":600}", "context_length_exceeded",
         400},
        {COMPLETIONS, "{}", "\"param\":\"prompt\"", 400},
        {COMPLETIONS, "{\"prompt\":\"\"}", "\"param\":\"prompt\"", 400},
        {COMPLETIONS, "{\"prompt\":[]}", "\"param\":\"prompt\"", 400},
        {COMPLETIONS, "{\"prompt\":5}", "\"param\":\"prompt\"", 400},
        {COMPLETIONS, "{\"prompt\":[1,99999]}", "\"param\":\"prompt[1]\"", 400},
        {COMPLETIONS, "{\"prompt\":[[1],[-1]]}", "\"param\":\"prompt[1][0]\"", 400},
        {COMPLETIONS, "{\"prompt\":[\"a\",7]}", "\"param\":\"prompt[1]\"", 400},
    };
    Fixture *fixture = start(100);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_post(fixture, cases[i].path, cases[i].body, cases[i].status, cases[i].needle);
    cr_expect_eq(n_submitted(), 0);
    fixture_stop(fixture);
}

Test(generation, prompts_over_the_context_are_refused_before_headers)
{
    Fixture *fixture = start(100);
    Buffer body;
    Error error;
    buffer_init(&body, 1 << 16);
    cr_assert(buffer_append_text(&body, "{\"stream\":true,\"prompt\":[7", &error));
    for (int i = 1; i < 600; i++) cr_assert(buffer_append_text(&body, ",7", &error));
    cr_assert(buffer_append_text(&body, "]}", &error));
    expect_post(fixture, COMPLETIONS, body.data, 400, "has 600 tokens, but this model's maximum context length is 512");
    expect_post(fixture, COMPLETIONS, body.data, 400, "\"code\":\"context_length_exceeded\"");
    buffer_done(&body);
    fixture_stop(fixture);
}

/* Even tokens of the longest kind would be too many: nobody counts them. */
Test(generation, a_prompt_far_over_the_context_is_not_tokenized)
{
    enum { PROMPT_BYTES = 512 * 1024 };
    Fixture *fixture = start(100);
    char *body = malloc(PROMPT_BYTES + 64);
    cr_assert_not_null(body);
    sprintf(body, "{\"prompt\":\"%0*d\"}", PROMPT_BYTES, 0);
    expect_post(fixture, COMPLETIONS, body, 400, "the prompt has 524288 bytes, so at least ");
    expect_post(fixture, COMPLETIONS, body, 400, "this model's maximum context length is 512 tokens");
    expect_post(fixture, COMPLETIONS, body, 400, "\"code\":\"context_length_exceeded\"");
    free(body);
    fixture_stop(fixture);
}

static void leave_during(const char *body, uint32_t step_usec)
{
    Fixture *fixture = start(step_usec);
    int fd = http_connect(fixture_port(fixture));
    cr_assert(http_send_post(fd, COMPLETIONS, "", body));
    cr_assert(wait_for(n_submitted, 1));
    nap_ms(30);
    close(fd);
    cr_expect(wait_for(n_cancelled, 1), "nothing was cancelled");
    cr_expect(n_tokens() < 300);
    fixture_stop(fixture);
}

Test(generation, a_client_that_leaves_a_stream_cancels_it)
{
    leave_during("{\"prompt\":\"abc\",\"max_tokens\":500,\"stream\":true}", 5000);
}

Test(generation, a_client_that_leaves_a_collected_answer_cancels_it)
{
    leave_during("{\"prompt\":\"abc\",\"max_tokens\":500}", 5000);
}

Test(generation, a_client_that_leaves_between_tokens_is_noticed)
{
    leave_during("{\"prompt\":\"abc\",\"max_tokens\":500,\"stream\":true}", 300000);
}

Test(generation, a_waiting_client_that_leaves_never_runs)
{
    Fixture *fixture = start(5000);
    int first = http_connect(fixture_port(fixture)), second = http_connect(fixture_port(fixture));
    Buffer in;
    buffer_init(&in, 1 << 20);
    cr_assert(http_send_post(first, COMPLETIONS, "", "{\"prompt\":\"abc\",\"max_tokens\":60,\"stream\":true}"));
    cr_assert(wait_for(n_submitted, 1));
    cr_assert(http_send_post(second, COMPLETIONS, "", "{\"prompt\":\"abc\",\"max_tokens\":60,\"stream\":true}"));
    cr_assert(wait_for(n_submitted, 2));
    close(second);
    cr_expect_eq(http_read(first, &in, "data: [DONE]", 5000), HTTP_FOUND);
    cr_expect(wait_for(n_cancelled, 1));
    cr_expect_eq(n_tokens(), 60);
    close(first);
    buffer_done(&in);
    fixture_stop(fixture);
}

Test(generation, a_client_that_does_not_read_is_cut_off)
{
    FixtureOptions options = fixture_defaults();
    options.step_usec = 20;
    options.params.max_stream_bytes = 8 << 10;
    options.params.slow_client_ms = 200;
    Fixture *fixture = fixture_start(&options);
    int fd = http_connect(fixture_port(fixture));
    int small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    cr_assert(http_send_post(fd, CHAT, "",
                             "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"n\":128,\"stream\":true,"
                             "\"logprobs\":true,\"top_logprobs\":20}"));
    cr_expect(wait_for(n_cancelled, 1), "a client that never reads is still served after %llu tokens",
              (unsigned long long)n_tokens());
    close(fd);
    fixture_stop(fixture);
}

Test(generation, the_answer_names_the_model_in_full)
{
    Fixture *fixture = start(20);
    expect_post(fixture, COMPLETIONS, "{\"model\":\"" FIXTURE_LONG_NAME "\",\"prompt\":\"abc\",\"max_tokens\":1}", 200,
                "\"model\":\"" FIXTURE_LONG_NAME "\"");
    expect_post(fixture, COMPLETIONS, "{\"model\":\"alias/tiny\",\"prompt\":\"abc\",\"max_tokens\":1}", 200,
                "\"model\":\"alias/tiny\"");
    fixture_stop(fixture);
}

Test(generation, large_frames_do_not_cut_off_a_client_that_reads)
{
    FixtureOptions options = fixture_defaults();
    options.step_usec = 20;
    options.params.max_stream_bytes = 1 << 10;
    Fixture *fixture = fixture_start(&options);
    Buffer in, body;
    Error error;
    buffer_init(&body, 1 << 20);
    cr_assert(buffer_append_text(&body, "{\"prompt\":\"", &error));
    for (int i = 0; i < 400; i++) cr_assert(buffer_append_text(&body, "q", &error));
    cr_assert(buffer_append_text(&body, "\",\"max_tokens\":2,\"n\":128,\"echo\":true,\"stream\":true}", &error));
    http_post(fixture_port(fixture), COMPLETIONS, body.data, &in);
    cr_expect_eq(http_count(&in, "\"finish_reason\":\"length\""), 128, "%zu of 128 choices ended in %zu bytes",
                 http_count(&in, "\"finish_reason\":\"length\""), in.n);
    cr_expect_eq(http_count(&in, "data: [DONE]"), 1);
    buffer_done(&in);
    buffer_done(&body);
    fixture_stop(fixture);
}

Test(generation, silent_streams_get_comments)
{
    FixtureOptions options = fixture_defaults();
    options.step_usec = 400000;
    options.params.ping_ms = 100;
    Fixture *fixture = fixture_start(&options);
    Buffer in;
    http_post(fixture_port(fixture), COMPLETIONS, "{\"prompt\":\"abc\",\"max_tokens\":3,\"stream\":true}", &in);
    cr_expect(http_count(&in, ": ping\n\n") >= 4, "%s", in.data);
    cr_expect(strstr(strstr(in.data, "[DONE]"), ": ping") == NULL);
    buffer_done(&in);
    fixture_stop(fixture);
}

Test(generation, failures_are_told_in_band_once_headers_are_out)
{
    Fixture *fixture = start(100);
    expect_post(fixture, COMPLETIONS, "{\"prompt\":[0],\"max_tokens\":3}", 500, "\"code\":\"non_finite_logits\"");
    int fd = http_connect(fixture_port(fixture));
    Buffer in;
    buffer_init(&in, 1 << 20);
    cr_assert(http_send_post(fd, COMPLETIONS, "", "{\"prompt\":[0],\"max_tokens\":3,\"stream\":true}"));
    cr_expect_eq(http_read(fd, &in, NULL, 3000), HTTP_EOF, "the connection is kept");
    cr_expect_eq(http_status(&in), 200);
    cr_expect(strstr(in.data, "data: {\"error\":{\"message\":\"logits are not finite\"") != NULL, "%s", in.data);
    cr_expect_eq(http_count(&in, "data: [DONE]"), 1);
    close(fd);
    buffer_done(&in);
    fixture_stop(fixture);
}

Test(generation, a_full_queue_is_429)
{
    FixtureOptions options = fixture_defaults();
    options.step_usec = 20000;
    options.max_queue = 1;
    Fixture *fixture = fixture_start(&options);
    int fds[2];
    for (int i = 0; i < 2; i++) {
        fds[i] = http_connect(fixture_port(fixture));
        cr_assert(http_send_post(fds[i], COMPLETIONS, "", "{\"prompt\":\"abc\",\"max_tokens\":400,\"stream\":true}"));
        cr_assert(wait_for(n_submitted, (uint64_t)i + 1));
    }
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"abc\"}", 429, "\"code\":\"queue_full\"");
    expect_post(fixture, COMPLETIONS, "{\"prompt\":[\"a\",\"b\",\"c\"]}", 429, "Retry-After: 7\r\n");
    close(fds[0]);
    close(fds[1]);
    cr_expect(wait_for(n_cancelled, 2));
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"abc\",\"max_tokens\":1}", 200, "\"text\":\"a\"");
    fixture_stop(fixture);
}

Test(generation, waiting_prompt_tokens_are_limited)
{
    FixtureOptions options = fixture_defaults();
    options.step_usec = 20000;
    options.params.limits.max_queue_tokens = 10;
    Fixture *fixture = fixture_start(&options);
    int fds[2];
    for (int i = 0; i < 2; i++) {
        fds[i] = http_connect(fixture_port(fixture));
        cr_assert(
            http_send_post(fds[i], COMPLETIONS, "", "{\"prompt\":\"abcdefg\",\"max_tokens\":400,\"stream\":true}"));
        cr_assert(wait_for(n_submitted, (uint64_t)i + 1));
        nap_ms(50);
    }
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"abcdefg\"}", 429, "\"code\":\"queue_full\"");
    close(fds[0]);
    close(fds[1]);
    cr_expect(wait_for(n_cancelled, 2));
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"abcdefg\",\"max_tokens\":1}", 200, "\"text\":\"a\"");
    fixture_stop(fixture);
}

Test(generation, a_deadline_is_a_timeout_that_clients_do_not_retry)
{
    FixtureOptions options = fixture_defaults();
    options.params.limits.request_timeout_ms = 100;
    Fixture *fixture = fixture_start(&options);
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"abc\",\"max_tokens\":400}", 504, "\r\nx-should-retry: false\r\n");
    expect_post(fixture, COMPLETIONS, "{\"prompt\":\"abc\",\"max_tokens\":400,\"timeout_s\":0.01}", 504,
                "\"type\":\"server_error\",\"param\":null,\"code\":\"timeout\"}");
    expect_post(fixture, CHAT,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":400,\"stream\":true,"
                "\"timeout_s\":0.05}",
                200, "\"code\":\"timeout\"}}\n\ndata: [DONE]\n\n");
    fixture_stop(fixture);
}

Test(generation, requests_can_be_aborted_by_id)
{
    Fixture *fixture = start(10000);
    int fd = http_connect(fixture_port(fixture));
    Buffer in;
    buffer_init(&in, 1 << 20);
    cr_assert(http_send_post(fd, COMPLETIONS, "",
                             "{\"prompt\":\"abc\",\"max_tokens\":400,\"request_id\":\"mine\",\"stream\":true}"));
    cr_assert_eq(http_read(fd, &in, "data: ", 3000), HTTP_FOUND);
    expect_post(fixture, "/v1/abort", "{\"request_id\":\"other\"}", 200, "{\"aborted\":0}");
    expect_post(fixture, "/v1/abort", "{}", 400, "\"param\":\"request_id\"");
    expect_post(fixture, "/v1/abort", "{\"request_id\":\"\"}", 400, "\"param\":\"request_id\"");
    char large[32 << 10];
    snprintf(large, sizeof large, "{\"request_id\":\"other\",\"x\":%20000d}", 1);
    expect_post(fixture, "/v1/abort", large, 400, "\"code\":\"too_large\"");
    expect_post(fixture, "/v1/abort", "{\"request_id\":\"mine\"}", 200, "{\"aborted\":1}");
    cr_expect_eq(http_read(fd, &in, "data: [DONE]", 3000), HTTP_FOUND);
    cr_expect(strstr(in.data, "\"code\":\"cancelled\"") != NULL);
    cr_expect(wait_for(n_cancelled, 1));
    close(fd);
    buffer_done(&in);
    fixture_stop(fixture);
}

Test(generation, a_drain_lets_open_answers_end)
{
    Fixture *fixture = start(10000);
    int fd = http_connect(fixture_port(fixture)), idle = http_connect(fixture_port(fixture));
    Buffer in, refused;
    buffer_init(&in, 1 << 20);
    buffer_init(&refused, 1 << 20);
    cr_assert(http_send(idle, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    cr_assert_eq(http_read(idle, &refused, "ok", 3000), HTTP_FOUND);
    cr_assert(http_send_post(fd, COMPLETIONS, "", "{\"prompt\":\"abc\",\"max_tokens\":50,\"stream\":true}"));
    cr_assert_eq(http_read(fd, &in, "data: ", 3000), HTTP_FOUND);
    fixture_drain(fixture);
    nap_ms(50);
    buffer_clear(&refused);
    cr_assert(http_send_post(idle, COMPLETIONS, "", "{\"prompt\":\"abc\"}"));
    cr_expect_eq(http_read(idle, &refused, NULL, 3000), HTTP_EOF);
    cr_expect_eq(http_status(&refused), 503);
    cr_expect(strstr(refused.data, "\"code\":\"draining\"") && strstr(refused.data, "Connection: close"));
    cr_expect_eq(http_connect(fixture_port(fixture)), -1);
    cr_expect_eq(http_read(fd, &in, "data: [DONE]", 5000), HTTP_FOUND);
    cr_expect_eq(http_count(&in, "\"finish_reason\":\"length\""), 1);
    cr_expect(fixture_ended(fixture, 3000), "the loop goes on");
    close(fd);
    close(idle);
    buffer_done(&in);
    buffer_done(&refused);
    fixture_stop(fixture);
}

/* A service manager holds the port, so that nobody is refused over a restart: not who was just let in either. */
Test(generation, a_drain_answers_who_was_connected_before)
{
    Fixture *fixture = start(1000);
    int late = http_connect(fixture_port(fixture)), silent = http_connect(fixture_port(fixture));
    Buffer in;
    buffer_init(&in, 1 << 20);
    nap_ms(100);
    fixture_drain(fixture);
    nap_ms(200);
    cr_assert(http_send_post(late, COMPLETIONS, "", "{\"prompt\":\"abc\",\"max_tokens\":5}"));
    cr_expect_eq(http_read(late, &in, NULL, 3000), HTTP_EOF);
    cr_expect_eq(http_status(&in), 200);
    cr_expect(strstr(in.data, "Connection: close") && strstr(in.data, "\"finish_reason\":\"length\""), "%s", in.data);
    cr_expect(fixture_ended(fixture, 3000), "who says nothing is not waited for");
    close(late);
    close(silent);
    buffer_done(&in);
    fixture_stop(fixture);
}

Test(generation, a_second_signal_fails_open_answers_in_band)
{
    Fixture *fixture = start(200000);
    int stream = http_connect(fixture_port(fixture)), whole = http_connect(fixture_port(fixture));
    Buffer in, answer;
    buffer_init(&in, 1 << 20);
    buffer_init(&answer, 1 << 20);
    cr_assert(http_send_post(stream, COMPLETIONS, "", "{\"prompt\":\"abc\",\"max_tokens\":400,\"stream\":true}"));
    cr_assert(http_send_post(whole, COMPLETIONS, "", "{\"prompt\":\"abc\",\"max_tokens\":400}"));
    cr_assert(wait_for(n_submitted, 2));
    fixture_drain(fixture);
    nap_ms(50);
    fixture_halt(fixture);
    cr_expect_eq(http_read(stream, &in, NULL, 3000), HTTP_EOF);
    cr_expect(strstr(in.data, "\"code\":\"draining\"") && strstr(in.data, "data: [DONE]"), "%s", in.data);
    cr_expect_eq(http_read(whole, &answer, NULL, 3000), HTTP_EOF);
    cr_expect_eq(http_status(&answer), 503);
    cr_expect(fixture_ended(fixture, 3000));
    close(stream);
    close(whole);
    buffer_done(&in);
    buffer_done(&answer);
    fixture_stop(fixture);
}
