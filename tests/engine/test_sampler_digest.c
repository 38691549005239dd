/* SPDX-License-Identifier: Apache-2.0 */
/* A token that is picked from a digest of a row is the token that is picked from the row, with the same probabilities.
 */
#include "engine/sample/sampler.h"
#include "kernels/sample/token_weight.h"
#include "tests/support/sampler_maker.h"
#include "tests/support/sanitized.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 20000, N_TRIALS = 6000 / SANITIZED_SHARE };

static uint64_t state = 5;
static float row[N], copy[N], digested[N]; /* digested: row with its edits */
static DigestItem items[DIGEST_LIST];

static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53;
}

static float one_of(const float *values, int n)
{
    return values[(int)(uniform() * n)];
}

static float bell(void)
{
    double sum = 0;
    for (int i = 0; i < 6; i++) sum += uniform();
    return (float)(sum - 3);
}

/* Rows as models give them, flat ones, and some with ties, masked ids, or all that is likely in one place. */
static uint32_t fill_row(void)
{
    static const uint32_t sizes[] = {1, 2, 17, 32, 600, 5000, N};
    uint32_t n = sizes[(int)(uniform() * 7)], kind = (uint32_t)(uniform() * 6);
    float spread = kind == 1 ? 0.05f : 4;
    for (uint32_t i = 0; i < n; i++) {
        row[i] = spread * bell();
        if (kind == 2) row[i] = roundf(2 * row[i]) / 2;
        if (kind == 3 && uniform() < 0.7 && i) row[i] = -INFINITY;
        if (kind == 4 && i > n / 3 && i < n / 3 + 40) row[i] += 8;
        if (kind == 5) row[i] = 1.25f;
    }
    return n;
}

/* Changes of logits, which leave at least one id. */
typedef struct Changes {
    LogitBias bias[3];
    uint32_t banned[2], n_banned;
    uint64_t allowed[(N + 63) / 64];
    bool has_mask;
    uint32_t prompt[40], n_prompt;
} Changes;

static Changes changes;

static void change(uint32_t n, SamplingParams *params)
{
    if (n < 3) return;
    for (uint32_t i = 0; i < 3; i++) changes.bias[i] = (LogitBias){(uint32_t)(uniform() * n), 6 * bell()};
    params->bias = changes.bias;
    params->n_bias = (uint32_t)(uniform() * 4);
    changes.n_banned = (uint32_t)(uniform() * 3);
    for (uint32_t i = 0; i < 2; i++) changes.banned[i] = 1 + (uint32_t)(uniform() * (n - 1));
    changes.has_mask = uniform() < 0.5;
    double share = uniform();
    for (uint32_t i = 0; i < n; i++) changes.allowed[i / 64] |= (uint64_t)(i == 0 || uniform() < share) << i % 64;
    changes.n_prompt = (uint32_t)(uniform() * 40);
    for (uint32_t i = 0; i < 40; i++) changes.prompt[i] = (uint32_t)(uniform() * (n < 6 ? n : 6));
    if (uniform() < 0.5) params->repetition_penalty = 1.3f;
    if (uniform() < 0.5) params->frequency_penalty = 0.7f;
    if (uniform() < 0.5) params->presence_penalty = -0.4f;
    if (uniform() < 0.3) params->dry_multiplier = 0.8f;
    params->n_dry_breakers = 0;
}

static SamplingParams random_params(void)
{
    static const float temperatures[] = {0, 1, 0.7f, 1.3f, 0.05f, 1e-44f},
                       top_ps[] = {1, 0.9f, 0.95f, 0.5f, 0, 0.9999f}, min_ps[] = {0, 0, 0.05f, 0.3f, 1, 1e-9f},
                       chances[] = {0, 0, 0.5f, 1};
    static const uint32_t top_ks[] = {0, 1, 2, 40, 300, 512, 100000};
    SamplingParams params;
    sampling_defaults(&params);
    params.temperature = one_of(temperatures, 6);
    params.seed = (uint64_t)(uniform() * 0x1p60);
    if (uniform() < 0.3) return params;
    params.top_p = one_of(top_ps, 6);
    params.min_p = one_of(min_ps, 6);
    params.top_k = top_ks[(int)(uniform() * 7)];
    params.xtc_probability = one_of(chances, 4);
    params.xtc_threshold = uniform() < 0.2 ? 0 : (float)(0.5 * uniform());
    return params;
}

static RowDigest digest_of(uint32_t n, const DigestAsk *ask)
{
    RowDigest digest;
    memset(items, 0xEE, sizeof items);
    memcpy(digested, row, n * sizeof *row);
    const DigestParams params = {
        .logits = digested, .n_rows = 1, .n_vocab = n, .asks = ask, .digests = &digest, .items = items};
    cr_assert(digest_ref(&params));
    return digest;
}

static Sampler *make(uint32_t n, const SamplingParams *params)
{
    Error error;
    Sampler *sampler = sampler_maker_new(n, (TokenText){0});
    cr_assert(sampler_reset(sampler, params, 0, changes.prompt, changes.n_prompt, &error), "%s", error.text);
    sampler_ban(sampler, changes.banned, changes.n_banned);
    sampler_allow(sampler, changes.has_mask ? changes.allowed : NULL);
    for (uint32_t i = 0; i < changes.n_prompt / 2; i++)
        cr_assert(sampler_force(sampler, changes.prompt[i], &error), "%s", error.text);
    return sampler;
}

static void check_same(const SampleResult *want, const SampleResult *got, const char *what)
{
    cr_assert_eq(got->id, want->id, "%s: token %u, not %u", what, got->id, want->id);
    cr_assert_eq(float_to_bits(got->logprob), float_to_bits(want->logprob), "%s: %g, not %g", what,
                 (double)got->logprob, (double)want->logprob);
    cr_assert_eq(got->n_top, want->n_top, "%s", what);
    for (uint32_t i = 0; i < want->n_top; i++) {
        cr_assert_eq(got->top[i].id, want->top[i].id, "%s, top %u", what, i);
        cr_assert_eq(float_to_bits(got->top[i].logprob), float_to_bits(want->top[i].logprob), "%s, top %u", what, i);
    }
}

/* One token both ways; true: the digest was enough. */
static bool check_pick(uint32_t n, const SamplingParams *params, bool want_logprob, uint32_t n_top)
{
    Error error;
    DigestAsk ask;
    SampleResult want, got;
    bool is_enough = false;
    char what[160];
    Sampler *whole = make(n, params), *part = make(n, params);
    snprintf(what, sizeof what, "%u ids, temperature %g, top_p %g, min_p %g, top_k %u, xtc %g %g", n,
             (double)params->temperature, (double)params->top_p, (double)params->min_p, params->top_k,
             (double)params->xtc_probability, (double)params->xtc_threshold);
    memcpy(copy, row, n * sizeof *row);
    cr_assert(sampler_pick(whole, copy, want_logprob, n_top, &want, &error), "%s: %s", what, error.text);
    cr_assert(sampler_ask(part, want_logprob, n_top, &ask), "%s", what);
    RowDigest digest = digest_of(n, &ask);
    cr_assert(sampler_pick_digest(part, &digest, items, want_logprob, n_top, &got, &is_enough, &error), "%s", what);
    if (!is_enough) /* and nothing has changed */
        cr_assert(sampler_pick_asked(part, digested, want_logprob, n_top, &got, &error), "%s: %s", what, error.text);
    check_same(&want, &got, what);
    sampler_maker_free(whole);
    sampler_maker_free(part);
    return is_enough;
}

Test(sampler_digest, picks_what_the_row_gives, .timeout = 120)
{
    uint32_t n_enough = 0;
    for (int i = 0; i < N_TRIALS; i++) {
        SamplingParams params = random_params();
        uint32_t n = fill_row();
        bool want_logprob = uniform() < 0.4;
        changes = (Changes){0};
        if (!want_logprob && uniform() < 0.5) change(n, &params);
        n_enough += check_pick(n, &params, want_logprob, want_logprob ? (uint32_t)(uniform() * 21) : 0);
    }
    cr_assert_gt(n_enough, N_TRIALS / 2);
}

/* What people ask for is decided by the digest of a row as models give them. */
Test(sampler_digest, is_enough_for_ordinary_rows)
{
    static const struct {
        float temperature, top_p, min_p;
        uint32_t top_k;
        bool want_logprob;
    } cases[] = {{0, 1, 0, 0, false},     {0, 1, 0, 0, true},          {1, 1, 0, 0, false},
                 {1, 1, 0, 0, true},      {0.7f, 0.9f, 0, 0, false},   {0.8f, 0.95f, 0, 40, true},
                 {1, 1, 0.05f, 0, false}, {0.6f, 0.95f, 0, 20, false}, {1, 1, 0, 200, false}};
    changes = (Changes){0};
    for (uint32_t i = 0; i < N; i++) row[i] = 5 * bell() + (uniform() < 0.001 ? 8 : 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SamplingParams params;
        sampling_defaults(&params);
        params.temperature = cases[i].temperature;
        params.top_p = cases[i].top_p;
        params.min_p = cases[i].min_p;
        params.top_k = cases[i].top_k;
        params.seed = i;
        cr_assert(check_pick(N, &params, cases[i].want_logprob, cases[i].want_logprob ? 20 : 0), "case %zu", i);
    }
}

Test(sampler_digest, is_not_asked_for_what_sees_the_row)
{
    static const LogitBias bias = {3, 1};
    SamplingParams plain, params[5];
    DigestAsk ask;
    sampling_defaults(&plain);
    for (int i = 0; i < 5; i++) params[i] = plain;
    params[0].top_n_sigma = 1;
    params[1].dynatemp_range = 0.5f;
    params[2].typical_p = 0.9f;
    params[3].mirostat = 1;
    params[4].mirostat = 2;
    for (int i = 0; i < 5; i++) {
        Sampler *sampler = make(100, &params[i]);
        cr_assert_not(sampler_ask(sampler, false, 0, &ask), "case %d", i);
        sampler_maker_free(sampler);
    }
    plain.bias = &bias;
    plain.n_bias = 1;
    Sampler *sampler = make(100, &plain);
    cr_assert(sampler_ask(sampler, false, 0, &ask));
    cr_assert_not(sampler_ask(sampler, true, 0, &ask), "probabilities are those of the unchanged row");
    sampler_maker_free(sampler);
}

Test(sampler_digest, what_is_no_number_fails)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    SamplingParams params;
    sampling_defaults(&params);
    for (int i = 0; i < 3; i++) {
        Error error = {0};
        SampleResult result = {.id = 77};
        DigestAsk ask;
        bool is_enough;
        Sampler *sampler = make(50, &params);
        for (int j = 0; j < 50; j++) row[j] = i == 2 ? -INFINITY : 1;
        row[31] = bad[i];
        cr_assert(sampler_ask(sampler, true, 2, &ask));
        RowDigest digest = digest_of(50, &ask);
        cr_assert_not(sampler_pick_digest(sampler, &digest, items, true, 2, &result, &is_enough, &error));
        cr_assert_eq(error.code, ERR_NON_FINITE);
        cr_assert_eq(result.id, 77);
        sampler_maker_free(sampler);
    }
}
