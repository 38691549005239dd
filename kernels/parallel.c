/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/parallel.h"

#include <stdatomic.h>

/* Pieces a worker may take: enough to even out a slow core, few enough that taking them costs nothing. */
enum { PIECES_PER_WORKER = 6 };

typedef struct ParallelJob {
    ParallelFn fn;
    void *arg;
    size_t n_items, piece;
    atomic_size_t next;
} ParallelJob;

static void run_pieces(void *arg, uint32_t worker, uint32_t n_workers)
{
    (void)n_workers;
    ParallelJob *job = arg;
    for (;;) {
        size_t first = atomic_fetch_add_explicit(&job->next, job->piece, memory_order_relaxed);
        if (first >= job->n_items) return;
        size_t end = job->n_items - first > job->piece ? first + job->piece : job->n_items;
        job->fn(job->arg, worker, first, end);
    }
}

static void run_job(Stream stream, ParallelJob *job)
{
    if (job->n_items == 0) return;
    if (stream.pool && threads_count(stream.pool) > 1 && job->n_items > job->piece)
        threads_run(stream.pool, run_pieces, job);
    else
        job->fn(job->arg, 0, 0, job->n_items);
}

void parallel_for(Stream stream, size_t n_items, size_t grain, ParallelFn fn, void *arg)
{
    size_t n_workers = stream.pool ? threads_count(stream.pool) : 1, piece = n_items / (n_workers * PIECES_PER_WORKER);
    ParallelJob job = {.fn = fn, .arg = arg, .n_items = n_items, .piece = piece > grain ? piece : grain};
    run_job(stream, &job);
}

void parallel_each(Stream stream, size_t n_items, ParallelFn fn, void *arg)
{
    ParallelJob job = {.fn = fn, .arg = arg, .n_items = n_items, .piece = 1};
    run_job(stream, &job);
}
