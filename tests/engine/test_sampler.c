/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/sampler.h"
#include "tests/support/sampler_maker.h"
#include "tests/support/sanitized.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static Sampler *make(uint32_t n_vocab)
{
    return sampler_maker_new(n_vocab, (TokenText){0});
}

static SamplingParams greedy(void)
{
    SamplingParams params;
    sampling_defaults(&params);
    params.temperature = 0;
    return params;
}

static void reset(Sampler *sampler, const SamplingParams *params, uint32_t choice)
{
    Error error;
    cr_assert(sampler_reset(sampler, params, choice, NULL, 0, &error), "%s", error.text);
}

/* Picks from a copy of the row. */
static SampleResult pick(Sampler *sampler, const float *row, uint32_t n, bool want_logprob, uint32_t n_top)
{
    Error error;
    SampleResult result;
    float *logits = malloc(n * sizeof *logits);
    memcpy(logits, row, n * sizeof *logits);
    cr_assert(sampler_pick(sampler, logits, want_logprob, n_top, &result, &error), "%s", error.text);
    free(logits);
    return result;
}

static ErrorCode pick_fails(Sampler *sampler, const float *row, uint32_t n)
{
    Error error = {0};
    SampleResult result = {.id = 77};
    float *logits = malloc(n * sizeof *logits);
    memcpy(logits, row, n * sizeof *logits);
    cr_assert_not(sampler_pick(sampler, logits, false, 0, &result, &error));
    cr_assert_eq(result.id, 77);
    free(logits);
    return error.code;
}

/* Bell-shaped, the same each time. */
static void fill_row(float *row, uint32_t n, float spread, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++) {
        float sum = 0;
        for (int j = 0; j < 6; j++) {
            seed = seed * 1664525u + 1013904223u;
            sum += (float)(seed >> 8) * 0x1p-24f;
        }
        row[i] = (sum - 3) * spread;
    }
}

Test(sampler, greedy_takes_the_best_and_the_lower_id_of_two)
{
    enum { N = 77 };
    float row[N];
    for (int i = 0; i < N; i++) row[i] = -INFINITY;
    row[40] = row[60] = 1.5f;
    row[3] = 1.4f;
    Sampler *sampler = make(N);
    SamplingParams params = greedy();
    reset(sampler, &params, 0);
    cr_assert_eq(pick(sampler, row, N, false, 0).id, 40);
    params.temperature = 2;
    params.top_k = 1; /* the same, and so is a tiny top_p */
    reset(sampler, &params, 0);
    cr_assert_eq(pick(sampler, row, N, false, 0).id, 40);
    params.top_k = 0;
    params.top_p = 1e-6f;
    reset(sampler, &params, 0);
    for (int i = 0; i < 20; i++) cr_assert_eq(pick(sampler, row, N, false, 0).id, 40);
    sampler_maker_free(sampler);
}

Test(sampler, tiniest_temperature_is_greedy)
{
    float row[] = {3.0f, 3.1f, -INFINITY, 2.0f};
    Sampler *sampler = make(4);
    SamplingParams params;
    sampling_defaults(&params);
    params.temperature = 1e-44f;
    reset(sampler, &params, 0);
    for (int i = 0; i < 50; i++) cr_assert_eq(pick(sampler, row, 4, false, 0).id, 1);
    sampler_maker_free(sampler);
}

Test(sampler, non_finite_rows_fail)
{
    Sampler *sampler = make(40);
    float row[40] = {0};
    for (int temperature = 0; temperature < 2; temperature++) {
        SamplingParams params = greedy();
        params.temperature = (float)temperature;
        reset(sampler, &params, 0);
        for (int at = 0; at < 40; at++) {
            row[at] = NAN;
            cr_assert_eq(pick_fails(sampler, row, 40), ERR_NON_FINITE);
            row[at] = INFINITY;
            cr_assert_eq(pick_fails(sampler, row, 40), ERR_NON_FINITE);
            row[at] = 0;
        }
        float masked[40];
        for (int i = 0; i < 40; i++) masked[i] = -INFINITY;
        cr_assert_eq(pick_fails(sampler, masked, 40), ERR_NON_FINITE);
    }
    sampler_maker_free(sampler);
}

Test(sampler, bans_hold_until_lifted_and_may_empty_the_row)
{
    float row[] = {5, 4, 3};
    const uint32_t banned[] = {0, 1, 2, 99};
    Sampler *sampler = make(3);
    SamplingParams params = greedy();
    reset(sampler, &params, 0);
    sampler_ban(sampler, banned, 2);
    cr_assert_eq(pick(sampler, row, 3, false, 0).id, 2);
    sampler_ban(sampler, banned, 4);
    cr_assert_eq(pick_fails(sampler, row, 3), ERR_NON_FINITE);
    sampler_ban(sampler, NULL, 0);
    cr_assert_eq(pick(sampler, row, 3, false, 0).id, 0);
    sampler_maker_free(sampler);
}

/* 130 ids are two words of a mask and a bit; log-probabilities stay those of the whole row. */
Test(sampler, a_mask_leaves_its_ids_alone)
{
    enum { N = 130 };
    float row[N];
    uint64_t words[3] = {UINT64_C(1) << 9 | UINT64_C(1) << 63, 0, 2}; /* 9, 63, 129 */
    const LogitBias bias[] = {{.id = 40, .bias = 100}};
    for (uint32_t i = 0; i < N; i++) row[i] = (float)(N - i) / N;
    Sampler *sampler = make(N);
    SamplingParams params = greedy();
    params.bias = bias;
    params.n_bias = 1;
    reset(sampler, &params, 0);
    SampleResult whole = pick(sampler, row, N, true, 2);
    cr_assert_eq(whole.id, 40);
    sampler_allow(sampler, words);
    SampleResult masked = pick(sampler, row, N, true, 2);
    cr_assert_eq(masked.id, 9);
    cr_assert(masked.logprob > whole.logprob && masked.top[0].id == 0 && masked.top[1].id == 1);
    words[0] = 0;
    cr_assert_eq(pick(sampler, row, N, false, 0).id, 129);
    params.temperature = 2;
    params.top_k = 1;
    reset(sampler, &params, 0); /* lifts it */
    cr_assert_eq(pick(sampler, row, N, false, 0).id, 40);
    words[1] = words[2] = 0;
    sampler_allow(sampler, words);
    cr_assert_eq(pick_fails(sampler, row, N), ERR_NON_FINITE);
    sampler_maker_free(sampler);
}

/* A forced token counts for penalties, and uses up a draw. */
Test(sampler, forced_tokens_are_part_of_the_sequence)
{
    const float row[] = {1, 0.9f, 0.8f, 0.7f};
    Error error;
    Sampler *sampler = make(4);
    SamplingParams params = greedy();
    params.presence_penalty = 0.15f;
    reset(sampler, &params, 0);
    cr_assert(sampler_force(sampler, 0, &error));
    cr_assert_eq(pick(sampler, row, 4, false, 0).id, 1);
    sampling_defaults(&params);
    params.seed = 4;
    uint32_t ids[2][8];
    for (uint32_t run = 0; run < 2; run++) {
        reset(sampler, &params, 0);
        for (uint32_t i = 0; i < 8; i++) {
            ids[run][i] = run == 1 && i < 4 ? ids[0][i] : pick(sampler, row, 4, false, 0).id;
            if (run == 1 && i < 4) cr_assert(sampler_force(sampler, ids[0][i], &error));
        }
    }
    cr_assert_eq(memcmp(ids[0], ids[1], sizeof ids[0]), 0);
    sampler_maker_free(sampler);
}

Test(sampler, bias_and_penalties)
{
    float row[] = {2.0f, 1.9f, -1.0f, 0.0f};
    const LogitBias bias[] = {{.id = 3, .bias = 100}};
    Sampler *sampler = make(4);
    SamplingParams params = greedy();
    params.bias = bias;
    params.n_bias = 1;
    reset(sampler, &params, 0);
    cr_assert_eq(pick(sampler, row, 4, false, 0).id, 3);

    params = greedy();
    params.presence_penalty = 0.2f; /* once, however often it came */
    reset(sampler, &params, 0);
    cr_assert_eq(pick(sampler, row, 4, false, 0).id, 0);
    cr_assert_eq(pick(sampler, row, 4, false, 0).id, 1);
    cr_assert_eq(pick(sampler, row, 4, false, 0).id, 0);
    cr_assert_eq(pick(sampler, row, 4, false, 0).id, 0);

    params = greedy();
    params.frequency_penalty = 0.06f; /* each time again */
    reset(sampler, &params, 0);
    const uint32_t want[] = {0, 0, 1, 0, 1};
    for (int i = 0; i < 5; i++) cr_assert_eq(pick(sampler, row, 4, false, 0).id, want[i]);
    sampler_maker_free(sampler);
}

Test(sampler, repetition_penalty_counts_the_prompt)
{
    float row[] = {2.0f, 1.5f, -1.0f, -1.2f};
    const uint32_t prompt[] = {0, 1, 0, 2};
    Error error;
    Sampler *sampler = make(4);
    SamplingParams params = greedy();
    params.repetition_penalty = 2; /* 1, 0.75, -2, -1.2 */
    cr_assert(sampler_reset(sampler, &params, 0, prompt, 4, &error));
    cr_assert_eq(pick(sampler, row, 4, false, 0).id, 0);
    float negative[] = {-9.0f, -9.0f, -1.0f, -1.2f};
    cr_assert_eq(pick(sampler, negative, 4, false, 0).id, 3);
    /* The next sequence starts clean. */
    params.repetition_penalty = 1;
    reset(sampler, &params, 0);
    cr_assert_eq(pick(sampler, negative, 4, false, 0).id, 2);
    /* Presence and frequency look at generated tokens only. */
    params.presence_penalty = 2;
    cr_assert(sampler_reset(sampler, &params, 0, prompt, 4, &error));
    cr_assert_eq(pick(sampler, row, 4, false, 0).id, 0);
    sampler_maker_free(sampler);
}

Test(sampler, reset_refuses_what_is_out_of_range)
{
    const LogitBias bias[] = {{.id = 4, .bias = 1}};
    const uint32_t prompt[] = {0, 4};
    Error error = {0};
    Sampler *sampler = make(4);
    SamplingParams params = greedy();
    cr_assert_not(sampler_reset(sampler, &params, 0, prompt, 2, &error));
    cr_assert_str_eq(error.param, "prompt");
    params.bias = bias;
    params.n_bias = 1;
    cr_assert_not(sampler_reset(sampler, &params, 0, NULL, 0, &error));
    cr_assert_str_eq(error.param, "logit_bias");
    const struct {
        const char *name;
        SamplingParams params;
    } bad[] = {
        {"temperature", {.temperature = NAN, .top_p = 1, .repetition_penalty = 1}},
        {"temperature", {.temperature = -1, .top_p = 1, .repetition_penalty = 1}},
        {"top_p", {.top_p = 1.5f, .repetition_penalty = 1}},
        {"min_p", {.top_p = 1, .min_p = 1.5f, .repetition_penalty = 1}}, /* would leave no token at all */
        {"presence_penalty", {.top_p = 1, .presence_penalty = INFINITY, .repetition_penalty = 1}},
        {"frequency_penalty", {.top_p = 1, .frequency_penalty = NAN, .repetition_penalty = 1}},
        {"repetition_penalty", {.top_p = 1}},
        {"typical_p", {.typical_p = 1.1f, .repetition_penalty = 1}},
        {"top_n_sigma", {.top_n_sigma = NAN, .repetition_penalty = 1}},
        {"xtc_probability", {.xtc_probability = -0.1f, .repetition_penalty = 1}},
        {"xtc_threshold", {.xtc_threshold = 2, .repetition_penalty = 1}},
        {"dynatemp_range", {.dynatemp_range = INFINITY, .repetition_penalty = 1}},
        {"dynatemp_exponent", {.dynatemp_exponent = -1, .repetition_penalty = 1}},
        {"mirostat", {.mirostat = 3, .repetition_penalty = 1}},
        {"mirostat_tau", {.mirostat_tau = -1, .repetition_penalty = 1}},
        {"mirostat_eta", {.mirostat_eta = NAN, .repetition_penalty = 1}},
        {"dry_multiplier", {.dry_multiplier = -1, .repetition_penalty = 1}},
        {"dry_base", {.dry_base = INFINITY, .repetition_penalty = 1}},
        {"dry_allowed_length", {.dry_allowed_length = -1, .repetition_penalty = 1}},
        {"dry_penalty_last_n", {.dry_penalty_last_n = SAMPLE_MAX_WINDOW + 1, .repetition_penalty = 1}},
        {"repeat_last_n", {.repeat_last_n = -2, .repetition_penalty = 1}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_not(sampler_reset(sampler, &bad[i].params, 0, NULL, 0, &error));
        cr_assert_str_eq(error.param, bad[i].name);
    }
    sampler_maker_free(sampler);
    SamplerSpace *space = NULL;
    cr_assert_not(sampler_space_new(0, (TokenText){0}, &space, &error));
    cr_assert_null(space);
}

Test(sampler, logprobs_are_those_of_the_raw_row)
{
    enum { N = 5000 };
    float row[N];
    fill_row(row, N, 4, 1);
    row[7] = -INFINITY;
    row[900] = row[901] = 30; /* the two best, equal */
    double sum = 0;
    for (int i = 0; i < N; i++) sum += exp((double)row[i] - 30);
    double log_sum = 30 + log(sum);
    const LogitBias bias[] = {{.id = 11, .bias = 90}, {.id = 900, .bias = -5}};
    Sampler *sampler = make(N);
    SamplingParams params = greedy();
    params.bias = bias;
    params.n_bias = 2;
    reset(sampler, &params, 0);
    SampleResult result = pick(sampler, row, N, true, 20);
    cr_assert_eq(result.id, 11);
    cr_assert_float_eq(result.logprob, (double)row[11] - log_sum, 1e-5);
    cr_assert_eq(result.n_top, 20);
    cr_assert_eq(result.top[0].id, 900);
    cr_assert_eq(result.top[1].id, 901);
    for (uint32_t i = 0; i < 20; i++) {
        cr_assert_float_eq(result.top[i].logprob, (double)row[result.top[i].id] - log_sum, 1e-5);
        uint32_t n_better = 0;
        for (uint32_t j = 0; j < N; j++)
            n_better += row[j] > row[result.top[i].id] || (row[j] == row[result.top[i].id] && j < result.top[i].id);
        cr_assert_eq(n_better, i);
    }
    SampleResult same;
    Error error;
    cr_assert(sample_logprobs(row, N, 11, 20, &same, &error));
    cr_assert_eq(same.logprob, result.logprob);
    cr_assert_eq(memcmp(same.top, result.top, sizeof same.top), 0);
    cr_assert(sample_logprobs(row, N, 7, 0, &same, &error));
    cr_assert(isinf(same.logprob) && same.logprob < 0);
    cr_assert_not(sample_logprobs(row, N, N, 0, &same, &error));
    sampler_maker_free(sampler);
}

Test(sampler, logprobs_of_a_small_vocabulary)
{
    float row[] = {0, 0};
    Sampler *sampler = make(2);
    SamplingParams params = greedy();
    reset(sampler, &params, 0);
    SampleResult result = pick(sampler, row, 2, true, 20);
    cr_assert_eq(result.n_top, 2);
    cr_assert_float_eq(result.logprob, log(0.5), 1e-6);
    result = pick(sampler, row, 2, true, 0);
    cr_assert_eq(result.n_top, 0);
    cr_assert_float_eq(result.logprob, log(0.5), 1e-6);
    sampler_maker_free(sampler);
}

static int compare_falling(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Slow definition of the truncations: probabilities that the draw must follow, [n]. */
static void oracle_probabilities(const float *row, uint32_t n, const SamplingParams *p, double *prob)
{
    double max = -INFINITY, total = 0;
    double *sorted = malloc(n * sizeof *sorted);
    for (uint32_t i = 0; i < n; i++) max = fmax(max, (double)row[i]);
    for (uint32_t i = 0; i < n; i++) {
        prob[i] = exp(((double)row[i] - max) / (double)p->temperature);
        if (prob[i] < (double)p->min_p) prob[i] = 0;
        sorted[i] = prob[i];
    }
    qsort(sorted, n, sizeof *sorted, compare_falling);
    double least = p->top_k && p->top_k < n ? sorted[p->top_k - 1] : 0;
    for (uint32_t i = 0; i < n; i++) {
        if (sorted[i] < least) sorted[i] = 0;
        total += sorted[i];
    }
    double mass = 0;
    for (uint32_t i = 0; p->top_p < 1 && i < n && mass < (double)p->top_p * total; i++) {
        mass += sorted[i];
        least = sorted[i];
    }
    total = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (prob[i] < least) prob[i] = 0;
        total += prob[i];
    }
    for (uint32_t i = 0; i < n; i++) prob[i] /= total;
    free(sorted);
}

typedef struct DistributionCase {
    float temperature, top_p, min_p;
    uint32_t top_k;
} DistributionCase;

static void check_distribution(const DistributionCase *c, const float *row, uint32_t n)
{
    enum { DRAWS = 20000 / SANITIZED_SHARE };
    SamplingParams params;
    sampling_defaults(&params);
    params.temperature = c->temperature;
    params.top_p = c->top_p;
    params.min_p = c->min_p;
    params.top_k = c->top_k;
    params.seed = 12345;
    double *prob = calloc(n, sizeof *prob);
    uint32_t *got = calloc(n, sizeof *got);
    oracle_probabilities(row, n, &params, prob);
    Sampler *sampler = make(n);
    reset(sampler, &params, 0);
    for (int i = 0; i < DRAWS; i++) got[pick(sampler, row, n, false, 0).id]++;
    double z = draws_deviation(prob, got, n, DRAWS);
    cr_assert(fabs(z) < 4, "T %g k %u p %g m %g: z %g", (double)c->temperature, c->top_k, (double)c->top_p,
              (double)c->min_p, z);
    sampler_maker_free(sampler);
    free(prob);
    free(got);
}

Test(sampler, draws_follow_the_distribution)
{
    enum { N = 3001 };
    static float row[N];
    const DistributionCase cases[] = {
        {.temperature = 1, .top_p = 1},
        {.temperature = 1.5f, .top_p = 1, .top_k = 100},
        {.temperature = 0.7f, .top_p = 0.9f},
        {.temperature = 1, .top_p = 0.5f, .top_k = 40},
        {.temperature = 1, .top_p = 1, .min_p = 0.1f},
        {.temperature = 1, .top_p = 0.8f, .min_p = 0.02f, .top_k = 500},
        {.temperature = 1, .top_p = 1, .top_k = 1000000},
        {.temperature = 20, .top_p = 0.999f},
    };
    fill_row(row, N, 3, 99);
    row[0] = row[N - 1] = -INFINITY;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_distribution(&cases[i], row, N);
}

/* With equal weights every cut is a question of ties: the lower ids stay, and just as many as were asked for. */
Test(sampler, ties_at_the_cut_keep_the_lower_ids)
{
    enum { N = 1000 };
    static float row[N];
    for (int i = 0; i < N; i++) row[i] = 0.25f;
    SamplingParams params;
    sampling_defaults(&params);
    Sampler *sampler = make(N);
    for (int by_mass = 0; by_mass < 2; by_mass++) {
        bool drawn[N] = {false};
        params.top_k = by_mass ? 0 : 10;
        params.top_p = by_mass ? 0.0095f : 1;
        reset(sampler, &params, 0);
        for (int i = 0; i < 400; i++) drawn[pick(sampler, row, N, false, 0).id] = true;
        for (int i = 0; i < N; i++) cr_assert_eq(drawn[i], i < 10);
    }
    sampler_maker_free(sampler);
}

Test(sampler, same_seed_same_draws_whatever_came_between)
{
    enum { N = 500, LENGTH = 64 };
    static float row[N];
    fill_row(row, N, 1, 5);
    SamplingParams params;
    sampling_defaults(&params);
    params.seed = 42;
    Sampler *sampler = make(N), *other = make(N);
    uint32_t first[LENGTH], n_same_choice = 0, n_same_seed = 0;
    reset(sampler, &params, 0);
    for (int i = 0; i < LENGTH; i++) first[i] = pick(sampler, row, N, false, 0).id;
    reset(sampler, &params, 1);
    for (int i = 0; i < LENGTH; i++) n_same_choice += pick(sampler, row, N, false, 0).id == first[i];
    params.seed = 43;
    reset(sampler, &params, 0);
    for (int i = 0; i < LENGTH; i++) n_same_seed += pick(sampler, row, N, false, 0).id == first[i];
    cr_assert_lt(n_same_choice, LENGTH / 4);
    cr_assert_lt(n_same_seed, LENGTH / 4);
    params.seed = 42;
    reset(other, &params, 0);
    for (int i = 0; i < LENGTH; i++) cr_assert_eq(pick(other, row, N, true, 3).id, first[i]);
    sampler_maker_free(sampler);
    sampler_maker_free(other);
}
