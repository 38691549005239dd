/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/number.h"
#include "tests/engine/schema/arena_rig.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(number, .init = init, .fini = done);

/* Texts whose values doubles compare exactly. */
static const char *const texts[] = {"0",     "-0",   "0.0",   "-0.00",  "1",    "1.0",     "-1",    "1.5",
                                    "1.50",  "1.25", "-1.5",  "-1.51",  "2",    "9",       "10",    "10.0",
                                    "10.01", "99",   "100",   "101",    "-9",   "-10",     "-11",   "-100",
                                    "0.5",   "0.05", "-0.05", "0.007",  "1000", "123456",  "99.99", "3",
                                    "4.5",   "7.5",  "12.75", "-12.75", "35",   "1000000", "0.125", "0.1"};
enum { N_TEXTS = sizeof texts / sizeof *texts };

Test(number, limits_compare_values_not_digits)
{
    static const double limits[] = {0, 1, -1, 1.5, -1.5, 10, -10, 99.99, 0.05, -0.05, 100, 1e6, 0.007, 12.75, -12.75};
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++)
        for (int form = 0; form < 4; form++) {
            NumberLimit limit = {limits[l], form & 1, form & 2};
            const Dfa *dfa;
            cr_assert(number_within(limit, &arena, &dfa, &error), "%s", error.text);
            for (size_t i = 0; i < N_TEXTS; i++) {
                double value = strtod(texts[i], NULL);
                bool in = limit.is_maximum ? value < limits[l] : value > limits[l];
                in |= value == limits[l] && !limit.is_exclusive;
                cr_expect_eq(dfa_label(dfa, texts[i]) != 0, in, "%s by %g, form %d", texts[i], limits[l], form);
            }
        }
}

Test(number, only_numbers_are_numbers)
{
    static const char *const wrong[] = {"", "-", "01", "1.", ".5", "+1", "1e2", "--1", "1.2.3", "a", "00", "-01"};
    const Dfa *all, *integers, *within;
    cr_assert(number_all(&arena, &all, &error) && number_integers(&arena, &integers, &error) &&
              number_within((NumberLimit){-5, false, false}, &arena, &within, &error));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_not(dfa_label(all, wrong[i]) || dfa_label(integers, wrong[i]) || dfa_label(within, wrong[i]), "'%s'",
                      wrong[i]);
    for (size_t i = 0; i < N_TEXTS; i++) {
        cr_expect(dfa_label(all, texts[i]));
        cr_expect_eq(dfa_label(integers, texts[i]) != 0, strtod(texts[i], NULL) == floor(strtod(texts[i], NULL)), "%s",
                     texts[i]);
    }
}

Test(number, words_are_sets_of_values)
{
    static const char *const words[] = {"0", "-0", "1", "1.5", "1.05", "-12.75"};
    const Dfa *some, *all;
    cr_assert(dfa_words(words, sizeof words / sizeof *words, &arena, &some, &error) &&
              number_spellings(some, &arena, &all, &error));
    for (size_t i = 0; i < N_TEXTS; i++) {
        double value = strtod(texts[i], NULL);
        bool in = value == 0 || value == 1 || value == 1.5 || value == -12.75;
        cr_expect_eq(dfa_label(all, texts[i]) != 0, in, "%s", texts[i]);
    }
    cr_expect(dfa_label(all, "1.0500") && dfa_label(all, "0.000") && dfa_label(all, "1.00000"));
    cr_expect_not(dfa_label(all, "1.") || dfa_label(all, "1.051") || dfa_label(all, "10") || dfa_label(all, "-1"));
}

Test(number, plain_is_one_way_for_each_value)
{
    const Dfa *plain;
    cr_assert(number_plain(&arena, &plain, &error));
    static const char *const good[] = {"0", "7", "-7", "10", "0.5", "-0.5", "100.25", "0.001"};
    static const char *const bad[] = {"-0", "0.0", "1.0", "1.50", "-0.00", "00", "1.", ".5", "-"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) cr_expect(dfa_label(plain, good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) cr_expect_not(dfa_label(plain, bad[i]), "%s", bad[i]);
}

Test(number, short_ones_are_what_a_double_holds)
{
    const Dfa *dfa;
    cr_assert(number_short(&arena, &dfa, &error));
    static const char *const good[] = {"0",
                                       "-0",
                                       "123456789012345678901234567890",
                                       "0.123456789012345",
                                       "12345678901234.5",
                                       "1.00000000000000",
                                       "0.000000000000000000000123456789012345"};
    static const char *const bad[] = {"0.1234567890123456",
                                      "123456789012345.6",
                                      "1.0000000000000000001",
                                      "12345678901234.50",
                                      "01",
                                      "1.",
                                      "0.00000000000000000000000000000000000000000000000001"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) cr_expect(dfa_label(dfa, good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) cr_expect_not(dfa_label(dfa, bad[i]), "%s", bad[i]);
    char text[80] = "1";
    for (size_t i = 0; i < NUMBER_MAX_WRITTEN; i++, text[i] = '0') cr_expect(dfa_label(dfa, text), "%zu digits", i + 1);
    cr_expect_not(dfa_label(dfa, text));
}

Test(number, multiples_are_exact)
{
    static const struct {
        double factor;
        long thousandths;
    } factors[] = {{1, 1000},   {2, 2000},  {7, 7000},   {0.5, 500}, {0.25, 250},
                   {1.5, 1500}, {0.001, 1}, {10, 10000}, {0.035, 35}};
    for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
        const Dfa *dfa;
        cr_assert(number_multiples(factors[f].factor, &arena, &dfa, &error), "%s", error.text);
        for (size_t i = 0; i < N_TEXTS; i++) {
            long value = lround(strtod(texts[i], NULL) * 1000);
            cr_expect_eq(dfa_label(dfa, texts[i]) != 0, value % factors[f].thousandths == 0, "%s by %g", texts[i],
                         factors[f].factor);
        }
    }
    const Dfa *cents;
    cr_assert(number_multiples(0.01, &arena, &cents, &error));
    cr_expect(dfa_label(cents, "0.0700") && !dfa_label(cents, "0.0701") && !dfa_label(cents, "0.001"));
    cr_expect_not(number_multiples(0.123457, &arena, &cents, &error));
    cr_expect_eq(error.code, ERR_SCHEMA);
    cr_expect_not(number_multiples(1e300, &arena, &cents, &error));
}

Test(number, limits_beyond_doubles_are_rounded_inwards)
{
    const Dfa *high, *low, *huge, *tiny;
    cr_assert(number_within((NumberLimit){9223372036854775807.0, true, false}, &arena, &high, &error) &&
              number_within((NumberLimit){-18446744073709551615.0, false, false}, &arena, &low, &error) &&
              number_within((NumberLimit){1e308, true, false}, &arena, &huge, &error) &&
              number_within((NumberLimit){5e-324, false, false}, &arena, &tiny, &error));
    cr_expect(dfa_label(high, "9223372036854775807") && !dfa_label(high, "9223372036854775808"));
    cr_expect(dfa_label(low, "-18446744073709551600") && !dfa_label(low, "-18446744073709551616"));
    cr_expect(dfa_label(huge, "12345678901234567890123456789"));
    cr_expect(dfa_label(tiny, "0.001") && !dfa_label(tiny, "0") && !dfa_label(tiny, "-1"));
}

Test(number, values_print_as_their_shortest_text)
{
    static const struct {
        double value;
        const char *text;
    } rows[] = {{0, "0"},
                {-1, "-1"},
                {0.1, "0.1"},
                {1e15, "1000000000000000"},
                {-2.5, "-2.5"},
                {1e-7, "0.0000001"},
                {1.0 / 3, "0.3333333333333333"}};
    const char *text;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_assert(number_print(rows[i].value, &arena, &text, &error));
        cr_expect_str_eq(text, rows[i].text);
    }
    cr_expect_not(number_print(0x1p53 + 2, &arena, &text, &error));
    cr_expect_eq(error.code, ERR_SCHEMA);
}
