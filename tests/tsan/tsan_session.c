/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions are saved, restored and deleted at random through a worker on the fake engine, beside requests, with a stop
 * at any time, also while the disk is waited for: every call comes back once, and only whole files are left. For
 * ThreadSanitizer: loop thread, engine thread and the thread that waits for the disk.
 */
#include "scheduler/worker.h"
#include "tests/support/fake_engine.h"
#include "tests/support/tiny_model.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { N_ROUNDS = 30, MAX_SENT = 400, N_FEW = 20, N_PROMPT = 200, N_FILES = 2 };

typedef struct Loop {
    Worker *worker;
    char folder[64];
    uint32_t random, n_sent, n_wrong, n_stopped;
    uint8_t n_last[MAX_SENT + 1]; /* last events, by id */
    uint32_t n_saved, n_restored, n_cancelled;
} Loop;

static uint32_t next_random(Loop *loop, uint32_t n)
{
    loop->random = loop->random * 1664525u + 1013904223u;
    return (loop->random >> 8) % n;
}

static uint32_t next_token(void *arg, const uint32_t *tokens, uint32_t n)
{
    (void)arg;
    return TINY_FIRST_BYTE + (tokens[n - 1] + n) % 256;
}

/* Two prompts that share a beginning. */
static void fill_prompt(Loop *loop, uint32_t *ids)
{
    uint32_t turn = next_random(loop, 2);
    for (uint32_t i = 0; i < N_PROMPT; i++) ids[i] = TINY_FIRST_BYTE + (i + (i > 100 ? turn : 0)) % 200;
}

static void submit(Loop *loop)
{
    Error error;
    Request *request = request_new(loop->n_sent + 1, 1 << 16);
    uint32_t *ids = request ? arena_array(&request->arena, N_PROMPT, sizeof *ids) : NULL;
    if (!ids) abort();
    fill_prompt(loop, ids);
    request->prompt = ids;
    request->n_prompt = 1 + next_random(loop, N_PROMPT);
    request->max_tokens = 1 + next_random(loop, 10);
    if (worker_submit(loop->worker, request, &error))
        loop->n_sent++;
    else
        request_free(request);
}

static void call(Loop *loop)
{
    static const SessionOp ops[] = {SESSION_SAVE,    SESSION_SAVE,    SESSION_SAVE,
                                    SESSION_RESTORE, SESSION_RESTORE, SESSION_DELETE};
    char name[8];
    uint32_t ids[N_PROMPT];
    SessionCall *made;
    Error error;
    fill_prompt(loop, ids);
    snprintf(name, sizeof name, "s%u", next_random(loop, N_FILES));
    if (!session_call_new(loop->n_sent + 1, ops[next_random(loop, 6)], name, &made, &error) ||
        !session_call_set_tokens(made, ids, N_PROMPT, NULL, 0, &error))
        abort();
    if (worker_session(loop->worker, made, &error))
        loop->n_sent++;
    else
        session_call_free(made);
}

static void count_session(Loop *loop, const SessionCall *made)
{
    ErrorCode code = made->error.code;
    loop->n_saved += made->op == SESSION_SAVE && code == ERR_NONE;
    loop->n_restored += made->op == SESSION_RESTORE && code == ERR_NONE;
    loop->n_cancelled += code == ERR_CANCELLED;
    bool is_known = code == ERR_NONE || code == ERR_NOT_FOUND || code == ERR_BUSY || code == ERR_CANCELLED;
    if (!is_known) printf("%s\n", made->error.text);
    loop->n_wrong += !is_known;
}

static bool poll_one(Loop *loop)
{
    Event event;
    if (!worker_poll(loop->worker, &event)) return false;
    loop->n_wrong += loop->n_stopped > 0;
    if (event.kind == EVENT_SESSION) count_session(loop, event.session);
    if (event.kind == EVENT_SESSION || event.kind == EVENT_DONE || event.kind == EVENT_FAILED)
        loop->n_last[event.id]++;
    loop->n_stopped += event.kind == EVENT_STOPPED;
    event_done(&event);
    return true;
}

static void act(Loop *loop)
{
    uint32_t what = next_random(loop, 8);
    if (what == 0)
        submit(loop);
    else if (what < 4)
        call(loop);
    else if (what == 4 && loop->n_sent)
        worker_cancel(loop->worker, 1 + next_random(loop, loop->n_sent));
    else if (what == 5)
        nanosleep(&(struct timespec){.tv_nsec = (long)next_random(loop, 400000)}, NULL);
    else
        while (poll_one(loop)) continue;
}

/* Removes the folder; false: it holds what is no whole session. */
static bool remove_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    bool ok = dir != NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        ok &= entry->d_name[0] == 's' && strstr(entry->d_name, ".session") != NULL;
        unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir) closedir(dir);
    return rmdir(folder) == 0 && ok;
}

static bool run_round(uint32_t round, Loop *sum)
{
    Loop loop = {.random = round * 977 + 1, .folder = "/tmp/longwave_tsan_XXXXXX"};
    Error error;
    if (!mkdtemp(loop.folder)) return false;
    Engine *engine = fake_engine_new(&(FakeEngineParams){.next = next_token, .max_sequences = 4, .max_passes = 4});
    const WorkerParams params = {.engine = engine,
                                 .max_queue = 4,
                                 .max_batch = 1 + round % 3,
                                 .prefill_chunk = 64,
                                 .cache = CACHE_ON,
                                 .session_dir = loop.folder,
                                 .max_events = 1u << round % 6};
    if (!worker_start(&params, &loop.worker, &error)) return false;
    bool stops_early = round % 2;
    while (stops_early ? loop.n_sent < N_FEW : loop.n_sent < MAX_SENT && (loop.n_saved < 5 || loop.n_restored < 3))
        act(&loop);
    worker_stop(loop.worker);
    while (poll_one(&loop)) continue;
    bool ok = loop.n_wrong == 0 && loop.n_stopped == 1;
    for (uint32_t id = 1; id <= loop.n_sent; id++) ok &= loop.n_last[id] == 1;
    worker_free(loop.worker);
    ok &= engine_kv_usage(engine).used_bytes == 0 && fake_engine_counts(engine)->broken_promises == 0;
    engine_close(engine);
    ok &= remove_folder(loop.folder);
    sum->n_saved += loop.n_saved;
    sum->n_restored += loop.n_restored;
    sum->n_cancelled += loop.n_cancelled;
    return ok;
}

int main(void)
{
    int n_passed = 0, n_failed = 0;
    Loop sum = {0};
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        bool ok = run_round(round, &sum);
        if (!ok) printf("FAIL round %u\n", round);
        *(ok ? &n_passed : &n_failed) += 1;
    }
    bool all_happened = sum.n_saved > 50 && sum.n_restored > 20 && sum.n_cancelled > 10;
    if (!all_happened)
        printf("FAIL %u saved, %u restored, %u cancelled: too little was tried\n", sum.n_saved, sum.n_restored,
               sum.n_cancelled);
    *(all_happened ? &n_passed : &n_failed) += 1;
    printf("tsan_session: %d passed, %d failed\n", n_passed, n_failed);
    return n_failed != 0;
}
