/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pointwise/rope_turns.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum { PAIRS = 64, COARSE = 12288 }; /* to 3M tokens */

static RopeTurns new_turns(double *theta, float **ret_fine, float **ret_coarse)
{
    RopeTurns turns = {theta, PAIRS, COARSE, NULL, NULL};
    turns.fine = *ret_fine = malloc((size_t)ROPE_TURNS_FINE * PAIRS * 2 * sizeof(float));
    turns.coarse = *ret_coarse = malloc((size_t)COARSE * PAIRS * 2 * sizeof(float));
    cr_assert(turns.fine && turns.coarse);
    for (int j = 0; j < PAIRS; j++) theta[j] = pow(5e5, -(double)(PAIRS - 1 - j) / PAIRS);
    rope_turns_fill(&turns, *ret_fine, *ret_coarse);
    return turns;
}

/* sparse-attention.md, decision 1: fp32 angles would be off by 0.06 here. */
Test(test_rope_turns, angles_are_exact_to_three_million_tokens)
{
    double theta[PAIRS];
    float *fine, *coarse, cos_sin[2 * PAIRS];
    RopeTurns turns = new_turns(theta, &fine, &coarse);
    const int64_t tokens[] = {0, 1, -1, 255, 256, -257, 4095, 65536, 999999, -1000003, 3000000, 3145727, -3145727};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        rope_turns_get(&turns, tokens[i], cos_sin);
        for (int j = 0; j < PAIRS; j++) {
            long double angle = (long double)tokens[i] * theta[j];
            cr_assert_float_eq(cos_sin[2 * j], (double)cosl(angle), 1e-6, "cos of %ld tokens", (long)tokens[i]);
            cr_assert_float_eq(cos_sin[2 * j + 1], (double)sinl(angle), 1e-6, "sin of %ld tokens", (long)tokens[i]);
            if (tokens[i] == 0) cr_assert(cos_sin[2 * j] == 1 && cos_sin[2 * j + 1] == 0);
        }
    }
    free(fine);
    free(coarse);
}

static double dot(const float *a, const float *b)
{
    double sum = 0;
    for (int c = 0; c < 2 * PAIRS; c++) sum += (double)a[c] * b[c];
    return sum;
}

static void turn_copy(const RopeTurns *turns, int64_t n, const float *x, float *ret)
{
    float cos_sin[2 * PAIRS];
    for (int c = 0; c < 2 * PAIRS; c++) ret[c] = x[c];
    rope_turns_get(turns, n, cos_sin);
    rope_turns_apply(turns, cos_sin, 2 * PAIRS, ret);
}

/* A page's base folds into the query: (R(p) q) (R(b + o) k) = (R(p - b) q) (R(o) k), up to 3M tokens. */
Test(test_rope_turns, a_page_base_folds_into_the_query)
{
    double theta[PAIRS];
    float *fine, *coarse, q[2 * PAIRS], k[2 * PAIRS], q_far[2 * PAIRS], k_far[2 * PAIRS], q_near[2 * PAIRS],
        k_near[2 * PAIRS];
    RopeTurns turns = new_turns(theta, &fine, &coarse);
    srand(1);
    for (int i = 0; i < 300; i++) {
        int64_t p = rand() % 3145728, b = rand() % (p + 1) / 16 * 16, o = rand() % 64;
        if (b + o > p) continue;
        for (int c = 0; c < 2 * PAIRS; c++) {
            q[c] = (float)rand() / (float)RAND_MAX - 0.5f;
            k[c] = (float)rand() / (float)RAND_MAX - 0.5f;
        }
        turn_copy(&turns, p, q, q_far);
        turn_copy(&turns, b + o, k, k_far);
        turn_copy(&turns, p - b, q, q_near);
        turn_copy(&turns, o, k, k_near);
        cr_assert_float_eq(dot(q_far, k_far), dot(q_near, k_near), 1e-5, "p %ld, b %ld", (long)p, (long)b);
    }
    free(fine);
    free(coarse);
}
