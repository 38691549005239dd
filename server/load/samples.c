/* SPDX-License-Identifier: Apache-2.0 */
#include "server/load/samples.h"
#include "base/array.h"
#include "base/numbers.h"

bool samples_add(Samples *samples, uint64_t usec)
{
    if (!array_reserve(&samples->usec, &samples->capacity, (uint64_t)samples->n + 1, SAMPLES_MAX,
                       sizeof *samples->usec))
        return false;
    samples->usec[samples->n++] = usec < UINT32_MAX ? (uint32_t)usec : UINT32_MAX;
    return true;
}

static double percentile(const Samples *samples, uint64_t percent)
{
    return samples->usec[(percent * samples->n + 99) / 100 - 1];
}

SampleSummary samples_summarize(Samples *samples)
{
    SampleSummary summary = {.n = samples->n};
    if (samples->n == 0) return summary;
    qsort(samples->usec, samples->n, sizeof *samples->usec, compare_u32);
    for (uint32_t i = 0; i < samples->n; i++) summary.mean += samples->usec[i];
    summary.mean /= samples->n;
    summary.min = samples->usec[0];
    summary.p50 = percentile(samples, 50);
    summary.p90 = percentile(samples, 90);
    summary.p99 = percentile(samples, 99);
    summary.max = samples->usec[samples->n - 1];
    return summary;
}

void samples_done(Samples *samples)
{
    free(samples->usec);
    *samples = (Samples){0};
}
