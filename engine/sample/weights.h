/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic on one row of the vocabulary: maximum, unnormalised probabilities, truncation, draw. Every pass is linear
 * in n, without a sort. Weights and their masses are those of token_weight.h, and so are sums of masses the same in any
 * order; other sums are in fp64 and in a fixed order, so results repeat bit by bit. Any thread.
 */
#pragma once
#include "base/error.h"
#include <stdint.h>

/* Largest logit of logits [n]. ERR_NON_FINITE: NaN or +INFINITY anywhere, or nothing but -INFINITY. */
LW_CHECK bool row_max(const float *logits, uint32_t n, float *ret_max, Error *error);
/* The same of a row that is known: is_bad: NaN or +INFINITY is in it. */
LW_CHECK bool row_check(bool is_bad, float max, Error *error);
/* log(sum exp(l)), max being the row's largest logit. */
double row_log_sum_exp(const float *logits, uint32_t n, float max);
/* The same of a row whose weights at temperature 1 have this mass. */
double mass_log_sum_exp(uint64_t mass, float max);

/* Masks the logits more than n_sigma standard deviations (of the possible ones) below max, the row's largest. */
void row_cut_top_n_sigma(float *logits, uint32_t n, float max, double n_sigma);

/* weights[i] = exp((logits[i] - max) / temperature), in [0, 1], both [n]; temperature > 0. */
void weights_fill(const float *logits, uint32_t n, float max, float temperature, float *weights);
/* Zeroes the weights below min_p times the largest, which is 1. */
void weights_cut_min_p(float *weights, uint32_t n, float min_p);
/* Zeroes all but the k heaviest; k >= 1; scratch [n]. */
void weights_cut_top_k(float *weights, uint32_t n, uint32_t k, uint32_t *scratch);
/* What a share p in [0, 1) of a mass is. */
uint64_t mass_goal(uint64_t mass, double p);
/* Zeroes all but the fewest of the heaviest that hold the goal; keeps at least one. scratch [n] */
void weights_cut_to_mass(float *weights, uint32_t n, uint64_t goal, uint32_t *scratch);
/*
 * Keeps the fewest of those with the smallest distances [n] (>= 0, finite where a weight is not 0) that hold p of the
 * whole mass; keeps at least one. distances are overwritten; scratch [n].
 */
void weights_cut_typical(float *weights, uint32_t n, float *distances, double p, uint32_t *scratch);
/* Of the weights with at least this share of the whole, when there are two or more, zeroes all but the lightest. */
void weights_cut_xtc(float *weights, uint32_t n, double threshold);
/* Zeroes the weights below least. */
void weights_cut_below(float *weights, uint32_t n, double least);
double weights_sum(const float *weights, uint32_t n);
uint64_t weights_mass(const float *weights, uint32_t n);

/* Of x = (l - max) / temperature under the weights; the entropy in nats is log(mass) - mean. */
typedef struct RowMoments {
    double mass, mean;
    uint32_t n_possible; /* ids that are not masked */
} RowMoments;
RowMoments weights_moments(const float *logits, const float *weights, uint32_t n, float max, float temperature);

/*
 * The index at which the running sum passes u of the whole; u in [0, 1), at least one weight > 0. Where all weights are
 * too small for a mass, the heaviest.
 */
uint32_t weights_draw(const float *weights, uint32_t n, double u);
