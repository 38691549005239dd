/* SPDX-License-Identifier: Apache-2.0 */
#include "server/load/samples.h"
#include "base/array.h"
#include "base/numbers.h"
#include "base/rng.h"

static bool keep(Samples *samples, uint32_t usec)
{
    uint32_t limit = samples->limit ? samples->limit : SAMPLES_MAX;
    bool has_all = samples->n_all == samples->n;
    if (has_all &&
        array_reserve(&samples->usec, &samples->capacity, (uint64_t)samples->n + 1, limit, sizeof *samples->usec)) {
        samples->usec[samples->n++] = usec;
        return true;
    }
    if (samples->n == 0) return false;
    uint64_t place = rng_mix(samples->n_all) % (samples->n_all + 1);
    if (place < samples->n) samples->usec[place] = usec;
    return true;
}

bool samples_add(Samples *samples, uint64_t usec)
{
    uint32_t value = usec < UINT32_MAX ? (uint32_t)usec : UINT32_MAX;
    if (!keep(samples, value)) return false;
    if (samples->n_all == 0 || value < samples->min) samples->min = value;
    if (samples->n_all == 0 || value > samples->max) samples->max = value;
    samples->n_all++;
    samples->sum += value;
    return true;
}

void samples_clear(Samples *samples)
{
    samples->n = 0;
    samples->n_all = samples->sum = 0;
}

static double percentile(const Samples *samples, uint64_t percent)
{
    return samples->usec[(percent * samples->n + 99) / 100 - 1];
}

SampleSummary samples_summarize(Samples *samples)
{
    SampleSummary summary = {.n = samples->n_all};
    if (samples->n == 0) return summary;
    qsort(samples->usec, samples->n, sizeof *samples->usec, compare_u32);
    summary.mean = (double)samples->sum / (double)samples->n_all;
    summary.min = samples->min;
    summary.p50 = percentile(samples, 50);
    summary.p90 = percentile(samples, 90);
    summary.p99 = percentile(samples, 99);
    summary.max = samples->max;
    return summary;
}

void samples_done(Samples *samples)
{
    free(samples->usec);
    *samples = (Samples){0};
}
