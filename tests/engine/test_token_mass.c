/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/weights.h"
#include "kernels/sample/token_weight.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

static float *bell(uint32_t n, float spread)
{
    float *row = malloc(n * sizeof *row);
    uint32_t seed = 7;
    for (uint32_t i = 0; i < n; i++) {
        float sum = 0;
        for (int j = 0; j < 6; j++) {
            seed = seed * 1664525u + 1013904223u;
            sum += (float)(seed >> 8) * 0x1p-24f;
        }
        row[i] = (sum - 3) * spread;
    }
    return row;
}

Test(token_mass, sums_do_not_depend_on_the_order)
{
    enum { N = 10007 };
    float *row = bell(N, 6), backward[N];
    weights_fill(row, N, 30, 0.7f, row);
    for (uint32_t i = 0; i < N; i++) backward[i] = row[N - 1 - i];
    uint64_t all = weights_mass(row, N);
    cr_assert_gt(all, 0);
    cr_assert_eq(all, weights_mass(backward, N));
    cr_assert_eq(all, weights_mass(row, 1234) + weights_mass(row + 1234, N - 1234));
    free(row);
}

Test(token_mass, units_are_rounded_to_the_nearest)
{
    cr_assert_eq(token_mass(0), 0);
    cr_assert_eq(token_mass(1), UINT64_C(1) << TOKEN_MASS_BITS);
    cr_assert_eq(token_mass(0x1p-43f), 1);
    cr_assert_eq(token_mass(0x1.8p-43f), 2);
    cr_assert_eq(token_mass(0x1.4p-42f), 2, "a tie goes to the even one");
    cr_assert_eq(token_mass(0x1p-45f), 0);
}

/* The largest vocabulary there may be fits, and its logarithm is right to an fp32 step at 1. */
Test(token_mass, the_logarithm_of_a_sum)
{
    static const float spreads[] = {0, 0.5f, 3, 12};
    for (size_t k = 0; k < sizeof spreads / sizeof *spreads; k++) {
        float *row = bell(TOKEN_MAX_VOCAB, spreads[k]), max = -INFINITY;
        double sum = 0;
        for (uint32_t i = 0; i < TOKEN_MAX_VOCAB; i++) max = row[i] > max ? row[i] : max;
        for (uint32_t i = 0; i < TOKEN_MAX_VOCAB; i++) sum += exp((double)row[i] - (double)max);
        cr_assert_float_eq(row_log_sum_exp(row, TOKEN_MAX_VOCAB, max), (double)max + log(sum), 0x1p-23, "spread %g",
                           (double)spreads[k]);
        free(row);
    }
}

Test(token_mass, shares_stay_within_the_mass)
{
    for (uint64_t mass = 1; mass < UINT64_C(1) << 62; mass = mass * 3 + 1) {
        cr_assert_eq(token_mass_share(mass, 0), 0);
        cr_assert_lt(token_mass_share(mass, 1 - 0x1p-53), mass);
    }
}

Test(token_mass, weights_without_a_mass)
{
    const float weights[] = {0, 1e-30f, 3e-30f, 2e-30f, 3e-30f};
    cr_assert_eq(weights_draw(weights, 5, 0.9), 2);
}
