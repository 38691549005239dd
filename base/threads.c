/* SPDX-License-Identifier: Apache-2.0 */
#include "base/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/*
 * Some tens of microseconds: longer than the serial work between two kernels of a step, far below what shows as load.
 */
enum { SPIN_ROUNDS = 2000 };

struct ThreadPool {
    uint32_t n_workers;
    uint32_t n_started; /* threads that exist: n_workers - 1 but while starting */
    pthread_t *threads;
    ThreadFn fn;
    void *arg;
    pthread_mutex_t mutex;
    pthread_cond_t work_cond, done_cond;
    /* Each on its own cache line: they are polled by every worker. */
    _Alignas(64) atomic_uint generation; /* one more for each job */
    _Alignas(64) atomic_uint n_left;     /* workers still in the current job */
    _Alignas(64) atomic_uint n_sleepers;
    atomic_bool caller_sleeps;
    atomic_bool stop;
};

typedef struct WorkerStart {
    ThreadPool *pool;
    uint32_t worker;
} WorkerStart;

static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wait_for_work(ThreadPool *pool, unsigned seen)
{
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        if (atomic_load_explicit(&pool->generation, memory_order_acquire) != seen) return;
        spin_pause();
    }
    pthread_mutex_lock(&pool->mutex);
    /* Announced before the last look at generation, as the caller looks at n_sleepers after it has changed it. */
    atomic_fetch_add(&pool->n_sleepers, 1);
    while (atomic_load(&pool->generation) == seen) pthread_cond_wait(&pool->work_cond, &pool->mutex);
    atomic_fetch_sub(&pool->n_sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void finish_work(ThreadPool *pool)
{
    if (atomic_fetch_sub(&pool->n_left, 1) != 1) return;
    if (!atomic_load(&pool->caller_sleeps)) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_signal(&pool->done_cond);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *arg)
{
    WorkerStart *start = arg;
    ThreadPool *pool = start->pool;
    uint32_t worker = start->worker;
    free(start);
    for (unsigned seen = 0;; seen++) {
        wait_for_work(pool, seen);
        if (atomic_load(&pool->stop)) return NULL;
        pool->fn(pool->arg, worker, pool->n_workers);
        finish_work(pool);
    }
}

static void wake_workers(ThreadPool *pool)
{
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->n_sleepers) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->work_cond);
    pthread_mutex_unlock(&pool->mutex);
}

static void wait_for_workers(ThreadPool *pool)
{
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        if (atomic_load_explicit(&pool->n_left, memory_order_acquire) == 0) return;
        spin_pause();
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeps, true);
    while (atomic_load(&pool->n_left) != 0) pthread_cond_wait(&pool->done_cond, &pool->mutex);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->mutex);
}

void threads_run(ThreadPool *pool, ThreadFn fn, void *arg)
{
    if (pool->n_workers > 1) {
        pool->fn = fn;
        pool->arg = arg;
        atomic_store(&pool->n_left, pool->n_workers - 1);
        wake_workers(pool);
    }
    fn(arg, 0, pool->n_workers);
    if (pool->n_workers > 1) wait_for_workers(pool);
}

static bool start_worker(ThreadPool *pool, uint32_t worker, Error *error)
{
    WorkerStart *start = malloc(sizeof *start);
    if (!start) return error_set(error, ERR_NO_MEMORY, "no memory for worker thread %u", worker);
    *start = (WorkerStart){.pool = pool, .worker = worker};
    int rc = pthread_create(&pool->threads[worker - 1], NULL, worker_main, start);
    if (rc != 0) {
        free(start);
        return error_set(error, ERR_IO, "cannot start worker thread %u: %s", worker, strerror(rc));
    }
    pool->n_started++;
    return true;
}

bool threads_new(uint32_t n_workers, ThreadPool **ret_pool, Error *error)
{
    if (n_workers < 1 || n_workers > THREADS_MAX)
        return error_set_param(error, ERR_INVALID, "threads", "%u threads: must be 1 to %d", n_workers, THREADS_MAX);
    ThreadPool *pool = aligned_alloc(64, (sizeof *pool + 63) / 64 * 64);
    if (!pool) return error_set(error, ERR_NO_MEMORY, "no memory for a thread pool");
    memset(pool, 0, sizeof *pool);
    pool->n_workers = n_workers;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->work_cond, NULL);
    pthread_cond_init(&pool->done_cond, NULL);
    pool->threads = calloc(n_workers, sizeof *pool->threads);
    if (!pool->threads) {
        threads_free(pool);
        return error_set(error, ERR_NO_MEMORY, "no memory for %u threads", n_workers);
    }
    for (uint32_t i = 1; i < n_workers; i++) {
        if (!start_worker(pool, i, error)) {
            threads_free(pool);
            return false;
        }
    }
    *ret_pool = pool;
    return true;
}

void threads_free(ThreadPool *pool)
{
    if (!pool) return;
    atomic_store(&pool->stop, true);
    wake_workers(pool);
    for (uint32_t i = 0; i < pool->n_started; i++) pthread_join(pool->threads[i], NULL);
    free(pool->threads);
    pthread_cond_destroy(&pool->done_cond);
    pthread_cond_destroy(&pool->work_cond);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

uint32_t threads_count(const ThreadPool *pool)
{
    return pool->n_workers;
}
