/* SPDX-License-Identifier: Apache-2.0 */
#include "base/threads.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { MAX_WORKERS = 9 };

typedef struct Seen {
    atomic_uint calls[MAX_WORKERS];
    uint32_t n_workers;
} Seen;

static void note(void *arg, uint32_t worker, uint32_t n_workers)
{
    Seen *seen = arg;
    if (n_workers == seen->n_workers && worker < n_workers) atomic_fetch_add(&seen->calls[worker], 1);
}

/* Each job runs once on every worker and is over when threads_run returns, many times in a row. */
Test(test_threads, every_worker_runs_every_job_once)
{
    for (uint32_t n = 1; n <= MAX_WORKERS; n += 2) {
        ThreadPool *pool = NULL;
        Error error;
        Seen seen = {.n_workers = n};
        cr_assert(threads_new(n, &pool, &error), "%s", error.text);
        cr_assert_eq(threads_count(pool), n);
        for (unsigned job = 1; job <= 200; job++) {
            threads_run(pool, note, &seen);
            for (uint32_t i = 0; i < n; i++) cr_assert_eq(atomic_load(&seen.calls[i]), job, "worker %u", i);
        }
        threads_free(pool);
    }
}

static void sleep_msec(long msec)
{
    nanosleep(&(struct timespec){.tv_nsec = msec * 1000000}, NULL);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Workers that have gone to sleep wake up for the next job; asleep they cost nothing. */
Test(test_threads, idle_workers_sleep_and_wake)
{
    ThreadPool *pool = NULL;
    Error error;
    Seen seen = {.n_workers = 4};
    cr_assert(threads_new(4, &pool, &error), "%s", error.text);
    threads_run(pool, note, &seen);
    sleep_msec(100);
    double before = cpu_seconds();
    sleep_msec(300);
    cr_assert_lt(cpu_seconds() - before, 0.05);
    for (unsigned job = 2; job < 6; job++) {
        threads_run(pool, note, &seen);
        for (uint32_t i = 0; i < 4; i++) cr_assert_eq(atomic_load(&seen.calls[i]), job);
        sleep_msec(20);
    }
    threads_free(pool);
}

static void slow_worker(void *arg, uint32_t worker, uint32_t n_workers)
{
    (void)n_workers;
    if (worker == 1) sleep_msec(50);
    note(arg, worker, n_workers);
}

/* The caller outlasts its patience for a slow worker and still sees the job done. */
Test(test_threads, caller_waits_for_a_slow_worker)
{
    ThreadPool *pool = NULL;
    Error error;
    Seen seen = {.n_workers = 3};
    cr_assert(threads_new(3, &pool, &error), "%s", error.text);
    for (unsigned job = 1; job <= 3; job++) {
        threads_run(pool, slow_worker, &seen);
        for (uint32_t i = 0; i < 3; i++) cr_assert_eq(atomic_load(&seen.calls[i]), job);
    }
    threads_free(pool);
}

Test(test_threads, bad_counts_are_refused)
{
    ThreadPool *pool = NULL;
    Error error = {0};
    cr_assert_not(threads_new(0, &pool, &error));
    cr_assert_eq(error.code, ERR_INVALID);
    cr_assert_not(threads_new(THREADS_MAX + 1, &pool, &error));
    cr_assert_null(pool);
    threads_free(NULL);
}

/* A process bound to one CPU gets one thread, however many the machine has. */
Test(test_threads, available_follows_affinity)
{
    cpu_set_t one;
    uint32_t before = threads_available();
    cr_assert(before >= 1 && before <= (uint32_t)sysconf(_SC_NPROCESSORS_CONF));
    cr_assert_eq(sched_getaffinity(0, sizeof one, &one), 0);
    int first = 0;
    while (!CPU_ISSET(first, &one)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    cr_assert_eq(threads_available(), 1);
}
