/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/sampler_impl.h"
#include "kernels/sample/token_weight.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MIROSTAT_SAMPLE = 100 }; /* likeliest tokens that the first version fits its power law to */

static bool cuts(const Sampler *sampler)
{
    return sampler->params.mirostat == 0; /* mirostat alone decides how many stay */
}

/* ---- top_n_sigma ---- */

static bool top_n_sigma_applies(const Sampler *sampler)
{
    return cuts(sampler) && sampler->params.top_n_sigma > 0;
}

static void top_n_sigma_apply(Sampler *sampler, Row *row)
{
    row_cut_top_n_sigma(row->logits, row->n, row->max, (double)sampler->params.top_n_sigma);
}

/* ---- temperature ---- */

static bool dynatemp_applies(const Sampler *sampler)
{
    return sampler->params.dynatemp_range > 0;
}

static bool temperature_applies(const Sampler *sampler)
{
    return !dynatemp_applies(sampler);
}

static void fill(Sampler *sampler, Row *row, float temperature)
{
    row->temperature = temperature;
    weights_fill(row->logits, row->n, row->max, temperature, sampler->space->weights);
}

static void temperature_apply(Sampler *sampler, Row *row)
{
    fill(sampler, row, sampler->params.temperature);
}

static void dynatemp_apply(Sampler *sampler, Row *row)
{
    const SamplingParams *p = &sampler->params;
    fill(sampler, row, 1);
    RowMoments moments = weights_moments(row->logits, sampler->space->weights, row->n, row->max, 1);
    double low = fmax(0, (double)p->temperature - (double)p->dynatemp_range);
    double high = (double)p->temperature + (double)p->dynatemp_range;
    double share = moments.n_possible > 1 ? (log(moments.mass) - moments.mean) / log(moments.n_possible) : 0;
    share = fmin(fmax(share, 0), 1);
    double temperature = low + (high - low) * pow(share, (double)p->dynatemp_exponent);
    fill(sampler, row, (float)fmin(fmax(temperature, (double)FLT_MIN), (double)FLT_MAX));
}

/* ---- cuts of the distribution ---- */

static bool min_p_applies(const Sampler *sampler)
{
    return cuts(sampler) && sampler->params.min_p > 0;
}

static void min_p_apply(Sampler *sampler, Row *row)
{
    const float min_p = sampler->params.min_p;
    if (row->others < min_p)
        row->others = 0;
    else
        row->others_mass = MASS_UNKNOWN;
    weights_cut_min_p(sampler->space->weights, row->n, min_p);
}

static bool top_k_applies(const Sampler *sampler)
{
    return cuts(sampler) && sampler->params.top_k > 0 && sampler->params.top_k < sampler->space->n_vocab;
}

/* Of a list: who weighs more than any id beyond it. */
static uint32_t count_above(const float *weights, uint32_t n, float others)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) count += weights[i] > others;
    return count;
}

static uint64_t mass_above(const float *weights, uint32_t n, float others)
{
    uint64_t mass = 0;
    for (uint32_t i = 0; i < n; i++) mass += weights[i] > others ? token_mass(weights[i]) : 0;
    return mass;
}

static void top_k_apply(Sampler *sampler, Row *row)
{
    float *weights = sampler->space->weights;
    const uint32_t k = sampler->params.top_k;
    row->is_undecided |= row->others > 0 && count_above(weights, row->n, row->others) < k;
    row->others = 0;
    weights_cut_top_k(weights, row->n, k, sampler->space->scratch);
}

static bool typical_applies(const Sampler *sampler)
{
    return cuts(sampler) && sampler->params.typical_p < 1;
}

/* |-log p - entropy|, p = exp(x) / mass, entropy = log(mass) - mean: what is left is |mean - x|. */
static void typical_apply(Sampler *sampler, Row *row)
{
    uint32_t n = row->n;
    float *distances = sampler->space->keys;
    RowMoments moments = weights_moments(row->logits, sampler->space->weights, n, row->max, row->temperature);
    float mean = (float)moments.mean;
    for (uint32_t i = 0; i < n; i++) distances[i] = fabsf((row->logits[i] - row->max) / row->temperature - mean);
    weights_cut_typical(sampler->space->weights, n, distances, (double)sampler->params.typical_p,
                        sampler->space->scratch);
}

static bool top_p_applies(const Sampler *sampler)
{
    return cuts(sampler) && sampler->params.top_p < 1;
}

static void top_p_apply(Sampler *sampler, Row *row)
{
    float *weights = sampler->space->weights;
    uint64_t mass = weights_mass(weights, row->n), goal;
    if (row->others > 0) mass += row->others_mass == MASS_UNKNOWN ? 0 : row->others_mass;
    goal = mass_goal(mass, (double)sampler->params.top_p);
    row->is_undecided |= row->others > 0 && (row->others_mass == MASS_UNKNOWN ||
                                             mass_above(weights, row->n, row->others) < (goal ? goal : 1));
    row->others = 0;
    weights_cut_to_mass(weights, row->n, goal, sampler->space->scratch);
}

static bool xtc_applies(const Sampler *sampler)
{
    const SamplingParams *p = &sampler->params;
    return cuts(sampler) && p->xtc_threshold <= 0.5f &&
           sampler_uniform(sampler, STREAM_XTC) < (double)p->xtc_probability;
}

static void xtc_apply(Sampler *sampler, Row *row)
{
    row->is_undecided |= row->others > 0;
    weights_cut_xtc(sampler->space->weights, row->n, (double)sampler->params.xtc_threshold);
}

/* ---- mirostat ---- */

static bool mirostat_1_applies(const Sampler *sampler)
{
    return sampler->params.mirostat == 1;
}

static bool mirostat_2_applies(const Sampler *sampler)
{
    return sampler->params.mirostat == 2;
}

static int compare_falling(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The heaviest weights, falling; returns how many there are. */
static uint32_t heaviest(Sampler *sampler, float top[static MIROSTAT_SAMPLE])
{
    uint32_t n = sampler->space->n_vocab, n_top = 0;
    memcpy(sampler->space->keys, sampler->space->weights, n * sizeof *sampler->space->keys);
    weights_cut_top_k(sampler->space->keys, n, MIROSTAT_SAMPLE, sampler->space->scratch);
    for (uint32_t i = 0; i < n && n_top < MIROSTAT_SAMPLE; i++)
        if (sampler->space->keys[i] > 0) top[n_top++] = sampler->space->keys[i];
    qsort(top, n_top, sizeof *top, compare_falling);
    return n_top;
}

/* Least squares of the exponent s in p(rank) ~ rank ^ -s, over neighbouring ranks. */
static double fit_exponent(const float *top, uint32_t n_top)
{
    double upper = 0, lower = 0;
    for (uint32_t i = 0; i + 1 < n_top; i++) {
        double t = log((i + 2.0) / (i + 1.0)), b = log((double)top[i] / (double)top[i + 1]);
        upper += t * b;
        lower += t * t;
    }
    return upper / lower;
}

/* How many of the likeliest have an expected surprise of mu: k = (e 2^mu / (1 - N^-e)) ^ (1 / s), e = s - 1. */
static void mirostat_1_apply(Sampler *sampler, Row *row)
{
    (void)row;
    float top[MIROSTAT_SAMPLE];
    uint32_t n = sampler->space->n_vocab, n_top = heaviest(sampler, top);
    if (n_top < 2) return;
    double s = fit_exponent(top, n_top), e = s - 1, log_n = log(n);
    double ratio = e == 0 ? 1 / log_n : e / -expm1(-e * log_n);
    double k = pow(ratio * exp2(sampler->mirostat_mu), 1 / s);
    if (k < n) weights_cut_top_k(sampler->space->weights, n, k < 1 ? 1 : (uint32_t)k, sampler->space->scratch);
}

/* The best one has the weight 1: it stays whatever mu is. */
static void mirostat_2_apply(Sampler *sampler, Row *row)
{
    (void)row;
    double least = weights_sum(sampler->space->weights, sampler->space->n_vocab) * exp2(-sampler->mirostat_mu);
    weights_cut_below(sampler->space->weights, sampler->space->n_vocab, fmin(least, 1));
}

void mirostat_learn(Sampler *sampler, uint32_t id)
{
    const SamplingParams *p = &sampler->params;
    if (p->mirostat == 0 || p->temperature == 0) return;
    double surprise =
        log2(weights_sum(sampler->space->weights, sampler->space->n_vocab) / (double)sampler->space->weights[id]);
    sampler->mirostat_mu -= (double)p->mirostat_eta * (surprise - (double)p->mirostat_tau);
}

const Stage sampler_cuts[] = {
    {"top_n_sigma", top_n_sigma_applies, top_n_sigma_apply, STAGE_CUTS_WHOLE},
    {"temperature", temperature_applies, temperature_apply, STAGE_FILLS},
    {"dynatemp", dynatemp_applies, dynatemp_apply, STAGE_CUTS_WHOLE},
    {"min_p", min_p_applies, min_p_apply, STAGE_CUTS},
    {"top_k", top_k_applies, top_k_apply, STAGE_CUTS},
    {"typical_p", typical_applies, typical_apply, STAGE_CUTS_WHOLE},
    {"top_p", top_p_applies, top_p_apply, STAGE_CUTS},
    {"xtc", xtc_applies, xtc_apply, STAGE_CUTS},
    {"mirostat", mirostat_1_applies, mirostat_1_apply, STAGE_CUTS_WHOLE},
    {"mirostat 2", mirostat_2_applies, mirostat_2_apply, STAGE_CUTS_WHOLE},
};
const size_t sampler_n_cuts = sizeof sampler_cuts / sizeof *sampler_cuts;
