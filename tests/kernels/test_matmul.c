/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/matmul.h"
#include "kernels/table.h"
#include "tests/support/compare.h"
#include "tests/support/weights.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const DType types[] = {
    DTYPE_F32,  DTYPE_F16,    DTYPE_BF16,  DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q8_0,
    DTYPE_Q2_K, DTYPE_IQ4_NL, DTYPE_MXFP4, DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_IQ4_XS,
};
enum { N_TYPES = sizeof types / sizeof *types, Y_PADDING = 3 };

typedef struct Case {
    uint32_t n_tokens, n_rows, n_cols;
    bool bias, accumulate;
} Case;

/* Everything of one multiplication, with a second output of another height behind the first. */
typedef struct Problem {
    MatmulParams params;
    float *x, *bias, *before;
    void *w;
    size_t y_floats;
} Problem;

static void *must(void *p)
{
    cr_assert_not_null(p);
    return p;
}

static Problem make_problem(DType type, Case c, uint64_t seed)
{
    Problem p = {0};
    size_t stride = c.n_rows + Y_PADDING, x_stride = c.n_cols + 5u;
    p.y_floats = (size_t)c.n_tokens * stride * 2;
    p.x = must(malloc((c.n_tokens * x_stride + 1) * sizeof(float)));
    p.bias = must(malloc(c.n_rows * sizeof(float)));
    p.before = must(malloc((p.y_floats + 1) * sizeof(float)));
    p.w = must(malloc(dtype_row_bytes(type, (uint64_t)c.n_rows * c.n_cols) + 1));
    random_floats(&seed, p.x, c.n_tokens * x_stride, 3);
    random_floats(&seed, p.bias, c.n_rows, 1);
    random_floats(&seed, p.before, p.y_floats, 1);
    random_weights(&seed, type, p.w, (size_t)c.n_rows * c.n_cols);
    p.params = (MatmulParams){.x = p.x, .x_stride = x_stride, .n_tokens = c.n_tokens, .n_cols = c.n_cols, .n_out = 2};
    for (uint32_t i = 0; i < 2; i++)
        p.params.out[i] = (MatmulOut){.w = p.w,
                                      .type = type,
                                      .n_rows = i ? c.n_rows / 2 + 1 : c.n_rows,
                                      .y_stride = stride,
                                      .bias = c.bias ? p.bias : NULL,
                                      .accumulate = c.accumulate};
    size_t scratch = (matmul_scratch_bytes(c.n_tokens, c.n_cols) + 63) / 64 * 64;
    p.params.scratch = must(aligned_alloc(64, scratch));
    return p;
}

static void free_problem(Problem *p)
{
    free(p->x);
    free(p->bias);
    free(p->before);
    free(p->w);
    free(p->params.scratch);
}

/* Starts from the same y each time, so that accumulation and untouched padding show. */
static float *fresh_y(Problem *p)
{
    float *y = must(malloc((p->y_floats + 1) * sizeof(float)));
    memcpy(y, p->before, p->y_floats * sizeof(float));
    p->params.out[0].y = y;
    p->params.out[1].y = y + p->y_floats / 2;
    return y;
}

static bool is_fused(const KernelTable *table)
{
    return strcmp(table->name, "cpu-scalar") != 0;
}

static void check_row(const KernelTable *table, DType type, Case c, Stream stream)
{
    char text[200] = "bits differ";
    Problem p = make_problem(type, c, 7 + c.n_tokens + c.n_rows * 31u + c.n_cols);
    float *want = fresh_y(&p);
    cr_assert(matmul_ref(&p.params));
    float *got = fresh_y(&p);
    cr_assert(table->matmul(&p.params, stream));
    Tolerance close = {.abs = 1e-4, .rel = 1e-5, .min_cosine = 0.99999999};
    bool good = compare_floats(got, want, p.y_floats, close, text, sizeof text);
    if (good && is_fused(table)) good = memcmp(got, want, p.y_floats * sizeof(float)) == 0;
    cr_assert(good, "%s %s, %u tokens, %u x %u: %s", table->name, dtype_info(type)->name, c.n_tokens, c.n_rows,
              c.n_cols, text);
    free(got);
    free(want);
    free_problem(&p);
}

/* The last row of columns is not a whole vector: only fp32 and half types allow that. */
static const Case cases[] = {
    {0, 16, 256, false, false},  {1, 1, 256, true, false},  {1, 16, 512, false, true},  {1, 33, 768, true, true},
    {2, 15, 256, false, false},  {3, 17, 1024, true, true}, {8, 40, 256, false, false}, {9, 31, 768, true, false},
    {130, 18, 256, false, true}, {5, 7, 1, false, false},   {1, 5, 15, true, true},     {9, 6, 17, false, false},
    {4, 16, 0, true, true},      {1, 20, 32, false, false}, {10, 20, 96, true, true},   {7, 35, 576, false, false},
    {16, 5, 288, true, false},   {17, 40, 544, true, true}, {33, 16, 512, false, true}, {144, 20, 768, true, false},
};

Test(test_matmul, rows_equal_the_reference)
{
    ThreadPool *pool = NULL;
    Error error;
    cr_assert(threads_new(3, &pool, &error), "%s", error.text);
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
        for (size_t i = 0; i < N_TYPES; i++)
            for (size_t j = 0; j < sizeof cases / sizeof *cases; j++) {
                if (cases[j].n_cols % dtype_info(types[i])->block_elements != 0) continue;
                check_row(table, types[i], cases[j], (Stream){.pool = j % 2 ? pool : NULL});
            }
    threads_free(pool);
}

/* One token at a time must give what the batch gave, bit for bit, whatever the number of threads. */
static void check_alone(const KernelTable *table, DType type, uint32_t n_tokens, Stream stream)
{
    Case c = {n_tokens, 37, 768, true, false};
    Problem p = make_problem(type, c, 99);
    float *batch = fresh_y(&p);
    cr_assert(table->matmul(&p.params, stream));
    float *alone = fresh_y(&p);
    for (uint32_t t = 0; t < n_tokens; t++) {
        MatmulParams one = p.params;
        one.n_tokens = 1;
        one.x += t * one.x_stride;
        for (uint32_t i = 0; i < 2; i++) one.out[i].y += t * one.out[i].y_stride;
        cr_assert(table->matmul(&one, (Stream){0}));
    }
    cr_assert_eq(memcmp(batch, alone, p.y_floats * sizeof(float)), 0, "%s %s: %u tokens together differ from alone",
                 table->name, dtype_info(type)->name, n_tokens);
    free(batch);
    free(alone);
    free_problem(&p);
}

Test(test_matmul, a_token_alone_equals_itself_in_any_batch)
{
    ThreadPool *pool = NULL;
    Error error;
    const KernelTable *table;
    cr_assert(threads_new(2, &pool, &error), "%s", error.text);
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
        for (size_t i = 0; i < N_TYPES; i++)
            for (uint32_t n = 1; n <= 131; n = n < 12 ? n + 1 : n + 59)
                check_alone(table, types[i], n, (Stream){.pool = n % 2 ? pool : NULL});
    threads_free(pool);
}

/* 8-bit activations cost little: the quantised result stays near the product of the exact values. */
Test(test_matmul, rows_are_near_the_exact_product)
{
    char text[200];
    for (size_t i = 0; i < N_TYPES; i++) {
        Problem p = make_problem(types[i], (Case){3, 64, 1536, false, false}, 5);
        float *want = fresh_y(&p);
        cr_assert(matmul_exact_ref(&p.params));
        float *got = fresh_y(&p);
        cr_assert(kernels_cpu()->matmul(&p.params, (Stream){0}));
        bool quantised = dtype_info(types[i])->block_elements > 1;
        Tolerance close = {.abs = quantised ? 2.0 : 1e-3, .rel = 0, .min_cosine = quantised ? 0.9999 : 0.9999999};
        cr_assert(compare_floats(got, want, p.y_floats, close, text, sizeof text), "%s: %s", dtype_info(types[i])->name,
                  text);
        free(got);
        free(want);
        free_problem(&p);
    }
}

/* A NaN or an infinity in one token must reach all of its results and none of its neighbours'. */
Test(test_matmul, non_finite_input_shows_in_its_own_token)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
        for (size_t i = 0; i < N_TYPES; i++)
            for (size_t b = 0; b < 3; b++) {
                Problem p = make_problem(types[i], (Case){3, 20, 256, false, false}, 11);
                p.x[p.params.x_stride + 77] = bad[b];
                float *y = fresh_y(&p);
                cr_assert(table->matmul(&p.params, (Stream){0}));
                for (uint32_t t = 0; t < 3; t++)
                    for (uint32_t r = 0; r < 20; r++)
                        cr_assert_eq(isfinite(y[t * p.params.out[0].y_stride + r]) != 0, t != 1,
                                     "%s %s token %u row %u", table->name, dtype_info(types[i])->name, t, r);
                free(y);
                free_problem(&p);
            }
}

/* Blocks of zeros, of values under 2^-100 and of the largest floats have no usable scale or one at the edge. */
Test(test_matmul, blocks_of_extreme_size)
{
    const float sizes[] = {0.0f, 1e-45f, 1e-31f, 1e-29f, 1e30f, 1e35f};
    for (size_t i = 0; i < N_TYPES; i++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            Problem p = make_problem(types[i], (Case){2, 17, 256, false, false}, 13);
            for (uint32_t c = 0; c < 256; c++) p.x[c] = c % 2 ? sizes[s] : -sizes[s] / 2;
            float *want = fresh_y(&p);
            cr_assert(matmul_ref(&p.params));
            const KernelTable *table;
            for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
                char text[200];
                float *got = fresh_y(&p);
                cr_assert(table->matmul(&p.params, (Stream){0}));
                Tolerance close = {.abs = 1e-3, .rel = 1e-3, .min_cosine = -1};
                cr_assert(compare_floats(got, want, p.y_floats, close, text, sizeof text), "%s %s %g: %s", table->name,
                          dtype_info(types[i])->name, sizes[s], text);
                free(got);
            }
            free(want);
            free_problem(&p);
        }
}

/* The largest integers of every format, all of one sign: sums must not wrap where a kernel splits them. */
Test(test_matmul, weights_and_inputs_at_their_limits)
{
    const int bytes[] = {0x00, 0x80, 0x7B, 0xFB, 0x3F}; /* as binary16 finite when doubled */
    for (size_t i = 0; i < N_TYPES; i++)
        for (size_t b = 0; b < 3 * sizeof bytes / sizeof *bytes; b++) {
            Case c = {17, 16, 512, false, false};
            Problem p = make_problem(types[i], c, 17);
            memset(p.w, bytes[b / 3], dtype_row_bytes(types[i], (uint64_t)c.n_rows * c.n_cols));
            for (size_t x = 0; x < c.n_tokens * p.params.x_stride; x++)
                p.x[x] = (b + x * (b % 3 == 2)) % 2 ? 1e-3f : -1e-3f;
            float *want = fresh_y(&p);
            cr_assert(matmul_ref(&p.params));
            const KernelTable *table;
            for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
                float *got = fresh_y(&p);
                cr_assert(table->matmul(&p.params, (Stream){0}));
                bool good = !is_fused(table) || memcmp(got, want, p.y_floats * sizeof(float)) == 0;
                cr_assert(good, "%s %s, bytes 0x%02X", table->name, dtype_info(types[i])->name, bytes[b / 3]);
                free(got);
            }
            free(want);
            free_problem(&p);
        }
}

/* Only CUDA takes a norm or gates along. */
Test(test_matmul, fused_steps_are_refused)
{
    Problem p = make_problem(DTYPE_F32, (Case){1, 4, 32, false, false}, 3);
    float *y = fresh_y(&p);
    for (int i = 0; i < 3; i++) {
        const KernelTable *table;
        p.params.norm_weight = i == 0 ? p.params.x : NULL;
        p.params.glu_up = i == 1 ? p.params.x : NULL;
        p.params.is_gated = i == 2;
        cr_assert_not(matmul_ref(&p.params));
        cr_assert_not(matmul_exact_ref(&p.params));
        for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
            cr_assert_not(table->matmul_fuses);
            cr_assert_not(table->matmul(&p.params, (Stream){0}));
        }
    }
    free(y);
    free_problem(&p);
}

Test(test_matmul, unknown_type_is_refused)
{
    Problem p = make_problem(DTYPE_F32, (Case){1, 4, 32, false, false}, 3);
    float *y = fresh_y(&p);
    p.params.out[1].type = (DType)99;
    cr_assert_not(matmul_ref(&p.params));
    cr_assert_not(matmul_exact_ref(&p.params));
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++) cr_assert_not(table->matmul(&p.params, (Stream){0}));
    free(y);
    free_problem(&p);
}
