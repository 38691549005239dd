/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: gpu_model [short | select | digest | deterministic | bands] [MODEL.gguf ...]
 * Whole models on device 0 against the CPU engine: tiny ones of every family, weight and KV type, and the text that the
 * given files write greedily. short: for a sanitizer, which makes all of it slow; select: rows that select alone;
 * digest: the way of logits to the host alone; deterministic: rows whose bits do not depend on the batch alone; bands:
 * wavelength windows alone.
 */
#include "tests/gpu/model_bands.h"
#include "tests/gpu/model_digest.h"
#include "tests/gpu/model_pair.h"
#include "tests/gpu/model_select.h"
#include "tests/gpu/model_text.h"
#include "tests/support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTEXT = 512, SEQUENCES = 34, ROWS = 256, N_TOKENS = 200, N_BATCH = 32, N_STEPS = 6, SMALL = 13 };

static Device *device;

/* ---- what is tried ---- */

static void try_prefill(const Pair *pair, const char *name, const uint32_t *tokens, uint32_t chunk, double limit)
{
    char what[128];
    float *want = model_logits(pair->cpu, N_TOKENS), *got = model_logits(pair->cpu, N_TOKENS);
    SeqId a = model_seq(pair->cpu), b = model_seq(pair->gpu);
    model_feed(pair->cpu, a, ROWS_PREFILL, tokens, N_TOKENS, chunk, want);
    model_feed(pair->gpu, b, ROWS_PREFILL, tokens, N_TOKENS, chunk, got);
    snprintf(what, sizeof what, "%s, prompt in chunks of %u", name, chunk);
    model_compare(what, want, got, N_TOKENS, engine_shape(pair->cpu)->n_vocab, limit);
    engine_seq_close(pair->cpu, a);
    engine_seq_close(pair->gpu, b);
    free(want);
    free(got);
}

/* Row by row behind some tokens: the first step is launched, the second made into a graph. */
static void try_decode(const Pair *pair, const char *name, const uint32_t *tokens, double limit)
{
    enum { BEFORE = 60, AFTER = 40 };
    char what[128];
    float *want = model_logits(pair->cpu, AFTER), *got = model_logits(pair->cpu, AFTER);
    SeqId a = model_seq(pair->cpu), b = model_seq(pair->gpu);
    model_feed(pair->cpu, a, ROWS_PREFILL, tokens, BEFORE, SMALL, NULL);
    model_feed(pair->gpu, b, ROWS_PREFILL, tokens, BEFORE, SMALL, NULL);
    model_feed(pair->cpu, a, ROWS_DECODE, tokens + BEFORE, AFTER, 1, want);
    model_feed(pair->gpu, b, ROWS_DECODE, tokens + BEFORE, AFTER, 1, got);
    snprintf(what, sizeof what, "%s, decoded", name);
    model_compare(what, want, got, AFTER, engine_shape(pair->cpu)->n_vocab, limit);
    engine_seq_close(pair->cpu, a);
    engine_seq_close(pair->gpu, b);
    free(want);
    free(got);
}

enum { PAIR_LONG = 250, PAIR_SHORT = 30, PAIR_STEPS = 12, PAIR_ALONE = 4 };

static void decode_pair(Engine *engine, const uint32_t *tokens, float *logits)
{
    SeqId seqs[2] = {model_seq(engine), model_seq(engine)};
    size_t n_vocab = engine_shape(engine)->n_vocab;
    model_feed(engine, seqs[0], ROWS_PREFILL, tokens, N_TOKENS, SMALL, NULL);
    model_feed(engine, seqs[0], ROWS_PREFILL, tokens, PAIR_LONG - N_TOKENS, SMALL, NULL);
    model_feed(engine, seqs[1], ROWS_PREFILL, tokens + 3, PAIR_SHORT, SMALL, NULL);
    for (uint32_t step = 0; step < PAIR_STEPS; step++)
        model_step(engine, seqs, tokens + step * 7, 2, logits + 2 * step * n_vocab);
    for (uint32_t step = 0; step < PAIR_ALONE; step++)
        model_step(engine, seqs, tokens + step * 5, 1, logits + (2 * PAIR_STEPS + step) * n_vocab);
    for (int i = 0; i < 2; i++) engine_seq_close(engine, seqs[i]);
}

/* Two together, one of which comes to more keys than a block attends alone within a chain of products; then alone. */
static void try_pair(const Pair *pair, const char *name, const uint32_t *tokens, double limit)
{
    enum { N = 2 * PAIR_STEPS + PAIR_ALONE };
    char what[128];
    float *want = model_logits(pair->cpu, N), *got = model_logits(pair->cpu, N);
    decode_pair(pair->cpu, tokens, want);
    decode_pair(pair->gpu, tokens, got);
    snprintf(what, sizeof what, "%s, two decoded together", name);
    model_compare(what, want, got, N, engine_shape(pair->cpu)->n_vocab, limit);
    free(want);
    free(got);
}

/* Sequences of their own lengths, decoded together, some of them in smaller batches in between. */
static void decode_together(Engine *engine, const uint32_t *tokens, float *logits)
{
    SeqId seqs[N_BATCH];
    uint32_t next[N_BATCH];
    size_t n_vocab = engine_shape(engine)->n_vocab;
    for (uint32_t i = 0; i < N_BATCH; i++) {
        seqs[i] = model_seq(engine);
        model_feed(engine, seqs[i], ROWS_PREFILL, tokens + i, 1 + i * 5, 0, NULL);
    }
    for (uint32_t step = 0; step < N_STEPS; step++) {
        uint32_t n = step % 3 == 2 ? N_BATCH / 2 + 3 : N_BATCH;
        for (uint32_t i = 0; i < n; i++) next[i] = tokens[(step * 37 + i * 11) % N_TOKENS];
        model_step(engine, seqs, next, n, logits + step * N_BATCH * n_vocab);
    }
    for (uint32_t i = 0; i < N_BATCH; i++) engine_seq_close(engine, seqs[i]);
}

static void try_batch(const Pair *pair, const char *name, const uint32_t *tokens, double limit)
{
    char what[128];
    float *want = model_logits(pair->cpu, N_BATCH * N_STEPS), *got = model_logits(pair->cpu, N_BATCH * N_STEPS);
    decode_together(pair->cpu, tokens, want);
    decode_together(pair->gpu, tokens, got);
    snprintf(what, sizeof what, "%s, %d decoded together", name, N_BATCH);
    model_compare(what, want, got, N_BATCH * N_STEPS, engine_shape(pair->cpu)->n_vocab, limit);
    free(want);
    free(got);
}

/* What a sequence's pages hold goes out to the host and back into other pages; a fork writes its own copy. */
static void try_pages(Engine *engine, const char *name, const uint32_t *tokens)
{
    enum { HELD = 150 };
    Error error;
    size_t n_vocab = engine_shape(engine)->n_vocab;
    uint32_t n_classes;
    const KvClassInfo *classes = engine_policy_classes(engine, 0, &n_classes);
    PageSet sets[(HELD + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS];
    uint32_t n_sets = sizeof sets / sizeof *sets;
    float *want = model_logits(engine, 3), *got = want + n_vocab, *forked = got + n_vocab;
    SeqId seq = model_seq(engine), copy = model_seq(engine), fork;
    bool good = true;
    model_feed(engine, seq, ROWS_PREFILL, tokens, HELD, 0, NULL);
    for (uint32_t i = 0; i < n_sets; i++) {
        PageSet from;
        engine_seq_page(engine, seq, i, &from);
        sets[i] = from;
        for (uint32_t c = 0; c < n_classes; c++) {
            if (from.page[c] == PAGE_NONE) continue;
            void *bytes = malloc(engine_page_bytes(engine, from.page[c]));
            bool is_open = engine_page_is_open(engine, from.page[c]);
            good = good && engine_page_new(engine, classes[c].class_id, is_open, &sets[i].page[c], &error);
            uint32_t n_held = HELD - i * KV_PAGE_TOKENS < KV_PAGE_TOKENS ? HELD - i * KV_PAGE_TOKENS : KV_PAGE_TOKENS;
            good = good && engine_page_read(engine, from.page[c], n_held, bytes, &error) &&
                   engine_page_write(engine, sets[i].page[c], bytes, &error);
            free(bytes);
        }
    }
    good = good && engine_seq_adopt(engine, copy, sets, HELD, &error) && engine_seq_fork(engine, seq, &fork, &error);
    device_report(good, "%s: pages: %s", name, error.text);
    if (!good) return;
    for (uint32_t i = 0; i < n_sets; i++) engine_pages_unref(engine, &sets[i]);
    model_feed(engine, fork, ROWS_DECODE, tokens + 7, 1, 0, forked); /* must not be seen by seq */
    model_feed(engine, seq, ROWS_DECODE, tokens + HELD, 1, 0, want);
    model_feed(engine, copy, ROWS_DECODE, tokens + HELD, 1, 0, got);
    device_report(!memcmp(want, got, n_vocab * sizeof *want), "%s: copied pages give other logits", name);
    device_report(memcmp(want, forked, n_vocab * sizeof *want), "%s: a fork gives the same logits", name);
    engine_seq_close(engine, fork);
    engine_seq_close(engine, copy);
    engine_seq_close(engine, seq);
    device_report(engine_kv_usage(engine).n_pages_used == 0, "%s: pages are left", name);
    free(want);
}

/* A prompt in pieces of layers and rows, decode steps of another sequence in between, gives the bits of whole passes.
 */
static void try_pieces(Engine *engine, const char *name, const uint32_t *tokens)
{
    enum { N = N_TOKENS, PART = 100 }; /* products of so many rows go the same way */
    Error error;
    uint32_t n_layers = engine_shape(engine)->n_layers;
    size_t n_vocab = engine_shape(engine)->n_vocab;
    float *want = model_logits(engine, N + 1), *other = want + N * n_vocab, *found = NULL;
    SeqId whole = model_seq(engine), parts = model_seq(engine), decoded = model_seq(engine);
    PassId pass = 0;
    BatchSpan span = {parts, 0, N, 0, LOGITS_ALL, ROWS_PREFILL};
    model_feed(engine, whole, ROWS_PREFILL, tokens, N, 0, want);
    model_feed(engine, decoded, ROWS_PREFILL, tokens, 3, 0, NULL);
    bool good = engine_seq_reserve(engine, parts, N, &error) &&
                engine_pass_begin(engine, &(Batch){tokens, N, &span, 1}, &pass, &error);
    for (uint32_t layer = 0; good && layer < n_layers; layer++)
        for (uint32_t row = 0; good && row < N; row += PART) {
            good = engine_pass_run(engine, &(WorkItem){pass, layer, 1, row, PART}, &error);
            model_step(engine, &decoded, tokens + row, 1, other);
        }
    good = good && engine_pass_end(engine, pass, &found, &error);
    device_report(good, "%s: pieces: %s", name, error.text);
    char what[128];
    snprintf(what, sizeof what, "%s, in pieces", name);
    if (good) model_compare(what, want, found, N, (uint32_t)n_vocab, 0.001);
    engine_seq_close(engine, whole);
    engine_seq_close(engine, parts);
    engine_seq_close(engine, decoded);
    free(want);
}

/* Decoded rows that are computed once more, some in one pass, leave what steps have left. */
static void try_again(Engine *engine, const uint32_t *tokens)
{
    enum { BEFORE = 70, AGAIN = 13, CHUNK = 5 };
    size_t n_vocab = engine_shape(engine)->n_vocab;
    float *steps = model_logits(engine, AGAIN), *again = model_logits(engine, AGAIN);
    SeqId a = model_seq(engine), b = model_seq(engine);
    model_feed(engine, a, ROWS_PREFILL, tokens, BEFORE, 0, NULL);
    model_feed(engine, b, ROWS_PREFILL, tokens, BEFORE, BEFORE - 1, NULL);
    for (uint32_t i = 0; i < AGAIN; i++) model_step(engine, &a, tokens + BEFORE + i, 1, steps + i * n_vocab);
    model_feed(engine, b, ROWS_DECODE, tokens + BEFORE, AGAIN, CHUNK, again);
    uint32_t n = 0;
    while (n < AGAIN && !memcmp(steps + n * n_vocab, again + n * n_vocab, n_vocab * sizeof *steps)) n++;
    device_report(n == AGAIN, "deterministic: the first %u of %d decoded rows are the same computed once more", n,
                  AGAIN);
    engine_seq_close(engine, a);
    engine_seq_close(engine, b);
    free(steps);
    free(again);
}

/* A row's bits are the same alone and beside others, and however its prompt was cut: also if one row is left of it. */
static void try_deterministic(const char *path, KvType type)
{
    const PairParams params = {path, type, true, CONTEXT, SEQUENCES, ROWS};
    Pair pair = pair_open(device, &params, false);
    size_t n_vocab = engine_shape(pair.gpu)->n_vocab;
    uint32_t tokens[N_TOKENS];
    model_text(pair.gpu, 5, tokens, N_TOKENS);
    try_again(pair.gpu, tokens);
    float *together = model_logits(pair.gpu, N_BATCH), *alone = model_logits(pair.gpu, 1);
    SeqId seqs[N_BATCH];
    uint32_t n_equal = 0;
    for (uint32_t i = 0; i < N_BATCH; i++) {
        seqs[i] = model_seq(pair.gpu);
        model_feed(pair.gpu, seqs[i], ROWS_PREFILL, tokens + i, 1 + i * 5, 0, NULL);
    }
    model_step(pair.gpu, seqs, tokens, N_BATCH, together);
    for (uint32_t i = 0; i < N_BATCH; i++) {
        SeqId seq = model_seq(pair.gpu);
        model_feed(pair.gpu, seq, ROWS_PREFILL, tokens + i, 1 + i * 5, i % 3 == 0 ? 0 : i % 3 == 1 ? 33 : i * 5, NULL);
        model_step(pair.gpu, &seq, tokens + i, 1, alone);
        n_equal += !memcmp(alone, together + i * n_vocab, n_vocab * sizeof *alone);
        engine_seq_close(pair.gpu, seq);
    }
    device_report(n_equal == N_BATCH, "deterministic: %u of %d rows are the same alone and together", n_equal, N_BATCH);
    free(together);
    free(alone);
    pair_close(&pair);
}

/* ---- the models ---- */

/*
 * By how much the log-probability of the likeliest token differs in the mean: of rows whose queries were rounded for
 * tiles, and of rows in small chunks, where products have 16 bits or more.
 */
typedef struct TinyCase {
    const char *name, *settings[10];
    KvType kv_type;
    double tiled, split;
} TinyCase;

#define WIDE "head_dim=64", "embd=256", "ff=256"
static const TinyCase cases[] = {
    {"llama f32, bf16 keys", {WIDE}, KV_BF16, 0.01, 0.002},
    {"llama f32, f16 keys", {WIDE}, KV_F16, 0.002, 0.0005},
    {"llama q8_0, f8 keys", {WIDE, "type=Q8_0"}, KV_F8, 0.05, 0.04},
    {"llama q4_k, int8 keys", {WIDE, "type=Q4_K"}, KV_INT8, 0.04, 0.02},
    {"llama q6_k, int4 keys", {WIDE, "type=Q6_K"}, KV_INT4, 0.1, 0.08},
    {"llama bf16, untied", {WIDE, "type=BF16", "tied=0"}, KV_BF16, 0.02, 0.002},
    {"llama f16, 3 heads a KV head", {WIDE, "heads=6", "type=F16"}, KV_BF16, 0.03, 0.002},
    {"llama q8_0, 4 heads of 128 a KV head",
     {"head_dim=128", "heads=8", "embd=256", "ff=512", "type=Q8_0"},
     KV_F16,
     0.03,
     0.01},
    {"llama q2_k", {WIDE, "type=Q2_K"}, KV_BF16, 0.03, 0.01},
    {"llama q3_k", {WIDE, "type=Q3_K"}, KV_BF16, 0.03, 0.01},
    {"llama q5_1", {WIDE, "type=Q5_1"}, KV_BF16, 0.03, 0.01},
    {"llama iq4_nl", {WIDE, "type=IQ4_NL"}, KV_BF16, 0.03, 0.01},
    {"llama mxfp4", {WIDE, "type=MXFP4"}, KV_BF16, 0.03, 0.01},
    {"qwen2 q4_0, biases", {WIDE, "arch=qwen2", "qkv_bias=1", "type=Q4_0"}, KV_BF16, 0.03, 0.01},
    {"qwen3 q5_k, head norms", {WIDE, "arch=qwen3", "type=Q5_K"}, KV_BF16, 0.03, 0.01},
    {"gemma2 q4_1, windows and caps", {WIDE, "arch=gemma2", "window=48", "type=Q4_1"}, KV_BF16, 0.002, 0.001},
    {"gemma3 iq4_xs, windows", {WIDE, "arch=gemma3", "window=48", "type=IQ4_XS"}, KV_INT8, 0.002, 0.001},
    {"phi3 q5_0, heads of 96", {"head_dim=96", "embd=256", "ff=256", "arch=phi3", "type=Q5_0"}, KV_BF16, 0.03, 0.01},
};

static bool make_model(const TinyCase *tiny, char *path, size_t n)
{
    TinyModel model = tiny_model_default();
    Error error = {0};
    bool good = true;
    for (const char *const *at = tiny->settings; *at; at++) good = good && tiny_model_set(&model, *at);
    good = good && tiny_model_temp(&model, path, n, &error);
    device_report(good, "%s: %s", tiny->name, error.text);
    return good;
}

static void try_case(const TinyCase *tiny, bool is_short)
{
    char path[256];
    uint32_t tokens[N_TOKENS];
    if (!make_model(tiny, path, sizeof path)) return;
    const PairParams params = {path, tiny->kv_type, false, CONTEXT, SEQUENCES, ROWS};
    Pair pair = pair_open(device, &params, true);
    model_text(pair.cpu, 5, tokens, N_TOKENS);
    try_prefill(&pair, tiny->name, tokens, 0, tiny->tiled);
    if (!is_short) try_prefill(&pair, tiny->name, tokens, 70, tiny->tiled);
    if (!is_short) try_prefill(&pair, tiny->name, tokens, SMALL, tiny->split);
    try_decode(&pair, tiny->name, tokens, tiny->split);
    try_pair(&pair, tiny->name, tokens, tiny->split);
    try_batch(&pair, tiny->name, tokens, tiny->tiled);
    try_pages(pair.gpu, tiny->name, tokens);
    try_pieces(pair.gpu, tiny->name, tokens);
    pair_close(&pair);
    if (tiny == cases) try_model_digests(device, path);
    unlink(path);
}

static void try_deterministic_case(const TinyCase *tiny)
{
    char path[256];
    if (!make_model(tiny, path, sizeof path)) return;
    try_deterministic(path, tiny->kv_type);
    unlink(path);
}

/* What is refused, and how it is told. */
static void try_refusals(void)
{
    static const TinyCase narrow = {"heads of 16", {NULL}, KV_BF16, 0, 0}, wide = {"wide", {WIDE}, KV_BF16, 0, 0};
    char path[256];
    Error error = {0};
    Engine *engine = NULL;
    EngineParams params = {.device = device,
                           .max_sequences = 1,
                           .max_batch_rows = 64,
                           .max_logit_rows = 1,
                           .model_path = path,
                           .kv_types = kv_types_all(KV_BF16),
                           .world = 1};
    if (!make_model(&narrow, path, sizeof path)) return;
    device_report(!engine_open(&params, &engine, &error) && error.code == ERR_UNSUPPORTED, "heads of 16: %s",
                  error.text);
    unlink(path);
    if (!make_model(&wide, path, sizeof path)) return;
    params.kv_types = kv_types_all(KV_F32);
    device_report(!engine_open(&params, &engine, &error) && !strcmp(error.param, "kv_type"), "f32: %s", error.text);
    params.kv_types = kv_types_all(KV_BF16);
    params.device_bytes = 1 << 20;
    device_report(!engine_open(&params, &engine, &error) && !strcmp(error.param, "gpu_memory"), "1 MiB: %s",
                  error.text);
    printf("%s\n", error.text);
    params.device_bytes = UINT64_MAX;
    device_report(!engine_open(&params, &engine, &error) && !strcmp(error.param, "gpu_memory"), "all: %s", error.text);
    unlink(path);
}

/* What can be asked for alone. */
enum { SELECT, DIGEST, DETERMINISTIC, BANDS };
static const char *const parts[] = {"select", "digest", "deterministic", "bands"};

static bool is_part(const char *only, int part)
{
    return !only || only == parts[part];
}

int main(int argc, char **argv)
{
    Error error, why_not;
    const char *only = NULL;
    bool is_short = argc > 1 && !strcmp(argv[1], "short");
    for (size_t i = 0; argc > 1 && i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(argv[1], parts[i])) only = parts[i];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!device_open("cuda", &device, &why_not, &error)) {
        printf("SKIPPED, no device: %s\n0 passed, 0 failed\n", error.text);
        return 77; /* what Meson calls a skip */
    }
    printf("%s\n", device->name);
    try_refusals();
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !only; i++)
        if (!is_short || i % 3 == 0) try_case(&cases[i], is_short);
    for (size_t i = 0; i < sizeof cases / sizeof *cases && is_part(only, DETERMINISTIC); i++)
        if (i == 0 || (!is_short && cases[i].kv_type == KV_INT8)) try_deterministic_case(&cases[i]);
    if (is_part(only, SELECT)) try_selection(device);
    if (is_part(only, BANDS)) try_bands(device);
    for (int i = 1 + (is_short || only); i < argc; i++) {
        if (is_part(only, SELECT)) try_selected_text(device, argv[i]);
        if (is_part(only, DIGEST)) try_model_digests(device, argv[i]);
        if (is_part(only, DETERMINISTIC)) try_deterministic(argv[i], KV_BF16);
        if (!only) try_model_text(device, argv[i]);
    }
    device_close(device);
    return device_finish();
}
