/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cost.h"

#include <criterion/criterion.h>

Test(cost, an_estimate_follows_what_it_is_told)
{
    Estimate estimate = {0};
    estimate_learn(&estimate, 100);
    cr_assert_eq(estimate.mean, 100);
    cr_assert_gt(estimate_high(&estimate), 100);
    for (int i = 0; i < 100; i++) estimate_learn(&estimate, 100);
    cr_assert_float_eq(estimate_high(&estimate), 100, 1e-6);
    for (int i = 0; i < 100; i++) estimate_learn(&estimate, 300);
    cr_assert_float_eq(estimate.mean, 300, 1);
    /* What strays is guessed high. */
    for (int i = 0; i < 100; i++) estimate_learn(&estimate, i % 2 ? 200 : 400);
    cr_assert_gt(estimate_high(&estimate), 400);
}

Test(cost, what_was_never_measured_is_guessed_from_what_was)
{
    CostTable table = {0};
    cr_assert_eq(cost_guess(&table, 64, 1000), 0);
    cost_learn(&table, 64, 1000, 8);
    double known = cost_guess(&table, 64, 1000);
    cr_assert_geq(known, 8);
    cr_assert_geq(cost_guess(&table, 64, 100), known); /* not deeper: at most that */
    cr_assert_gt(cost_guess(&table, 64, 3000), known); /* deeper: more */
    cr_assert_geq(cost_guess(&table, 64, 9000), 8 * known); /* at most in proportion */
    cr_assert_gt(cost_guess(&table, 500, 3000), 0);    /* more rows: each costs no more */
    cr_assert_eq(cost_guess(&table, 8, 1000), 0);      /* fewer rows: each costs more, nobody knows how much */
    cr_assert_gt(cost_guess(&table, 64, UINT32_MAX), known);
}
