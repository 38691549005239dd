/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: gpu_bench_linear [TYPE | TOKENS] ...
 * Times the matrix products of Llama-3.1-8B on device 0, on random weights of each type: every product of one step, as
 * the engine would chain them, and each shape alone. All layers have weights of their own, so that no cache serves
 * them. Of 512 tokens and more without the output head, which prefill wants of one token only.
 */
#include "kernels/linear/device_layout.h"
#include "kernels/linear/matmul_queue.h"
#include "tests/gpu/ceiling.h"
#include "tests/gpu/device_check.h"
#include "tests/support/weights.h"

#include <cublas_v2.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = 32,
    EMBD = 4096,
    KV = 1024,
    FF = 14336,
    VOCAB = 128256,
    MAX_TOKENS = 8192,
    HEAD_TOKENS = 256,
    PACKED_ROWS = 1024
};
enum { RUNS = 11, RANDOM = 1 << 22, CEILING_SIZE = 8192 };

/* The products of a layer, and the output head. */
typedef enum Product { QKV, ATTN_OUT, GATE_UP, DOWN, HEAD, N_PRODUCTS } Product;
static const char *const NAMES[N_PRODUCTS] = {"q+k+v", "attention out", "gate+up", "down", "output head"};

typedef struct Bench {
    const KernelTable *table;
    Stream stream;
    DType type;
    void *w[LAYERS][N_PRODUCTS]; /* HEAD: of layer 0 only */
    float *x, *wide, *y, *norm;
    void *scratch;
    uint32_t n_tokens;
} Bench;

static const struct {
    uint32_t rows[3], cols;
} SHAPES[N_PRODUCTS] = {
    {{EMBD, KV, KV}, EMBD}, {{EMBD}, EMBD}, {{FF, FF}, EMBD}, {{EMBD}, FF}, {{VOCAB}, EMBD},
};

static size_t product_bytes(DType type, Product product)
{
    size_t bytes = 0;
    for (int i = 0; i < 3; i++) bytes += device_matrix_bytes(type, SHAPES[product].rows[i], SHAPES[product].cols);
    return bytes;
}

/* A few random rows, repeated. */
static void fill_weights(Bench *bench, Product product, void *packed, size_t packed_bytes)
{
    size_t bytes = product_bytes(bench->type, product);
    for (int layer = 0; layer < (product == HEAD ? 1 : LAYERS); layer++) {
        char *w = device_new(NULL, bytes);
        for (size_t at = 0; at < bytes; at += packed_bytes)
            device_check(cudaMemcpy(w + at, packed, bytes - at < packed_bytes ? bytes - at : packed_bytes,
                                    cudaMemcpyHostToDevice),
                         "uploading");
        bench->w[layer][product] = w;
    }
}

static void make_weights(Bench *bench, uint32_t cols)
{
    uint64_t seed = 5;
    size_t packed_bytes = device_matrix_bytes(bench->type, PACKED_ROWS, cols);
    void *rows = malloc(PACKED_ROWS * dtype_row_bytes(bench->type, cols)), *packed = malloc(packed_bytes);
    if (!rows || !packed) exit(1);
    random_weights(&seed, bench->type, rows, (size_t)PACKED_ROWS * cols);
    device_report(device_matrix_pack(bench->type, rows, PACKED_ROWS, cols, 0, PACKED_ROWS / 16, packed), "packing");
    for (int product = 0; product < N_PRODUCTS; product++)
        if (SHAPES[product].cols == cols) fill_weights(bench, product, packed, packed_bytes);
    free(rows);
    free(packed);
}

static bool run_product(Bench *bench, int layer, Product product)
{
    const uint32_t cols = SHAPES[product].cols;
    MatmulParams params = {.x = product == DOWN ? bench->wide : bench->x,
                           .x_stride = cols,
                           .n_tokens = bench->n_tokens,
                           .n_cols = cols,
                           .scratch = bench->scratch};
    char *w = bench->w[layer][product];
    size_t at = 0;
    for (int i = 0; i < 3 && SHAPES[product].rows[i] > 0; i++) {
        uint32_t rows = SHAPES[product].rows[i];
        float *y = product == GATE_UP ? bench->wide : product == DOWN || product == ATTN_OUT ? bench->x : bench->y;
        params.out[params.n_out++] = (MatmulOut){w, bench->type, rows, y + at, rows, NULL, y == bench->x};
        w += device_matrix_bytes(bench->type, rows, cols);
        at += (size_t)rows * bench->n_tokens;
    }
    if (product != DOWN && product != ATTN_OUT) params.norm_weight = bench->norm;
    params.is_gated = product == GATE_UP;
    params.norm_eps = 1e-5f;
    return bench->table->matmul(&params, bench->stream);
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Median milliseconds of a graph of the products from first to last, over all layers. */
static float time_products(Bench *bench, Product first, Product last)
{
    cudaStream_t stream = bench->stream.native;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t start, end;
    float ms[RUNS];
    bool good = true;
    device_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    for (int layer = 0; layer < LAYERS; layer++)
        for (int product = first; product <= (int)last && product < HEAD; product++)
            good = good && run_product(bench, layer, product);
    if (last == HEAD) good = good && run_product(bench, 0, HEAD);
    good = good && matmul_queue_send(bench->stream);
    device_check(cudaStreamEndCapture(stream, &graph), "capturing");
    device_report(good, "a launch failed");
    device_check(cudaGraphInstantiate(&exec, graph, 0), "making a graph");
    device_check(cudaEventCreate(&start), "an event");
    device_check(cudaEventCreate(&end), "an event");
    for (int i = -2; i < RUNS; i++) {
        device_check(cudaEventRecord(start, stream), "an event");
        device_check(cudaGraphLaunch(exec, stream), "running");
        device_check(cudaEventRecord(end, stream), "an event");
        device_check(cudaEventSynchronize(end), "running");
        device_check(cudaEventElapsedTime(&ms[i < 0 ? 0 : i], start, end), "timing");
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaEventDestroy(start);
    cudaEventDestroy(end);
    qsort(ms, RUNS, sizeof *ms, by_size);
    return ms[RUNS / 2];
}

/* Terabytes a second of a kernel that only reads. */
static double measure_ceiling(Stream stream)
{
    const size_t bytes = (size_t)8 << 30;
    void *x = device_new(NULL, bytes), *word = device_new(NULL, 4);
    cudaEvent_t start, end;
    float ms[RUNS];
    device_check(cudaMemset(x, 0x5A, bytes), "filling");
    device_check(cudaEventCreate(&start), "an event");
    device_check(cudaEventCreate(&end), "an event");
    for (int i = -2; i < RUNS; i++) {
        device_check(cudaEventRecord(start, stream.native), "an event");
        device_report(ceiling_read(x, bytes, word, stream.native), "the ceiling's launch failed");
        device_check(cudaEventRecord(end, stream.native), "an event");
        device_check(cudaEventSynchronize(end), "running");
        device_check(cudaEventElapsedTime(&ms[i < 0 ? 0 : i], start, end), "timing");
    }
    qsort(ms, RUNS, sizeof *ms, by_size);
    device_free(x);
    device_free(word);
    return (double)bytes / ms[RUNS / 2] / 1e9;
}

/* Teraflops a second of a product of matrices of bfloat16, by cuBLAS. */
static double measure_product_ceiling(Bench *bench)
{
    const int n = CEILING_SIZE;
    const float one = 1, zero = 0;
    const size_t count = (size_t)n * n;
    uint16_t *host = malloc(count * sizeof *host);
    cudaEvent_t start, end;
    float ms[RUNS];
    if (!host) exit(1);
    uint64_t seed = 9;
    random_weights(&seed, DTYPE_BF16, host, RANDOM);
    for (size_t at = RANDOM; at < count; at += RANDOM) memcpy(host + at, host, RANDOM * sizeof *host);
    void *a = device_new(host, count * sizeof *host), *b = device_new(host, count * sizeof *host);
    void *c = device_new(NULL, count * sizeof *host);
    device_check(cudaEventCreate(&start), "an event");
    device_check(cudaEventCreate(&end), "an event");
    for (int i = -2; i < RUNS; i++) {
        device_check(cudaEventRecord(start, bench->stream.native), "an event");
        device_report(cublasGemmEx(bench->stream.blas, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, a, CUDA_R_16BF, n, b,
                                   CUDA_R_16BF, n, &zero, c, CUDA_R_16BF, n, CUBLAS_COMPUTE_32F,
                                   CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS,
                      "cuBLAS");
        device_check(cudaEventRecord(end, bench->stream.native), "an event");
        device_check(cudaEventSynchronize(end), "running");
        device_check(cudaEventElapsedTime(&ms[i < 0 ? 0 : i], start, end), "timing");
    }
    qsort(ms, RUNS, sizeof *ms, by_size);
    device_free(a);
    device_free(b);
    device_free(c);
    free(host);
    return 2.0 * n * n * n / ms[RUNS / 2] / 1e9;
}

static double product_flops(Product product)
{
    const uint32_t *rows = SHAPES[product].rows;
    return 2.0 * (rows[0] + rows[1] + rows[2]) * SHAPES[product].cols;
}

/* Of so many tokens: a line of all products, and one of each product alone. */
static void bench_tokens(Bench *bench, uint32_t n_tokens, double ceiling, double product_ceiling)
{
    const Product last = n_tokens <= HEAD_TOKENS ? HEAD : DOWN;
    size_t bytes = last == HEAD ? product_bytes(bench->type, HEAD) : 0;
    double flops = last == HEAD ? product_flops(HEAD) : 0;
    for (int product = 0; product < HEAD; product++) {
        bytes += LAYERS * product_bytes(bench->type, product);
        flops += LAYERS * product_flops(product);
    }
    bench->n_tokens = n_tokens;
    float ms = time_products(bench, QKV, last);
    double rate = (double)bytes / ms / 1e9, tflops = flops * n_tokens / ms / 1e9;
    printf("%-6s %4u tokens: all products %8.3f ms, %8.0f tok/s, %.2f TB/s, %3.0f %% of the ceiling, %3.0f TFLOP/s, "
           "%2.0f %%",
           dtype_info(bench->type)->name, n_tokens, ms, n_tokens * 1e3 / ms, rate, 100 * rate / ceiling, tflops,
           100 * tflops / product_ceiling);
    for (int product = 0; product <= (int)last && (n_tokens == 1 || n_tokens >= 16); product++) {
        if (product % 3 == 0) printf("\n   ");
        ms = time_products(bench, product, product) / (product == HEAD ? 1 : LAYERS);
        rate = (double)product_bytes(bench->type, product) / ms / 1e9;
        printf(" %s %.1f us %.0f %% %.0f TFLOP/s;", NAMES[product], 1e3 * ms, 100 * rate / ceiling,
               product_flops(product) * n_tokens / ms / 1e9);
    }
    printf("\n");
    fflush(stdout);
}

/* Whether `name` is among the arguments, or none of its kind is: names of types, numbers of tokens. */
static bool is_wanted(int argc, char **argv, const char *name)
{
    bool is_number = isdigit((unsigned char)name[0]), others = false;
    for (int i = 1; i < argc; i++) {
        if (strcasecmp(argv[i], name) == 0) return true;
        others |= !isdigit((unsigned char)argv[i][0]) != is_number;
    }
    return !others;
}

static void bench_type(Bench *bench, double ceiling, double product_ceiling, int argc, char **argv)
{
    static const uint32_t tokens[] = {1, 2, 4, 8, 16, 17, 32, 64, 128, 256, 512, 1024, 2048, 8192};
    make_weights(bench, EMBD);
    make_weights(bench, FF);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        char number[16];
        snprintf(number, sizeof number, "%u", tokens[i]);
        if (is_wanted(argc, argv, number)) bench_tokens(bench, tokens[i], ceiling, product_ceiling);
    }
    for (int product = 0; product < N_PRODUCTS; product++)
        for (int layer = 0; layer < (product == HEAD ? 1 : LAYERS); layer++) device_free(bench->w[layer][product]);
}

/* Random numbers, a few over and over. */
static float *random_buffer(const float *few, size_t n)
{
    float *ret = device_new(NULL, n * sizeof *ret);
    for (size_t at = 0; at < n; at += RANDOM) {
        size_t count = n - at < RANDOM ? n - at : RANDOM;
        device_check(cudaMemcpy(ret + at, few, count * sizeof *few, cudaMemcpyHostToDevice), "uploading");
    }
    return ret;
}

static void make_buffers(Bench *bench)
{
    uint64_t seed = 3;
    float *host = malloc(RANDOM * sizeof *host);
    cublasHandle_t handle;
    if (!host) exit(1);
    random_floats(&seed, host, RANDOM, 1);
    bench->x = random_buffer(host, (size_t)EMBD * MAX_TOKENS);
    bench->wide = random_buffer(host, (size_t)2 * FF * MAX_TOKENS);
    bench->norm = device_new(host, EMBD * sizeof *host);
    const size_t of_head = (size_t)VOCAB * HEAD_TOKENS, of_qkv = (size_t)(EMBD + 2 * KV) * MAX_TOKENS;
    bench->y = device_new(NULL, (of_head > of_qkv ? of_head : of_qkv) * sizeof *host);
    bench->scratch = device_new(NULL, matmul_cuda_scratch_bytes(MAX_TOKENS, FF));
    device_check(cudaStreamCreate((cudaStream_t *)&bench->stream.native), "a stream");
    bool good = cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS &&
                cublasSetStream(handle, bench->stream.native) == CUBLAS_STATUS_SUCCESS &&
                cublasSetWorkspace(handle, device_new(NULL, 32 << 20), 32 << 20) == CUBLAS_STATUS_SUCCESS;
    device_report(good, "cuBLAS cannot be set up");
    bench->stream.blas = handle;
    bench->stream.queue = matmul_queue_new();
    if (!bench->stream.queue) exit(1);
    free(host);
}

int main(int argc, char **argv)
{
    static const DType types[] = {DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_BF16,   DTYPE_Q6_K,  DTYPE_Q4_0, DTYPE_Q5_K,
                                  DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_IQ4_XS, DTYPE_MXFP4, DTYPE_Q5_1, DTYPE_F16};
    Error error;
    Bench bench = {.table = kernels_cuda(0, &error)};
    if (!bench.table) {
        printf("no device: %s\n", error.text);
        return 1;
    }
    make_buffers(&bench);
    double ceiling = measure_ceiling(bench.stream);
    double product_ceiling = measure_product_ceiling(&bench);
    printf("read ceiling %.2f TB/s, products of %d^3 in bfloat16 %.0f TFLOP/s\n", ceiling, CEILING_SIZE,
           product_ceiling);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        bench.type = types[i];
        if (is_wanted(argc, argv, dtype_info(types[i])->name)) bench_type(&bench, ceiling, product_ceiling, argc, argv);
    }
    return device_finish();
}
