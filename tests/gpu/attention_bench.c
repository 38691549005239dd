/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times CUDA attention over shuffled pages of random numbers, Llama-3.1-8B's shape, and prints a line of JSON a case:
 * microseconds a call, bytes of keys and values read, operations. Calls are replayed in a graph and go round enough
 * layers that the L2 cache serves nothing. tests/bars/gpu/attention.py runs it beside other kernels. Words that are
 * given select the cases whose names hold one of them; --portable: with the kernels of older devices.
 */
#include "kernels/device_facts.h"
#include "kernels/table.h"
#include "tests/support/weights.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 32, KV_HEADS = 8, DIM = 128, CALLS = 8, MAX_LAYERS = 32, SAMPLE_SLOTS = 256 };
enum { SINK = 64, RECENT = 256, RECENT_PREFILL = 2048 };

typedef struct Case {
    KvType type;
    uint32_t n_seqs, n_rows, context; /* rows at the end of the context, themselves included */
    uint32_t n_listed;                /* sectors of a sparse plan; 0: dense */
    bool is_split, is_deterministic;
    bool half_streams; /* every other head sees sink and recent range alone, of a dense plan 64 and 2,048 tokens */
    bool has_bands;    /* by wavelength, k = 2 */
} Case;

static const Case cases[] = {
    {KV_BF16, 1, 1, 1024, 0, true, false},
    {KV_BF16, 1, 1, 32768, 0, true, false},
    {KV_BF16, 1, 1, 131072, 0, true, false},
    {KV_BF16, 1, 1, 1048576, 0, true, false},
    {KV_BF16, 64, 1, 1024, 0, true, false},
    {KV_BF16, 64, 1, 8192, 0, true, false},
    {KV_BF16, 8, 1, 131072, 0, true, false},
    {KV_BF16, 1, 1, 131072, 0, true, true},
    {KV_BF16, 64, 1, 1024, 0, true, true},
    {KV_F16, 64, 1, 1024, 0, true, false},
    {KV_F16, 1, 1, 131072, 0, true, false},
    {KV_F8, 1, 1, 131072, 0, true, false},
    {KV_INT8, 1, 1, 131072, 0, true, false},
    {KV_INT4, 1, 1, 131072, 0, true, false},
    {KV_INT8, 64, 1, 1024, 0, true, false},
    {KV_BF16, 1, 1, 131072, 240, true, false},
    {KV_BF16, 1, 1, 1048576, 240, true, false},
    {KV_BF16, 1, 4, 131072, 0, true, false},
    {KV_BF16, 1, 8192, 8192, 0, false, false},
    {KV_BF16, 1, 32768, 32768, 0, false, false},
    {KV_F16, 1, 8192, 8192, 0, false, false},
    {KV_INT8, 1, 8192, 8192, 0, false, false},
    {KV_INT4, 1, 8192, 8192, 0, false, false},
    {KV_BF16, 1, 131072, 131072, 0, false, false},
    {KV_BF16, 1, 2048, 131072, 0, false, false},
    {KV_BF16, 1, 8192, 131072, 240, false, false},
    {KV_BF16, 16, 512, 512, 0, false, false},
    {KV_BF16, 1, 1, 131072, 240, true, false, true},
    {KV_BF16, 1, 1, 1048576, 240, true, false, true},
    {KV_BF16, 1, 1, 8192, 0, true, false},
    {KV_BF16, 1, 1, 16384, 0, true, false},
    {KV_BF16, 1, 1, 8192, 240, true, false, true},
    {KV_BF16, 1, 1, 16384, 240, true, false, true},
    {KV_BF16, 1, 1, 32768, 240, true, false, true},
    {KV_BF16, 1, 131072, 131072, 0, false, false, true},
    {KV_BF16, 1, 1, 131072, 0, true, false, false, true},
    {KV_BF16, 1, 131072, 131072, 0, false, false, false, true},
    {KV_BF16, 1, 32768, 524288, 0, false, false},
    {KV_BF16, 1, 32768, 524288, 0, false, false, false, true},
};

/* Llama-3.1-8B's (docs/wavelength.md). */
static const AttnBand bands[] = {{0, 128}, {53, 112}, {273, 96}, {1404, 80}, {14668, 64}, {298614, 48}};

static void check(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess) return;
    printf("%s: %s\n", what, cudaGetErrorString(rc));
    exit(1);
}

static void *device_copy(const void *x, size_t bytes)
{
    void *p = NULL;
    check(cudaMalloc(&p, bytes), "allocating");
    if (x) check(cudaMemcpy(p, x, bytes, cudaMemcpyHostToDevice), "copying");
    return p;
}

static void *must(void *p)
{
    if (!p) exit(1);
    return p;
}

/* What is filled so far, again and again. */
static void repeat(char *device, size_t done, size_t bytes)
{
    for (; done < bytes; done *= 2)
        check(cudaMemcpy(device + done, device, done < bytes - done ? done : bytes - done, cudaMemcpyDeviceToDevice),
              "filling");
}

static float *new_queries(size_t n)
{
    static float sample[1 << 20];
    size_t bytes = n * sizeof *sample, done = bytes < sizeof sample ? bytes : sizeof sample;
    uint64_t seed = 5;
    random_floats(&seed, sample, 1 << 20, 1);
    float *q = device_copy(NULL, bytes);
    check(cudaMemcpy(q, sample, done, cudaMemcpyHostToDevice), "filling");
    repeat((char *)q, done, bytes);
    return q;
}

/* Some slots of random numbers, repeated. */
static void fill_pool(const KvLayout *layout, char *device, size_t bytes)
{
    size_t done = SAMPLE_SLOTS * layout->slot_bytes;
    char *sample = must(malloc(done));
    float k[DIM], v[DIM];
    uint64_t seed = 7;
    for (uint32_t i = 0; i < SAMPLE_SLOTS * KV_PAGE_TOKENS; i++) {
        random_floats(&seed, k, DIM, 1);
        random_floats(&seed, v, DIM, 1);
        kv_slot_put(layout, sample + i / KV_PAGE_TOKENS * layout->slot_bytes, i % KV_PAGE_TOKENS, k, v);
    }
    if (done > bytes) done = bytes;
    check(cudaMemcpy(device, sample, done, cudaMemcpyHostToDevice), "filling");
    free(sample);
    repeat(device, done, bytes);
}

static KvPool *new_pool(KvType type, uint32_t n_slots, size_t n_pages)
{
    KvPool pool = {.layout = kv_layout(type, DIM, DIM)};
    pool.page_bytes = n_slots * pool.layout.slot_bytes;
    pool.base = device_copy(NULL, pool.page_bytes * n_pages);
    fill_pool(&pool.layout, pool.base, pool.page_bytes * n_pages);
    KvPool *device = device_copy(&pool, sizeof pool);
    return device;
}

static void free_pool(KvPool *device)
{
    KvPool pool;
    check(cudaMemcpy(&pool, device, sizeof pool, cudaMemcpyDeviceToHost), "reading a pool");
    cudaFree(pool.base);
    cudaFree(device);
}

static uint32_t *shuffled_pages(size_t n, uint64_t seed)
{
    uint32_t *numbers = must(malloc(n * sizeof *numbers));
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t j = (seed >> 33) % (i + 1);
        numbers[i] = numbers[j];
        numbers[j] = (uint32_t)i;
    }
    uint32_t *device = device_copy(numbers, n * sizeof *numbers);
    free(numbers);
    return device;
}

/* The plan: dense, or 64 + 256 tokens and sectors at even distances. */
static AttnPlan *new_plans(const Case *c)
{
    AttnPlan plans[KV_HEADS];
    uint32_t *list = must(malloc((c->n_listed + 1) * sizeof *list));
    for (uint32_t i = 0; i < c->n_listed; i++) list[i] = 4 + (c->context / 16 - 32) / c->n_listed * i;
    uint32_t *device = device_copy(list, (c->n_listed + 1) * sizeof *list);
    const AttnBand *device_bands = c->has_bands ? device_copy(bands, sizeof bands) : NULL;
    for (uint32_t h = 0; h < KV_HEADS; h++) {
        plans[h] = c->n_listed ? (AttnPlan){.sink = SINK, .recent = RECENT, .list = device, .n_list = c->n_listed}
                               : (AttnPlan){.recent = PLAN_ALL};
        if (c->half_streams && h % 2)
            plans[h] = (AttnPlan){.sink = SINK, .recent = c->n_listed ? RECENT : RECENT_PREFILL};
        plans[h].bands = device_bands;
        plans[h].n_bands = c->has_bands ? sizeof bands / sizeof *bands : 0;
    }
    free(list);
    return device_copy(plans, sizeof plans);
}

/* By a row at the end of the context, mean of the heads; with bands as if there were none. */
static double keys_read(const Case *c)
{
    if (c->n_listed) return SINK + RECENT + (c->half_streams ? 8.0 : 16.0) * c->n_listed;
    return c->half_streams ? (c->context + SINK + RECENT_PREFILL) / 2.0 : c->context;
}

/* The same, mean of a prompt's rows that see all before them, or half of the heads of which do. */
static double keys_of_prompt(const Case *c)
{
    double all = c->context - (c->n_rows - 1) / 2.0;
    return c->half_streams ? (all + SINK + RECENT_PREFILL) / 2 : all;
}

static float median_graph_usec(cudaGraphExec_t graph, cudaStream_t stream, unsigned n)
{
    float times[64];
    cudaEvent_t from, to;
    check(cudaEventCreate(&from), "event");
    check(cudaEventCreate(&to), "event");
    for (unsigned i = 0; i < n + 2; i++) {
        check(cudaEventRecord(from, stream), "record");
        check(cudaGraphLaunch(graph, stream), "launching a graph");
        check(cudaEventRecord(to, stream), "record");
        check(cudaEventSynchronize(to), "running a graph");
        float ms;
        check(cudaEventElapsedTime(&ms, from, to), "timing");
        if (i < 2) continue;
        unsigned at = i - 2;
        for (; at > 0 && times[at - 1] > ms; at--) times[at] = times[at - 1];
        times[at] = ms;
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return times[n / 2] * 1000;
}

static cudaGraphExec_t new_graph(const KernelTable *table, AttendParams params, KvSpan *const spans[],
                                 uint32_t n_layers, unsigned n_calls, cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capturing");
    for (unsigned i = 0; i < n_calls; i++) {
        params.spans = spans[i % n_layers];
        if (!table->attend(&params, (Stream){.native = stream})) check(cudaGetLastError(), "attend refused");
    }
    check(cudaStreamEndCapture(stream, &graph), "capturing");
    check(cudaGraphInstantiate(&exec, graph, 0), "instantiating");
    cudaGraphDestroy(graph);
    return exec;
}

/* A case's pages and spans. */
typedef struct Setup {
    KvPool *pool, *images;
    uint32_t n_layers, n_rows, n_spans;
    size_t sector_bytes;
    KvSpan *spans[MAX_LAYERS];
} Setup;

static void new_spans(const Case *c, const KvPages *views, const AttnPlan *plans, Setup *setup)
{
    const uint32_t each = c->has_bands && c->n_rows > KV_PAGE_TOKENS ? KV_PAGE_TOKENS : c->n_rows; /* of a page */
    const uint32_t n_parts = c->n_rows / each;
    setup->n_spans = c->n_seqs * n_parts;
    KvSpan *spans = must(calloc(setup->n_spans, sizeof *spans));
    for (uint32_t l = 0; l < setup->n_layers; l++) {
        KvHead heads[KV_HEADS];
        for (uint32_t h = 0; h < KV_HEADS; h++) heads[h] = (KvHead){0, l * KV_HEADS + h};
        KvHead *device_heads = device_copy(heads, sizeof heads);
        for (uint32_t i = 0; i < setup->n_spans; i++) {
            const uint32_t s = i / n_parts, from = (n_parts - 1 - i % n_parts) * each;
            spans[i] = (KvSpan){views + s, device_heads, plans,      s * c->n_rows + from,
                                each,      c->context - c->n_rows + from, c->is_split};
        }
        setup->spans[l] = device_copy(spans, setup->n_spans * sizeof *spans);
    }
    free(spans);
}

static Setup new_setup(const Case *c)
{
    size_t pages_each = (c->context + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS, n_pages = pages_each * c->n_seqs;
    KvLayout layout = kv_layout(c->type, DIM, DIM);
    Setup setup = {.n_rows = c->n_seqs * c->n_rows, .sector_bytes = layout.sector_bytes};
    setup.n_layers = (uint32_t)(((size_t)1 << 30) / (n_pages * KV_HEADS * layout.slot_bytes)) + 1;
    if (setup.n_layers < 2 && c->is_split) setup.n_layers = 2;
    if (setup.n_layers > MAX_LAYERS) setup.n_layers = MAX_LAYERS;
    setup.pool = new_pool(c->type, setup.n_layers * KV_HEADS, n_pages);
    if (kv_type_info(c->type)->is_quantised) setup.images = new_pool(KV_BF16, setup.n_layers * KV_HEADS, n_pages);
    uint32_t *pages = shuffled_pages(n_pages, 3);
    KvPages *views = must(calloc(c->n_seqs, sizeof *views));
    for (uint32_t s = 0; s < c->n_seqs; s++) {
        uint32_t *own = pages + s * pages_each;
        views[s] = (KvPages){setup.pool, own, setup.images, setup.images ? own : NULL, 0};
    }
    new_spans(c, device_copy(views, c->n_seqs * sizeof *views), new_plans(c), &setup);
    free(views);
    return setup;
}

static void print_case(const Case *c, const Setup *setup, const char *name, double usec)
{
    double bytes = keys_read(c) * c->n_seqs * KV_HEADS * setup->sector_bytes / KV_SECTOR_TOKENS;
    double pairs = c->is_split || c->n_listed ? keys_read(c) : keys_of_prompt(c);
    printf("{\"name\": \"%s\", \"usec\": %.2f, \"bytes\": %.0f, \"flops\": %.0f}\n", name, usec,
           c->is_split ? bytes : 0, 4.0 * HEADS * DIM * pairs * setup->n_rows);
    fflush(stdout);
}

static void run_case(const KernelTable *table, const Case *c, const char *name, cudaStream_t stream)
{
    Setup setup = new_setup(c);
    size_t n = (size_t)setup.n_rows * HEADS * DIM;
    AttendParams params = {.q = new_queries(n),
                           .out = device_copy(NULL, n * sizeof(float)),
                           .n_spans = setup.n_spans,
                           .n_heads = HEADS,
                           .n_kv_heads = KV_HEADS,
                           .k_dim = DIM,
                           .v_dim = DIM,
                           .scale = 0.08838834764f};
    uint32_t split_rows = c->is_split ? setup.n_rows : 0;
    params.launch =
        (KvLaunch){1u << c->type, c->is_split ? c->n_rows : 0, setup.n_rows - split_rows, c->is_deterministic};
    params.launch.has_bands = c->has_bands;
    size_t scratch = attend_cuda_scratch_bytes(split_rows, HEADS, KV_HEADS, DIM, c->is_deterministic);
    params.scratch = device_copy(NULL, scratch);
    check(cudaMemset(params.scratch, 0, scratch), "clearing scratch");
    unsigned n_calls = c->is_split ? CALLS : 1;
    cudaGraphExec_t graph = new_graph(table, params, setup.spans, setup.n_layers, n_calls, stream);
    print_case(c, &setup, name, median_graph_usec(graph, stream, c->is_split ? 21 : 5) / n_calls);
    cudaGraphExecDestroy(graph);
    free_pool(setup.pool);
    if (setup.images) free_pool(setup.images);
    cudaFree(params.scratch);
    cudaFree((void *)params.q);
    cudaFree(params.out);
}

int main(int argc, char **argv)
{
    Error error;
    cudaStream_t stream;
    const KernelTable *table = kernels_cuda(0, &error);
    if (!table) {
        printf("%s\n", error.text);
        return 77;
    }
    check(cudaStreamCreate(&stream), "stream");
    if (argc > 1 && strcmp(argv[1], "--portable") == 0) {
        device_facts_use_old_code();
        argc--;
        argv++;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        char name[120];
        snprintf(name, sizeof name, "%s %ux%u of %u %s%s%s%s%s", c->is_split ? "decode" : "prefill", c->n_seqs,
                 c->n_rows, c->context, kv_type_info(c->type)->name, c->n_listed ? " sparse" : "",
                 c->half_streams ? ", half streaming" : "", c->has_bands ? ", k = 2" : "",
                 c->is_deterministic ? " deterministic" : "");
        bool is_wanted = argc < 2;
        for (int a = 1; a < argc; a++) is_wanted = is_wanted || strstr(name, argv[a]);
        if (is_wanted) run_case(table, c, name, stream);
    }
    return 0;
}
