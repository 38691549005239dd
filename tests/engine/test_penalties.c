/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sampler does to logits because of earlier tokens, against definitions without any cleverness: counts over a
 * range, and DRY by comparing every pair of places. Greedy picks leave the changed row behind.
 */
#include "engine/sample/sampler.h"
#include "tests/support/sampler_maker.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_VOCAB = 9, MAX_LENGTH = 400 };

static const char *const texts[N_VOCAB] = {"a", "b", "ab", "x\n", "<e", "nd", ">", "", "cd:"};

static bool append_text(const void *arg, uint32_t id, Buffer *out, Error *error)
{
    return buffer_append_text(out, ((const char *const *)arg)[id], error);
}

static Sampler *make(void)
{
    return sampler_maker_new(N_VOCAB, (TokenText){append_text, texts});
}

static SamplingParams greedy(void)
{
    SamplingParams params;
    sampling_defaults(&params);
    params.temperature = 0;
    return params;
}

static uint32_t next_random(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(*state >> 8) * n >> 24);
}

static void fill_row(float *row, uint32_t *state)
{
    for (int i = 0; i < N_VOCAB; i++) row[i] = (float)next_random(state, 4000) / 1000 - 2;
}

typedef struct Sequence {
    uint32_t ids[MAX_LENGTH];
    uint32_t n, n_prompt;
} Sequence;

/* ---- the definitions ---- */

static void naive_penalties(const SamplingParams *p, const Sequence *s, float *row)
{
    for (uint32_t id = 0; id < N_VOCAB; id++) {
        uint32_t n_seen = 0, n_generated = 0;
        for (uint32_t i = 0; i < s->n; i++) {
            if (p->repeat_last_n >= 0 && s->n - i > (uint32_t)p->repeat_last_n) continue;
            n_seen += s->ids[i] == id;
            n_generated += s->ids[i] == id && i >= s->n_prompt;
        }
        if (n_seen) row[id] = row[id] > 0 ? row[id] / p->repetition_penalty : row[id] * p->repetition_penalty;
        if (n_generated) row[id] -= p->frequency_penalty * (float)n_generated + p->presence_penalty;
    }
}

static bool holds_breaker(const SamplingParams *p, const char *text)
{
    for (uint32_t i = 0; i < p->n_dry_breakers; i++)
        if (strstr(text, p->dry_breakers[i])) return true;
    return false;
}

/* Does a breaker end in the last of these tokens' text? */
static bool breaks_behind(const SamplingParams *p, const uint32_t *ids, uint32_t n)
{
    char text[MAX_LENGTH * 4] = "";
    for (uint32_t i = 0; i < n; i++) strcat(text, texts[ids[i]]);
    size_t n_text = strlen(text), n_last = strlen(texts[ids[n - 1]]);
    for (uint32_t b = 0; b < p->n_dry_breakers; b++) {
        size_t n_breaker = strlen(p->dry_breakers[b]);
        for (size_t end = n_text - n_last + 1; end <= n_text; end++)
            if (end >= n_breaker && !memcmp(text + end - n_breaker, p->dry_breakers[b], n_breaker)) return true;
    }
    return false;
}

static uint32_t naive_longest(const SamplingParams *p, const uint32_t *ids, uint32_t n, uint32_t unbroken,
                              uint32_t next)
{
    uint32_t longest = 0;
    for (uint32_t at = 1; at < n; at++) {
        if (ids[at] != next) continue;
        uint32_t length = 0;
        while (length < at && length < unbroken && ids[at - 1 - length] == ids[n - 1 - length]) length++;
        if (length >= (uint32_t)p->dry_allowed_length && length + 1 > longest) longest = length + 1;
    }
    return longest; /* 0: no match that is long enough, else its length and one */
}

static void naive_dry(const SamplingParams *p, const Sequence *s, float *row)
{
    uint32_t n =
        p->dry_penalty_last_n < 0 || (uint32_t)p->dry_penalty_last_n > s->n ? s->n : (uint32_t)p->dry_penalty_last_n;
    const uint32_t *ids = s->ids + s->n - n;
    uint32_t unbroken = 0;
    while (unbroken < n && !breaks_behind(p, s->ids, s->n - unbroken)) unbroken++;
    for (uint32_t id = 0; id < N_VOCAB; id++) {
        uint32_t longest = holds_breaker(p, texts[id]) ? 0 : naive_longest(p, ids, n, unbroken, id);
        if (!longest) continue;
        double penalty =
            (double)p->dry_multiplier * pow((double)p->dry_base, (double)longest - 1 - p->dry_allowed_length);
        row[id] -= (float)fmin(penalty, 1000);
    }
}

/* ---- the sampler, step by step ---- */

/*
 * What a greedy pick makes of the row. The next token is forced by bans, so that sequences repeat, or left to the row.
 */
static void step(Sampler *sampler, const SamplingParams *params, Sequence *s, uint32_t next, uint32_t *state)
{
    Error error;
    SampleResult result;
    float row[N_VOCAB], want[N_VOCAB];
    fill_row(row, state);
    memcpy(want, row, sizeof row);
    naive_penalties(params, s, want);
    if (params->dry_multiplier > 0) naive_dry(params, s, want);
    uint32_t best = 0;
    for (uint32_t i = 0; i < N_VOCAB; i++)
        if (want[i] > want[best]) best = i;
    uint32_t banned[N_VOCAB], n_banned = 0;
    for (uint32_t i = 0; i < N_VOCAB; i++)
        if (i != next) banned[n_banned++] = i;
    if (next < N_VOCAB) sampler_ban(sampler, banned, n_banned);
    cr_assert(sampler_pick(sampler, row, false, 0, &result, &error), "%s", error.text);
    sampler_ban(sampler, NULL, 0);
    cr_assert_eq(result.id, next < N_VOCAB ? next : best);
    for (uint32_t i = 0; i < N_VOCAB; i++)
        if (next >= N_VOCAB || i == next)
            cr_assert_float_eq(row[i], want[i], 1e-4, "token %u at %u: %g, not %g", i, s->n, (double)row[i],
                               (double)want[i]);
    s->ids[s->n++] = result.id;
}

static void run(Sampler *sampler, const SamplingParams *params, uint32_t n_prompt, uint32_t n_letters, uint32_t seed)
{
    Error error;
    Sequence s = {.n = n_prompt, .n_prompt = n_prompt};
    uint32_t state = seed;
    for (uint32_t i = 0; i < n_prompt; i++) s.ids[i] = next_random(&state, n_letters);
    cr_assert(sampler_reset(sampler, params, 0, s.ids, n_prompt, &error), "%s", error.text);
    while (s.n < n_prompt + 60) {
        step(sampler, params, &s, next_random(&state, 3) ? next_random(&state, n_letters) : N_VOCAB, &state);
    }
}

Test(penalties, counts_over_a_range)
{
    static const int32_t ranges[] = {-1, 0, 1, 2, 7, 30, 300, SAMPLE_MAX_WINDOW};
    Sampler *sampler = make();
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        SamplingParams params = greedy();
        params.repeat_last_n = ranges[i];
        params.repetition_penalty = 1.5f;
        params.frequency_penalty = 0.25f;
        params.presence_penalty = -0.5f;
        run(sampler, &params, 0, N_VOCAB, 1);
        run(sampler, &params, 20, 4, 2);
        run(sampler, &params, 200, N_VOCAB, 3);
        params.repetition_penalty = 1;
        run(sampler, &params, 20, N_VOCAB, 4);
    }
    sampler_maker_free(sampler);
}

Test(penalties, dry_matches_its_definition)
{
    static const char *const breakers[] = {"\n", ":", "<end>", "ba"};
    static const int32_t windows[] = {-1, 1, 2, 9, 64};
    Sampler *sampler = make();
    for (uint32_t seed = 0; seed < 60; seed++) {
        SamplingParams params = greedy();
        params.dry_multiplier = 0.8f;
        params.dry_base = seed % 3 ? 1.75f : 1;
        params.dry_allowed_length = (int32_t)(seed / 5 % 4);
        params.dry_penalty_last_n = windows[seed % 5];
        params.dry_breakers = breakers;
        params.n_dry_breakers = seed % 2 ? 4 : 0;
        /* What a window cannot see of the prompt is not looked at for breakers either: the prompt is shorter. */
        run(sampler, &params, params.dry_penalty_last_n < 0 ? 40 : 0, seed % 7 + 2, seed + 100);
    }
    sampler_maker_free(sampler);
}

Test(penalties, dry_makes_the_next_word_of_a_repetition_lose)
{
    /* a b a a | a b a: 'a' came behind "a b a", 'b' behind "a": 0.8 * 1.75 for a, nothing for b. */
    static const uint32_t prompt[] = {0, 1, 0, 0, 0, 1, 0};
    float row[N_VOCAB] = {3, 3};
    Error error;
    SampleResult result;
    Sampler *sampler = make();
    SamplingParams params = greedy();
    params.dry_multiplier = 0.8f;
    cr_assert(sampler_reset(sampler, &params, 0, prompt, 7, &error));
    cr_assert(sampler_pick(sampler, row, false, 0, &result, &error));
    cr_assert_eq(result.id, 1);
    cr_assert_float_eq(row[0], 3 - 0.8 * 1.75, 1e-5);
    cr_assert_float_eq(row[1], 3, 1e-6);
    sampler_maker_free(sampler);
}

/* The longest window, one token all along: the worst that a scan can meet; every further token goes round the rings. */
Test(penalties, a_full_window_of_one_token_stays_finite)
{
    enum { N_PROMPT = SAMPLE_MAX_WINDOW + 5000 };
    static uint32_t prompt[N_PROMPT];
    Error error;
    SampleResult result;
    Sampler *sampler = make();
    SamplingParams params = greedy();
    params.dry_multiplier = 100;
    params.dry_base = 100;
    params.dry_penalty_last_n = -1;
    params.repeat_last_n = SAMPLE_MAX_WINDOW;
    params.repetition_penalty = 2;
    for (uint32_t i = 0; i < N_PROMPT; i++) prompt[i] = i < 5001 ? 2 : 1; /* one 2 is still in the window */
    cr_assert(sampler_reset(sampler, &params, 0, prompt, N_PROMPT, &error));
    for (uint32_t i = 0; i < 3; i++) {
        float row[N_VOCAB] = {0, 50, 8};
        cr_assert(sampler_pick(sampler, row, false, 0, &result, &error));
        cr_assert_eq(result.id, i ? 1 : 2); /* a 2 ends the run of 1 */
        cr_assert_float_eq(row[1], i ? 25 : 25 - 1000, 1e-2);
        /* The prompt's 2 falls out when the first pick comes, which is a 2 itself. */
        cr_assert_float_eq(row[2], 4, 1e-5);
    }
    sampler_maker_free(sampler);
}

Test(penalties, breakers_are_bounded_and_need_texts)
{
    Error error = {0};
    Sampler *sampler = NULL;
    const char *many[SAMPLE_MAX_BREAKERS + 1];
    char longest[SAMPLE_MAX_BREAKER_BYTES + 2] = "";
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) many[i] = "x";
    memset(longest, 'y', SAMPLE_MAX_BREAKER_BYTES + 1);
    const struct {
        const char *const *breakers;
        uint32_t n;
    } bad[] = {
        {many, SAMPLE_MAX_BREAKERS + 1}, {(const char *[]){""}, 1}, {(const char *[]){"a", longest}, 2}, {many, 1}};
    sampler = sampler_maker_new(N_VOCAB, (TokenText){0});
    SamplingParams params = greedy();
    params.dry_multiplier = 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        params.dry_breakers = bad[i].breakers;
        params.n_dry_breakers = bad[i].n;
        error = (Error){0};
        cr_expect_not(sampler_reset(sampler, &params, 0, NULL, 0, &error));
        cr_expect_str_eq(error.param, "dry_sequence_breakers");
    }
    sampler_maker_free(sampler);
    sampler = make();
    longest[SAMPLE_MAX_BREAKER_BYTES] = '\0';
    params.dry_breakers = (const char *[]){longest};
    cr_expect(sampler_reset(sampler, &params, 0, NULL, 0, &error));
    sampler_maker_free(sampler);
}

static bool append_nothing(const void *arg, uint32_t id, Buffer *out, Error *error)
{
    (void)out;
    return id != *(const uint32_t *)arg || error_set(error, ERR_NO_MEMORY, "no memory for a text");
}

Test(penalties, a_text_that_cannot_be_had_is_an_error)
{
    static const uint32_t bad = 3, prompt[] = {1, 3};
    Error error = {0};
    SampleResult result;
    float row[N_VOCAB] = {[3] = 1};
    Sampler *sampler = sampler_maker_new(N_VOCAB, (TokenText){append_nothing, &bad});
    SamplingParams params = greedy();
    params.dry_multiplier = 1;
    cr_expect_not(sampler_reset(sampler, &params, 0, prompt, 2, &error));
    cr_expect_eq(error.code, ERR_NO_MEMORY);
    cr_assert(sampler_reset(sampler, &params, 0, prompt, 1, &error));
    cr_expect_not(sampler_pick(sampler, row, false, 0, &result, &error));
    params.dry_multiplier = 0; /* nobody asks for texts */
    cr_assert(sampler_reset(sampler, &params, 0, prompt, 2, &error));
    cr_expect(sampler_pick(sampler, row, false, 0, &result, &error));
    sampler_maker_free(sampler);
}

/* More kinds of tokens than any first table has room for, each twice or once, of ids that lie far apart. */
Test(penalties, counts_of_many_kinds_of_tokens)
{
    enum { N = 60000, N_KINDS = 3000 };
    static uint32_t prompt[2 * N_KINDS];
    static float row[N];
    Error error;
    SampleResult result;
    Sampler *sampler = sampler_maker_new(N, (TokenText){0});
    SamplingParams params = greedy();
    params.repetition_penalty = 2;
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_KINDS; i++) prompt[n++] = i * 17;
    for (uint32_t i = 0; i < N_KINDS; i += 2) prompt[n++] = i * 17;
    cr_assert(sampler_reset(sampler, &params, 0, prompt, n, &error));
    for (uint32_t i = 0; i < N; i++) row[i] = 8;
    cr_assert(sampler_pick(sampler, row, false, 0, &result, &error));
    cr_assert_eq(result.id, 1);
    for (uint32_t i = 0; i < N; i++) cr_assert_eq(row[i], i % 17 == 0 && i / 17 < N_KINDS ? 4 : 8);
    /* With a range only its last tokens count: those with even factors, and a part of the others. */
    params.repeat_last_n = N_KINDS;
    cr_assert(sampler_reset(sampler, &params, 0, prompt, n, &error));
    for (uint32_t i = 0; i < N; i++) row[i] = 8;
    cr_assert(sampler_pick(sampler, row, false, 0, &result, &error));
    for (uint32_t i = 0; i < N_KINDS; i++)
        cr_assert_eq(row[i * 17], i % 2 == 0 || i >= N_KINDS / 2 ? 4 : 8, "kind %u", i);
    sampler_maker_free(sampler);
}
