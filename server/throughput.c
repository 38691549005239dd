/* SPDX-License-Identifier: Apache-2.0 */
#include "server/throughput.h"

#include <math.h>

#define HALF_LIFE_S 30.0

void throughput_queued(Throughput *throughput, uint32_t n_waiting, uint64_t now_usec)
{
    if (!n_waiting) throughput->since_usec = now_usec;
}

void throughput_started(Throughput *throughput, uint32_t n_tokens, uint64_t now_usec)
{
    double seconds = (double)(now_usec - throughput->since_usec) / 1e6, decay = exp2(-seconds / HALF_LIFE_S);
    throughput->requests = throughput->requests * decay + 1;
    throughput->tokens = throughput->tokens * decay + n_tokens;
    throughput->seconds = throughput->seconds * decay + seconds;
    throughput->since_usec = now_usec;
}

int throughput_retry_after(const Throughput *throughput, uint32_t n_waiting, uint64_t n_tokens, uint64_t now_usec)
{
    if (throughput->requests <= 0) return 1;
    /* When nothing has left the queue for long, it is slower than it was. */
    double seconds = throughput->seconds + (double)(now_usec - throughput->since_usec) / 1e6;
    double by_requests = n_waiting * seconds / throughput->requests;
    double by_tokens = throughput->tokens > 0 ? (double)n_tokens * seconds / throughput->tokens : 0;
    double wait =
        ceil(fmin(fmax(by_requests, by_tokens), THROUGHPUT_MAX_RETRY_S) - 1e-6); /* not for a rounding error */
    return wait < 1 ? 1 : (int)wait;
}
