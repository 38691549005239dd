/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/device_layout.h"
#include "kernels/linear/matmul_queue.h"
#include "kernels/linear/dequant.h"
#include "tests/gpu/device_check.h"
#include "tests/support/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 130, Y_PAD = 3 };
static uint64_t seed = 77;

/* Largest ||got - want|| / ||want|| of up to few_rows() tokens, and of more. */
static const struct {
    DType type;
    double few, many;
} TYPES[] = {
    {DTYPE_F32, 3e-6, 3e-6},    {DTYPE_F16, 1e-5, 1.2e-2},    {DTYPE_BF16, 3e-5, 1.2e-2},   {DTYPE_Q4_0, 2e-3, 1.2e-2},
    {DTYPE_Q4_1, 2e-3, 1.2e-2}, {DTYPE_Q5_0, 2e-3, 1.2e-2},   {DTYPE_Q5_1, 2e-3, 1.2e-2},   {DTYPE_Q8_0, 2e-3, 1.2e-2},
    {DTYPE_Q2_K, 2e-3, 1.2e-2}, {DTYPE_Q3_K, 2e-3, 1.2e-2},   {DTYPE_Q4_K, 2e-3, 1.2e-2},   {DTYPE_Q5_K, 2e-3, 1.2e-2},
    {DTYPE_Q6_K, 2e-3, 1.2e-2}, {DTYPE_IQ4_NL, 2e-3, 1.2e-2}, {DTYPE_IQ4_XS, 2e-3, 1.2e-2}, {DTYPE_MXFP4, 2e-3, 1.2e-2},
};
enum { N_TYPES = sizeof TYPES / sizeof *TYPES };
static double largest[N_TYPES];

typedef struct Problem {
    MatmulParams host, device;
    size_t y_floats[MATMUL_MAX_OUT];
    void *packed[MATMUL_MAX_OUT], *rows[MATMUL_MAX_OUT];
    float *x, *before[MATMUL_MAX_OUT];
    uint32_t max_tokens;
} Problem;

static void *checked_alloc(size_t bytes)
{
    void *p = calloc(bytes ? bytes : 1, 1);
    if (!p) exit(1);
    return p;
}

static void add_out(Problem *p, DType type, uint32_t n_rows, bool has_bias, bool accumulate)
{
    uint32_t i = p->host.n_out++, cols = p->host.n_cols;
    size_t stride = n_rows + Y_PAD, bytes = device_matrix_bytes(type, n_rows, cols);
    float *bias = checked_alloc((n_rows + 1) * sizeof *bias), *y = checked_alloc(p->max_tokens * stride * sizeof *y);
    void *packed = checked_alloc(bytes);
    p->rows[i] = checked_alloc(n_rows * dtype_row_bytes(type, cols));
    p->y_floats[i] = p->max_tokens * stride;
    random_weights(&seed, type, p->rows[i], (size_t)n_rows * cols);
    random_floats(&seed, bias, n_rows, 1);
    random_floats(&seed, y, p->y_floats[i], 1);
    p->before[i] = checked_alloc(p->y_floats[i] * sizeof *y);
    memcpy(p->before[i], y, p->y_floats[i] * sizeof *y);
    device_report(device_matrix_pack(type, p->rows[i], n_rows, cols, 0, (n_rows + 15) / 16, packed), "pack");
    p->packed[i] = device_new(packed, bytes);
    free(packed);
    p->host.out[i] = (MatmulOut){p->rows[i], type, n_rows, y, stride, has_bias ? bias : NULL, accumulate};
    p->device.n_out = p->host.n_out;
    p->device.out[i] = p->host.out[i];
    p->device.out[i].w = p->packed[i];
    if (has_bias) p->device.out[i].bias = device_new(bias, n_rows * sizeof *bias);
    if (!has_bias) free(bias);
}

/* pad: floats between rows of x; a multiple of 4 leaves them aligned, for which there are kernels of their own. */
static Problem new_padded_problem(uint32_t max_tokens, uint32_t n_cols, uint32_t pad)
{
    Problem p = {.max_tokens = max_tokens};
    size_t n = (size_t)max_tokens * (n_cols + pad);
    p.x = checked_alloc(n * sizeof *p.x);
    random_floats(&seed, p.x, n, 2);
    p.host = (MatmulParams){.x = p.x, .x_stride = n_cols + pad, .n_tokens = max_tokens, .n_cols = n_cols};
    p.host.scratch = checked_alloc(matmul_scratch_bytes(max_tokens, n_cols));
    p.device = p.host;
    p.device.x = device_new(p.x, n * sizeof *p.x);
    return p;
}

static Problem new_problem(uint32_t max_tokens, uint32_t n_cols)
{
    return new_padded_problem(max_tokens, n_cols, 1);
}

static void close_problem(Problem *p)
{
    for (uint32_t i = 0; i < p->host.n_out; i++) {
        free((void *)(uintptr_t)p->host.out[i].bias);
        if (p->device.out[i].bias) device_free((void *)(uintptr_t)p->device.out[i].bias);
        free(p->host.out[i].y);
        free(p->before[i]);
        free(p->rows[i]);
        device_free(p->packed[i]);
    }
    device_free((void *)(uintptr_t)p->device.x);
    free(p->host.scratch);
    free(p->x);
}

static double squares(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    return sum;
}

/* Of all rows of a weight matrix. */
static double weight_squares(const MatmulOut *out, uint32_t n_cols)
{
    float *row = checked_alloc(n_cols * sizeof *row);
    double sum = 0;
    for (uint32_t r = 0; r < out->n_rows; r++) {
        if (!dequant_row_ref(out->type, (const char *)out->w + r * dtype_row_bytes(out->type, n_cols), row, n_cols))
            exit(1);
        sum += squares(row, n_cols);
    }
    free(row);
    return sum;
}

/*
 * The worst error of n tokens, against what products of rows of that length come to when they don't cancel; what lies
 * between the rows must be as it was.
 */
static double error_of(const Problem *p, uint32_t i, const float *got, uint32_t n_tokens, bool *ret_kept)
{
    const MatmulOut *out = &p->host.out[i];
    double off = 0, worst = 0, of_weights = weight_squares(out, p->host.n_cols) / p->host.n_cols;
    for (size_t at = 0; at < p->y_floats[i]; at++) {
        size_t token = at / out->y_stride, row = at % out->y_stride;
        if (row >= out->n_rows || token >= n_tokens) {
            *ret_kept &= memcmp(&got[at], &p->before[i][at], sizeof *got) == 0;
            continue;
        }
        off += pow((double)got[at] - out->y[at], 2);
        if (row < out->n_rows - 1) continue;
        double scale = of_weights * squares(p->host.x + token * p->host.x_stride, p->host.n_cols);
        if (!(sqrt(off / scale) <= worst)) worst = sqrt(off / scale); /* a NaN counts too */
        off = 0;
    }
    return worst;
}

/* Tokens for which no cuBLAS multiplies. */
static uint32_t few_rows(DType type)
{
    return type == DTYPE_F32 || type == DTYPE_BF16 ? MATMUL_CUDA_PLAIN_ROWS : MATMUL_CUDA_ROWS;
}

/* The largest error of each type up to few_rows() tokens, where weights and x alone are rounded. */
static void note_error(DType type, uint32_t n_tokens, double error)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (TYPES[i].type == type && n_tokens <= few_rows(type) && error > largest[i]) largest[i] = error;
}

static void print_errors(void)
{
    printf("largest errors:");
    for (size_t i = 0; i < N_TYPES; i++) printf(" %s %.1e", dtype_info(TYPES[i].type)->name, largest[i]);
    printf("\n");
}

/* The first n_tokens rows on the device, against what host.out[].y holds. */
static void check_tokens(const KernelTable *table, Stream stream, Problem *p, uint32_t n_tokens, const double *limits,
                         const char *name)
{
    for (uint32_t i = 0; i < p->host.n_out; i++)
        p->device.out[i].y = device_new(p->before[i], p->y_floats[i] * sizeof(float));
    p->device.n_tokens = n_tokens;
    p->device.scratch = device_new(NULL, matmul_cuda_scratch_bytes(n_tokens, p->host.n_cols));
    device_check(cudaMemset(p->device.scratch, 0xFF, matmul_cuda_scratch_bytes(n_tokens, p->host.n_cols)), "poisoning");
    bool ran = table->matmul(&p->device, stream);
    for (uint32_t i = 0; i < p->host.n_out; i++) {
        float *got = checked_alloc(p->y_floats[i] * sizeof *got);
        bool kept = true;
        device_read(got, p->device.out[i].y, p->y_floats[i] * sizeof *got);
        double error = error_of(p, i, got, n_tokens, &kept);
        note_error(p->host.out[i].type, n_tokens, error);
        device_report(ran && kept && error <= limits[i],
                      "%s, %s %u x %u, %u tokens: ran %d, kept %d, error %.3g, at most %.3g", name,
                      dtype_info(p->host.out[i].type)->name, p->host.out[i].n_rows, p->host.n_cols, n_tokens, ran, kept,
                      error, limits[i]);
        device_free(p->device.out[i].y);
        free(got);
    }
    device_free(p->device.scratch);
}

static double limit_of(DType type, uint32_t n_tokens)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (TYPES[i].type == type) return n_tokens <= few_rows(type) ? TYPES[i].few : TYPES[i].many;
    return 0;
}

static void check_problem(const KernelTable *table, Stream stream, Problem *p, const uint32_t *tokens, size_t n,
                          const char *name)
{
    if (!matmul_exact_ref(&p->host)) device_report(false, "%s: no reference", name);
    for (size_t i = 0; i < n; i++) {
        double limits[MATMUL_MAX_OUT];
        for (uint32_t j = 0; j < p->host.n_out; j++) limits[j] = limit_of(p->host.out[j].type, tokens[i]);
        check_tokens(table, stream, p, tokens[i], limits, name);
    }
}

/* Every type at its block minimum and above, from 1 token to more than the decode kernels take. */
static void test_types(const KernelTable *table, Stream stream)
{
    static const uint32_t tokens[] = {1, 2, 7, 8, 9, 15, 16, 17, 32, 33, 63, 64, 65, 130}, blocks[] = {1, 3, 11, 12},
                          few[] = {1, 2, 16, 40, 65};
    for (size_t i = 0; i < N_TYPES; i++) {
        for (size_t b = 0; b < 4; b++) {
            bool all = b == 1, is_aligned = b == 0 || b == 3;
            const uint32_t n_cols = blocks[b] * dtype_info(TYPES[i].type)->block_elements;
            Problem p = new_padded_problem(MAX_TOKENS, n_cols, is_aligned ? 4 : 1);
            add_out(&p, TYPES[i].type, b ? 37 : 1, b % 2 == 1, b == 2);
            check_problem(table, stream, &p, all ? tokens : few, all ? sizeof tokens / sizeof *tokens : 5, "types");
            close_problem(&p);
        }
    }
}

/* More rows than teams, and rows of x that shared memory holds in parts only. */
static void test_large(const KernelTable *table, Stream stream)
{
    static const DType types[] = {DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_BF16};
    static const uint32_t one[] = {1}, batch[] = {1, 2, 5, 8, 16, 17, 33, 64};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const size_t n = sizeof batch / sizeof *batch;
        Problem tall = new_padded_problem(1, 512, i % 2), wide = new_padded_problem(64, 14336, 0),
                odd = new_problem(64, 4096 + 256);
        add_out(&tall, types[i], 8453, true, true);
        check_problem(table, stream, &tall, one, 1, "tall");
        add_out(&wide, types[i], 33, false, true);
        check_problem(table, stream, &wide, batch, n, "wide");
        add_out(&odd, types[i], 16, false, false);
        check_problem(table, stream, &odd, batch, n, "odd");
        close_problem(&tall);
        close_problem(&wide);
        close_problem(&odd);
    }
    for (uint32_t rows = 65535; rows <= 65537; rows++) {
        Problem p = new_problem(2, 32);
        static const uint32_t two[] = {2};
        add_out(&p, DTYPE_Q4_0, rows, false, false);
        check_problem(table, stream, &p, two, 1, "rows");
        close_problem(&p);
    }
    for (uint32_t tokens = 65535; tokens <= 65537; tokens++) {
        Problem p = new_problem(tokens, 32);
        add_out(&p, DTYPE_Q8_0, 3, true, false);
        check_problem(table, stream, &p, &tokens, 1, "tokens");
        close_problem(&p);
    }
}

/* Several outputs at once, of several types, with biases and a residual. */
static void test_outputs(const KernelTable *table, Stream stream)
{
    static const uint32_t tokens[] = {1, 4, 16, 64, 65};
    Problem r = new_padded_problem(MAX_TOKENS, 768, 4);
    add_out(&r, DTYPE_Q8_0, 2200, true, true);
    add_out(&r, DTYPE_Q8_0, 1, false, false);
    add_out(&r, DTYPE_Q6_K, 50, true, true);
    add_out(&r, DTYPE_Q8_0, 40, false, true);
    check_problem(table, stream, &r, tokens, 5, "outputs");
    close_problem(&r);
    Problem p = new_problem(MAX_TOKENS, 768);
    add_out(&p, DTYPE_Q4_K, 100, true, false);
    add_out(&p, DTYPE_Q6_K, 50, true, true);
    add_out(&p, DTYPE_Q4_K, 17, false, true);
    add_out(&p, DTYPE_BF16, 31, true, false);
    check_problem(table, stream, &p, tokens, 5, "outputs");
    close_problem(&p);
    Problem q = new_problem(MAX_TOKENS, 64);
    add_out(&q, DTYPE_F32, 5, true, true);
    add_out(&q, DTYPE_F16, 40, true, true);
    add_out(&q, DTYPE_Q8_0, 0, false, false);
    check_problem(table, stream, &q, tokens, 5, "outputs");
    close_problem(&q);
}

/* Norm and gate of the input: the same as doing them first. */
static void test_fused(const KernelTable *table, Stream stream, uint32_t n_cols, uint32_t pad)
{
    static const uint32_t tokens[] = {1, 2, 3, 16, 17, 65, 130};
    const size_t n_checked = sizeof tokens / sizeof *tokens;
    Problem p = new_padded_problem(MAX_TOKENS, n_cols, pad);
    size_t stride = n_cols + pad, n = MAX_TOKENS * stride;
    float *weight = checked_alloc(n * sizeof *weight), *after = checked_alloc(n * sizeof *after);
    random_floats(&seed, weight, n, 1.5f);
    add_out(&p, DTYPE_Q8_0, 40, true, true);
    add_out(&p, DTYPE_BF16, 20, false, true);
    add_out(&p, n_cols % 256 ? DTYPE_Q5_1 : DTYPE_Q4_K, 33, true, false);
    p.host.x = after;
    for (uint32_t t = 0; t < MAX_TOKENS; t++) {
        RmsNormParams norm = {p.x + t * stride, weight, after + t * stride, 1, n_cols, 1e-5f};
        rmsnorm_ref(&norm);
    }
    p.device.norm_eps = 1e-5f;
    float *d_weight = device_new(weight, n * sizeof *weight);
    p.device.norm_weight = d_weight;
    check_problem(table, stream, &p, tokens, n_checked, "norm");
    GluParams glu = {p.x, weight, after, n, GLU_GELU_TANH};
    glu_ref(&glu);
    for (uint32_t i = 0; i < 3; i++) memcpy(p.host.out[i].y, p.before[i], p.y_floats[i] * sizeof(float));
    p.device.norm_weight = NULL;
    p.device.glu_up = d_weight;
    p.device.glu_activation = GLU_GELU_TANH;
    check_problem(table, stream, &p, tokens, n_checked, "gate");
    p.device.norm_weight = d_weight;
    device_report(!table->matmul(&p.device, stream), "norm and gate at once are refused");
    device_free(d_weight);
    free(weight);
    free(after);
    close_problem(&p);
}

/* got: out[0] after the gate of n_tokens rows; the relative error. */
static double gated_error(const Problem *p, const float *got, uint32_t n_tokens)
{
    const MatmulOut *gate = &p->host.out[0], *up = &p->host.out[1];
    double off = 0, all = 0;
    for (uint32_t t = 0; t < n_tokens; t++) {
        for (uint32_t r = 0; r < gate->n_rows; r++) {
            double x = gate->y[t * gate->y_stride + r], want = x / (1 + exp(-x)) * up->y[t * up->y_stride + r];
            off += pow(got[t * gate->y_stride + r] - want, 2);
            all += want * want;
        }
    }
    return sqrt(off / all);
}

/* A gate of the results, whether one kernel does it or another afterwards. */
static void test_gated(const KernelTable *table, Stream stream, DType of_gate, DType of_up, uint32_t n_rows)
{
    static const uint32_t tokens[] = {1, 2, 5, 8, 9, 17, 32, 64, 70, 130};
    const uint32_t n_cols = 768;
    Problem p = new_padded_problem(MAX_TOKENS, n_cols, 4);
    for (size_t i = 0; i < (size_t)MAX_TOKENS * (n_cols + 4); i++) p.x[i] *= 0.05f;
    device_check(
        cudaMemcpy((void *)(uintptr_t)p.device.x, p.x, MAX_TOKENS * (n_cols + 4) * sizeof *p.x, cudaMemcpyHostToDevice),
        "x");
    add_out(&p, of_gate, n_rows, true, false);
    add_out(&p, of_up, n_rows, true, false);
    add_out(&p, DTYPE_Q5_0, 20, false, false);
    if (!matmul_exact_ref(&p.host)) device_report(false, "gated: no reference");
    p.device.is_gated = true;
    for (size_t i = 0; i < 2 * sizeof tokens / sizeof *tokens; i++) {
        uint32_t n = tokens[i / 2];
        float *got = checked_alloc(p.y_floats[0] * sizeof *got);
        p.device.n_tokens = n;
        p.device.is_deterministic = i % 2;
        p.device.scratch = device_new(NULL, matmul_cuda_scratch_bytes(n, n_cols));
        for (uint32_t j = 0; j < 3; j++) p.device.out[j].y = device_new(p.before[j], p.y_floats[j] * sizeof *got);
        bool ran = table->matmul(&p.device, stream);
        device_read(got, p.device.out[0].y, p.y_floats[0] * sizeof *got);
        double error = gated_error(&p, got, n), limit = n <= few_rows(of_gate) ? 4e-3 : 2.4e-2;
        device_report(ran && error <= limit, "gated, %s and %s, %u tokens: ran %d, error %.3g, at most %.3g",
                      dtype_info(of_gate)->name, dtype_info(of_up)->name, n, ran, error, limit);
        for (uint32_t j = 0; j < 3; j++) device_free(p.device.out[j].y);
        device_free(p.device.scratch);
        free(got);
    }
    p.device.out[1].accumulate = true;
    device_report(!table->matmul(&p.device, stream), "a gate of sums is refused");
    close_problem(&p);
}

/* x with one wild value: of great size, or not finite; in rows of great and of tiny values. */
static void test_wild(const KernelTable *table, Stream stream, uint32_t n_tokens, uint32_t pad)
{
    enum { COLS = 512, ROWS = 20 };
    const uint32_t stride = COLS + pad;
    for (size_t i = 0; i < N_TYPES; i++) {
        Problem p = new_padded_problem(n_tokens, COLS, pad);
        float wild[3] = {1e30f, -3e-30f, NAN}, *got;
        for (uint32_t t = 0; t < 2; t++)
            for (uint32_t c = 0; c < COLS; c++) p.x[t * stride + c] *= fabsf(wild[t]);
        device_check(cudaMemcpy((void *)(uintptr_t)p.device.x, p.x, 2 * stride * sizeof *p.x, cudaMemcpyHostToDevice),
                     "x");
        add_out(&p, TYPES[i].type, ROWS, false, false);
        check_problem(table, stream, &p, &n_tokens, 1, "wild");
        p.device.n_tokens = n_tokens;
        device_check(
            cudaMemcpy((void *)(uintptr_t)(p.device.x + stride + 7), &wild[2], sizeof(float), cudaMemcpyHostToDevice),
            "copying a NaN");
        p.device.out[0].y = device_new(p.before[0], p.y_floats[0] * sizeof(float));
        p.device.scratch = device_new(NULL, matmul_cuda_scratch_bytes(n_tokens, COLS));
        bool good = table->matmul(&p.device, stream);
        got = checked_alloc(p.y_floats[0] * sizeof *got);
        device_read(got, p.device.out[0].y, p.y_floats[0] * sizeof *got);
        for (uint32_t at = 0; at < n_tokens * (ROWS + Y_PAD); at++)
            if (at % (ROWS + Y_PAD) < ROWS) good = good && isnan(got[at]) == (at / (ROWS + Y_PAD) == 1);
        free(got);
        device_report(good, "a NaN stays in its row, %s", dtype_info(TYPES[i].type)->name);
        device_free(p.device.out[0].y);
        device_free(p.device.scratch);
        close_problem(&p);
    }
}

/* Sizes around the tiles of gemm.cuh: of rows, of tokens, and more tiles than blocks, some of them shared. */
static void test_tiles(const KernelTable *table, Stream stream, DType type)
{
    static const uint32_t tokens[] = {17, 24, 63, 64, 65, 100, 127, 128, 129, 200, 256, 257}, few[] = {17, 64, 200},
                          many[] = {2049, 2048, 1000, 130};
    static const struct {
        uint32_t rows, cols, pad;
    } shapes[] = {{255, 768, 4}, {257, 256, 0}, {1030, 1536, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        Problem p = new_padded_problem(257, shapes[i].cols, shapes[i].pad);
        add_out(&p, type, shapes[i].rows, i != 1, i == 1);
        check_problem(table, stream, &p, tokens, sizeof tokens / sizeof *tokens, "tiles");
        close_problem(&p);
    }
    Problem outs = new_padded_problem(200, 512, 4), tall = new_padded_problem(2049, 256, 0);
    add_out(&outs, type, 300, true, true);
    add_out(&outs, type, 7, false, false);
    add_out(&outs, DTYPE_Q5_1, 40, false, false);
    add_out(&outs, type, 500, true, false);
    check_problem(table, stream, &outs, few, 3, "tiles of several outputs");
    close_problem(&outs);
    add_out(&tall, type, 4200, true, true);
    check_problem(table, stream, &tall, many, sizeof many / sizeof *many, "more tiles than blocks");
    close_problem(&tall);
}

/* A token alone and in a batch: the same bits. */
static void test_alone(const KernelTable *table, Stream stream, DType type, uint32_t n_cols)
{
    enum { ROWS = 50, BATCH = 67 };
    Problem p = new_problem(BATCH, n_cols);
    add_out(&p, type, ROWS, false, false);
    p.device.is_deterministic = true;
    float *alone = checked_alloc(p.y_floats[0] * sizeof *alone), *batch = checked_alloc(p.y_floats[0] * sizeof *batch);
    p.device.scratch = device_new(NULL, matmul_cuda_scratch_bytes(BATCH, n_cols));
    float *y = device_new(p.before[0], p.y_floats[0] * sizeof *y);
    p.device.out[0].y = y;
    bool good = table->matmul(&p.device, stream);
    device_read(batch, y, p.y_floats[0] * sizeof *y);
    MatmulParams one = p.device;
    one.n_tokens = 1;
    for (uint32_t t = 0; t < BATCH; t++, one.x += one.x_stride, one.out[0].y += one.out[0].y_stride)
        good = good && table->matmul(&one, stream);
    device_read(alone, y, p.y_floats[0] * sizeof *y);
    good = good && memcmp(alone, batch, p.y_floats[0] * sizeof *y) == 0;
    device_report(good, "a token alone and in a batch differ, %s, %u columns", dtype_info(type)->name, n_cols);
    device_free(y);
    device_free(p.device.scratch);
    free(alone);
    free(batch);
    close_problem(&p);
}

/* One of the products of a chain: of x, into y, which may hold sums already. */
static MatmulParams chained(const MatmulParams *of, const float *x, float *y, uint32_t stride, bool accumulate)
{
    MatmulParams params = *of;
    params.x = x;
    params.x_stride = stride;
    params.out[0].y = y;
    params.out[0].y_stride = stride;
    params.out[0].accumulate = accumulate;
    return params;
}

/* Products that need each other, more than one kernel takes: as a chain, and one by one, several times over. */
static void test_chain(const KernelTable *table, Stream stream, DType type, uint32_t n_tokens, uint32_t n_cols)
{
    enum { LINKS = 7, ROUNDS = 4 };
    Problem p = new_padded_problem(n_tokens, n_cols, 0);
    const size_t bytes = (size_t)n_tokens * n_cols * sizeof(float);
    float *rows[3], *norm = device_new(p.x, n_cols * sizeof *norm),
                    *got[2] = {checked_alloc(bytes), checked_alloc(bytes)};
    add_out(&p, type, n_cols, false, false);
    for (int i = 0; i < 3; i++) rows[i] = device_new(p.x, bytes);
    for (int way = 0; way < 2; way++) {
        Stream on = stream;
        if (way) on.queue = matmul_queue_new();
        bool good = !way || on.queue;
        for (int round = 0; round < ROUNDS; round++) {
            for (int i = 0; i < 3; i++) device_check(cudaMemcpy(rows[i], p.x, bytes, cudaMemcpyHostToDevice), "x");
            for (int i = 0; i < LINKS; i++) {
                MatmulParams link = chained(&p.device, rows[i % 3], rows[(i + 1) % 3], n_cols, i % 2);
                link.norm_weight = norm;
                link.norm_eps = 1e-5f;
                good = good && table->matmul(&link, on);
            }
            good = good && matmul_queue_send(on);
            device_read(got[way], rows[LINKS % 3], bytes);
        }
        device_report(good, "a chain's launches, %s", dtype_info(type)->name);
        matmul_queue_free(on.queue);
    }
    double off = 0, all = 0;
    for (size_t i = 0; i < (size_t)n_tokens * n_cols; i++) {
        off += pow((double)got[0][i] - got[1][i], 2);
        all += pow(got[0][i], 2);
    }
    device_report(sqrt(off / all) < 1e-3, "a chain and its links, %s, %u tokens: %.3g apart", dtype_info(type)->name,
                  n_tokens, sqrt(off / all));
    for (int i = 0; i < 3; i++) device_free(rows[i]);
    free(got[0]);
    free(got[1]);
    device_free(norm);
    close_problem(&p);
}

void test_linear(const KernelTable *table, Stream stream, bool is_short)
{
    test_types(table, stream);
    test_outputs(table, stream);
    test_fused(table, stream, 512, 1);
    test_fused(table, stream, 96, 1);
    test_fused(table, stream, 96, 4);
    test_fused(table, stream, 512, 4);
    test_fused(table, stream, 4096, 0);
    test_fused(table, stream, 4352, 4);
    test_gated(table, stream, DTYPE_Q8_0, DTYPE_Q8_0, 100);
    test_gated(table, stream, DTYPE_Q4_K, DTYPE_Q4_K, 2128);
    test_gated(table, stream, DTYPE_Q4_K, DTYPE_Q6_K, 50);
    test_gated(table, stream, DTYPE_BF16, DTYPE_BF16, 48);
    test_gated(table, stream, DTYPE_Q5_0, DTYPE_Q5_0, 17);
    test_gated(table, stream, DTYPE_F32, DTYPE_F32, 5);
    test_wild(table, stream, 2, 0);
    test_wild(table, stream, 3, 1);
    test_wild(table, stream, 20, 4);
    test_wild(table, stream, 70, 4);
    test_tiles(table, stream, DTYPE_Q8_0);
    test_tiles(table, stream, DTYPE_Q4_K);
    for (size_t i = 0; i < N_TYPES; i++) test_alone(table, stream, TYPES[i].type, 768);
    test_chain(table, stream, DTYPE_Q8_0, 1, 2560);
    test_chain(table, stream, DTYPE_Q8_0, 2, 2560);
    test_chain(table, stream, DTYPE_Q4_K, 1, 2560);
    test_chain(table, stream, DTYPE_BF16, 1, 2560);
    test_chain(table, stream, DTYPE_BF16, 2, 2560);
    test_chain(table, stream, DTYPE_F16, 1, 1088); /* the last unit of a row is not a whole one */
    test_chain(table, stream, DTYPE_Q6_K, 1, 2560);
    test_chain(table, stream, DTYPE_Q5_1, 2, 2560);
    test_alone(table, stream, DTYPE_Q4_K, 14336);
    test_alone(table, stream, DTYPE_BF16, 8192);
    if (!is_short) test_large(table, stream);
    MatmulParams unknown = {.n_tokens = 1, .n_cols = 32, .n_out = 1, .out = {{.type = (DType)99, .n_rows = 1}}};
    device_report(!table->matmul(&unknown, stream), "matmul takes type 99");
    print_errors();
}

void test_linear_race(const KernelTable *table, Stream stream)
{
    static const DType types[] = {DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_BF16};
    static const uint32_t tokens[] = {1, 2, 20, 40}; /* gemv.cuh's order by mbarriers is none to the checker */
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        Problem p = new_padded_problem(40, 1536, 4);
        add_out(&p, types[i], 100, true, true);
        check_problem(table, stream, &p, tokens, types[i] == DTYPE_BF16 ? 2 : 4, "race");
        close_problem(&p);
        test_chain(table, stream, types[i], 1, 512);
    }
}
