/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions through a worker on the fake engine: results come back as events, once each, whatever happens. */
#include "scheduler/worker.h"
#include "tests/scheduler/recorder.h"
#include "tests/support/fake_engine.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_IDS = 100, N_PROMPT = 300 };

typedef struct Bench {
    char folder[64];
    Engine *engine;
    Worker *worker;
    uint32_t n_events[MAX_IDS]; /* last events by id */
    ErrorCode codes[MAX_IDS];
    uint32_t n_tokens[MAX_IDS];
    uint32_t n_stopped;
} Bench;

static uint32_t next_letter(void *arg, const uint32_t *tokens, uint32_t n)
{
    (void)arg;
    (void)tokens;
    return TINY_FIRST_BYTE + 'a' + n % 26;
}

static Bench *bench_new(uint32_t max_events, bool has_folder)
{
    Bench *bench = calloc(1, sizeof *bench);
    Error error;
    cr_assert_not_null(bench);
    strcpy(bench->folder, "/tmp/longwave_worker_XXXXXX");
    cr_assert_not_null(mkdtemp(bench->folder));
    bench->engine = fake_engine_new(&(FakeEngineParams){.next = next_letter, .max_sequences = 4, .max_passes = 4});
    const WorkerParams params = {.engine = bench->engine,
                                 .max_queue = 8,
                                 .max_batch = 2,
                                 .prefill_chunk = 64,
                                 .cache = CACHE_ON,
                                 .session_dir = has_folder ? bench->folder : NULL,
                                 .max_events = max_events};
    cr_assert(worker_start(&params, &bench->worker, &error), "%s", error.text);
    return bench;
}

static bool poll_one(Bench *bench)
{
    Event event;
    if (!worker_poll(bench->worker, &event)) return false;
    cr_assert_eq(bench->n_stopped, 0);
    if (event.kind == EVENT_SESSION) {
        bench->n_events[event.id]++;
        bench->codes[event.id] = event.session->error.code;
        bench->n_tokens[event.id] = event.session->n_moved_tokens;
    }
    if (event.kind == EVENT_DONE || event.kind == EVENT_FAILED) bench->n_events[event.id]++;
    if (event.kind == EVENT_DONE) bench->n_tokens[event.id] = event.timings.cached_tokens;
    bench->n_stopped += event.kind == EVENT_STOPPED;
    event_done(&event);
    return true;
}

static void wait_for(Bench *bench, RequestId id)
{
    for (int i = 0; i < 20000 && !bench->n_events[id]; i++)
        if (!poll_one(bench)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    cr_assert_eq(bench->n_events[id], 1, "%u events of %u", bench->n_events[id], (unsigned)id);
}

static void bench_free(Bench *bench)
{
    char path[128];
    worker_stop(bench->worker);
    while (poll_one(bench)) {
    }
    cr_expect_eq(bench->n_stopped, 1);
    worker_free(bench->worker);
    cr_expect_eq(engine_kv_usage(bench->engine).n_pages_used, 0);
    engine_close(bench->engine);
    for (int i = 0; i < MAX_IDS; i++) {
        snprintf(path, sizeof path, "%s/s%d.session", bench->folder, i);
        unlink(path);
    }
    cr_expect_eq(rmdir(bench->folder), 0, "there are more files than sessions");
    free(bench);
}

static bool call(Bench *bench, RequestId id, SessionOp op, const char *session)
{
    SessionCall *made;
    Error error;
    uint32_t tokens[N_PROMPT];
    for (uint32_t i = 0; i < N_PROMPT; i++) tokens[i] = TINY_FIRST_BYTE + i % 200;
    cr_assert(session_call_new(id, op, session, &made, &error));
    cr_assert(session_call_set_tokens(made, tokens, N_PROMPT, NULL, 0, &error));
    if (worker_session(bench->worker, made, &error)) return true;
    cr_expect_eq(error.code, ERR_BUSY);
    session_call_free(made);
    return false;
}

static void ask(Bench *bench, RequestId id, uint32_t max_tokens)
{
    Request *request = request_new(id, 1 << 16);
    Error error;
    cr_assert_not_null(request);
    uint32_t *tokens = arena_array(&request->arena, N_PROMPT, sizeof *tokens);
    for (uint32_t i = 0; i < N_PROMPT; i++) tokens[i] = TINY_FIRST_BYTE + i % 200;
    request->prompt = tokens;
    request->n_prompt = N_PROMPT;
    request->max_tokens = max_tokens;
    cr_assert(worker_submit(bench->worker, request, &error), "%s", error.text);
}

Test(worker_session, a_prefix_goes_to_the_disk_and_back)
{
    Bench *bench = bench_new(0, true);
    cr_assert(call(bench, 1, SESSION_SAVE, "s1"));
    wait_for(bench, 1);
    cr_expect_eq(bench->codes[1], ERR_NOT_FOUND);
    ask(bench, 2, 4);
    wait_for(bench, 2);
    cr_assert(call(bench, 3, SESSION_SAVE, "s1"));
    wait_for(bench, 3);
    cr_expect_eq(bench->codes[3], ERR_NONE);
    cr_expect_eq(bench->n_tokens[3], N_PROMPT);
    Bench *other = bench_new(0, true);
    char from[128], to[128];
    snprintf(from, sizeof from, "%s/s1.session", bench->folder);
    snprintf(to, sizeof to, "%s/s7.session", other->folder);
    cr_assert_eq(rename(from, to), 0);
    cr_assert(call(other, 1, SESSION_RESTORE, "s7"));
    wait_for(other, 1);
    cr_expect_eq(other->codes[1], ERR_NONE);
    cr_expect_eq(other->n_tokens[1], N_PROMPT);
    ask(other, 2, 4);
    wait_for(other, 2);
    cr_expect_eq(other->n_tokens[2], N_PROMPT - 1);
    cr_assert(call(other, 3, SESSION_DELETE, "s7"));
    cr_assert(call(other, 4, SESSION_RESTORE, "s7"));
    wait_for(other, 4);
    cr_expect_eq(other->codes[3], ERR_NONE);
    cr_expect_eq(other->codes[4], ERR_NOT_FOUND);
    bench_free(bench);
    bench_free(other);
}

Test(worker_session, requests_go_on_beside_it)
{
    Bench *bench = bench_new(0, true);
    ask(bench, 1, 1);
    wait_for(bench, 1);
    ask(bench, 2, 1000);
    for (RequestId id = 3; id < 13; id++) cr_assert(call(bench, id, SESSION_SAVE, id % 2 ? "s1" : "s2"));
    for (RequestId id = 3; id < 13; id++) {
        wait_for(bench, id);
        cr_expect_eq(bench->codes[id], ERR_NONE);
    }
    wait_for(bench, 2);
    bench_free(bench);
}

Test(worker_session, without_a_folder_there_are_none)
{
    Bench *bench = bench_new(0, false);
    cr_assert(call(bench, 1, SESSION_SAVE, "s1"));
    wait_for(bench, 1);
    cr_expect_eq(bench->codes[1], ERR_UNSUPPORTED);
    bench_free(bench);
}

/* Nobody polls: sixteen wait, the next one does not; then all come, through a narrow queue. */
Test(worker_session, so_many_at_once)
{
    Bench *bench = bench_new(2, true);
    for (RequestId id = 1; id <= 16; id++) cr_assert(call(bench, id, SESSION_SAVE, "s1"));
    cr_expect_not(call(bench, 17, SESSION_SAVE, "s1"));
    for (RequestId id = 1; id <= 16; id++) wait_for(bench, id);
    cr_assert(call(bench, 18, SESSION_SAVE, "s1"));
    wait_for(bench, 18);
    bench_free(bench);
}

/* At the stop, at any time, every call still comes back, before EVENT_STOPPED (poll_one checks that). */
Test(worker_session, a_stop_gives_all_back)
{
    for (int delay = 0; delay < 20; delay++) {
        Bench *bench = bench_new(delay % 2 ? 2 : 0, true);
        ask(bench, 1, 2);
        wait_for(bench, 1);
        for (RequestId id = 2; id < 8; id++)
            cr_assert(call(bench, id, id % 3 == 1 ? SESSION_RESTORE : SESSION_SAVE, "s1"));
        nanosleep(&(struct timespec){.tv_nsec = delay * 200000}, NULL);
        worker_stop(bench->worker);
        while (poll_one(bench)) {
        }
        for (RequestId id = 2; id < 8; id++) cr_expect_eq(bench->n_events[id], 1);
        bench_free(bench);
    }
}
