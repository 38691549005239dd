/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fixed set of worker threads for CPU kernels. threads_run hands one function to all of them and returns when every
 * worker has finished; the caller is worker 0. Workers wait briefly for the next job, then sleep: an idle process uses
 * no CPU. One caller thread (the engine thread); not reentrant.
 */
#pragma once
#include "base/error.h"
#include <stdint.h>

typedef struct ThreadPool ThreadPool;
enum { THREADS_MAX = 1024 };
typedef void (*ThreadFn)(void *arg, uint32_t worker, uint32_t n_workers);

/* n_workers: 1 to THREADS_MAX, the caller included. */
LW_CHECK bool threads_new(uint32_t n_workers, ThreadPool **ret_pool, Error *error);
void threads_free(ThreadPool *pool); /* NULL is fine */
uint32_t threads_count(const ThreadPool *pool);
void threads_run(ThreadPool *pool, ThreadFn fn, void *arg);

/* CPUs this process may use (affinity and cgroup quota considered), at least 1. */
uint32_t threads_available(void);
