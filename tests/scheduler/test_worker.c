/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/worker.h"
#include "base/clock.h"
#include "tests/scheduler/rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A worker on a fake engine that says "hello" behind one token, or letters for ever behind '@', slowly; behind '#' its
 * step takes until the gate opens. */
typedef struct Bench {
    Engine *engine;
    Worker *worker;
    Recorder recorder;
    _Atomic uint32_t n_wakes;
    _Atomic bool is_at_gate, gate_is_open, shows_life;
} Bench;

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 200 * 1000}, NULL);
}

static uint32_t next_of_bench(void *arg, const uint32_t *tokens, uint32_t n)
{
    Speaker speaker = {1, "hello"};
    Bench *bench = arg;
    if (tokens[0] == byte_id('#')) {
        bench->is_at_gate = true;
        while (!bench->gate_is_open) {
            nap();
            if (bench->shows_life) fake_engine_pulse(bench->engine);
        }
    }
    if (tokens[0] != byte_id('@')) return speaker_next(&speaker, tokens, n);
    nap();
    return byte_id((char)('a' + n % 26));
}

static void count_wake(void *arg)
{
    Bench *bench = arg;
    bench->n_wakes++;
}

/* Engine, wake and chunk are the bench's own. */
static Bench *bench_with(WorkerParams params)
{
    Bench *bench = calloc(1, sizeof *bench);
    cr_assert_not_null(bench);
    bench->engine = fake_engine_new(&(FakeEngineParams){.next = next_of_bench, .next_arg = bench});
    params.engine = bench->engine;
    params.prefill_chunk = 4;
    params.wake = count_wake;
    params.wake_arg = bench;
    Error error;
    cr_assert(worker_start(&params, &bench->worker, &error), "%s", error.text);
    return bench;
}

static Bench *bench_new(uint32_t max_queue, uint32_t max_events)
{
    return bench_with((WorkerParams){.max_queue = max_queue, .max_events = max_events});
}

static void bench_free(Bench *bench)
{
    worker_free(bench->worker);
    cr_assert_eq(fake_engine_counts(bench->engine)->open, 0);
    cr_assert_eq(fake_engine_counts(bench->engine)->broken_promises, 0);
    engine_close(bench->engine);
    for (int i = 0; i < RECORDER_MAX_REQUESTS; i++) {
        const RequestRecord *record = &bench->recorder.requests[i];
        cr_assert_eq(record->n_after_last, 0);
        cr_assert_leq(record->n_done + record->n_failed, 1);
    }
    free(bench);
}

static void submit(Bench *bench, RequestId id, const char *prompt)
{
    Error error;
    Request *request = request_of(id, prompt);
    if (prompt[0] == '@') request->max_tokens = 4000;
    cr_assert(worker_submit(bench->worker, request, &error), "%s", error.text);
}

static bool poll_one(Bench *bench)
{
    Event event;
    if (!worker_poll(bench->worker, &event)) return false;
    recorder_take(&bench->recorder, &event);
    return true;
}

static bool is_over(const Bench *bench, RequestId id)
{
    return bench->recorder.requests[id].n_done + bench->recorder.requests[id].n_failed > 0;
}

/* Polls until 'condition' holds; fails after 20 s. */
#define POLL_UNTIL(bench, condition)                                                                                   \
    do {                                                                                                               \
        uint64_t limit_usec_ = clock_now_usec() + 20 * 1000000;                                                        \
        while (!(condition)) {                                                                                         \
            if (!poll_one(bench)) nap();                                                                               \
            cr_assert_lt(clock_now_usec(), limit_usec_, "waited too long for " #condition);                            \
        }                                                                                                              \
    } while (0)

Test(worker, answers_and_sleeps)
{
    Bench *bench = bench_new(4, 0);
    submit(bench, 1, "x");
    POLL_UNTIL(bench, is_over(bench, 1) && bench->recorder.n_stats > 0);
    cr_assert_str_eq(bench->recorder.requests[1].choices[0].text, "hello");
    cr_assert_gt(bench->n_wakes, 0);
    POLL_UNTIL(bench, !worker_busy(bench->worker));
    uint64_t heartbeat = worker_heartbeat_usec(bench->worker);
    for (int i = 0; i < 100; i++) nap();
    cr_assert_eq(worker_heartbeat_usec(bench->worker), heartbeat, "an idle worker must not turn");
    submit(bench, 2, "x");
    POLL_UNTIL(bench, is_over(bench, 2));
    cr_assert_gt(worker_heartbeat_usec(bench->worker), heartbeat);
    bench_free(bench);
}

Test(worker, a_long_step_shows_life_with_every_layer)
{
    Bench *bench = bench_new(4, 0);
    submit(bench, 1, "#");
    POLL_UNTIL(bench, bench->is_at_gate);
    uint64_t heartbeat = worker_heartbeat_usec(bench->worker);
    for (int i = 0; i < 20; i++) nap();
    cr_assert(worker_busy(bench->worker));
    cr_assert_eq(worker_heartbeat_usec(bench->worker), heartbeat, "a step that hangs must not look alive");
    bench->shows_life = true;
    POLL_UNTIL(bench, worker_heartbeat_usec(bench->worker) >= heartbeat + 5000);
    bench->gate_is_open = true;
    POLL_UNTIL(bench, is_over(bench, 1));
    bench_free(bench);
}

/* What runs and what comes later fails, each with its last event; nothing hangs. */
Test(worker, a_failed_device_fails_all_and_is_told)
{
    Bench *bench = bench_new(4, 0);
    submit(bench, 1, "@");
    submit(bench, 2, "x");
    POLL_UNTIL(bench, bench->recorder.requests[1].n_started);
    cr_assert_not(worker_has_failed(bench->worker));
    fake_engine_break_device(bench->engine);
    POLL_UNTIL(bench, is_over(bench, 1) && is_over(bench, 2));
    POLL_UNTIL(bench, worker_has_failed(bench->worker));
    submit(bench, 3, "x");
    POLL_UNTIL(bench, is_over(bench, 3));
    for (int id = 1; id <= 3; id++) cr_expect_eq(bench->recorder.requests[id].n_failed, 1, "%d", id);
    cr_assert(worker_has_failed(bench->worker));
    bench_free(bench);
}

Test(worker, refuses_when_the_queue_is_full)
{
    Bench *bench = bench_new(2, 0);
    Error error;
    submit(bench, 1, "@");
    submit(bench, 2, "x");
    submit(bench, 3, "x");
    Request *fourth = request_of(4, "x");
    cr_assert_not(worker_submit(bench->worker, fourth, &error));
    cr_assert_eq(error.code, ERR_BUSY);
    POLL_UNTIL(bench, bench->recorder.requests[1].n_started);
    worker_cancel(bench->worker, 1);
    POLL_UNTIL(bench, is_over(bench, 1));
    cr_assert(worker_submit(bench->worker, fourth, &error));
    POLL_UNTIL(bench, is_over(bench, 4));
    cr_assert_str_eq(bench->recorder.order, "1S 1F 2S 2D 3S 3D 4S 4D ");
    bench_free(bench);
}

/* Prompt tokens of those that wait; one alone may be of any length. */
Test(worker, refuses_when_too_many_prompt_tokens_wait)
{
    Bench *bench = bench_with((WorkerParams){.max_queue = 10, .max_queue_tokens = 20});
    Error error = {0};
    cr_assert_eq(worker_retry_after_seconds(bench->worker), 1);
    submit(bench, 1, "@");
    POLL_UNTIL(bench, bench->recorder.requests[1].n_started);
    submit(bench, 2, "x is a prompt of some 40 tokens, or more");
    Request *third = request_of(3, "x");
    cr_assert_not(worker_submit(bench->worker, third, &error));
    cr_assert_eq(error.code, ERR_BUSY);
    cr_assert_str_eq(error.param, "max_queue_tokens");
    worker_cancel(bench->worker, 2);
    POLL_UNTIL(bench, is_over(bench, 2));
    cr_assert(worker_submit(bench->worker, third, &error));
    worker_cancel(bench->worker, 1);
    POLL_UNTIL(bench, is_over(bench, 3));
    cr_assert_geq(worker_retry_after_seconds(bench->worker), 1);
    bench_free(bench);
}

/* Places beside max_queue: what the engine takes at once does not wait. */
Test(worker, a_batch_runs_beside_an_empty_queue)
{
    Bench *bench = bench_with((WorkerParams){.max_queue = 0, .max_batch = 3});
    Error error;
    for (RequestId id = 1; id <= 3; id++) submit(bench, id, "@");
    Request *fourth = request_of(4, "x");
    cr_assert_not(worker_submit(bench->worker, fourth, &error));
    cr_assert_str_eq(error.param, "max_queue");
    for (RequestId id = 1; id <= 3; id++) POLL_UNTIL(bench, bench->recorder.requests[id].choices[0].n_tokens > 3);
    for (RequestId id = 1; id <= 3; id++) worker_cancel(bench->worker, id);
    for (RequestId id = 1; id <= 3; id++) POLL_UNTIL(bench, is_over(bench, id));
    cr_assert(worker_submit(bench->worker, fourth, &error), "%s", error.text);
    POLL_UNTIL(bench, is_over(bench, 4));
    bench_free(bench);
}

/* One runs, a second waits, the second's client leaves. */
Test(worker, a_waiting_request_whose_client_leaves_never_runs)
{
    Bench *bench = bench_new(4, 0);
    submit(bench, 1, "@");
    submit(bench, 2, "x");
    submit(bench, 3, "x");
    POLL_UNTIL(bench, bench->recorder.requests[1].choices[0].n_tokens > 3);
    worker_cancel(bench->worker, 2);
    POLL_UNTIL(bench, is_over(bench, 2));
    cr_assert_eq(bench->recorder.requests[2].n_started, 0);
    cr_assert_eq(bench->recorder.requests[2].error.code, ERR_CANCELLED);
    cr_assert_not(is_over(bench, 1));
    worker_cancel(bench->worker, 1);
    POLL_UNTIL(bench, is_over(bench, 3));
    cr_assert_str_eq(bench->recorder.requests[3].choices[0].text, "hello");
    bench_free(bench);
}

Test(worker, cancels_that_come_too_early_too_late_or_twice)
{
    Bench *bench = bench_new(2, 0);
    worker_cancel(bench->worker, 1); /* unknown */
    submit(bench, 1, "x");
    worker_cancel(bench->worker, 1); /* perhaps before it starts */
    for (int i = 0; i < 1000; i++) worker_cancel(bench->worker, 1);
    POLL_UNTIL(bench, is_over(bench, 1));
    submit(bench, 2, "x");
    POLL_UNTIL(bench, !worker_busy(bench->worker) && fake_engine_counts(bench->engine)->open == 0);
    worker_cancel(bench->worker, 2); /* done, and perhaps not polled */
    POLL_UNTIL(bench, is_over(bench, 2));
    worker_cancel(bench->worker, 2);
    submit(bench, 3, "x");
    POLL_UNTIL(bench, is_over(bench, 3));
    cr_assert_eq(bench->recorder.requests[3].n_done, 1);
    bench_free(bench);
}

/*
 * While one step takes long: late cancels of requests that are done, and a submit and a cancel in each of their places.
 */
Test(worker, has_room_for_every_command_of_a_long_step)
{
    enum { N = 6, GATE = N + 1 };
    Bench *bench = bench_new(N, 0);
    for (RequestId id = 1; id <= N; id++) submit(bench, id, "x");
    submit(bench, GATE, "#");
    uint64_t end_usec = clock_now_usec() + 20 * 1000000;
    while (!bench->is_at_gate) {
        nap();
        cr_assert_lt(clock_now_usec(), end_usec);
    }
    for (RequestId id = 1; id <= N; id++) worker_cancel(bench->worker, id);
    POLL_UNTIL(bench, is_over(bench, N));
    for (RequestId id = GATE + 1; id <= GATE + N; id++) submit(bench, id, "x");
    for (RequestId id = GATE; id <= GATE + N; id++) worker_cancel(bench->worker, id);
    bench->gate_is_open = true;
    POLL_UNTIL(bench, is_over(bench, GATE + N));
    for (RequestId id = 1; id <= N; id++) cr_expect_eq(bench->recorder.requests[id].n_done, 1);
    for (RequestId id = GATE + 1; id <= GATE + N; id++)
        cr_expect_eq(bench->recorder.requests[id].error.code, ERR_CANCELLED);
    bench_free(bench);
}

/* A loop that polls late loses nothing, and its polling wakes the engine again. */
Test(worker, a_small_event_queue_only_slows_it_down)
{
    Bench *bench = bench_new(4, 1);
    submit(bench, 1, "x");
    submit(bench, 2, "x");
    for (int i = 0; i < 50; i++) nap();
    cr_assert_leq(fake_engine_counts(bench->engine)->forwards, 1);
    POLL_UNTIL(bench, is_over(bench, 2));
    cr_assert_str_eq(bench->recorder.requests[1].choices[0].text, "hello");
    cr_assert_str_eq(bench->recorder.requests[2].choices[0].text, "hello");
    bench_free(bench);
}

/* Nobody polls, so the engine sleeps for room; the deadline still frees the sequence. */
Test(worker, a_deadline_passes_while_the_event_queue_is_full)
{
    Bench *bench = bench_new(4, 1);
    Request *request = request_of(1, "@");
    Error error;
    request->max_tokens = 4000;
    request->deadline_usec = clock_now_usec() + 1000 * 1000; /* it is begun before */
    cr_assert(worker_submit(bench->worker, request, &error));
    uint64_t end_usec = clock_now_usec() + 20 * 1000000;
    while (fake_engine_counts(bench->engine)->opened == 0 || fake_engine_counts(bench->engine)->open > 0) {
        nap();
        cr_assert_lt(clock_now_usec(), end_usec);
    }
    POLL_UNTIL(bench, is_over(bench, 1));
    cr_assert_eq(bench->recorder.requests[1].error.code, ERR_DEADLINE);
    bench_free(bench);
}

static void stop_with(uint32_t max_events, uint32_t n_naps)
{
    Bench *bench = bench_new(4, max_events);
    submit(bench, 1, "@");
    submit(bench, 2, "x");
    submit(bench, 3, "@");
    worker_cancel(bench->worker, 3);
    for (uint32_t i = 0; i < n_naps; i++) nap();
    worker_stop(bench->worker);
    worker_stop(bench->worker);
    worker_cancel(bench->worker, 1);
    Request *late = request_of(4, "x");
    Error error;
    cr_assert_not(worker_submit(bench->worker, late, &error));
    request_free(late);
    while (poll_one(bench)) continue;
    for (RequestId id = 1; id <= 3; id++) {
        cr_assert_eq(bench->recorder.requests[id].n_failed, 1);
        cr_assert_eq(bench->recorder.requests[id].error.code, ERR_CANCELLED);
    }
    cr_assert_eq(bench->recorder.n_stopped, 1);
    cr_assert_str_eq(bench->recorder.order + strlen(bench->recorder.order) - 2, "X ");
    cr_assert_not(worker_busy(bench->worker));
    bench_free(bench);
}

Test(worker, stop_gives_every_request_its_last_event)
{
    for (uint32_t n_naps = 0; n_naps < 6; n_naps++) {
        stop_with(0, n_naps);
        stop_with(1, n_naps);
    }
}

Test(worker, freed_with_work_on_it)
{
    Bench *bench = bench_new(4, 2);
    submit(bench, 1, "@");
    submit(bench, 2, "x");
    bench_free(bench);
    worker_free(NULL);
}

Test(worker, refuses_bad_parameters)
{
    Engine *engine = fake_engine_new(&(FakeEngineParams){0});
    Worker *worker = NULL;
    Error error = {0};
    cr_assert_not(worker_start(&(WorkerParams){.engine = engine, .max_queue = 1}, &worker, &error));
    cr_assert_str_eq(error.param, "prefill_chunk");
    cr_assert_not(
        worker_start(&(WorkerParams){.engine = engine, .max_queue = UINT32_MAX, .prefill_chunk = 1}, &worker, &error));
    cr_assert_str_eq(error.param, "max_queue");
    cr_assert_not(
        worker_start(&(WorkerParams){.engine = engine, .max_batch = 1u << 20, .prefill_chunk = 1}, &worker, &error));
    cr_assert_str_eq(error.param, "max_batch");
    cr_assert_null(worker);
    engine_close(engine);
}
