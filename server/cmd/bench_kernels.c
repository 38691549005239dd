/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times the CPU kernels on the shapes of SmolLM2-135M, beside the bytes that a call ought to move. Weights of a shape
 * are repeated until they leave the caches near the cores.
 */
#include "server/cmd/bench.h"
#include "base/clock.h"
#include "server/cmd/progress.h"
#include "server/json_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BYTES = 96 << 20, ROUNDS = 5, MAX_TOKENS = 256, MAX_COLS = 1536, MAX_ROWS = 49152, MAX_FIGURES = 100 };

typedef struct KernelFigure {
    char what[80];
    double usec;  /* of one call */
    double bytes; /* that it ought to move */
    double n_mul;
} KernelFigure;

typedef struct KernelBench {
    const KernelTable *table;
    Stream stream;
    uint8_t *weights; /* ARENA_BYTES */
    float *x, *y;
    void *scratch;
    double ceiling; /* bytes a microsecond */
    KernelFigure figures[MAX_FIGURES];
    uint32_t n_figures;
    Progress progress;
} KernelBench;

static double best_usec(double best, uint64_t begin_usec)
{
    double usec = (double)(clock_now_usec() - begin_usec);
    if (usec < 1) usec = 1; /* the clock's own step */
    return usec < best ? usec : best;
}

static bool refused(const KernelBench *bench, const char *what, Error *error)
{
    return error_set(error, ERR_INTERNAL, "%s has no %s", bench->table->name, what);
}

static void add_figure(KernelBench *bench, const char *what, double usec, double bytes, double n_mul)
{
    enum { N_ROUGHLY = 84 };
    KernelFigure *figure = &bench->figures[bench->n_figures++];
    snprintf(figure->what, sizeof figure->what, "%s", what);
    figure->usec = usec;
    figure->bytes = bytes;
    figure->n_mul = n_mul;
    progress_update(&bench->progress, bench->n_figures < N_ROUGHLY ? (double)bench->n_figures / N_ROUGHLY : 1);
}

static bool time_matmul(KernelBench *bench, DType type, uint32_t n_rows, uint32_t n_cols, uint32_t n_tokens,
                        Error *error)
{
    char what[80];
    double best = 1e30;
    size_t bytes = dtype_row_bytes(type, n_cols) * n_rows, copies = ARENA_BYTES / bytes;
    if (copies > 64 / n_tokens + 4) copies = 64 / n_tokens + 4;
    MatmulParams params = {.x = bench->x,
                           .x_stride = n_cols,
                           .n_tokens = n_tokens,
                           .n_cols = n_cols,
                           .n_out = 1,
                           .scratch = bench->scratch};
    params.out[0] = (MatmulOut){.type = type, .n_rows = n_rows, .y = bench->y, .y_stride = n_rows};
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin_usec = clock_now_usec();
        for (size_t i = 0; i < copies; i++) {
            params.out[0].w = bench->weights + i * bytes;
            if (!bench->table->matmul(&params, bench->stream)) return refused(bench, "matmul", error);
        }
        best = best_usec(best, begin_usec);
    }
    snprintf(what, sizeof what, "matmul %s %ux%u, %u tokens", dtype_info(type)->name, n_rows, n_cols, n_tokens);
    double per_call = best / (double)copies;
    add_figure(bench, what, per_call, (double)bytes + 4.0 * n_tokens * (n_cols + n_rows),
               (double)n_rows * n_cols * n_tokens);
    return true;
}

static bool time_matmuls(KernelBench *bench, Error *error)
{
    static const uint32_t n_tokens[] = {1, 8, 256};
    static const struct {
        DType type;
        uint32_t n_rows, n_cols;
    } weights[] = {
        {DTYPE_Q4_1, 576, 576},    {DTYPE_Q4_1, 192, 576},    {DTYPE_Q4_1, 1536, 576},  {DTYPE_Q4_1, 576, 1536},
        {DTYPE_Q8_0, 49152, 576},  {DTYPE_Q4_0, 576, 1536},   {DTYPE_Q5_0, 576, 1536},  {DTYPE_Q5_1, 576, 1536},
        {DTYPE_Q8_0, 576, 1536},   {DTYPE_IQ4_NL, 576, 1536}, {DTYPE_MXFP4, 576, 1536}, {DTYPE_Q2_K, 576, 1536},
        {DTYPE_Q3_K, 576, 1536},   {DTYPE_Q4_K, 576, 1536},   {DTYPE_Q5_K, 576, 1536},  {DTYPE_Q6_K, 576, 1536},
        {DTYPE_IQ4_XS, 576, 1536}, {DTYPE_F16, 576, 1536},    {DTYPE_BF16, 576, 1536},  {DTYPE_F32, 576, 1536},
    };
    for (size_t t = 0; t < sizeof n_tokens / sizeof *n_tokens; t++)
        for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
            if (!time_matmul(bench, weights[i].type, weights[i].n_rows, weights[i].n_cols, n_tokens[t], error))
                return false;
    return true;
}

static bool run_attend(KernelBench *bench, const AttendParams *params, double *ret_usec)
{
    enum { CALLS = 8 };
    double best = 1e30;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin_usec = clock_now_usec();
        for (int i = 0; i < CALLS; i++)
            if (!bench->table->attend(params, bench->stream)) return false;
        best = best_usec(best, begin_usec);
    }
    *ret_usec = best / CALLS;
    return true;
}

/* The shape of one layer, its pages one after the other; images, of quantised types, behind the pages. */
static bool time_attend(KernelBench *bench, KvType type, uint32_t first_pos, uint32_t n_rows, Error *error)
{
    enum { HEADS = 9, KV_HEADS = 3, DIM = 64, MAX_PAGES = 64 };
    const AttnPlan plans[KV_HEADS] = {{.recent = PLAN_ALL}, {.recent = PLAN_ALL}, {.recent = PLAN_ALL}};
    const KvHead heads[KV_HEADS] = {{0, 0}, {0, 1}, {0, 2}};
    uint32_t n_pages = (first_pos + n_rows + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS, pages[MAX_PAGES];
    KvPool pool = {(char *)bench->weights, 0, kv_layout(type, DIM, DIM)},
           images = {NULL, 0, kv_layout(KV_BF16, DIM, DIM)};
    pool.page_bytes = KV_HEADS * pool.layout.slot_bytes;
    images.base = pool.base + n_pages * pool.page_bytes;
    images.page_bytes = KV_HEADS * images.layout.slot_bytes;
    for (uint32_t i = 0; i < n_pages; i++) pages[i] = i;
    KvPages classes = {&pool, pages, &images, kv_type_info(type)->is_quantised ? pages : NULL, 0};
    KvSpan span = {&classes, heads, plans, 0, n_rows, first_pos};
    AttendParams params = {bench->x, bench->y, &span, 1, HEADS, KV_HEADS, DIM, DIM, 0.125f, 0, NULL};
    params.scratch =
        malloc(attend_scratch_bytes(threads_count(bench->stream.pool), HEADS, DIM, n_pages * KV_PAGE_TOKENS));
    if (!params.scratch) return error_set(error, ERR_NO_MEMORY, "no memory for attention");
    memset(bench->weights, 0x33, n_pages * (pool.page_bytes + images.page_bytes));
    double usec;
    bool ok = run_attend(bench, &params, &usec);
    free(params.scratch);
    if (!ok) return refused(bench, "attend", error);
    char what[80];
    snprintf(what, sizeof what, "attend %s 9/3 x 64, %u rows at %u", kv_type_info(type)->name, n_rows, first_pos);
    double pairs = n_rows * (first_pos + (n_rows + 1) / 2.0);
    add_figure(bench, what, usec, (double)n_pages * (double)pool.page_bytes, pairs * HEADS * DIM * 2);
    return true;
}

static bool time_attends(KernelBench *bench, Error *error)
{
    static const struct {
        uint32_t first_pos, n_rows;
    } rows[] = {{255, 1}, {2047, 1}, {0, 256}, {1792, 256}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int type = KV_F16; type < KV_N_TYPES; type++)
            if (!time_attend(bench, (KvType)type, rows[i].first_pos, rows[i].n_rows, error)) return false;
    return true;
}

static bool time_pointwise(KernelBench *bench, uint32_t n_tokens, Error *error)
{
    enum { CALLS = 32 };
    char what[80];
    double norm = 1e30, glu = 1e30;
    bool ok = true;
    RmsNormParams norm_params = {bench->x, bench->x, bench->y, n_tokens, 576, 1e-5f};
    GluParams glu_params = {bench->x, bench->x, bench->y, (size_t)n_tokens * 1536, GLU_SILU};
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin_usec = clock_now_usec();
        for (int i = 0; i < CALLS; i++) ok = bench->table->rmsnorm(&norm_params, bench->stream) && ok;
        norm = best_usec(norm, begin_usec);
        begin_usec = clock_now_usec();
        for (int i = 0; i < CALLS; i++) ok = bench->table->glu(&glu_params, bench->stream) && ok;
        glu = best_usec(glu, begin_usec);
    }
    if (!ok) return refused(bench, "rmsnorm or glu", error);
    snprintf(what, sizeof what, "rmsnorm %u x 576", n_tokens);
    add_figure(bench, what, norm / CALLS, n_tokens * 576 * 8.0, 0);
    snprintf(what, sizeof what, "glu %u x 1536", n_tokens);
    add_figure(bench, what, glu / CALLS, n_tokens * 1536 * 12.0, 0);
    return true;
}

static bool time_all(KernelBench *bench, Error *error)
{
    progress_begin(&bench->progress, "timing");
    bool ok = time_matmuls(bench, error) && time_attends(bench, error) && time_pointwise(bench, 1, error) &&
              time_pointwise(bench, 256, error);
    progress_end(&bench->progress);
    return ok;
}

static bool make_inputs(KernelBench *bench, uint32_t n_threads, Error *error)
{
    size_t n_x = (size_t)MAX_TOKENS * MAX_COLS, y_bytes = sizeof(float) * MAX_TOKENS * MAX_ROWS;
    bench->weights = aligned_alloc(64, ARENA_BYTES);
    bench->x = malloc(sizeof(float) * n_x);
    bench->y = malloc(y_bytes);
    bench->scratch = aligned_alloc(64, (matmul_scratch_bytes(MAX_TOKENS, MAX_COLS) + 63) / 64 * 64);
    if (!bench->weights || !bench->x || !bench->y || !bench->scratch)
        return error_set(error, ERR_NO_MEMORY, "no memory for the kernels' inputs");
    memset(bench->weights, 0x11, ARENA_BYTES);
    memset(bench->y, 0, y_bytes);
    for (size_t i = 0; i < n_x; i++) bench->x[i] = (float)(uint32_t)(i * 2654435761u) * 0x1p-31f - 1;
    if (!threads_new(n_threads, &bench->stream.pool, error)) return false;
    bench->ceiling = bench_read_ceiling(bench->stream.pool, bench->weights, ARENA_BYTES);
    return true;
}

static bool write_json(const KernelBench *bench, Buffer *out, Error *error)
{
    JsonOut json;
    json_begin(&json, out);
    json_rawf(&json,
              "{\"device\":\"%s\",\"threads\":%u,\"read_ceiling\":{\"bytes\":%d,\"gb_per_second\":%.3f},\"kernels\":[",
              bench->table->name, threads_count(bench->stream.pool), ARENA_BYTES, bench->ceiling / 1e3);
    for (uint32_t i = 0; i < bench->n_figures; i++) {
        const KernelFigure *f = &bench->figures[i];
        json_raw(&json, i ? ",{\"kernel\":" : "{\"kernel\":");
        json_string(&json, f->what);
        json_rawf(&json, ",\"usec\":%.3f,\"gb_per_second\":%.3f,\"ceiling_percent\":%.2f,\"g_mul_per_second\":%.3f}",
                  f->usec, f->bytes / f->usec / 1e3, 100 * f->bytes / f->usec / bench->ceiling,
                  f->n_mul / f->usec / 1e3);
    }
    json_raw(&json, "]}\n");
    return json_end(&json, error);
}

static bool write_text(const KernelBench *bench, Buffer *out, Error *error)
{
    bool ok = buffer_printf(out, error, "%s, %u threads; reading %d MiB: %.2f GB/s\n\n", bench->table->name,
                            threads_count(bench->stream.pool), ARENA_BYTES >> 20, bench->ceiling / 1e3);
    for (uint32_t i = 0; ok && i < bench->n_figures; i++) {
        const KernelFigure *f = &bench->figures[i];
        ok = buffer_printf(out, error, "%-34s %10.1f us | %6.2f GB/s | %5.1f %% | %7.1f G mul/s\n", f->what, f->usec,
                           f->bytes / f->usec / 1e3, 100 * f->bytes / f->usec / bench->ceiling,
                           f->n_mul / f->usec / 1e3);
    }
    return ok;
}

bool bench_kernels(const BenchPlan *plan, Buffer *out, Error *error)
{
    const Config *config = plan->config;
    KernelBench *bench = calloc(1, sizeof *bench);
    if (!bench) return error_set(error, ERR_NO_MEMORY, "no memory for the figures");
    bench->table = plan->row;
    bool ok = make_inputs(bench, config->threads ? config->threads : threads_available(), error) &&
              time_all(bench, error) && (config->json ? write_json(bench, out, error) : write_text(bench, out, error));
    threads_free(bench->stream.pool);
    free(bench->scratch);
    free(bench->y);
    free(bench->x);
    free(bench->weights);
    free(bench);
    return ok;
}
