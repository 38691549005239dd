/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Monotonic and wall time. Any thread. Scheduling code takes the time as an argument, so that tests can pass their own.
 */
#pragma once
#include <stdint.h>

uint64_t clock_now_usec(void);    /* monotonic, microseconds */
int64_t clock_unix_seconds(void); /* wall clock */
