/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/table.h"
#include "tests/support/compare.h"
#include "tests/support/weights.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { MAX = 70000 };
static float a[MAX], b[MAX], got[MAX], want[MAX];
static const size_t sizes[] = {0, 1, 15, 16, 17, 576, 1537, MAX};
static ThreadPool *pool;

static void setup(void)
{
    Error error;
    uint64_t seed = 1;
    cr_assert(threads_new(3, &pool, &error), "%s", error.text);
    random_floats(&seed, a, MAX, 20);
    random_floats(&seed, b, MAX, 2);
}

static void teardown(void)
{
    threads_free(pool);
}

TestSuite(test_pointwise, .init = setup, .fini = teardown);

static void check(const char *name, size_t n, Tolerance tolerance)
{
    char text[200];
    cr_assert(compare_floats(got, want, n, tolerance, text, sizeof text), "%s, n = %zu: %s", name, n, text);
}

Test(test_pointwise, vector_add)
{
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            VectorAddParams params = {a, b, want, sizes[i]};
            cr_assert(vector_add_ref(&params));
            params.z = got;
            cr_assert(table->vector_add(&params, (Stream){pool, NULL}));
            check(table->name, sizes[i], (Tolerance){.min_cosine = 1 - 1e-12});
        }
}

Test(test_pointwise, glu)
{
    const float special[] = {0, -0.0f, 88, -88, 104, -104, 1e30f, -1e30f, INFINITY, -INFINITY, NAN, 1e-40f};
    const KernelTable *table;
    memcpy(a + 3, special, sizeof special);
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
        for (int activation = GLU_SILU; activation <= GLU_GELU_TANH; activation++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                GluParams params = {a, b, want, sizes[i], (GluActivation)activation};
                cr_assert(glu_ref(&params));
                params.y = got;
                cr_assert(table->glu(&params, (Stream){pool, NULL}));
                check(table->name, sizes[i], (Tolerance){.abs = 1e-6, .rel = 1e-6, .min_cosine = 1 - 1e-9});
            }
}

/* silu(x) * up with up = (1 + e^-x) / x is 1 but for the error of e^-x: a fine look at exp alone. */
Test(test_pointwise, glu_exponential_is_within_a_millionth)
{
    const KernelTable *table;
    for (int i = 0; i < MAX; i++) {
        a[i] = (float)(i + 1) * (-80.0f / MAX);
        b[i] = (float)((1 + exp(-(double)a[i])) / a[i]);
    }
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
        GluParams params = {a, b, got, MAX, GLU_SILU};
        cr_assert(table->glu(&params, (Stream){0}));
        for (int i = 0; i < MAX; i++)
            cr_assert_float_eq(got[i], 1.0f, 1e-6f, "%s at %g: %.9g", table->name, a[i], got[i]);
    }
}

Test(test_pointwise, softcap)
{
    const float special[] = {0, -0.0f, 300, -300, 1e30f, -1e30f, INFINITY, -INFINITY, NAN, 1e-6f};
    const KernelTable *table;
    memcpy(a + 3, special, sizeof special);
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            SoftcapParams params = {a, want, sizes[i], i % 2 ? 30 : 2};
            cr_assert(softcap_ref(&params));
            params.y = got;
            cr_assert(table->softcap(&params, (Stream){pool, NULL}));
            check(table->name, sizes[i], (Tolerance){.abs = 2e-5, .rel = 1e-6, .min_cosine = 1 - 1e-9});
        }
}

Test(test_pointwise, rmsnorm)
{
    static const struct {
        uint32_t n_rows, n;
    } shapes[] = {{0, 64}, {1, 1}, {3, 17}, {9, 64}, {100, 576}, {1, 4096}};
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            RmsNormParams params = {a, b, want, shapes[i].n_rows, shapes[i].n, 1e-5f};
            cr_assert(rmsnorm_ref(&params));
            params.y = got;
            cr_assert(table->rmsnorm(&params, (Stream){pool, NULL}));
            check(table->name, (size_t)shapes[i].n_rows * shapes[i].n, (Tolerance){0, 3e-7, 1 - 1e-12});
        }
}

/* An outlier of 1e20 squares to infinity in fp32; the norm must survive it. */
Test(test_pointwise, rmsnorm_of_an_outlier)
{
    const KernelTable *table;
    a[5] = 1e20f;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
        RmsNormParams params = {a, b, got, 1, 64, 1e-5f};
        cr_assert(table->rmsnorm(&params, (Stream){0}));
        cr_assert_float_eq(got[5], 8 * b[5], fabsf(b[5]) * 1e-5f);
    }
}

Test(test_pointwise, rope)
{
    enum { TOKENS = 37, HEADS = 9, DIM = 64, PAIRS = 20 };
    double theta[PAIRS];
    uint32_t positions[TOKENS];
    float cos_sin[TOKENS * PAIRS * 2];
    const KernelTable *table;
    for (int j = 0; j < PAIRS; j++) theta[j] = pow(10000, -(double)(PAIRS - 1 - j) / PAIRS);
    for (uint32_t t = 0; t < TOKENS; t++) positions[t] = t * 27000;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
        RopeTableParams table_params = {theta, positions, cos_sin, TOKENS, PAIRS, 1};
        cr_assert(table->rope_table(&table_params, (Stream){pool, NULL}));
        memcpy(got, a, sizeof got);
        memcpy(want, a, sizeof want);
        RopeParams params = {got, cos_sin, TOKENS, HEADS, DIM, PAIRS};
        cr_assert(table->rope(&params, (Stream){pool, NULL}));
        params.x = want;
        cr_assert(rope_ref(&params));
        check(table->name, TOKENS * HEADS * DIM, (Tolerance){1e-6, 1e-6, 1 - 1e-12});
        for (int c = 0; c < DIM - 2 * PAIRS; c++) cr_assert_eq(got[c], a[c], "channels without rotation stay");
    }
}

/* At position 1,000,000 an angle formed in fp32 is off by 0.06 rad. */
Test(test_pointwise, rope_table_is_exact_far_out)
{
    const double theta[] = {1e-6, 0.70710678118654752, 1.0};
    const uint32_t positions[] = {0, 1000000, 4294967295u};
    float cos_sin[18];
    RopeTableParams params = {theta, positions, cos_sin, 3, 3, 0.5f};
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
        cr_assert(table->rope_table(&params, (Stream){0}));
        for (int i = 0; i < 9; i++) {
            long double angle = (long double)positions[i / 3] * theta[i % 3];
            cr_assert_float_eq(cos_sin[2 * i], 0.5f * (float)cosl(angle), 1e-6f);
            cr_assert_float_eq(cos_sin[2 * i + 1], 0.5f * (float)sinl(angle), 1e-6f);
        }
    }
}

Test(test_pointwise, embed)
{
    static const DType types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q8_0, DTYPE_Q6_K};
    static uint8_t rows[8 * 512 * 4];
    const uint32_t ids[] = {7, 0, 3, 3};
    const KernelTable *table;
    uint64_t seed = 4;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        random_weights(&seed, types[i], rows, 8 * 512);
        EmbedParams params = {rows, types[i], ids, want, 4, 512, 2};
        cr_assert(embed_ref(&params));
        cr_assert_eq(memcmp(want + 1024, want + 1536, 512 * sizeof(float)), 0);
        for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
            params.y = got;
            cr_assert(table->embed(&params, (Stream){pool, NULL}));
            cr_assert_eq(memcmp(got, want, 2048 * sizeof(float)), 0);
        }
    }
    EmbedParams unknown = {rows, (DType)99, ids, got, 1, 512, 1};
    cr_assert_not(kernels_cpu()->embed(&unknown, (Stream){0}));
    cr_assert_not(embed_ref(&unknown));
}
