/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop thread submits, cancels, polls and stops at random against a worker on the fake engine: every request gets
 * exactly one last event and nothing behind it, and the engine ends with no sequence open. For ThreadSanitizer.
 */
#include "scheduler/worker.h"
#include "tests/support/fake_engine.h"
#include "tests/support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N_ROUNDS = 24, N_REQUESTS = 120, FEW_BYTES = 4096 * 24 };

typedef struct Loop {
    Worker *worker;
    uint32_t random;
    uint8_t n_last[N_REQUESTS + 1]; /* last events, by id */
    uint32_t n_submitted, n_over, n_stopped, n_wrong;
    uint32_t n_done, n_cancelled;
    _Atomic uint32_t n_wakes;
} Loop;

static uint32_t next_random(Loop *loop)
{
    loop->random = loop->random * 1664525u + 1013904223u;
    return loop->random >> 8;
}

static uint32_t next_token(void *arg, const uint32_t *tokens, uint32_t n)
{
    (void)arg;
    return n % 13 == 12 ? TINY_IM_END : TINY_FIRST_BYTE + (tokens[n - 1] + n) % 256;
}

static void count_wake(void *arg)
{
    Loop *loop = arg;
    loop->n_wakes++;
}

static bool poll_one(Loop *loop)
{
    Event event;
    if (!worker_poll(loop->worker, &event)) return false;
    loop->n_wrong += loop->n_stopped > 0;
    if (event.kind == EVENT_STOPPED) {
        loop->n_stopped++;
    } else if (event.kind != EVENT_STATS) {
        loop->n_wrong += loop->n_last[event.id] > 0;
        if (event.kind == EVENT_DONE || event.kind == EVENT_FAILED) {
            loop->n_last[event.id]++;
            loop->n_over++;
            loop->n_done += event.kind == EVENT_DONE;
            loop->n_cancelled += event.kind == EVENT_FAILED && event.error->code == ERR_CANCELLED;
        }
    }
    event_done(&event);
    return true;
}

static void submit(Loop *loop)
{
    Request *request = request_new(loop->n_submitted + 1, 1 << 16);
    if (!request) abort();
    uint32_t *ids = arena_array(&request->arena, 40, sizeof *ids);
    if (!ids) abort();
    request->n_prompt = 1 + next_random(loop) % 40;
    for (uint32_t i = 0; i < request->n_prompt; i++) ids[i] = TINY_FIRST_BYTE + next_random(loop) % 256;
    request->prompt = ids;
    request->max_tokens = 1 + next_random(loop) % 30;
    request->n_choices = 1 + next_random(loop) % 3;
    request->want_prompt_logprobs = next_random(loop) % 4 == 0;
    request->sampling.temperature = (float)(next_random(loop) % 2);
    request->deadline_usec = next_random(loop) % 16 == 0 ? 1 : 0;
    Error error;
    if (worker_submit(loop->worker, request, &error))
        loop->n_submitted++;
    else
        request_free(request);
}

static void act(Loop *loop)
{
    uint32_t what = next_random(loop) % 8;
    if (what < 2 && loop->n_submitted < N_REQUESTS)
        submit(loop);
    else if (what == 2 && loop->n_submitted)
        worker_cancel(loop->worker, 1 + next_random(loop) % loop->n_submitted);
    else if (what == 3)
        nanosleep(&(struct timespec){.tv_nsec = (long)(next_random(loop) % 50000)}, NULL);
    else
        (void)poll_one(loop);
    loop->n_wrong += worker_heartbeat_usec(loop->worker) == 0;
    loop->n_wrong += worker_retry_after_seconds(loop->worker) == 0;
    (void)worker_busy(loop->worker);
}

static bool run_round(uint32_t round, uint32_t *n_done, uint32_t *n_cancelled)
{
    Loop loop = {.random = round * 977 + 1};
    Engine *engine = fake_engine_new(&(FakeEngineParams){
        .next = next_token, .n_layers = 1 + round % FAKE_LAYERS, .kv_bytes = round % 2 ? 0 : FEW_BYTES});
    const WorkerParams params = {.engine = engine,
                                 .max_queue = round % 7,
                                 .max_queue_tokens = round % 5 ? 0 : 100,
                                 .max_batch = 1 + round % 9,
                                 .max_passes = 2 + round % 3,
                                 .max_stall_ms = 1,
                                 .cache = (CacheMode)(round % 3),
                                 .schedule = (ScheduleMode)(round % 2),
                                 .prefill_chunk = 1 + round % 16,
                                 .max_events = 1u << round % 6,
                                 .wake = count_wake,
                                 .wake_arg = &loop};
    Error error;
    if (!worker_start(&params, &loop.worker, &error)) return false;
    bool stops_early = round % 3 == 0;
    uint32_t n_enough = stops_early ? N_REQUESTS / 4 : N_REQUESTS;
    while (loop.n_over < n_enough) act(&loop);
    worker_stop(loop.worker);
    while (poll_one(&loop)) continue;
    bool ok = loop.n_wrong == 0 && loop.n_stopped == 1 && loop.n_over == loop.n_submitted;
    for (uint32_t id = 1; id <= loop.n_submitted; id++) ok &= loop.n_last[id] == 1;
    worker_free(loop.worker);
    const FakeEngineCounts *counts = fake_engine_counts(engine);
    ok &= counts->open == 0 && counts->broken_promises == 0;
    *n_done += loop.n_done;
    *n_cancelled += loop.n_cancelled;
    engine_close(engine);
    return ok;
}

int main(void)
{
    int n_passed = 0, n_failed = 0;
    uint32_t n_done = 0, n_cancelled = 0;
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        bool ok = run_round(round, &n_done, &n_cancelled);
        if (!ok) printf("FAIL round %u\n", round);
        *(ok ? &n_passed : &n_failed) += 1;
    }
    bool both_happened = n_done > 100 && n_cancelled > 100;
    if (!both_happened) printf("FAIL %u done, %u cancelled: nothing was tried\n", n_done, n_cancelled);
    *(both_happened ? &n_passed : &n_failed) += 1;
    printf("tsan_worker: %d passed, %d failed\n", n_passed, n_failed);
    return n_failed != 0;
}
