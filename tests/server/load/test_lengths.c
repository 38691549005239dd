/* SPDX-License-Identifier: Apache-2.0 */
#include "server/load/lengths.h"
#include "server/load/samples.h"
#include "tests/support/sanitized.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_DRAWS = 20000 / SANITIZED_SHARE, MAX = 1 << 20 };

static Lengths parse(const char *text)
{
    Lengths lengths = {0};
    Error error;
    cr_assert(lengths_parse(text, 1, MAX, &lengths, &error), "%s: %s", text, error.text);
    return lengths;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Draws, sorted; returns their mean. */
static double draw_all(const char *text, uint32_t *draws)
{
    Lengths lengths = parse(text);
    Rng rng = rng_for(5, 1);
    double sum = 0;
    for (int i = 0; i < N_DRAWS; i++) sum += draws[i] = lengths_draw(&lengths, &rng);
    qsort(draws, N_DRAWS, sizeof *draws, compare);
    return sum / N_DRAWS;
}

Test(load_lengths, are_drawn_from_what_is_written)
{
    uint32_t *draws = calloc(N_DRAWS, sizeof *draws);
    cr_assert(draws != NULL);
    cr_expect(draw_all("7", draws) == 7 && draws[0] == 7 && draws[N_DRAWS - 1] == 7);
    cr_expect(draw_all("2K", draws) == 2048);
    cr_expect(fabs(draw_all("3-6", draws) - 4.5) < 0.1);
    cr_expect(draws[0] == 3 && draws[N_DRAWS - 1] == 6);
    cr_expect(fabs(draw_all("exp:1000", draws) - 1000) < 50);
    cr_expect(fabs(draws[N_DRAWS / 2] - 1000 * log(2)) < 50);
    cr_expect(draw_all("lognormal:400:0.5", draws) > 420, "the mean is above the median");
    cr_expect(fabs(draws[N_DRAWS / 2] - 400.0) < 20);
    draw_all("lognormal:1M:4", draws);
    cr_expect(draws[0] >= 1 && draws[N_DRAWS - 1] == MAX, "cut to the bounds");
    free(draws);
}

Test(load_lengths, gaps_of_arrivals_have_their_mean)
{
    Rng rng = rng_for(6, 1);
    double sum = 0;
    for (int i = 0; i < N_DRAWS; i++) sum += lengths_draw_gap(&rng);
    cr_expect(fabs(sum / N_DRAWS - 1) < 0.05, "%f", sum / N_DRAWS);
}

Test(load_lengths, what_is_wrong_is_said)
{
    static const struct {
        const char *text, *said;
    } rows[] = {{"", "none of"},
                {"x", "none of"},
                {"-5", "none of"},
                {"5-", "none of"},
                {"5 ", "none of"},
                {"5-4", "smaller"},
                {"0", "between 1 and"},
                {"2M", "between 1 and"},
                {"99999999999999999999", "between 1 and"},
                {"1-0", "between 1 and"},
                {"exp:", "none of"},
                {"exp:5-6", "none of"},
                {"lognormal:5", "none"},
                {"lognormal:5:", "none"},
                {"lognormal:5:1x", "none of"},
                {"lognormal:5:5", "sigma"},
                {"lognormal:5:-1", "none"},
                {"uniform:5", "none of"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Lengths lengths = {.a = 42};
        Error error = {0};
        cr_expect(!lengths_parse(rows[i].text, 1, MAX, &lengths, &error), "'%s'", rows[i].text);
        cr_expect(strstr(error.text, rows[i].said) != NULL, "'%s': %s", rows[i].text, error.text);
        cr_expect(lengths.a == 42);
    }
}

Test(load_samples, percentiles_are_samples)
{
    Samples samples = {0};
    SampleSummary none = samples_summarize(&samples);
    cr_expect(none.n == 0 && none.p99 == 0 && none.max == 0);
    for (uint64_t i = 0; i < 200; i++) cr_assert(samples_add(&samples, (i * 77 + 13) % 200 + 1));
    SampleSummary found = samples_summarize(&samples);
    cr_expect(found.n == 200 && found.min == 1 && found.max == 200 && found.mean == 100.5);
    cr_expect(found.p50 == 100 && found.p90 == 180 && found.p99 == 198);
    samples_done(&samples);
    cr_assert(samples_add(&samples, UINT64_MAX));
    found = samples_summarize(&samples);
    cr_expect(found.n == 1 && found.p50 == UINT32_MAX && found.p99 == UINT32_MAX);
    samples_done(&samples);
}

Test(load_samples, more_than_can_be_kept_are_a_fair_part)
{
    enum { N_ALL = 200000, N_KEPT = 2000 };
    Samples samples = {.limit = N_KEPT};
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 1; i <= N_ALL; i++) cr_assert(samples_add(&samples, i)); /* the last ones are the largest */
        cr_expect_eq(samples.n, N_KEPT);
        SampleSummary found = samples_summarize(&samples);
        cr_expect(found.n == N_ALL && found.min == 1 && found.max == N_ALL && found.mean == (N_ALL + 1) / 2.0);
        cr_expect(found.p50 > 0.45 * N_ALL && found.p50 < 0.55 * N_ALL, "%g", found.p50);
        cr_expect(found.p90 > 0.87 * N_ALL && found.p90 < 0.93 * N_ALL, "%g", found.p90);
        samples_clear(&samples);
        cr_expect(samples_summarize(&samples).n == 0);
    }
    samples_done(&samples);
}
