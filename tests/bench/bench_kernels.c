/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times the CPU kernels on the shapes of SmolLM2-135M: us | GB/s | % of this machine's measured read ceiling, from the
 * bytes that a call ought to move. Weights of a shape are repeated until they leave the caches near the cores.
 * usage: bench_kernels [threads [row name]]
 */
#include "base/clock.h"
#include "kernels/table.h"
#include "tests/support/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BYTES = 96 << 20, ROUNDS = 5, MAX_TOKENS = 256, MAX_COLS = 1536, MAX_ROWS = 49152 };

typedef struct Bench {
    const KernelTable *table;
    Stream stream;
    uint8_t *weights; /* ARENA_BYTES */
    float *x, *y;
    void *scratch;
    double ceiling; /* bytes a microsecond */
} Bench;

typedef struct ReadJob {
    const uint8_t *bytes;
    size_t n;
    uint64_t sums[THREADS_MAX][8];
} ReadJob;

static void read_part(void *arg, uint32_t worker, uint32_t n_workers)
{
    ReadJob *job = arg;
    const uint64_t *at = (const uint64_t *)(const void *)(job->bytes + job->n / n_workers / 64 * 64 * worker);
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < job->n / n_workers / 64; i++, at += 8)
        for (int j = 0; j < 8; j++) sum[j] += at[j];
    memcpy(job->sums[worker], sum, sizeof sum);
}

static double best_usec(double best, uint64_t start)
{
    double usec = (double)(clock_now_usec() - start);
    return usec < best ? usec : best;
}

static double measure_ceiling(const Bench *bench)
{
    static ReadJob job;
    double best = 1e30;
    job.bytes = bench->weights;
    job.n = ARENA_BYTES;
    for (int i = 0; i < 4 * ROUNDS; i++) {
        uint64_t start = clock_now_usec();
        threads_run(bench->stream.pool, read_part, &job);
        best = best_usec(best, start);
    }
    return ARENA_BYTES / best;
}

static void print_row(const Bench *bench, const char *what, double usec, double bytes, double multiplications)
{
    printf("%-34s %10.1f us | %6.2f GB/s | %5.1f %% | %7.1f G mul/s\n", what, usec, bytes / usec / 1e3,
           100 * bytes / usec / bench->ceiling, multiplications / usec / 1e3);
}

static void bench_matmul(const Bench *bench, DType type, uint32_t n_rows, uint32_t n_cols, uint32_t n_tokens)
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
        uint64_t start = clock_now_usec();
        for (size_t i = 0; i < copies; i++) {
            params.out[0].w = bench->weights + i * bytes;
            if (!bench->table->matmul(&params, bench->stream)) exit(1);
        }
        best = best_usec(best, start);
    }
    snprintf(what, sizeof what, "matmul %s %ux%u, %u tokens", dtype_info(type)->name, n_rows, n_cols, n_tokens);
    double per_call = best / (double)copies;
    print_row(bench, what, per_call, (double)bytes + 4.0 * n_tokens * (n_cols + n_rows),
              (double)n_rows * n_cols * n_tokens);
}

static void bench_all_matmuls(const Bench *bench)
{
    static const uint32_t shapes[][2] = {{576, 576}, {192, 576}, {1536, 576}, {576, 1536}};
    static const uint32_t tokens[] = {1, 8, 256};
    for (size_t t = 0; t < 3; t++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            bench_matmul(bench, DTYPE_Q4_1, shapes[i][0], shapes[i][1], tokens[t]);
        bench_matmul(bench, DTYPE_Q8_0, 49152, 576, tokens[t]);
        static const DType others[] = {DTYPE_Q4_0,  DTYPE_Q5_0,   DTYPE_Q5_1, DTYPE_Q8_0, DTYPE_IQ4_NL,
                                       DTYPE_MXFP4, DTYPE_Q2_K,   DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K,
                                       DTYPE_Q6_K,  DTYPE_IQ4_XS, DTYPE_F16,  DTYPE_BF16, DTYPE_F32};
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            bench_matmul(bench, others[i], 576, 1536, tokens[t]);
    }
}

static void bench_attention(const Bench *bench, uint32_t first_pos, uint32_t n_rows)
{
    enum { CALLS = 8, HEADS = 9, KV_HEADS = 3, DIM = 64 };
    char what[80];
    double best = 1e30;
    uint32_t capacity = first_pos + n_rows;
    size_t half = (size_t)KV_HEADS * capacity * DIM * 2;
    AttnSpan span = {.kv = {bench->weights, bench->weights + half, DTYPE_F16, KV_HEADS, DIM, DIM, capacity},
                     .n_rows = n_rows,
                     .first_pos = first_pos};
    AttentionParams params = {bench->x, bench->y, &span, 1, HEADS, 0.125f, 0, 0, NULL};
    params.scratch = malloc(attention_scratch_bytes(threads_count(bench->stream.pool), HEADS, DIM, capacity));
    if (!params.scratch) exit(1);
    memset(bench->weights, 0x33, 2 * half);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = clock_now_usec();
        for (int i = 0; i < CALLS; i++)
            if (!bench->table->attention(&params, bench->stream)) exit(1);
        best = best_usec(best, start);
    }
    free(params.scratch);
    snprintf(what, sizeof what, "attention 9/3 x 64, %u rows at %u", n_rows, first_pos);
    double pairs = n_rows * (first_pos + (n_rows + 1) / 2.0);
    print_row(bench, what, best / CALLS, 2.0 * (double)half, pairs * HEADS * DIM * 2);
}

static void bench_pointwise(const Bench *bench, uint32_t n_tokens)
{
    enum { CALLS = 32 };
    char what[80];
    double norm = 1e30, glu = 1e30;
    RmsNormParams norm_params = {bench->x, bench->x, bench->y, n_tokens, 576, 1e-5f};
    GluParams glu_params = {bench->x, bench->x, bench->y, (size_t)n_tokens * 1536, GLU_SILU};
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = clock_now_usec();
        for (int i = 0; i < CALLS; i++) (void)bench->table->rmsnorm(&norm_params, bench->stream);
        norm = best_usec(norm, start);
        start = clock_now_usec();
        for (int i = 0; i < CALLS; i++) (void)bench->table->glu(&glu_params, bench->stream);
        glu = best_usec(glu, start);
    }
    snprintf(what, sizeof what, "rmsnorm %u x 576", n_tokens);
    print_row(bench, what, norm / CALLS, n_tokens * 576 * 8.0, 0);
    snprintf(what, sizeof what, "glu %u x 1536", n_tokens);
    print_row(bench, what, glu / CALLS, n_tokens * 1536 * 12.0, 0);
}

int main(int argc, char **argv)
{
    Error error;
    ThreadPool *pool;
    uint64_t seed = 1;
    uint32_t n_threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : threads_available();
    if (!threads_new(n_threads, &pool, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    Bench bench = {.stream = {.pool = pool}};
    bench.weights = aligned_alloc(64, ARENA_BYTES);
    bench.x = malloc(sizeof(float) * MAX_TOKENS * MAX_COLS);
    bench.y = malloc(sizeof(float) * MAX_TOKENS * MAX_ROWS);
    bench.scratch = aligned_alloc(64, (matmul_scratch_bytes(MAX_TOKENS, MAX_COLS) + 63) / 64 * 64);
    if (!bench.weights || !bench.x || !bench.y || !bench.scratch) return 1;
    memset(bench.weights, 0x11, ARENA_BYTES);
    memset(bench.y, 0, sizeof(float) * MAX_TOKENS * MAX_ROWS);
    random_floats(&seed, bench.x, MAX_TOKENS * MAX_COLS, 1);
    bench.ceiling = measure_ceiling(&bench);
    printf("%u threads, read ceiling over %d MiB: %.1f GB/s\n", n_threads, ARENA_BYTES >> 20, bench.ceiling / 1e3);
    for (size_t i = 0; (bench.table = kernels_cpu_row(i)); i++) {
        if (argc > 2 && strcmp(argv[2], bench.table->name) != 0) continue;
        printf("%s\n", bench.table->name);
        bench_all_matmuls(&bench);
        bench_attention(&bench, 255, 1);
        bench_attention(&bench, 2047, 1);
        bench_attention(&bench, 0, 256);
        bench_attention(&bench, 1792, 256);
        bench_pointwise(&bench, 1);
        bench_pointwise(&bench, 256);
    }
    free(bench.scratch);
    free(bench.y);
    free(bench.x);
    free(bench.weights);
    threads_free(pool);
    return 0;
}
