/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/stats.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

static const double Z95 = 1.959963984540054;

Interval stats_share(uint32_t right, uint32_t n)
{
    if (!n) return (Interval){0, 0, 1};
    double p = (double)right / n, z2 = Z95 * Z95, shrink = 1 + z2 / n;
    double centre = (p + z2 / (2.0 * n)) / shrink;
    double half = Z95 * sqrt(p * (1 - p) / n + z2 / (4.0 * n * n)) / shrink;
    /* Rounding must not leave p outside where it is 0 or 1. */
    return (Interval){p, fmin(fmax(centre - half, 0), p), fmax(fmin(centre + half, 1), p)};
}

Interval stats_paired_share(uint32_t only_a, uint32_t only_b, uint32_t n)
{
    if (!n) return (Interval){0, -1, 1};
    double b = only_b + 0.5, c = only_a + 0.5, m = n + 2.0;
    double centre = (b - c) / m, half = Z95 * sqrt(((b + c) - (b - c) * (b - c) / m)) / m;
    double value = ((double)only_b - only_a) / n;
    return (Interval){value, fmin(fmax(centre - half, -1), value), fmax(fmin(centre + half, 1), value)};
}

static double mean_of(const double *values, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += values[i];
    return sum / n;
}

Interval stats_mean(const double *values, uint32_t n)
{
    if (!n) return (Interval){0, 0, 0};
    double mean = mean_of(values, n), squares = 0;
    for (uint32_t i = 0; i < n; i++) squares += (values[i] - mean) * (values[i] - mean);
    double half = n > 1 ? Z95 * sqrt(squares / (n - 1.0) / n) : 0;
    return (Interval){mean, mean - half, mean + half};
}

double stats_design_effect(const double *values, uint32_t n, const uint32_t *ends, uint32_t n_groups)
{
    if (n < 2 || n_groups < 2) return 1;
    double mean = mean_of(values, n), squares = 0, of_groups = 0;
    for (uint32_t i = 0, g = 0; g < n_groups; g++) {
        double sum = 0;
        for (; i < ends[g]; i++) {
            sum += values[i] - mean;
            squares += (values[i] - mean) * (values[i] - mean);
        }
        of_groups += sum * sum;
    }
    double alone = squares / (n - 1.0) / n, together = of_groups * n_groups / (n_groups - 1.0) / n / n;
    return alone > 0 && together > alone ? together / alone : 1;
}

Interval stats_widen(Interval interval, double design_effect, double least, double most)
{
    double factor = sqrt(design_effect), low = interval.value - factor * (interval.value - interval.low);
    double high = interval.value + factor * (interval.high - interval.value);
    return (Interval){interval.value, fmax(low, fmin(least, interval.low)), fmin(high, fmax(most, interval.high))};
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

Interval stats_bootstrap(const double *values, uint32_t n, uint32_t n_resamples, uint64_t seed)
{
    if (!n) return (Interval){0, 0, 0};
    double *means = n_resamples ? malloc(n_resamples * sizeof *means) : NULL;
    if (!means) return stats_mean(values, n);
    Rng rng = rng_for(seed, n);
    for (uint32_t r = 0; r < n_resamples; r++) {
        double sum = 0;
        for (uint32_t i = 0; i < n; i++) sum += values[rng_below(&rng, n)];
        means[r] = sum / n;
    }
    qsort(means, n_resamples, sizeof *means, compare_doubles);
    uint32_t cut = n_resamples / 40;
    Interval interval = {mean_of(values, n), means[cut], means[n_resamples - 1 - cut]};
    free(means);
    return interval;
}
