/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuts of the distribution against their published formulas, written down in fp64 with sorts. Draws are compared
 * with the probabilities that the formulas give; mirostat token by token with a sampler that is told how many to keep.
 */
#include "engine/sample/sampler.h"
#include "tests/support/sampler_maker.h"
#include "tests/support/sanitized.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 400 };

static Sampler *make(void)
{
    return sampler_maker_new(N, (TokenText){0});
}

static void reset(Sampler *sampler, const SamplingParams *params)
{
    Error error;
    cr_assert(sampler_reset(sampler, params, 0, NULL, 0, &error), "%s", error.text);
}

static uint32_t pick(Sampler *sampler, const float *row)
{
    Error error;
    SampleResult result;
    float logits[N];
    memcpy(logits, row, sizeof logits);
    cr_assert(sampler_pick(sampler, logits, false, 0, &result, &error), "%s", error.text);
    return result.id;
}

static void fill_row(float *row, float spread, uint32_t seed)
{
    for (uint32_t i = 0; i < N; i++) {
        float sum = 0;
        for (int j = 0; j < 6; j++) {
            seed = seed * 1664525u + 1013904223u;
            sum += (float)(seed >> 8) * 0x1p-24f;
        }
        row[i] = (sum - 3) * spread;
    }
}

/* ---- the formulas; p [N] are probabilities, 0: out ---- */

static void normalise(double *p)
{
    double sum = 0;
    for (int i = 0; i < N; i++) sum += p[i];
    for (int i = 0; i < N; i++) p[i] /= sum;
}

static void softmax(const double *logits, double temperature, double *p)
{
    double max = -INFINITY;
    for (int i = 0; i < N; i++) max = fmax(max, logits[i]);
    for (int i = 0; i < N; i++) p[i] = exp((logits[i] - max) / temperature);
    normalise(p);
}

static double entropy(const double *p)
{
    double sum = 0;
    for (int i = 0; i < N; i++) sum -= p[i] > 0 ? p[i] * log(p[i]) : 0;
    return sum;
}

typedef struct Ranked {
    double key, p;
    int id;
} Ranked;

static int compare_ranked(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : x->id - y->id;
}

/* Those of p > 0 by rising key. */
static int rank(const double *p, const double *keys, Ranked *ranked)
{
    int n = 0;
    for (int i = 0; i < N; i++)
        if (p[i] > 0) ranked[n++] = (Ranked){keys[i], p[i], i};
    qsort(ranked, (size_t)n, sizeof *ranked, compare_ranked);
    return n;
}

static void keep_mass(double *p, const double *keys, double mass)
{
    Ranked ranked[N];
    int n = rank(p, keys, ranked);
    double sum = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && sum >= mass) p[ranked[i].id] = 0;
        sum += ranked[i].p;
    }
    normalise(p);
}

static void keep_count(double *p, int k)
{
    Ranked ranked[N];
    double keys[N];
    for (int i = 0; i < N; i++) keys[i] = -p[i];
    int n = rank(p, keys, ranked);
    for (int i = k; i < n; i++) p[ranked[i].id] = 0;
    normalise(p);
}

static void naive_top_n_sigma(double *logits, double n_sigma)
{
    double mean = 0, square = 0, max = -INFINITY;
    int n = 0;
    for (int i = 0; i < N; i++) {
        if (isinf(logits[i])) continue;
        mean += logits[i];
        max = fmax(max, logits[i]);
        n++;
    }
    mean /= n;
    for (int i = 0; i < N; i++) square += isinf(logits[i]) ? 0 : (logits[i] - mean) * (logits[i] - mean);
    for (int i = 0; i < N; i++)
        if (logits[i] < max - n_sigma * sqrt(square / n)) logits[i] = -INFINITY;
}

static double naive_dynatemp(const SamplingParams *s, const double *logits)
{
    double p[N], range = (double)s->dynatemp_range, temperature = (double)s->temperature, low = temperature - range;
    int n = 0;
    softmax(logits, 1, p);
    for (int i = 0; i < N; i++) n += !isinf(logits[i]);
    if (low < 0) low = 0;
    return low + (temperature + range - low) * pow(entropy(p) / log(n), (double)s->dynatemp_exponent);
}

static void naive_typical(double *p, double mass)
{
    double keys[N], h = entropy(p);
    for (int i = 0; i < N; i++) keys[i] = fabs(-log(p[i]) - h);
    keep_mass(p, keys, mass);
}

static void naive_xtc(double *p, double threshold)
{
    int n_above = 0, least = -1;
    for (int i = 0; i < N; i++) {
        if (p[i] == 0 || p[i] < threshold) continue;
        n_above++;
        if (least < 0 || p[i] <= p[least]) least = i;
    }
    for (int i = 0; i < N; i++)
        if (n_above > 1 && p[i] >= threshold && i != least) p[i] = 0;
    normalise(p);
}

/* The probabilities that draws must follow. */
static void naive_distribution(const SamplingParams *s, const float *row, double *p)
{
    double logits[N], keys[N], with_xtc[N];
    for (int i = 0; i < N; i++) logits[i] = (double)row[i];
    if (s->top_n_sigma > 0) naive_top_n_sigma(logits, (double)s->top_n_sigma);
    softmax(logits, s->dynatemp_range > 0 ? naive_dynatemp(s, logits) : (double)s->temperature, p);
    double best = 0;
    for (int i = 0; i < N; i++) best = fmax(best, p[i]);
    for (int i = 0; i < N; i++) p[i] = p[i] < (double)s->min_p * best ? 0 : p[i];
    normalise(p);
    if (s->top_k) keep_count(p, (int)s->top_k);
    if (s->typical_p < 1) naive_typical(p, (double)s->typical_p);
    for (int i = 0; i < N; i++) keys[i] = -p[i];
    if (s->top_p < 1) keep_mass(p, keys, (double)s->top_p);
    if (s->xtc_threshold > 0.5f) return;
    memcpy(with_xtc, p, sizeof with_xtc);
    naive_xtc(with_xtc, (double)s->xtc_threshold);
    double chance = (double)s->xtc_probability;
    for (int i = 0; i < N; i++) p[i] += chance * (with_xtc[i] - p[i]);
}

static void check_draws(const SamplingParams *params, const float *row, const char *what)
{
    enum { DRAWS = 4000 / SANITIZED_SHARE };
    double p[N];
    uint32_t got[N] = {0};
    naive_distribution(params, row, p);
    Sampler *sampler = make();
    reset(sampler, params);
    for (int i = 0; i < DRAWS; i++) got[pick(sampler, row)]++;
    double z = draws_deviation(p, got, N, DRAWS);
    cr_assert(fabs(z) < 4, "%s: z %g", what, z);
    sampler_maker_free(sampler);
}

typedef struct CutCase {
    const char *name;
    SamplingParams params; /* 0 is neutral, also where the field's own neutral value is another */
} CutCase;

static SamplingParams params_of(const CutCase *c)
{
    SamplingParams params = c->params;
    params.repetition_penalty = 1;
    if (params.temperature == 0) params.temperature = 1;
    if (params.top_p == 0) params.top_p = 1;
    if (params.typical_p == 0) params.typical_p = 1;
    if (params.dynatemp_exponent == 0) params.dynatemp_exponent = 1;
    params.seed = 7;
    return params;
}

#define CASE(...)                                                                                                      \
    {                                                                                                                  \
#__VA_ARGS__,                                                                                                  \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

Test(sampler_cuts, draws_follow_the_formulas)
{
    static const CutCase cases[] = {
        CASE(.typical_p = 0.9f),
        CASE(.typical_p = 0.3f),
        CASE(.typical_p = 1e-9f),
        CASE(.typical_p = 0.5f, .temperature = 1.7f, .top_k = 60),
        CASE(.typical_p = 0.8f, .top_p = 0.7f, .min_p = 0.01f),
        CASE(.top_n_sigma = 1),
        CASE(.top_n_sigma = 0.3f, .temperature = 5),
        CASE(.top_n_sigma = 2, .top_p = 0.9f),
        CASE(.xtc_probability = 1, .xtc_threshold = 0.05f),
        CASE(.xtc_probability = 0.3f, .xtc_threshold = 0.02f),
        CASE(.xtc_probability = 1, .xtc_threshold = 0),
        CASE(.xtc_probability = 1, .xtc_threshold = 0.51f),
        CASE(.xtc_probability = 1, .xtc_threshold = 0.5f, .top_k = 2),
        CASE(.xtc_probability = 0.5f, .xtc_threshold = 0.1f, .top_k = 8, .temperature = 2),
        CASE(.dynatemp_range = 0.5f),
        CASE(.dynatemp_range = 3, .dynatemp_exponent = 0.5f, .temperature = 2),
        CASE(.dynatemp_range = 0.9f, .dynatemp_exponent = 2, .top_p = 0.9f, .typical_p = 0.9f, .top_n_sigma = 2),
    };
    static const float spreads[] = {0.5f, 2, 5};
    float row[N];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint32_t j = 0; j < 3; j++) {
            fill_row(row, spreads[j], 31 + j);
            row[0] = row[N - 1] = -INFINITY;
            SamplingParams params = params_of(&cases[i]);
            check_draws(&params, row, cases[i].name);
        }
    }
}

Test(sampler_cuts, equal_logits_are_ties)
{
    float row[N] = {0};
    SamplingParams params;
    sampling_defaults(&params);
    params.typical_p = 0.099f; /* 39.6 of them: the first 40 */
    Sampler *sampler = make();
    reset(sampler, &params);
    for (int i = 0; i < 300; i++) cr_assert_lt(pick(sampler, row), 40);
    params.typical_p = 1;
    params.xtc_probability = 1;
    params.xtc_threshold = 1.0f / N / 2;
    reset(sampler, &params);
    for (int i = 0; i < 20; i++) cr_assert_eq(pick(sampler, row), N - 1);
    params.xtc_probability = 0;
    params.top_n_sigma = 0.5f; /* no deviation: nothing lies below */
    params.dynatemp_range = 1;
    reset(sampler, &params);
    uint32_t largest = 0;
    for (int i = 0; i < 300; i++) largest |= pick(sampler, row);
    cr_assert_gt(largest, 300);
    sampler_maker_free(sampler);
}

Test(sampler_cuts, a_single_possible_token_is_taken)
{
    float row[N];
    for (int i = 0; i < N; i++) row[i] = -INFINITY;
    row[123] = -7;
    Sampler *sampler = make();
    for (int32_t mirostat = 0; mirostat < 3; mirostat++) {
        SamplingParams params;
        sampling_defaults(&params);
        params.mirostat = mirostat;
        params.typical_p = 0.5f;
        params.top_n_sigma = 1;
        params.xtc_probability = 1;
        params.dynatemp_range = 1;
        reset(sampler, &params);
        for (int i = 0; i < 50; i++) cr_assert_eq(pick(sampler, row), 123);
    }
    sampler_maker_free(sampler);
}

/* A coin that falls the other way leaves the token as it would have been. */
Test(sampler_cuts, chance_of_one_kind_does_not_shift_another)
{
    enum { LENGTH = 400 };
    float row[N];
    fill_row(row, 4, 3);
    Sampler *plain = make(), *xtc = make(), *cut = make();
    SamplingParams params;
    sampling_defaults(&params);
    params.seed = 11;
    reset(plain, &params);
    params.xtc_threshold = 0.05f;
    params.xtc_probability = 0.5f;
    reset(xtc, &params);
    params.xtc_probability = 1;
    reset(cut, &params);
    int n_plain = 0, n_cut = 0;
    for (int i = 0; i < LENGTH; i++) {
        uint32_t a = pick(plain, row), b = pick(xtc, row), c = pick(cut, row);
        cr_assert(b == a || b == c);
        n_plain += b == a && a != c;
        n_cut += b == c && a != c;
    }
    cr_assert(n_plain > LENGTH / 5 && n_cut > LENGTH / 5, "%d and %d", n_plain, n_cut);
    sampler_maker_free(plain);
    sampler_maker_free(xtc);
    sampler_maker_free(cut);
}

/* ---- mirostat ---- */

/* How many of the likeliest the first version keeps. */
static int naive_mirostat_count(const double *p, double mu)
{
    Ranked ranked[N];
    double keys[N], upper = 0, lower = 0;
    for (int i = 0; i < N; i++) keys[i] = -p[i];
    int n = rank(p, keys, ranked);
    for (int i = 0; i + 1 < n && i < 99; i++) {
        double t = log((i + 2.0) / (i + 1.0));
        upper += t * log(ranked[i].p / ranked[i + 1].p);
        lower += t * t;
    }
    double s = upper / lower, e = s - 1;
    double k = pow(e * pow(2, mu) / (1 - pow(N, -e)), 1 / s);
    return k >= n ? n : k < 1 ? 1 : (int)k;
}

static int naive_mirostat_2_count(const double *p, double mu)
{
    int n = 0;
    for (int i = 0; i < N; i++) n += p[i] > 0 && -log2(p[i]) <= mu;
    return n ? n : 1;
}

/* Token i of this seed when the k likeliest stay. */
static uint32_t token_of(Sampler *sampler, SamplingParams params, int k, int i, const float *row)
{
    params.mirostat = 0;
    params.top_k = (uint32_t)k;
    reset(sampler, &params);
    for (; i > 0; i--) pick(sampler, row);
    return pick(sampler, row);
}

static void check_mirostat(const SamplingParams *params)
{
    enum { LENGTH = 40 };
    Sampler *sampler = make(), *twin = make();
    double mu = 2 * (double)params->mirostat_tau, logits[N], p[N];
    reset(sampler, params);
    for (int i = 0; i < LENGTH; i++) {
        float row[N];
        fill_row(row, 1 + (float)(i % 5), (uint32_t)i);
        for (int j = 0; j < N; j++) logits[j] = (double)row[j];
        softmax(logits, (double)params->temperature, p);
        int k = params->mirostat == 1 ? naive_mirostat_count(p, mu) : naive_mirostat_2_count(p, mu);
        uint32_t id = pick(sampler, row);
        cr_assert_eq(id, token_of(twin, *params, k, i, row), "version %d, token %d, mu %g, k %d", params->mirostat, i,
                     mu, k);
        keep_count(p, k);
        mu -= (double)params->mirostat_eta * (-log2(p[id]) - (double)params->mirostat_tau);
    }
    sampler_maker_free(sampler);
    sampler_maker_free(twin);
}

Test(sampler_cuts, mirostat_follows_its_formulas)
{
    static const float taus[] = {0.5f, 2, 5, 100}, etas[] = {0, 0.1f, 1};
    for (int32_t version = 1; version <= 2; version++) {
        for (uint32_t i = 0; i < 12; i++) {
            SamplingParams params;
            sampling_defaults(&params);
            params.mirostat = version;
            params.mirostat_tau = taus[i / 3];
            params.mirostat_eta = etas[i % 3];
            params.temperature = i % 2 ? 1.4f : 0.8f;
            params.seed = i;
            params.top_p = 0.01f; /* has no say */
            SamplingParams counted = params;
            counted.top_p = 1;
            check_mirostat(&counted);
            Sampler *a = make(), *b = make();
            float row[N];
            fill_row(row, 3, i);
            reset(a, &params);
            reset(b, &counted);
            for (int j = 0; j < 30; j++) cr_assert_eq(pick(a, row), pick(b, row));
            sampler_maker_free(a);
            sampler_maker_free(b);
        }
    }
}

/* The purpose of it all: the mean surprise comes close to what was asked for. */
Test(sampler_cuts, mirostat_reaches_its_target)
{
    float row[N];
    fill_row(row, 2, 77);
    double logits[N], p[N];
    for (int i = 0; i < N; i++) logits[i] = (double)row[i];
    softmax(logits, 1, p);
    Sampler *sampler = make();
    for (int32_t version = 1; version <= 2; version++) {
        SamplingParams params;
        sampling_defaults(&params);
        params.mirostat = version;
        params.mirostat_tau = 3;
        reset(sampler, &params);
        double sum = 0;
        enum { SETTLE = 200, LENGTH = 2000 };
        for (int i = 0; i < SETTLE + LENGTH; i++) {
            uint32_t id = pick(sampler, row);
            if (i >= SETTLE) sum -= log2(p[id]);
        }
        /* Under the whole distribution a token of the part that stays is more of a surprise than within it. */
        cr_assert(sum / LENGTH > 3 && sum / LENGTH < 6, "version %d: %g bits", version, sum / LENGTH);
    }
    sampler_maker_free(sampler);
}

Test(sampler_cuts, greedy_and_neutral_values_change_nothing)
{
    float row[N];
    fill_row(row, 3, 5);
    SamplingParams plain, neutral, loud;
    sampling_defaults(&plain);
    plain.seed = 9;
    neutral = plain;
    neutral.top_n_sigma = -1;
    neutral.xtc_probability = 1;
    neutral.xtc_threshold = 0.6f;
    neutral.dynatemp_exponent = 3;
    neutral.mirostat_tau = 1;
    neutral.dry_base = 9;
    neutral.repeat_last_n = 5;
    Sampler *a = make(), *b = make();
    reset(a, &plain);
    reset(b, &neutral);
    for (int i = 0; i < 100; i++) cr_assert_eq(pick(a, row), pick(b, row));
    plain.temperature = 0;
    loud = plain;
    loud.xtc_probability = 1;
    loud.typical_p = 0.1f;
    loud.dynatemp_range = 2;
    loud.mirostat = 2;
    reset(a, &plain);
    reset(b, &loud);
    cr_assert_eq(pick(a, row), pick(b, row));
    sampler_maker_free(a);
    sampler_maker_free(b);
}
