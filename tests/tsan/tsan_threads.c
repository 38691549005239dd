/* SPDX-License-Identifier: Apache-2.0 */
/* The thread pool under ThreadSanitizer: workers read what the caller wrote before a job, the caller what they wrote in
 * it, with workers asleep or awake between jobs. */
#include "base/threads.h"

#include <stdio.h>
#include <time.h>

enum { N_WORKERS = 4, N_ITEMS = 64, N_JOBS = 500 };

typedef struct Job {
    uint32_t in[N_ITEMS], out[N_ITEMS];
} Job;

static void square(void *arg, uint32_t worker, uint32_t n_workers)
{
    Job *job = arg;
    for (uint32_t i = worker; i < N_ITEMS; i += n_workers) job->out[i] = job->in[i] * job->in[i];
}

static bool run_job(ThreadPool *pool, uint32_t round)
{
    Job job = {{0}, {0}};
    for (uint32_t i = 0; i < N_ITEMS; i++) job.in[i] = round + i;
    threads_run(pool, square, &job);
    for (uint32_t i = 0; i < N_ITEMS; i++)
        if (job.out[i] != (round + i) * (round + i)) return false;
    return true;
}

int main(void)
{
    ThreadPool *pool;
    Error error;
    unsigned n_failed = 0;
    if (!threads_new(N_WORKERS, &pool, &error)) {
        printf("FAILED: %s\n0 passed, 1 failed\n", error.text);
        return 1;
    }
    for (uint32_t round = 0; round < N_JOBS; round++) {
        if (!run_job(pool, round)) n_failed++;
        if (round % 50 == 0) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* long enough to fall asleep */
    }
    threads_free(pool);
    printf("%u passed, %u failed\n", N_JOBS - n_failed, n_failed);
    return n_failed > 0;
}
