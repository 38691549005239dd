/* SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "kernels/attention/attention.h"
#include "tests/kernels/paged.h"
#include "tests/support/compare.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const PagedShape shapes[] = {
    {KV_F32, 1, 1, 16, 16},  {KV_F16, 9, 3, 64, 64},    {KV_BF16, 4, 4, 32, 48}, {KV_F8, 8, 2, 64, 64},
    {KV_INT8, 6, 2, 20, 12}, {KV_INT4, 8, 1, 128, 128}, {KV_INT8, 5, 5, 1, 3},   {KV_F32, 70, 1, 8, 8},
    {KV_INT4, 2, 2, 33, 19}, {KV_F16, 3, 1, 80, 80},
};

/* On numbers that f16 holds exactly the paged reference equals the one over whole arrays. */
Test(test_attend, dense_equals_attention_over_arrays)
{
    enum { TOKENS = 150, FIRST = 61, DIM = 16 };
    Paged *paged = paged_new((PagedShape){KV_F32, 4, 2, DIM, DIM}, TOKENS, 3);
    float k[2 * TOKENS * DIM], v[2 * TOKENS * DIM], want[(TOKENS - FIRST) * 4 * DIM];
    for (size_t p = 0; p < TOKENS; p++)
        for (size_t h = 0; h < 2; h++) {
            memcpy(k + (h * TOKENS + p) * DIM, paged->k + (p * 2 + h) * DIM, DIM * sizeof *k);
            memcpy(v + (h * TOKENS + p) * DIM, paged->v + (p * 2 + h) * DIM, DIM * sizeof *v);
        }
    AttnSpan span = {{k, v, DTYPE_F32, 2, DIM, DIM, TOKENS}, 0, TOKENS - FIRST, FIRST};
    AttentionParams params = {paged->q + FIRST * 4 * DIM, want, &span, 1, 4, 0.3f, 0, 0, NULL};
    cr_assert(attention_ref(&params));
    float *got = paged_attend(paged, kernels_ref()->attend, (Stream){0}, FIRST, TOKENS - FIRST);
    cr_assert_eq(memcmp(got, want, sizeof want), 0);
    free(got);
    paged_free(paged);
}

Test(test_attend, rows_equal_the_reference)
{
    ThreadPool *pool = NULL;
    Error error;
    char text[200];
    cr_assert(threads_new(3, &pool, &error), "%s", error.text);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        Paged *paged = paged_new(shapes[i], 300, i);
        float *want = paged_attend(paged, kernels_ref()->attend, (Stream){0}, 230, 70);
        const KernelTable *table;
        for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
            float *got = paged_attend(paged, table->attend, (Stream){.pool = i % 2 ? pool : NULL}, 230, 70);
            Tolerance close = {.abs = 2e-5, .rel = 1e-5, .min_cosine = 0.99999999};
            cr_assert(compare_floats(got, want, paged_out_floats(paged, 70), close, text, sizeof text),
                      "%s shape %zu: %s", table->name, i, text);
            free(got);
        }
        free(want);
        paged_free(paged);
    }
    threads_free(pool);
}
