/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
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

/* Of values that share a part with those of their group; and of ones that share nothing nobody is told more doubt. */
Test(test_eval_stats, what_goes_together_is_less_sure)
{
    enum { N_SAMPLES = 400, N_GROUPS = 12, N_EACH = 25, N = N_GROUPS * N_EACH };
    uint32_t by_mean = 0, by_groups = 0, ends[N_GROUPS];
    double apart = 0;
    Rng rng = rng_for(6, 1);
    for (uint32_t g = 0; g < N_GROUPS; g++) ends[g] = (g + 1) * N_EACH;
    for (uint32_t s = 0; s < N_SAMPLES; s++) {
        double values[N], alone[N], shared = 0;
        for (uint32_t i = 0; i < N; i++) {
            if (i % N_EACH == 0) shared = rng_unit(&rng) - 0.5;
            values[i] = shared + rng_unit(&rng) - 0.5;
            alone[i] = rng_unit(&rng);
        }
        Interval mean = stats_mean(values, N);
        Interval wide = stats_widen(mean, stats_design_effect(values, N, ends, N_GROUPS), -INFINITY, INFINITY);
        by_mean += mean.low <= 0 && 0 <= mean.high;
        by_groups += wide.low <= 0 && 0 <= wide.high;
        cr_assert(wide.value == mean.value && wide.low <= mean.low && wide.high >= mean.high);
        apart += stats_design_effect(alone, N, ends, N_GROUPS) / N_SAMPLES;
    }
    cr_assert_lt(by_mean, 0.6 * N_SAMPLES);
    cr_assert(by_groups > 0.87 * N_SAMPLES && by_groups < 0.99 * N_SAMPLES, "%u", by_groups);
    cr_assert(apart >= 1 && apart < 1.4, "%g", apart);
}

Test(test_eval_stats, widened_intervals_stay_within_bounds)
{
    static const double same[] = {1, 1, 1, 1}, split[] = {1, 1, 0, 0};
    static const uint32_t ends[] = {2, 4};
    cr_assert_eq(stats_design_effect(same, 4, ends, 2), 1);
    cr_assert_eq(stats_design_effect(split, 4, ends, 1), 1, "of one group nothing is known");
    is_near(stats_design_effect(split, 4, ends, 2), 3, 1e-12);
    Interval wide = stats_widen((Interval){0.5, 0.1, 0.9}, 4, 0, 1), none = stats_widen((Interval){0, 0, 0}, 9, 0, 1);
    cr_assert(wide.value == 0.5 && wide.low == 0 && wide.high == 1);
    cr_assert(none.low == 0 && none.high == 0);
}

Test(test_eval_stats, few_values_do_not_break)
{
    cr_assert_eq(stats_design_effect(NULL, 0, NULL, 0), 1);
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
