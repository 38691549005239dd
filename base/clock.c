/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <time.h>

uint64_t clock_now_usec(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

int64_t clock_unix_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec;
}
