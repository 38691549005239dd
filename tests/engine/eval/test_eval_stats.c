/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/rng.h"
#include "engine/eval/stats.h"

#include <criterion/criterion.h>
#include <math.h>

static void is_near(double got, double want, double tolerance)
{
    cr_assert(fabs(got - want) <= tolerance, "%.6f, not %.6f", got, want);
}

/* Wilson's interval as tables print it. */
Test(test_eval_stats, shares_have_wilsons_interval)
{
    static const struct {
        uint32_t right, n;
        double low, high;
    } cases[] = {{0, 10, 0, 0.2775}, {10, 10, 0.7225, 1}, {5, 10, 0.2366, 0.7634}, {81, 263, 0.2553, 0.3662}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Interval share = stats_share(cases[i].right, cases[i].n);
        is_near(share.value, (double)cases[i].right / cases[i].n, 1e-12);
        is_near(share.low, cases[i].low, 1e-4);
        is_near(share.high, cases[i].high, 1e-4);
    }
    Interval nothing = stats_share(0, 0);
    cr_assert(nothing.low == 0 && nothing.high == 1);
}

/* No pair that differs is not certainty; swapping the two sides mirrors the interval. */
Test(test_eval_stats, pairs_are_compared_as_pairs)
{
    Interval same = stats_paired_share(0, 0, 100);
    cr_assert_eq(same.value, 0);
    cr_assert(same.low < -0.01 && same.high > 0.01);
    is_near(same.low, -same.high, 1e-12);
    Interval worse = stats_paired_share(12, 2, 100), better = stats_paired_share(2, 12, 100);
    is_near(worse.value, -0.1, 1e-12);
    cr_assert(worse.high < 0);
    is_near(worse.low, -better.high, 1e-12);
    is_near(worse.high, -better.low, 1e-12);
    cr_assert_eq(stats_paired_share(0, 0, 0).low, -1);
}

/* The 95 % interval of the mean holds the truth in about 95 of 100 samples. */
Test(test_eval_stats, intervals_cover_the_truth_as_often_as_they_say)
{
    enum { N_SAMPLES = 400, N = 60 };
    uint32_t by_mean = 0, by_bootstrap = 0;
    Rng rng = rng_for(5, 1);
    for (uint32_t s = 0; s < N_SAMPLES; s++) {
        double values[N];
        for (uint32_t i = 0; i < N; i++) values[i] = -log(1 - rng_unit(&rng)); /* mean 1 */
        Interval mean = stats_mean(values, N), bootstrap = stats_bootstrap(values, N, 200, s);
        by_mean += mean.low <= 1 && 1 <= mean.high;
        by_bootstrap += bootstrap.low <= 1 && 1 <= bootstrap.high;
        is_near(bootstrap.value, mean.value, 1e-12);
    }
    cr_assert(by_mean > 0.88 * N_SAMPLES && by_mean < 0.99 * N_SAMPLES, "%u", by_mean);
    cr_assert(by_bootstrap > 0.86 * N_SAMPLES && by_bootstrap < 0.99 * N_SAMPLES, "%u", by_bootstrap);
}

Test(test_eval_stats, few_values_do_not_break)
{
    const double one[] = {3};
    Interval mean = stats_mean(one, 1), none = stats_mean(one, 0), bootstrap = stats_bootstrap(one, 1, 100, 1);
    cr_assert(mean.value == 3 && mean.low == 3 && mean.high == 3);
    cr_assert(none.value == 0 && none.low == 0 && none.high == 0);
    cr_assert(bootstrap.low == 3 && bootstrap.high == 3);
    cr_assert_eq(stats_bootstrap(one, 0, 100, 1).value, 0);
}

Test(test_eval_stats, numbers_are_spread_evenly)
{
    uint32_t counts[7] = {0};
    Rng rng = rng_for(1, 2);
    for (int i = 0; i < 70000; i++) counts[rng_below(&rng, 7)]++;
    for (int i = 0; i < 7; i++) cr_assert(counts[i] > 9600 && counts[i] < 10400, "%u", counts[i]);
}
