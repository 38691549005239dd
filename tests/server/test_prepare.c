/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on their way to the engine: while the one thread of the pool is busy, clients leave, time runs out, ids are
 * aborted, the server drains.
 */
#include "tests/server/expect.h"
#include "tests/support/alloc_count.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#define COMPLETIONS "/v1/completions"

static const char small_body[] = "{\"nobody_knows\":1,\"prompt\":\"a\",\"max_tokens\":1}";

static void nap_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* The pool has one thread. */
static Fixture *start(void)
{
    setenv("UV_THREADPOOL_SIZE", "1", 1);
    FixtureOptions options = fixture_defaults();
    options.params.drain_timeout_ms = 60000;
    return fixture_start(&options);
}

/* Keeps the thread of the pool, which all loops of a process share, until it is told to go. */
typedef struct Occupant {
    uv_loop_t loop;
    uv_work_t work;
    uv_sem_t there, go;
} Occupant;

static void on_occupy(uv_work_t *work)
{
    Occupant *occupant = work->data;
    uv_sem_post(&occupant->there);
    uv_sem_wait(&occupant->go);
}

static void on_gone(uv_work_t *work, int status)
{
    (void)work;
    cr_expect_eq(status, 0);
}

static void occupy(Occupant *occupant)
{
    cr_assert_eq(uv_loop_init(&occupant->loop), 0);
    cr_assert_eq(uv_sem_init(&occupant->there, 0), 0);
    cr_assert_eq(uv_sem_init(&occupant->go, 0), 0);
    occupant->work.data = occupant;
    cr_assert_eq(uv_queue_work(&occupant->loop, &occupant->work, on_occupy, on_gone), 0);
    uv_sem_wait(&occupant->there);
}

static void leave_pool(Occupant *occupant)
{
    uv_sem_post(&occupant->go);
    uv_run(&occupant->loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&occupant->loop), 0);
    uv_sem_destroy(&occupant->there);
    uv_sem_destroy(&occupant->go);
}

/* So many requests have arrived and not left the pool. */
#define PREPARING "longwave_requests_preparing"

/* What was asked of the pool before has been done. */
static void await_pool(Fixture *fixture)
{
    expect_post(fixture, "/tokenize", "{\"content\":\"a\"}", 200, "\"count\":");
}

static int post(Fixture *fixture, const char *body)
{
    int fd = http_connect(fixture_port(fixture));
    cr_assert(http_send_post(fd, COMPLETIONS, "", body));
    return fd;
}

static void expect_answer(int fd, unsigned status, const char *needle)
{
    Buffer in;
    buffer_init(&in, 1 << 20);
    cr_expect_eq(http_read(fd, &in, needle, 60000), HTTP_FOUND, "no %s in: %s", needle, in.data ? in.data : "");
    cr_expect(eq(uint, http_status(&in), status));
    buffer_done(&in);
    close(fd);
}

Test(prepare, jobs_of_clients_that_left_are_not_begun)
{
    enum { CLIENTS = 8 };
    Fixture *fixture = start();
    Occupant occupant;
    occupy(&occupant);
    int fds[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) fds[i] = post(fixture, small_body);
    await_metric(fixture, PREPARING, CLIENTS);
    for (int i = 0; i < CLIENTS; i++) close(fds[i]);
    await_metric(fixture, PREPARING, 0);
    leave_pool(&occupant);
    expect_post(fixture, COMPLETIONS, small_body, 200, "\"length\"");
    cr_expect_eq(read_metric(fixture, "longwave_unknown_fields_total"), 1); /* of the last request */
    fixture_stop(fixture);
}

Test(prepare, time_runs_from_the_arrival)
{
    Fixture *fixture = start();
    Occupant occupant;
    occupy(&occupant);
    int fd = post(fixture, "{\"prompt\":\"a\",\"max_tokens\":1,\"timeout_s\":0.02}");
    int stream = post(fixture, "{\"prompt\":\"a\",\"max_tokens\":1,\"timeout_s\":0.02,\"stream\":true}");
    await_metric(fixture, PREPARING, 2);
    nap_ms(50);
    leave_pool(&occupant);
    expect_answer(fd, 504, "\"code\":\"timeout\"");
    expect_answer(stream, 504, "\"code\":\"timeout\"");
    await_pool(fixture);
    cr_expect_eq(fake_worker_stats().submitted, 0);
    fixture_stop(fixture);
}

Test(prepare, aborts_reach_what_is_being_prepared)
{
    static const char body[] = "{\"prompt\":\"a\",\"max_tokens\":1,\"request_id\":\"mine\"}";
    Fixture *fixture = start();
    Occupant occupant;
    occupy(&occupant);
    int fd = post(fixture, body), other = post(fixture, small_body), by_head = http_connect(fixture_port(fixture));
    cr_assert(http_send_post(by_head, COMPLETIONS, "x-request-id: named\r\n", small_body));
    await_metric(fixture, PREPARING, 3);
    expect_post(fixture, "/v1/abort", "{\"request_id\":\"mine\"}", 200, "{\"aborted\":0}");
    expect_post(fixture, "/v1/abort", "{\"request_id\":\"named\"}", 200, "{\"aborted\":0}");
    leave_pool(&occupant);
    expect_answer(fd, 499, "\"code\":\"cancelled\"");
    expect_answer(by_head, 499, "\"code\":\"cancelled\"");
    expect_answer(other, 200, "\"length\"");
    await_pool(fixture);
    cr_expect_eq(fake_worker_stats().submitted, 1);
    expect_post(fixture, COMPLETIONS, body, 200, "\"length\""); /* one that comes later has only the name in common */
    fixture_stop(fixture);
}

/* In the pool, and with half of its body still to come. */
Test(prepare, a_drain_waits_for_requests_that_are_there)
{
    Fixture *fixture = start();
    Buffer request;
    Occupant occupant;
    occupy(&occupant);
    int fd = post(fixture, small_body), slow = http_connect(fixture_port(fixture));
    buffer_init(&request, 1 << 16);
    http_format_post(&request, COMPLETIONS, "", small_body);
    request.data[request.n - 8] = '\0';
    cr_assert(http_send(slow, request.data));
    await_metric(fixture, PREPARING, 1);
    fixture_drain(fixture);
    nap_ms(50);
    cr_assert(http_send(slow, small_body + strlen(small_body) - 8));
    leave_pool(&occupant);
    expect_answer(fd, 200, "\"length\"");
    expect_answer(slow, 200, "\"length\"");
    cr_expect(fixture_ended(fixture, 60000), "the loop goes on");
    buffer_done(&request);
    fixture_stop(fixture);
}

Test(prepare, texts_far_over_the_context_are_not_tokenized)
{
    enum { BYTES = 512 * 1024 };
    static const char *const keys[] = {"content", "prompt"};
    FixtureOptions options = fixture_defaults();
    Fixture *fixture = fixture_start(&options);
    char *body = malloc(BYTES + 64);
    cr_assert_not_null(body);
    for (int i = 0; i < 2; i++) {
        sprintf(body, "{\"%s\":\"%0*d\"}", keys[i], BYTES, 0);
        expect_post(fixture, "/tokenize", body, 400, "\"code\":\"context_length_exceeded\"");
        expect_post(fixture, "/tokenize", body, 400, keys[i]);
    }
    free(body);
    fixture_stop(fixture);
}

/* Whatever cannot be had while a stream is ended by its id: once that is said to be done, the stream does end. */
Test(prepare, a_failure_that_cannot_be_told_still_ends_the_stream)
{
    enum { MAX_POINTS = 200 };
    static const char abort_request[] = "POST /v1/abort HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                                        "Content-Length: 21\r\n\r\n{\"request_id\":\"mine\"}";
    static const char body[] = "{\"prompt\":\"ab\",\"max_tokens\":3,\"stream\":true,\"request_id\":\"mine\"}";
    Fixture *fixture = start();
    fake_worker_hang(true);
    bool failed = true;
    int n_ended = 0;
    for (uint64_t n = 1; failed && n <= MAX_POINTS; n++) {
        Buffer in, answer;
        buffer_init(&in, 1 << 20);
        buffer_init(&answer, 1 << 20);
        cr_assert(buffer_reserve(&in, 1 << 18, &(Error){0}) && buffer_reserve(&answer, 1 << 18, &(Error){0}));
        int fd = post(fixture, body), abort_fd = http_connect(fixture_port(fixture));
        cr_assert_eq(http_read(fd, &in, "\r\n\r\n", 3000), HTTP_FOUND);
        alloc_fail_at(n);
        cr_assert(http_send(abort_fd, abort_request));
        (void)http_read(abort_fd, &answer, NULL, 3000);
        failed = alloc_failed() != NULL;
        alloc_fail_at(0);
        if (http_count(&answer, "{\"aborted\":1}")) {
            HttpEnd end = http_read(fd, &in, NULL, 3000);
            cr_expect(end == HTTP_EOF || end == HTTP_RESET, "allocation %llu leaves the stream open",
                      (unsigned long long)n);
            n_ended++;
        }
        close(fd);
        close(abort_fd);
        buffer_done(&in);
        buffer_done(&answer);
    }
    cr_expect_not(failed);
    cr_expect_gt(n_ended, 1, "nothing failed while a stream was ended");
    fake_worker_hang(false);
    fixture_stop(fixture);
}
