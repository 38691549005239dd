/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: cpu_time                          microseconds of products, by type, row of the table and tokens
 *        cpu_time MODEL SEQUENCES DEPTH    milliseconds of a decode step by kernel, and tokens/s of prefill and decode
 * CPU time of one thread, so that a machine with other work on it can compare two kernels: it is the lower quartile of
 * many runs. Weights of products are other ones in each run and come from memory.
 */
#include "engine/engine.h"
#include "kernels/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    STEPS = 32,
    MAX_SEQUENCES = 64,
    PROMPT = 512,
    CHUNK = 256,
    DECODED = 64,
    MAX_TOKENS = 256,
    N_ROWS = 576,
    N_COLS = 1536,
    ARENA_BYTES = 96 << 20,
    MAX_PRODUCT_BYTES = 4 * N_ROWS * N_COLS
};

typedef enum Part {
    EMBED,
    RMSNORM,
    MATMUL,
    ROPE_TABLE,
    ROPE,
    KV_STORE,
    ATTEND,
    GLU,
    SOFTCAP,
    VECTOR_ADD,
    N_PARTS
} Part;
static const char *const part_names[] = {"embed",    "rmsnorm", "matmul", "rope_table", "rope",
                                         "kv_store", "attend",  "glu",    "softcap",    "vector_add"};
static const KernelTable *timed; /* the row that stands behind the table of timers */
static double spent[N_PARTS];

static double cpu_usec(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

#define TIMER(name, Params, part)                                                                                      \
    static bool time_##name(const Params *params, Stream stream)                                                       \
    {                                                                                                                  \
        double begin = cpu_usec();                                                                                     \
        bool ok = timed->name(params, stream);                                                                         \
        spent[part] += cpu_usec() - begin;                                                                             \
        return ok;                                                                                                     \
    }

TIMER(embed, EmbedParams, EMBED)
TIMER(rmsnorm, RmsNormParams, RMSNORM)
TIMER(matmul, MatmulParams, MATMUL)
TIMER(rope_table, RopeTableParams, ROPE_TABLE)
TIMER(rope, RopeParams, ROPE)
TIMER(kv_store, KvStoreParams, KV_STORE)
TIMER(attend, AttendParams, ATTEND)
TIMER(glu, GluParams, GLU)
TIMER(softcap, SoftcapParams, SOFTCAP)
TIMER(vector_add, VectorAddParams, VECTOR_ADD)

static KernelTable timers(void)
{
    KernelTable table = *timed;
    table.embed = time_embed;
    table.rmsnorm = time_rmsnorm;
    table.matmul = time_matmul;
    table.rope_table = time_rope_table;
    table.rope = time_rope;
    table.kv_store = time_kv_store;
    table.attend = time_attend;
    table.glu = time_glu;
    table.softcap = time_softcap;
    table.vector_add = time_vector_add;
    return table;
}

static void check(bool ok, const Error *error)
{
    if (ok) return;
    fprintf(stderr, "cpu_time: %s\n", error->text);
    exit(1);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quartile(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare);
    return values[n / 4];
}

static double time_product(const KernelTable *row, MatmulParams *params, const uint8_t *arena)
{
    static size_t at;
    double usec[STEPS];
    for (int i = 0; i < STEPS; i++, at += MAX_PRODUCT_BYTES) {
        params->out[0].w = arena + at % (ARENA_BYTES - MAX_PRODUCT_BYTES) / 64 * 64;
        double begin = cpu_usec();
        if (!row->matmul(params, (Stream){0})) exit(1);
        usec[i] = cpu_usec() - begin;
    }
    return quartile(usec, STEPS);
}

static void time_products(void)
{
    static const DType types[] = {DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q8_0, DTYPE_IQ4_NL, DTYPE_MXFP4,
                                  DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_IQ4_XS};
    static const uint32_t n_tokens[] = {1, 4, 8, 16, 64, 256};
    uint8_t *arena = malloc(ARENA_BYTES);
    float *x = malloc(sizeof(float) * MAX_TOKENS * N_COLS), *y = malloc(sizeof(float) * MAX_TOKENS * N_ROWS);
    void *scratch = aligned_alloc(64, (matmul_scratch_bytes(MAX_TOKENS, N_COLS) + 63) / 64 * 64);
    if (!arena || !x || !y || !scratch) exit(1);
    /* Any bytes will do of which scales are ordinary numbers. */
    for (size_t i = 0; i < ARENA_BYTES; i++) arena[i] = (uint8_t)((i * 2654435761u >> 13 & 0x1B) | 0x20);
    for (size_t i = 0; i < MAX_TOKENS * N_COLS; i++) x[i] = (float)(i * 7919 % 2001) / 1000 - 1;
    const KernelTable *row;
    printf("microseconds of %d x %d times 1, 4, 8, 16, 64, 256 tokens\n", N_ROWS, N_COLS);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t r = 0; (row = kernels_cpu_row(r)); r++) {
            if (!strcmp(row->name, "cpu-scalar")) continue;
            printf("%-7s %-16s", dtype_info(types[i])->name, row->name);
            for (size_t t = 0; t < sizeof n_tokens / sizeof *n_tokens; t++) {
                MatmulParams params = {x, N_COLS, n_tokens[t], N_COLS, 1, .scratch = scratch};
                params.out[0] = (MatmulOut){.type = types[i], .n_rows = N_ROWS, .y = y, .y_stride = N_ROWS};
                printf(" %9.1f", time_product(row, &params, arena));
            }
            puts("");
        }
    free(scratch);
    free(y);
    free(x);
    free(arena);
}

static uint32_t tokens[PROMPT];

static void forward(Engine *engine, const BatchSpan *spans, uint32_t n_spans, uint32_t n_rows)
{
    Error error;
    float *logits;
    const Batch batch = {tokens, n_rows, spans, n_spans};
    check(engine_forward(engine, &batch, &logits, &error), &error);
}

static void time_steps(Engine *engine, uint32_t n_sequences, uint32_t depth)
{
    Error error;
    SeqId seqs[MAX_SEQUENCES];
    BatchSpan spans[MAX_SEQUENCES];
    double usec[N_PARTS + 1][STEPS];
    for (uint32_t i = 0; i < n_sequences; i++)
        check(engine_seq_new(engine, 0, &seqs[i], &error) && engine_seq_fill(engine, seqs[i], depth, i, &error),
              &error);
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t i = 0; i < n_sequences; i++)
            spans[i] = (BatchSpan){seqs[i], i, 1, depth + step, LOGITS_LAST, ROWS_DECODE};
        memset(spent, 0, sizeof spent);
        double begin = cpu_usec();
        forward(engine, spans, n_sequences, n_sequences);
        usec[N_PARTS][step] = cpu_usec() - begin;
        for (int part = 0; part < N_PARTS; part++) usec[part][step] = spent[part];
    }
    printf("%s, %u sequences at %u: %.2f ms a step", timed->name, n_sequences, depth,
           1e-3 * quartile(usec[N_PARTS], STEPS));
    for (int part = 0; part < N_PARTS; part++)
        printf(", %s %.2f", part_names[part], 1e-3 * quartile(usec[part], STEPS));
    puts("");
    for (uint32_t i = 0; i < n_sequences; i++) engine_seq_close(engine, seqs[i]);
}

static void time_one_sequence(Engine *engine)
{
    enum { RUNS = 4 };
    double prefill[RUNS], decode[RUNS];
    for (int run = 0; run < RUNS; run++) {
        Error error;
        SeqId seq;
        for (uint32_t size = CHUNK, n = PROMPT; size; size = size == CHUNK ? 1 : 0, n = DECODED) {
            check(engine_seq_new(engine, 0, &seq, &error), &error);
            double begin = cpu_usec();
            for (uint32_t at = 0; at < n; at += size) {
                RowKind kind = size == 1 ? ROWS_DECODE : ROWS_PREFILL;
                forward(engine, &(BatchSpan){seq, 0, size, at, LOGITS_LAST, kind}, 1, size);
            }
            (size == 1 ? decode : prefill)[run] = cpu_usec() - begin;
            engine_seq_close(engine, seq);
        }
    }
    printf("%s, one sequence: prefill of %d %.1f tokens/s, decode of %d %.1f\n", timed->name, PROMPT,
           1e6 * PROMPT / quartile(prefill, RUNS), DECODED, 1e6 * DECODED / quartile(decode, RUNS));
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        time_products();
        return 0;
    }
    long n_sequences = argc == 4 ? strtol(argv[2], NULL, 10) : 0, depth = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
    if (n_sequences < 1 || n_sequences > MAX_SEQUENCES || depth < 1 || depth > 1 << 20) {
        fputs("usage: cpu_time [MODEL SEQUENCES DEPTH]\n", stderr);
        return 2;
    }
    for (uint32_t i = 0; i < PROMPT; i++) tokens[i] = i * 2654435761u % 30000;
    for (size_t row = 0; (timed = kernels_cpu_row(row)) && strcmp(timed->name, "cpu-scalar"); row++) {
        Error error;
        Engine *engine;
        KernelTable table = timers();
        EngineParams params = {.model_path = argv[1],
                               .context = (uint32_t)depth + PROMPT,
                               .max_sequences = (uint32_t)n_sequences,
                               .max_batch_rows = CHUNK,
                               .max_logit_rows = (uint32_t)n_sequences,
                               .n_threads = 1,
                               .world = 1,
                               .kernels = &table};
        check(kv_types_parse("f16", &params.kv_types, &error) && engine_open(&params, &engine, &error), &error);
        time_steps(engine, (uint32_t)n_sequences, (uint32_t)depth);
        time_one_sequence(engine);
        engine_close(engine);
    }
    return 0;
}
