/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: gpu_digest [short | bench]
 * Digests of rows of logits on device 0 against their reference twin, bit by bit; what they take.
 */
#include "kernels/sample/token_weight.h"
#include "tests/gpu/device_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_RUNS = 60, N_CALLS = 8, MOST_ROWS = 256, MOST_EDITS = 900 };

typedef enum RowKind {
    ROW_NORMAL,
    ROW_COARSE,   /* many ties, both zeros */
    ROW_EQUAL,    /* one value */
    ROW_MASKED,   /* most are -INFINITY */
    ROW_ALONE,    /* one is not */
    ROW_EMPTY,    /* all are */
    ROW_NAN,      /* one is */
    ROW_INFINITE, /* one is +INFINITY */
    ROW_WILD,     /* to the ends of fp32 */
    ROW_RISING,   /* by the id */
    ROW_CROWDED,  /* a third of the ids, neighbours, are far above the others */
    ROW_FLAT,     /* nearly equal: the draw falls anywhere */
    N_ROW_KINDS
} RowKind;

static uint64_t state = 1;

static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53;
}

static float normal(void)
{
    double sum = 0;
    for (int i = 0; i < 4; i++) sum += uniform();
    return (float)((sum - 2) * 1.7320508);
}

static float logit_of_kind(RowKind kind, uint32_t i, uint32_t n)
{
    switch (kind) {
    case ROW_COARSE:
        return (float)(int)(uniform() * 9 - 4) * (uniform() < 0.5 ? -0.5f : 0.5f);
    case ROW_EQUAL:
        return -3.25f;
    case ROW_MASKED:
        return uniform() < 0.99 ? -INFINITY : 3 * normal();
    case ROW_WILD:
        return (float)ldexp(uniform() - 0.5, (int)(uniform() * 250) - 120);
    case ROW_RISING:
        return (float)i * 0.001f;
    case ROW_CROWDED:
        return (i > n / 3 && i < 2 * n / 3 ? 20.0f : 0.0f) + normal();
    case ROW_FLAT:
        return 0.01f * normal();
    default:
        return 3 * normal();
    }
}

static void fill_row(float *row, uint32_t n, RowKind kind)
{
    uint32_t at = (uint32_t)(uniform() * n);
    for (uint32_t i = 0; i < n; i++) row[i] = logit_of_kind(kind, i, n);
    if (kind == ROW_ALONE || kind == ROW_EMPTY)
        for (uint32_t i = 0; i < n; i++) row[i] = -INFINITY;
    if (kind == ROW_ALONE) row[at] = -7;
    if (kind == ROW_NAN) row[at] = NAN;
    if (kind == ROW_INFINITE) row[at] = INFINITY;
}

/* Edits of ids that rise, of every kind; masks that leave few, many, or none. */
static void add_changes(DigestAsk *ask, uint32_t n, DigestEdit *edits, uint64_t *mask)
{
    static const float shares[] = {0.5f, 0.01f, 0.99f, 0};
    double share = (double)shares[(int)(uniform() * 4)];
    if (uniform() < 0.4) {
        uint32_t step = 1 + n / MOST_EDITS;
        ask->edits = edits;
        for (uint32_t id = (uint32_t)(uniform() * step); id < n && ask->n_edits < MOST_EDITS;
             id += 1 + (uint32_t)(uniform() * step)) {
            DigestEdit edit = {id, 0, 1, 0, 0};
            if (uniform() < 0.3) edit.bias = uniform() < 0.3 ? -INFINITY : 3 * normal();
            if (uniform() < 0.5) edit.repetition = 1.3f;
            if (uniform() < 0.5) edit.less = normal();
            if (uniform() < 0.1) edit.again = 2;
            if (uniform() < 0.0001) edit.less = -INFINITY;
            edits[ask->n_edits++] = edit;
        }
    }
    if (uniform() < 0.6) return;
    ask->mask = mask;
    memset(mask, 0, (n + 63) / 64 * sizeof *mask);
    for (uint32_t i = 0; i < n; i++) mask[i / 64] |= (uint64_t)(uniform() < share) << i % 64;
}

static DigestAsk random_ask(void)
{
    static const float temperatures[] = {0, 1, 0.7f, 1.5f, 1e-3f, 1e-44f, 1e30f};
    static const uint32_t best[] = {0, 1, 2, 20, 66, 256, DIGEST_MOST_BEST};
    DigestAsk ask = {.is_wanted = uniform() < 0.9,
                     .wants_draw = uniform() < 0.6,
                     .wants_plain_mass = uniform() < 0.4,
                     .temperature = temperatures[(int)(uniform() * 7)],
                     .n_best = best[(int)(uniform() * 7)],
                     .draw = uniform()};
    if (uniform() < 0.1) ask.draw = 0;
    if (uniform() < 0.1) ask.draw = 1 - 0x1p-53;
    return ask;
}

/* ---- a batch, on both sides ---- */

typedef struct Rig {
    uint32_t n_rows, n_vocab;
    float *logits;
    DigestAsk *asks;
    RowDigest *want, *got; /* got: pinned */
    DigestItem *want_items, *got_items;
    DigestEdit *edits; /* [n_rows, MOST_EDITS] pinned, as masks are, so that both sides read them */
    uint64_t *masks;   /* [n_rows, n_vocab / 64, rounded up] */
    void *device_logits, *device_asks, *scratch;
} Rig;

static void *pinned(size_t bytes)
{
    void *memory = NULL;
    device_check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "pinning");
    memset(memory, 0xEE, bytes);
    return memory;
}

static Rig rig_new(uint32_t n_rows, uint32_t n_vocab)
{
    size_t items = (size_t)n_rows * DIGEST_LIST * sizeof(DigestItem);
    Rig rig = {.n_rows = n_rows, .n_vocab = n_vocab};
    rig.logits = malloc((size_t)n_rows * n_vocab * sizeof *rig.logits);
    rig.asks = calloc(n_rows, sizeof *rig.asks);
    rig.want = malloc(n_rows * sizeof *rig.want);
    rig.want_items = malloc(items);
    rig.got = pinned(n_rows * sizeof *rig.got);
    rig.got_items = pinned(items);
    rig.edits = pinned(n_rows * MOST_EDITS * sizeof *rig.edits);
    rig.masks = pinned((size_t)n_rows * ((n_vocab + 63) / 64) * sizeof *rig.masks);
    rig.device_logits = device_new(NULL, (size_t)n_rows * n_vocab * sizeof *rig.logits);
    rig.device_asks = device_new(NULL, n_rows * sizeof *rig.asks);
    rig.scratch = device_new(NULL, digest_scratch_bytes(n_rows, n_vocab));
    device_check(cudaMemset(rig.scratch, 0, digest_scratch_bytes(n_rows, n_vocab)), "clearing");
    return rig;
}

static void rig_send(const Rig *rig)
{
    device_check(cudaMemcpy(rig->device_logits, rig->logits, (size_t)rig->n_rows * rig->n_vocab * sizeof *rig->logits,
                            cudaMemcpyHostToDevice),
                 "copying");
    device_check(cudaMemcpy(rig->device_asks, rig->asks, rig->n_rows * sizeof *rig->asks, cudaMemcpyHostToDevice),
                 "copying");
}

static void rig_free(Rig *rig)
{
    free(rig->logits);
    free(rig->asks);
    free(rig->want);
    free(rig->want_items);
    device_check(cudaFreeHost(rig->got), "freeing");
    device_check(cudaFreeHost(rig->got_items), "freeing");
    device_check(cudaFreeHost(rig->edits), "freeing");
    device_check(cudaFreeHost(rig->masks), "freeing");
    device_free(rig->device_logits);
    device_free(rig->device_asks);
    device_free(rig->scratch);
}

static DigestParams on_device(const Rig *rig)
{
    return (DigestParams){.logits = rig->device_logits,
                          .n_rows = rig->n_rows,
                          .n_vocab = rig->n_vocab,
                          .max_rows = rig->n_rows,
                          .has_edits = true,
                          .asks = rig->device_asks,
                          .digests = rig->got,
                          .items = rig->got_items,
                          .scratch = rig->scratch};
}

static bool same_list(const Rig *rig, uint32_t row)
{
    const DigestItem *want = rig->want_items + (size_t)row * DIGEST_LIST,
                     *got = rig->got_items + (size_t)row * DIGEST_LIST;
    uint32_t n = rig->want[row].n_listed;
    return n > DIGEST_LIST || n == 0 || memcmp(want, got, n * sizeof *want) == 0;
}

static void compare_row(const Rig *rig, uint32_t row, const char *what)
{
    const RowDigest *want = &rig->want[row], *got = &rig->got[row];
    const DigestAsk *ask = &rig->asks[row];
    if (!ask->is_wanted) return;
    bool good = want->is_bad == got->is_bad;
    if (good && !want->is_bad) good = want->max == got->max && want->best == got->best;
    if (good && !want->is_bad && want->max > -INFINITY)
        good = want->mass == got->mass && want->plain_mass == got->plain_mass && want->n_listed == got->n_listed &&
               want->least == got->least && want->drawn == got->drawn &&
               float_to_bits(want->drawn_logit) == float_to_bits(got->drawn_logit) && same_list(rig, row);
    device_report(
        good,
        "%s, row %u of %u, %u ids, temperature %g, %u best: bad %d %d, max %g %g, best %u %u, mass %llu %llu, "
        "plain %llu %llu, listed %u %u from %g %g, drawn %u %u",
        what, row, rig->n_rows, rig->n_vocab, (double)ask->temperature, ask->n_best, want->is_bad, got->is_bad,
        (double)want->max, (double)got->max, want->best, got->best, (unsigned long long)want->mass,
        (unsigned long long)got->mass, (unsigned long long)want->plain_mass, (unsigned long long)got->plain_mass,
        want->n_listed, got->n_listed, (double)want->least, (double)got->least, want->drawn, got->drawn);
}

static void run_rig(const KernelTable *table, const Rig *rig, const char *what)
{
    DigestParams params = on_device(rig), twin = params;
    twin.logits = rig->logits;
    twin.asks = rig->asks;
    twin.digests = rig->want;
    twin.items = rig->want_items;
    for (int i = 0; i < 2; i++) { /* what the first leaves behind is what the second begins with */
        rig_send(rig);
        device_report(digest_ref(&twin), "the twin refuses %s", what); /* edits change what the second begins with */
        memset(rig->got, 0xEE, rig->n_rows * sizeof *rig->got);
        device_report(table->digest(&params, (Stream){0}), "%s is refused", what);
        device_check(cudaDeviceSynchronize(), "digest");
        for (uint32_t row = 0; row < rig->n_rows; row++) compare_row(rig, row, what);
    }
}

static void test_rows(const KernelTable *table, uint32_t n_rows, uint32_t n_vocab)
{
    Rig rig = rig_new(n_rows, n_vocab);
    for (uint32_t row = 0; row < n_rows; row++) {
        fill_row(rig.logits + (size_t)row * n_vocab, n_vocab, n_rows == 1 ? ROW_NORMAL : row % N_ROW_KINDS);
        rig.asks[row] = random_ask();
        add_changes(&rig.asks[row], n_vocab, rig.edits + (size_t)row * MOST_EDITS,
                    rig.masks + (size_t)row * ((n_vocab + 63) / 64));
    }
    if (n_rows == 1) rig.asks[0].is_wanted = true;
    run_rig(table, &rig, "rows");
    rig_free(&rig);
}

/* The same row has the same digest, whatever is beside it. */
static void test_alone(const KernelTable *table)
{
    enum { N = 49152 };
    Rig many = rig_new(33, N), one = rig_new(1, N);
    for (uint32_t row = 0; row < 33; row++) {
        fill_row(many.logits + (size_t)row * N, N, ROW_NORMAL);
        many.asks[row] = random_ask();
    }
    many.asks[17] = (DigestAsk){true, true, true, 0.8f, 100, 0.77};
    memcpy(one.logits, many.logits + (size_t)17 * N, N * sizeof *one.logits);
    one.asks[0] = many.asks[17];
    run_rig(table, &many, "a batch");
    run_rig(table, &one, "a row alone");
    device_report(one.got->mass == many.got[17].mass && one.got->drawn == many.got[17].drawn, "a row alone");
    rig_free(&many);
    rig_free(&one);
}

/* token_weight and token_mass: the same bits as the host for many arguments. */
static void test_weights(const KernelTable *table)
{
    Rig rig = rig_new(4096, 2);
    for (uint32_t row = 0; row < rig.n_rows; row++) {
        float x = row < 2048 ? -90 * (float)uniform() : -(float)ldexp(1 + uniform(), (int)(row % 40) - 30);
        rig.logits[2 * row] = 0;
        rig.logits[2 * row + 1] = x;
        rig.asks[row] = (DigestAsk){true, true, true, 0.5f + (float)uniform(), 2, uniform()};
    }
    run_rig(table, &rig, "weights");
    rig_free(&rig);
}

/* ---- what it takes ---- */

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Microseconds of one call: the median of runs of a graph that has several. */
static double time_calls(const KernelTable *table, const Rig *rigs)
{
    cudaStream_t stream;
    cudaGraph_t captured;
    cudaGraphExec_t graph;
    cudaEvent_t begin, end;
    float times[N_RUNS];
    device_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    device_check(cudaEventCreate(&begin), "an event");
    device_check(cudaEventCreate(&end), "an event");
    device_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    for (int i = 0; i < N_CALLS; i++) {
        DigestParams params = on_device(&rigs[i % 2]);
        params.has_edits = rigs[0].asks[0].n_edits > 0;
        device_report(table->digest(&params, (Stream){.native = stream}), "digest");
    }
    device_check(cudaStreamEndCapture(stream, &captured), "capturing");
    device_check(cudaGraphInstantiate(&graph, captured, 0), "a graph");
    for (int i = 0; i < N_RUNS; i++) {
        device_check(cudaEventRecord(begin, stream), "timing");
        device_check(cudaGraphLaunch(graph, stream), "running");
        device_check(cudaEventRecord(end, stream), "timing");
        device_check(cudaStreamSynchronize(stream), "running");
        device_check(cudaEventElapsedTime(&times[i], begin, end), "timing");
    }
    qsort(times, N_RUNS, sizeof *times, by_size);
    device_check(cudaGraphExecDestroy(graph), "freeing");
    device_check(cudaGraphDestroy(captured), "freeing");
    device_check(cudaStreamDestroy(stream), "freeing");
    return (double)times[N_RUNS / 2] * 1000 / N_CALLS;
}

static void bench(const KernelTable *table, uint32_t n_rows, uint32_t n_vocab)
{
    static const struct {
        const char *name;
        DigestAsk ask;
    } asks[] = {
        {"greedy", {.is_wanted = true}},
        {"greedy, 20 best with probabilities", {.is_wanted = true, .wants_plain_mass = true, .n_best = 20}},
        {"a draw from all", {.is_wanted = true, .wants_draw = true, .temperature = 0.8f, .draw = 0.6}},
        {"66 best", {.is_wanted = true, .temperature = 0.8f, .n_best = 66}},
        {"256 best", {.is_wanted = true, .temperature = 0.8f, .n_best = 256}},
        {"all of it", {true, true, true, 0.8f, DIGEST_MOST_BEST, 0.6}},
    };
    Rig rigs[2] = {rig_new(n_rows, n_vocab), rig_new(n_rows, n_vocab)};
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t row = 0; row < n_rows; row++)
            fill_row(rigs[k].logits + (size_t)row * n_vocab, n_vocab, ROW_NORMAL);
    printf("%u x %u:", n_rows, n_vocab);
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            for (uint32_t row = 0; row < n_rows; row++) rigs[k].asks[row] = asks[i].ask;
            rig_send(&rigs[k]);
        }
        printf(" %s %.2f us;", asks[i].name, time_calls(table, rigs));
    }
    printf("\n");
    for (uint32_t k = 0; k < 2; k++) rig_free(&rigs[k]);
}

int main(int argc, char **argv)
{
    static const uint32_t vocabs[] = {1,    2,    15,   31,    32,    33,     511,    512,   513,
                                      4095, 4096, 4097, 32000, 49152, 128256, 151665, 262144};
    Error error = {0};
    bool is_short = argc > 1 && !strcmp(argv[1], "short");
    setvbuf(stdout, NULL, _IOLBF, 0);
    const KernelTable *table = kernels_cuda(0, &error);
    if (!table) {
        printf("SKIPPED, no device: %s\n0 passed, 0 failed\n", error.text);
        return 77; /* what Meson calls a skip */
    }
    if (argc > 1 && !strcmp(argv[1], "bench")) {
        bench(table, 1, 128256);
        bench(table, 16, 128256);
        bench(table, 64, 128256);
        bench(table, 1, 262144);
        bench(table, 256, 49152);
        return device_finish();
    }
    for (size_t i = 0; i < sizeof vocabs / sizeof *vocabs; i++) {
        uint32_t n = vocabs[i];
        if (is_short && n > 33000) continue;
        for (int k = 0; k < (n > 5000 ? 2 : 6); k++) test_rows(table, 1, n);
        for (int k = 0; k < (n > 5000 || is_short ? 1 : 8); k++) test_rows(table, 2 * N_ROW_KINDS + (uint32_t)k, n);
    }
    test_weights(table);
    if (!is_short) test_rows(table, MOST_ROWS, 4097);
    if (!is_short) test_rows(table, 2, TOKEN_MAX_VOCAB);
    test_alone(table);
    return device_finish();
}
