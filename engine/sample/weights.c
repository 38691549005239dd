/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/weights.h"

#include "base/half.h"
#include "kernels/sample/token_weight.h"

#include <math.h>

enum { LANES = 16 }; /* independent running values, so that the compiler can use vectors without reordering sums */

bool row_max(const float *logits, uint32_t n, float *ret_max, Error *error)
{
    float best[LANES];
    uint32_t bad[LANES] = {0};
    for (uint32_t j = 0; j < LANES; j++) best[j] = -INFINITY;
    uint32_t i = 0;
    for (; n - i >= LANES; i += LANES) {
        for (uint32_t j = 0; j < LANES; j++) {
            float l = logits[i + j];
            bad[j] |= !(l < INFINITY);
            best[j] = l > best[j] ? l : best[j];
        }
    }
    for (; i < n; i++) {
        bad[0] |= !(logits[i] < INFINITY);
        best[0] = logits[i] > best[0] ? logits[i] : best[0];
    }
    for (uint32_t j = 1; j < LANES; j++) {
        bad[0] |= bad[j];
        best[0] = best[j] > best[0] ? best[j] : best[0];
    }
    *ret_max = best[0];
    return row_check(bad[0], best[0], error);
}

bool row_check(bool is_bad, float max, Error *error)
{
    if (is_bad) return error_set(error, ERR_NON_FINITE, "the model gave NaN or infinity as a logit");
    return max > -INFINITY || error_set(error, ERR_NON_FINITE, "no token has a finite logit");
}

enum { BLOCK = 1024 };

uint64_t weights_mass(const float *weights, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += token_mass(weights[i]);
    return sum;
}

double weights_sum(const float *weights, uint32_t n)
{
    return (double)weights_mass(weights, n) * TOKEN_MASS_UNIT;
}

double row_log_sum_exp(const float *logits, uint32_t n, float max)
{
    float part[BLOCK];
    uint64_t mass = 0;
    for (uint32_t i = 0; i < n; i += BLOCK) {
        uint32_t m = n - i < BLOCK ? n - i : BLOCK;
        weights_fill(logits + i, m, max, 1, part);
        mass += weights_mass(part, m);
    }
    return mass_log_sum_exp(mass, max);
}

double mass_log_sum_exp(uint64_t mass, float max)
{
    return (double)max + log((double)mass * TOKEN_MASS_UNIT);
}

void weights_fill(const float *logits, uint32_t n, float max, float temperature, float *weights)
{
    for (uint32_t i = 0; i < n; i++) weights[i] = token_weight(logits[i], max, temperature);
}

RowMoments weights_moments(const float *logits, const float *weights, uint32_t n, float max, float temperature)
{
    double mass[LANES] = {0}, moment[LANES] = {0};
    uint32_t count[LANES] = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = i % LANES;
        float x = weights[i] > 0 ? (logits[i] - max) / temperature : 0.0f;
        mass[j] += (double)weights[i];
        moment[j] += (double)weights[i] * (double)x;
        count[j] += logits[i] > -INFINITY;
    }
    RowMoments all = {0};
    for (uint32_t j = 0; j < LANES; j++) {
        all.mass += mass[j];
        all.mean += moment[j];
        all.n_possible += count[j];
    }
    all.mean /= all.mass;
    return all;
}

/* Sum of (l - around) ^ power over the possible ones. */
static double sum_of_powers(const float *logits, uint32_t n, double around, bool squared, uint32_t *ret_n_possible)
{
    double sum[LANES] = {0};
    uint32_t count[LANES] = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = i % LANES;
        double x = logits[i] > -INFINITY ? (double)logits[i] - around : 0;
        sum[j] += squared ? x * x : x;
        count[j] += logits[i] > -INFINITY;
    }
    *ret_n_possible = 0;
    for (uint32_t j = 0; j < LANES; j++) {
        *ret_n_possible += count[j];
        if (j) sum[0] += sum[j];
    }
    return sum[0];
}

void row_cut_top_n_sigma(float *logits, uint32_t n, float max, double n_sigma)
{
    uint32_t n_possible;
    double mean = (double)max + sum_of_powers(logits, n, (double)max, false, &n_possible) / n_possible;
    double sigma = sqrt(sum_of_powers(logits, n, mean, true, &n_possible) / n_possible);
    double least = (double)max - n_sigma * sigma;
    for (uint32_t i = 0; i < n; i++) logits[i] = (double)logits[i] >= least ? logits[i] : -INFINITY;
}

void weights_cut_min_p(float *weights, uint32_t n, float min_p)
{
    for (uint32_t i = 0; i < n; i++) weights[i] = weights[i] >= min_p ? weights[i] : 0.0f;
}

enum { N_DIGITS = 2048, N_APART = 4 };

/* Counts and masses of weights by one digit of their keys' bits. */
typedef struct Digits {
    uint32_t count[N_DIGITS];
    uint64_t mass[N_DIGITS];
} Digits;

/*
 * By the 11 highest bits: floats >= 0 sort as their bits do. Neighbours are added up apart: often they share a bucket,
 * and each sum waits for the last.
 */
static void digits_of_all(Digits *digits, const float *keys, const float *weights, uint32_t n, bool by_mass)
{
    uint32_t count[N_APART][N_DIGITS / 2] = {0}; /* half: the sign bit is 0 */
    uint64_t mass[N_APART][N_DIGITS / 2] = {0};
    for (uint32_t i = 0; i < n; i++) {
        if (keys[i] == 0) continue;
        uint32_t digit = float_to_bits(keys[i]) >> 21;
        count[i % N_APART][digit]++;
        if (by_mass) mass[i % N_APART][digit] += token_mass(weights[i]);
    }
    *digits = (Digits){0};
    for (uint32_t i = 0; i < N_DIGITS / 2; i++) {
        for (uint32_t j = 0; j < N_APART; j++) {
            digits->count[i] += count[j][i];
            digits->mass[i] += mass[j][i];
        }
    }
}

/* A selection under way: the least key to keep begins with the bits of prefix and is one of the candidates'. */
typedef struct Cut {
    const float *keys; /* [n] >= 0; 0: out already. May be the weights themselves. */
    float *weights;    /* [n] */
    uint32_t n;
    uint64_t goal, have; /* have: held by all keys above the prefix */
    bool by_mass;        /* else by count */
    uint32_t prefix;
    uint32_t *candidates; /* [n_candidates] indices, rising */
    uint32_t n_candidates;
} Cut;

/* Appends to the prefix the digit at which the goal is reached; false: nothing there. */
static bool cut_choose_digit(Cut *cut, const Digits *digits, uint32_t n_bits)
{
    uint32_t last = N_DIGITS;
    uint64_t before_last = 0;
    for (uint32_t digit = N_DIGITS; digit-- > 0;) {
        if (!digits->count[digit]) continue;
        last = digit;
        before_last = cut->have;
        cut->have += cut->by_mass ? digits->mass[digit] : digits->count[digit];
        if (cut->have >= cut->goal) break;
    }
    if (last == N_DIGITS) return false;
    cut->have = before_last;
    cut->prefix = cut->prefix << n_bits | last;
    return true;
}

static void cut_narrow(Cut *cut, uint32_t shift, uint32_t n_bits)
{
    Digits digits = {0};
    for (uint32_t i = 0; i < cut->n_candidates; i++) {
        uint32_t at = cut->candidates[i];
        uint32_t digit = float_to_bits(cut->keys[at]) >> shift & ((1u << n_bits) - 1);
        digits.count[digit]++;
        digits.mass[digit] += token_mass(cut->weights[at]);
    }
    if (!cut_choose_digit(cut, &digits, n_bits)) return;
    uint32_t n = 0;
    for (uint32_t i = 0; i < cut->n_candidates; i++) {
        /* Lower ones are out for good, higher ones are in. */
        uint32_t head = float_to_bits(cut->keys[cut->candidates[i]]) >> shift;
        if (head == cut->prefix) cut->candidates[n++] = cut->candidates[i];
    }
    cut->n_candidates = n;
}

/*
 * Keeps the fewest of the highest keys whose count or mass reaches the goal, and zeroes the other weights: the least
 * key to keep is found digit by digit, and of those equal to it the first ones stay.
 */
static void cut_run(Cut *cut)
{
    Digits digits;
    digits_of_all(&digits, cut->keys, cut->weights, cut->n, cut->by_mass);
    if (!cut_choose_digit(cut, &digits, 11)) return;
    for (uint32_t i = 0; i < cut->n; i++) {
        cut->candidates[cut->n_candidates] = i;
        cut->n_candidates += float_to_bits(cut->keys[i]) >> 21 == cut->prefix;
    }
    cut_narrow(cut, 10, 11);
    cut_narrow(cut, 0, 10);
    float least = float_from_bits(cut->prefix);
    uint32_t n_ties = 0;
    while (n_ties < cut->n_candidates && (n_ties == 0 || cut->have < cut->goal)) {
        cut->have += cut->by_mass ? token_mass(cut->weights[cut->candidates[n_ties]]) : 1;
        n_ties++;
    }
    for (uint32_t i = n_ties; i < cut->n_candidates; i++) cut->weights[cut->candidates[i]] = 0;
    for (uint32_t i = 0; i < cut->n; i++) cut->weights[i] = cut->keys[i] >= least ? cut->weights[i] : 0.0f;
}

void weights_cut_top_k(float *weights, uint32_t n, uint32_t k, uint32_t *scratch)
{
    Cut cut = {.keys = weights, .weights = weights, .n = n, .goal = k, .candidates = scratch};
    if (k < n) cut_run(&cut);
}

uint64_t mass_goal(uint64_t mass, double p)
{
    return (uint64_t)ceil(p * (double)mass);
}

void weights_cut_to_mass(float *weights, uint32_t n, uint64_t goal, uint32_t *scratch)
{
    Cut cut = {.keys = weights, .weights = weights, .n = n, .by_mass = true, .goal = goal, .candidates = scratch};
    cut_run(&cut);
}

void weights_cut_typical(float *weights, uint32_t n, float *distances, double p, uint32_t *scratch)
{
    const float infinite = INFINITY;
    if (p >= 1) return;
    /* Falling instead of rising, and still above 0: the bits count down from those of infinity. */
    float *keys = distances;
    for (uint32_t i = 0; i < n; i++)
        keys[i] = weights[i] > 0 ? float_from_bits(float_to_bits(infinite) - float_to_bits(distances[i])) : 0.0f;
    Cut cut = {.keys = keys, .weights = weights, .n = n, .by_mass = true, .candidates = scratch};
    cut.goal = mass_goal(weights_mass(weights, n), p);
    cut_run(&cut);
}

void weights_cut_xtc(float *weights, uint32_t n, double threshold)
{
    double least_mass = threshold * weights_sum(weights, n);
    uint32_t n_above = 0, stays = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (weights[i] == 0 || (double)weights[i] < least_mass) continue;
        if (n_above++ == 0 || weights[i] <= weights[stays]) stays = i;
    }
    if (n_above < 2) return;
    float kept = weights[stays];
    for (uint32_t i = 0; i < n; i++) weights[i] = (double)weights[i] < least_mass ? weights[i] : 0.0f;
    weights[stays] = kept;
}

void weights_cut_below(float *weights, uint32_t n, double least)
{
    for (uint32_t i = 0; i < n; i++) weights[i] = (double)weights[i] >= least ? weights[i] : 0.0f;
}

/* The first of the largest. */
static uint32_t heaviest_of(const float *weights, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (weights[i] > weights[best]) best = i;
    return best;
}

uint32_t weights_draw(const float *weights, uint32_t n, double u)
{
    uint64_t all = weights_mass(weights, n);
    if (all == 0) return heaviest_of(weights, n);
    uint64_t left = token_mass_share(all, u);
    for (uint32_t i = 0; i < n; i += BLOCK) {
        uint32_t m = n - i < BLOCK ? n - i : BLOCK;
        uint64_t mass = weights_mass(weights + i, m);
        if (left >= mass) {
            left -= mass;
            continue;
        }
        for (uint32_t j = i; j < i + m; j++) {
            mass = token_mass(weights[j]);
            if (left < mass) return j;
            left -= mass;
        }
    }
    return n - 1; /* never: the share is below the whole */
}
