/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measured times, all of them kept, so that percentiles are exact; of more than can be kept as many as can, drawn so
 * that each is as likely to be among them (reservoir sampling). Number, mean, smallest and largest are those of all.
 * One thread.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { SAMPLES_MAX = 1 << 27 };

typedef struct Samples {
    uint32_t *usec; /* [n] */
    uint32_t n, capacity;
    uint32_t limit;    /* of n; 0: SAMPLES_MAX */
    uint32_t min, max; /* of all */
    uint64_t n_all, sum;
} Samples;

/* Of no samples all are 0. */
typedef struct SampleSummary {
    uint64_t n;
    double mean, min, p50, p90, p99, max; /* microseconds */
} SampleSummary;

/* Longer ones than 71 minutes count as that. false: no memory for any. */
bool samples_add(Samples *samples, uint64_t usec);
void samples_clear(Samples *samples); /* keeps the memory */
/* A percentile p is the smallest sample that at least p percent of all do not exceed. Sorts. */
SampleSummary samples_summarize(Samples *samples);
void samples_done(Samples *samples);
