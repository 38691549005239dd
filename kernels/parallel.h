/* SPDX-License-Identifier: Apache-2.0 */
/* Splits independent items over the threads of a stream. Engine thread. */
#pragma once
#include "kernels/stream.h"
#include <stddef.h>

/* Items [first, end) on one worker, of [0, n_workers). */
typedef void (*ParallelFn)(void *arg, uint32_t worker, size_t first, size_t end);

/*
 * Runs fn over [0, n_items) in pieces of at least grain items, taken by whichever worker is free: results may not
 * depend on which worker ran what. Stays on the caller's thread when there is no pool or only one piece.
 */
void parallel_for(Stream stream, size_t n_items, size_t grain, ParallelFn fn, void *arg);

/* The same one item at a time: for items of uneven size, each large beside the taking of it. */
void parallel_each(Stream stream, size_t n_items, ParallelFn fn, void *arg);
