/* SPDX-License-Identifier: Apache-2.0 */
/* Measured times, all of them kept, so that percentiles are exact. One thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { SAMPLES_MAX = 1 << 27 };

typedef struct Samples {
    uint32_t *usec; /* [n] */
    uint32_t n, capacity;
} Samples;

/* Of no samples all are 0. */
typedef struct SampleSummary {
    uint32_t n;
    double mean, min, p50, p90, p99, max; /* microseconds */
} SampleSummary;

/* Longer ones than 71 minutes count as that. false: no memory, or there are SAMPLES_MAX. */
bool samples_add(Samples *samples, uint64_t usec);
/* A percentile p is the smallest sample that at least p percent of all do not exceed. Sorts. */
SampleSummary samples_summarize(Samples *samples);
void samples_done(Samples *samples);
