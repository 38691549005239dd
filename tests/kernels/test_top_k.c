/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/select/top_k.h"
#include "tests/support/weights.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdbool.h>

enum { MAX = 3000 };

/* Does index a go before b? */
static bool is_better(const float *scores, uint32_t a, uint32_t b)
{
    bool a_nan = isnan(scores[a]), b_nan = isnan(scores[b]);
    if (a_nan != b_nan) return a_nan;
    if (!a_nan && scores[a] != scores[b]) return scores[a] > scores[b];
    return a < b;
}

static void check(const float *scores, uint32_t n, uint32_t k)
{
    static uint32_t scratch[MAX], chosen[MAX];
    uint32_t n_chosen = top_k(scores, n, k, scratch, chosen), next = 0;
    cr_assert_eq(n_chosen, k < n ? k : n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t rank = 0;
        for (uint32_t j = 0; j < n; j++) rank += is_better(scores, j, i);
        bool is_chosen = next < n_chosen && chosen[next] == i;
        cr_assert_eq(is_chosen, rank < k, "%u of %u: index %u, of rank %u", k, n, i, rank);
        next += is_chosen;
    }
}

Test(test_top_k, equals_a_sort)
{
    uint64_t seed = 5;
    float scores[1000];
    const uint32_t counts[] = {0, 1, 2, 15, 16, 17, 255, 1000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int kind = 0; kind < 4; kind++) {
            for (uint32_t j = 0; j < counts[i]; j++) {
                float x = random_float(&seed);
                scores[j] = kind == 0 ? x : kind == 1 ? rintf(3 * x) : kind == 2 ? 1 : ldexpf(x, (int)(j % 250) - 125);
            }
            const uint32_t wanted[] = {0, 1, 2, counts[i] / 2, counts[i], counts[i] + 1, UINT32_MAX};
            for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++) check(scores, counts[i], wanted[k]);
        }
}

Test(test_top_k, ties_go_to_the_lower_index)
{
    const float scores[] = {1, 2, -0.0f, 2, 0.0f, 2, -1, 0.0f};
    uint32_t scratch[8], chosen[8];
    cr_assert_eq(top_k(scores, 8, 2, scratch, chosen), 2);
    cr_assert(chosen[0] == 1 && chosen[1] == 3);
    cr_assert_eq(top_k(scores, 8, 6, scratch, chosen), 6);
    const uint32_t want[] = {0, 1, 2, 3, 4, 5}; /* both zeros are equal */
    for (int i = 0; i < 6; i++) cr_assert_eq(chosen[i], want[i]);
}

Test(test_top_k, what_is_broken_is_looked_at)
{
    const float scores[] = {INFINITY, -NAN, 3, -INFINITY, NAN, 5};
    uint32_t scratch[6], chosen[6];
    cr_assert_eq(top_k(scores, 6, 2, scratch, chosen), 2);
    cr_assert(chosen[0] == 1 && chosen[1] == 4);
    check(scores, 6, 1);
    check(scores, 6, 3);
    check(scores, 6, 5);
}
