/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the queue empties: requests and prompt tokens that left it, over the time in which anything waited, the last
 * half minute counting most. From it follows when a refused client may try again. Loop thread.
 */
#pragma once
#include <stdint.h>

enum { THROUGHPUT_MAX_RETRY_S = 120 };

typedef struct Throughput {
    double requests, tokens, seconds; /* decaying sums */
    uint64_t since_usec;              /* the last start, or when the queue began to fill; monotonic */
} Throughput;

/* A request joins a queue in which n_waiting stand. */
void throughput_queued(Throughput *throughput, uint32_t n_waiting, uint64_t now_usec);
/* A request leaves the queue to be computed. */
void throughput_started(Throughput *throughput, uint32_t n_tokens, uint64_t now_usec);
/* Seconds until what waits now has begun, 1 to THROUGHPUT_MAX_RETRY_S; 1 when nothing is known. */
int throughput_retry_after(const Throughput *throughput, uint32_t n_waiting, uint64_t n_tokens, uint64_t now_usec);
