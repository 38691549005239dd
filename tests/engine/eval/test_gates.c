/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/gates.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static Error error;

static bool parse(const char *text, size_t n, double *gates)
{
    return gates_parse(text, n, 3, 2, gates, &error);
}

Test(test_gates, numbers_are_clipped)
{
    static const char *const texts[] = {"0.5\t1\n-3\t2.5e0\n+.25\t7.5E-1\n", "0.5\t1\r\n-3\t2.5e0\r\n+.25\t7.5E-1",
                                        "0.5\t1\n-0.0\t99\n0.25\t.75\n\n\r\n"};
    static const double wanted[] = {0.5, 1, 0, 1, 0.25, 0.75};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double gates[6];
        cr_assert(parse(texts[i], strlen(texts[i]), gates), "%zu: %s", i, error.text);
        for (int g = 0; g < 6; g++) cr_expect_eq(gates[g], wanted[g]);
    }
}

Test(test_gates, what_breaks_the_rules_is_named_by_line_and_column)
{
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"", "line 1 is missing"},
        {"1\t1\n1\t1\n", "line 3 is missing"},
        {"1\t1\n1\t1\n1\t1\n1\t1\n", "line 4: the model has 3 layers"},
        {"1\t1\n1\n1\t1\n", "line 2, column 2: fewer"},
        {"1\t1\n1\t1\t1\n1\t1\n", "line 2, column 4: more"},
        {"1\t1\n1\t1\t\n1\t1\n", "line 2, column 4: more"},
        {"1\t\n1\t1\n1\t1\n", "line 1, column 3: not a number"},
        {"1 1\n", "line 1, column 1: not a number"},
        {"1\t1\nnan\t1\n1\t1\n", "line 2, column 1"},
        {"1\t1\n1\tinf\n1\t1\n", "line 2, column 3"},
        {"1\t1\n1\t0x1\n1\t1\n", "line 2, column 3"},
        {"1\t1\n1\t1,5\n1\t1\n", "line 2, column 3"},
        {"1\t1\n1\t1e999\n1\t1\n", "line 2, column 3"},
        {"1\t1\n1\t1e\n1\t1\n", "line 2, column 3"},
        {"1\t1\n1\t-\n1\t1\n", "line 2, column 3"},
        {"1\t1\n1\t.\n1\t1\n", "line 2, column 3"},
        {"1\t1\n1\t--1\n1\t1\n", "line 2, column 3"},
        {"1\t1\r1\t1\n1\t1\n", "line 1, column 5: something behind"},
        {"\n1\t1\n1\t1\n1\t1\n", "line 1, column 1"},
        {"1\t1\n1\t1\n1\t1\n \n", "line 4"},
        {"1\t1\n1\t00000000000000000000000000000000000000000000000000000000000000000000000001\n1\t1\n",
         "line 2, column 3"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double gates[6] = {7};
        cr_expect_not(parse(bad[i].text, strlen(bad[i].text), gates), "%zu", i);
        cr_expect_str_eq(error.param, "gates");
        cr_expect(strstr(error.text, bad[i].word), "%zu: %s", i, error.text);
        cr_expect_eq(gates[0], 7, "untouched");
    }
}

/* Texts end where they end, not at a NUL; and none within. */
Test(test_gates, bytes_are_read_up_to_the_end)
{
    static const char nul[] = "1\t1\n1\t1\n1\t1\0\n", nul_behind[] = "1\t1\n1\t1\n1\t1\n\0";
    double gates[6];
    cr_expect_not(parse(nul, sizeof nul - 1, gates));
    cr_expect_not(parse(nul_behind, sizeof nul_behind - 1, gates));
    for (size_t n = 0; n < 11; n++) {
        char *exact = malloc(n + 1);
        memcpy(exact, "1\t1\n1\t1\n1\t1\n", n);
        exact = realloc(exact, n ? n : 1); /* so that a read beyond the end is seen */
        cr_expect_eq(parse(exact, n, gates), n == 11, "%zu", n);
        free(exact);
    }
}

Test(test_gates, heads_below_the_quantile_stream)
{
    static const double scores[] = {0.9, 0.1, 0.5, 0.3, 0.7}, half_tied[] = {1, 1, 0, 1, 1};
    static const struct {
        const double *scores;
        double sparsity;
        uint8_t wanted[5];
    } cases[] = {
        {scores, 0, {0, 0, 0, 0, 0}},      {scores, 0.5, {0, 1, 0, 1, 0}},
        {scores, 0.6, {0, 1, 1, 1, 0}},    {scores, 1, {0, 1, 1, 1, 1}}, /* the largest is the quantile itself */
        {half_tied, 0.5, {1, 0, 1, 0, 0}}, {half_tied, 0.25, {0, 0, 1, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t streams[5];
        cr_assert(heads_choose(cases[i].scores, 5, cases[i].sparsity, streams, &error));
        cr_expect_arr_eq(streams, cases[i].wanted, 5, "%zu", i);
    }
}

Test(test_gates, heads_without_a_score_are_out)
{
    const double scores[] = {NAN, 3, NAN, 1, 2}, none[] = {NAN, NAN};
    uint32_t *order, n;
    uint8_t streams[5];
    cr_assert(heads_order(scores, 5, &order, &n, &error));
    cr_expect(n == 3 && order[0] == 3 && order[1] == 4 && order[2] == 1);
    free(order);
    cr_assert(heads_choose(scores, 5, 1, streams, &error));
    cr_expect_arr_eq(streams, ((uint8_t[]){0, 0, 0, 1, 1}), 5);
    cr_assert(heads_choose(none, 2, 1, streams, &error));
    cr_expect(!streams[0] && !streams[1]);
    cr_assert(heads_choose(none, 0, 0.5, streams, &error));
}
