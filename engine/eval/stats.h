/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates with their 95 % confidence intervals. Any thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct Interval {
    double value, low, high;
} Interval;

/* right of n, a share in [0, 1]: Wilson's interval. n 0: {0, 0, 1}. */
Interval stats_share(uint32_t right, uint32_t n);
/*
 * Of n pairs the share of b's right answers less that of a's. only_a, only_b: pairs that one of the two alone got
 * right. Half a pair is added to each of the four cells (Agresti and Min 2005), so that no difference seen is not taken
 * for none there. n 0: {0, -1, 1}.
 */
Interval stats_paired_share(uint32_t only_a, uint32_t only_b, uint32_t n);
/* Mean of values [n] with the normal interval. n 0: zeros; n 1: no width. */
Interval stats_mean(const double *values, uint32_t n);
/*
 * What goes together says less than it seems to: questions about one prompt, rows behind one place. How many times
 * larger the variance of the mean of values [n] is when they come in groups, at least 1 (Kish's design effect): the
 * g-th group ends before ends[g], the last one at n. Of a single group nothing can be said: 1.
 */
double stats_design_effect(const double *values, uint32_t n, const uint32_t *ends, uint32_t n_groups);
/* The interval with that variance, within [least, most]. */
Interval stats_widen(Interval interval, double design_effect, double least, double most);
/* Mean of values [n] with the interval of n_resamples bootstrap means, of a seed. n 0: zeros. */
Interval stats_bootstrap(const double *values, uint32_t n, uint32_t n_resamples, uint64_t seed);
