/* SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "kernels/attention/attention.h"
#include "kernels/table.h"
#include "tests/support/compare.h"
#include "tests/support/weights.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

typedef struct Shape {
    DType type;
    uint32_t n_heads, n_kv_heads, k_dim, v_dim;
    uint32_t first_pos, n_rows;
    uint32_t window; /* 0: none */
    float softcap;   /* 0: none */
} Shape;

typedef struct Problem {
    AttentionParams params;
    AttnSpan span;
    float *q;
    size_t out_floats;
} Problem;

enum { SPARE_TOKENS = 5 };

static void *must(void *p)
{
    cr_assert_not_null(p);
    return p;
}

static size_t element_bytes(DType type)
{
    return type == DTYPE_F32 ? 4 : 2;
}

/* Keys past the context are NaN: a kernel that lets one through shows it. */
static void *make_cache(uint64_t *seed, DType type, uint32_t n_heads, uint32_t capacity, uint32_t n_tokens,
                        uint32_t dim)
{
    char *base = must(malloc((size_t)n_heads * capacity * dim * element_bytes(type)));
    char *at = base;
    for (uint32_t h = 0; h < n_heads; h++)
        for (uint32_t p = 0; p < capacity; p++)
            for (uint32_t c = 0; c < dim; c++, at += element_bytes(type)) {
                float x = p < n_tokens ? random_float(seed) : NAN;
                uint16_t half = type == DTYPE_F16 ? f16_from_f32(x) : bf16_from_f32(x);
                if (type == DTYPE_F32)
                    memcpy(at, &x, 4);
                else
                    memcpy(at, &half, 2);
            }
    return base;
}

static Problem make_problem(Shape s, uint32_t max_workers)
{
    uint64_t seed = s.first_pos * 31u + s.n_rows + s.k_dim;
    uint32_t n_tokens = s.first_pos + s.n_rows, capacity = n_tokens + SPARE_TOKENS;
    uint32_t dim = s.k_dim > s.v_dim ? s.k_dim : s.v_dim;
    size_t q_floats = (size_t)s.n_rows * s.n_heads * s.k_dim;
    Problem p = {.q = must(malloc((q_floats + 1) * sizeof(float)))};
    random_floats(&seed, p.q, q_floats, 4);
    p.span = (AttnSpan){
        .kv = {.type = s.type, .n_kv_heads = s.n_kv_heads, .k_dim = s.k_dim, .v_dim = s.v_dim, .capacity = capacity},
        .n_rows = s.n_rows,
        .first_pos = s.first_pos};
    p.span.kv.k = make_cache(&seed, s.type, s.n_kv_heads, capacity, n_tokens, s.k_dim);
    p.span.kv.v = make_cache(&seed, s.type, s.n_kv_heads, capacity, n_tokens, s.v_dim);
    p.out_floats = (size_t)s.n_rows * s.n_heads * s.v_dim;
    size_t scratch = attention_scratch_bytes(max_workers, s.n_heads, dim, n_tokens);
    p.params = (AttentionParams){.q = p.q,
                                 .n_spans = 1,
                                 .n_heads = s.n_heads,
                                 .scale = 0.3f,
                                 .softcap = s.softcap,
                                 .window = s.window,
                                 .scratch = must(malloc(scratch))};
    return p;
}

static void free_problem(Problem *p)
{
    free(p->q);
    free(p->span.kv.k);
    free(p->span.kv.v);
    free(p->params.scratch);
}

static float *run(Problem *p, bool (*attention)(const AttentionParams *, Stream), Stream stream)
{
    p->params.spans = &p->span; /* the problem may have been copied since */
    p->params.out = must(malloc((p->out_floats + 1) * sizeof(float)));
    cr_assert(attention(&p->params, stream));
    return p->params.out;
}

static const Shape shapes[] = {
    {DTYPE_F32, 1, 1, 16, 16, 0, 0, 0, 0},        {DTYPE_F32, 1, 1, 16, 16, 0, 1, 0, 0},
    {DTYPE_F16, 3, 1, 64, 64, 0, 70, 0, 0},       {DTYPE_BF16, 9, 3, 64, 64, 62, 5, 0, 0},
    {DTYPE_F16, 8, 1, 128, 128, 63, 1, 0, 0},     {DTYPE_F16, 4, 4, 32, 48, 64, 1, 0, 0},
    {DTYPE_F32, 6, 2, 20, 12, 254, 4, 0, 0},      {DTYPE_F16, 9, 3, 64, 64, 255, 1, 0, 0},
    {DTYPE_F16, 9, 3, 64, 64, 256, 1, 0, 0},      {DTYPE_BF16, 2, 2, 80, 80, 510, 3, 0, 0},
    {DTYPE_F32, 70, 1, 8, 8, 300, 2, 0, 0},       {DTYPE_F16, 5, 5, 1, 3, 128, 33, 0, 0},
    {DTYPE_F16, 16, 2, 64, 64, 769, 1, 0, 0},     {DTYPE_F32, 2, 1, 16, 16, 0, 40, 1, 0},
    {DTYPE_F16, 9, 3, 64, 64, 0, 200, 7, 0},      {DTYPE_F32, 4, 1, 24, 24, 250, 20, 64, 0},
    {DTYPE_F16, 4, 1, 256, 256, 500, 90, 65, 0},  {DTYPE_BF16, 8, 2, 32, 32, 700, 1, 300, 0},
    {DTYPE_F16, 2, 2, 16, 16, 1000, 1, 1000, 0},  {DTYPE_F16, 2, 2, 16, 16, 30, 9, 100, 0},
    {DTYPE_F32, 3, 3, 20, 20, 1023, 1, 256, 0},   {DTYPE_F32, 6, 2, 32, 32, 250, 20, 0, 5},
    {DTYPE_F16, 9, 3, 64, 64, 300, 70, 33, 0.5f}, {DTYPE_F16, 80, 1, 8, 8, 600, 2, 513, 50},
};

Test(test_attention, rows_equal_the_reference)
{
    ThreadPool *pool = NULL;
    Error error;
    char text[200];
    cr_assert(threads_new(3, &pool, &error), "%s", error.text);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        Problem p = make_problem(shapes[i], 3);
        float *want = run(&p, kernels_ref()->attention, (Stream){0});
        const KernelTable *table;
        for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
            float *got = run(&p, table->attention, (Stream){.pool = i % 2 ? pool : NULL});
            Tolerance close = {.abs = 6e-6, .rel = 1e-5, .min_cosine = 0.999999999};
            cr_assert(compare_floats(got, want, p.out_floats, close, text, sizeof text), "%s shape %zu: %s",
                      table->name, i, text);
            free(got);
        }
        free(want);
        free_problem(&p);
    }
    threads_free(pool);
}

/* The same rows in one span, in two, or one by one on one thread or three: equal bits, since a prompt may come in any
 * chunks and a long context is shared out to threads. */
static void check_same_bits(Shape shape, ThreadPool *pool)
{
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
        Problem p = make_problem(shape, 3);
        float *together = run(&p, table->attention, (Stream){.pool = pool});
        AttnSpan halves[2] = {p.span, p.span};
        halves[0].n_rows = 31;
        halves[1] = (AttnSpan){.kv = p.span.kv, .first_row = 31, .n_rows = 29, .first_pos = 480 + 31};
        float *split = must(malloc(p.out_floats * sizeof(float))), *alone = must(malloc(p.out_floats * sizeof(float)));
        p.params.spans = halves;
        p.params.n_spans = 2;
        p.params.out = split;
        cr_assert(table->attention(&p.params, (Stream){0}));
        p.params.out = alone;
        for (uint32_t r = 0; r < shape.n_rows; r++) {
            AttnSpan one = {.kv = p.span.kv, .first_row = r, .n_rows = 1, .first_pos = 480 + r};
            p.params.spans = &one;
            p.params.n_spans = 1;
            cr_assert(table->attention(&p.params, (Stream){.pool = r % 2 ? pool : NULL}));
        }
        cr_assert_eq(memcmp(together, split, p.out_floats * sizeof(float)), 0, "%s: split in two", table->name);
        cr_assert_eq(memcmp(together, alone, p.out_floats * sizeof(float)), 0, "%s: row by row", table->name);
        free(together);
        free(split);
        free(alone);
        free_problem(&p);
    }
}

Test(test_attention, chunking_and_threads_do_not_change_a_bit)
{
    const uint32_t windows[] = {0, 1, 20, 100, 256, 500};
    ThreadPool *pool = NULL;
    Error error;
    cr_assert(threads_new(3, &pool, &error), "%s", error.text);
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        check_same_bits((Shape){DTYPE_F16, 9, 3, 64, 64, 480, 60, windows[i], i % 2 ? 3 : 0}, pool);
    threads_free(pool);
}

/* What a window has left behind counts for nothing, whatever it is; a row on the edge still sees it. */
Test(test_attention, nan_before_the_window_is_not_seen)
{
    const Shape shape = {DTYPE_F32, 2, 1, 16, 16, 0, 90, 12, 0};
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
        for (int in_key = 0; in_key < 2; in_key++) {
            Problem p = make_problem(shape, 1);
            ((float *)(in_key ? p.span.kv.k : p.span.kv.v))[21 * 16 + 3] = NAN;
            float *out = run(&p, table->attention, (Stream){0});
            for (uint32_t r = 0; r < shape.n_rows; r++)
                cr_assert_eq(isnan(out[r * 32 + 3]) != 0, r >= 21 && r < 21 + 12, "%s: row %u, NaN in %s", table->name,
                             r, in_key ? "key" : "value");
            free(out);
            free_problem(&p);
        }
}

/* A broken value must reach the rows that see it, and no earlier one, though they share its block. */
Test(test_attention, nan_reaches_later_rows_only)
{
    const Shape shape = {DTYPE_F32, 2, 1, 16, 16, 0, 40, 0, 0};
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
        for (int in_key = 0; in_key < 2; in_key++) {
            Problem p = make_problem(shape, 1);
            ((float *)(in_key ? p.span.kv.k : p.span.kv.v))[21 * 16 + 3] = NAN;
            float *out = run(&p, table->attention, (Stream){0});
            for (uint32_t r = 0; r < shape.n_rows; r++)
                cr_assert_eq(isnan(out[r * 32 + 3]) != 0, r >= 21, "%s: row %u, NaN in %s", table->name, r,
                             in_key ? "key" : "value");
            free(out);
            free_problem(&p);
        }
}

/* Scores far apart, and so high that exp would overflow unless the maximum is taken off. */
Test(test_attention, huge_scores)
{
    const Shape shape = {DTYPE_F32, 3, 1, 16, 16, 200, 2, 0, 0};
    char text[200];
    const KernelTable *table;
    Problem p = make_problem(shape, 1);
    p.params.scale = 1000;
    float *want = run(&p, kernels_ref()->attention, (Stream){0});
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
        float *got = run(&p, table->attention, (Stream){0});
        Tolerance close = {.abs = 0.02, .rel = 0, .min_cosine = 0.9999};
        cr_assert(compare_floats(got, want, p.out_floats, close, text, sizeof text), "%s: %s", table->name, text);
        free(got);
    }
    free(want);
    free_problem(&p);
}

Test(test_attention, unknown_type_is_refused)
{
    Problem p = make_problem((Shape){DTYPE_F32, 1, 1, 16, 16, 0, 1, 0, 0}, 1);
    const KernelTable *table;
    float out[16];
    p.span.kv.type = DTYPE_Q8_0;
    p.params.spans = &p.span;
    p.params.out = out;
    cr_assert_not(attention_ref(&p.params));
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++) cr_assert_not(table->attention(&p.params, (Stream){0}));
    free_problem(&p);
}

Test(test_attention, kv_append_rounds_and_places)
{
    const DType types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (size_t i = 0; i < 3; i++) {
        enum { HEADS = 2, DIM = 5, CAPACITY = 50, ROWS = 40 };
        float x[ROWS * HEADS * DIM], back[HEADS * CAPACITY * DIM] = {0};
        uint16_t half[HEADS * CAPACITY * DIM] = {0};
        void *cache = types[i] == DTYPE_F32 ? (void *)back : (void *)half;
        uint64_t seed = 3;
        random_floats(&seed, x, ROWS * HEADS * DIM, 2);
        AttnSpan spans[2] = {{{cache, cache, types[i], HEADS, DIM, DIM, CAPACITY}, 0, 30, 4},
                             {{cache, cache, types[i], HEADS, DIM, DIM, CAPACITY}, 30, 10, 34}};
        KvAppendParams params = {x, x, spans, 2};
        cr_assert(kernels_cpu()->kv_append(&params, (Stream){0}));
        for (int h = 0; h < HEADS; h++)
            for (int r = 0; r < ROWS; r++)
                for (int c = 0; c < DIM; c++) {
                    float want = x[(r * HEADS + h) * DIM + c];
                    int at = (h * CAPACITY + 4 + r) * DIM + c;
                    if (types[i] == DTYPE_F16) want = f32_from_f16(f16_from_f32(want));
                    if (types[i] == DTYPE_BF16) want = f32_from_bf16(bf16_from_f32(want));
                    float got = types[i] == DTYPE_F32   ? back[at]
                                : types[i] == DTYPE_F16 ? f32_from_f16(half[at])
                                                        : f32_from_bf16(half[at]);
                    cr_assert_eq(got, want);
                }
    }
}
