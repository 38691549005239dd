/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine_state.h"
#include "tests/support/alloc_count.h"
#include "tests/support/ref_llama.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ROWS = 96, N_TOKENS = 80 };

static Error error;

static EngineParams params_default(void)
{
    return (EngineParams){.max_sequences = 3,
                          .max_batch_rows = MAX_ROWS,
                          .max_logit_rows = MAX_ROWS,
                          .n_threads = 2,
                          .kv_types = {{KV_F32, KV_F32, KV_F32}},
                          .world = 1};
}

static bool try_open(const TinyModel *model, EngineParams params, Engine **ret_engine)
{
    char path[256];
    cr_assert(tiny_model_temp(model, path, sizeof path, &error), "%s", error.text);
    params.model_path = path;
    bool ok = engine_open(&params, ret_engine, &error);
    unlink(path);
    return ok;
}

static Engine *open_tiny(const TinyModel *model, EngineParams params)
{
    Engine *engine = NULL;
    cr_assert(try_open(model, params, &engine), "%s", error.text);
    return engine;
}

static SeqId open_seq(Engine *engine)
{
    SeqId seq = 0;
    cr_assert(engine_seq_new(engine, 0, &seq, &error), "%s", error.text);
    return seq;
}

static void fill_tokens(uint32_t *tokens, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++) tokens[i] = (seed + i * i * 31 + i * 7) % tiny_model_vocab();
}

/* Feeds tokens in chunks; all logits go to out [n, n_vocab]. */
static void feed(Engine *engine, SeqId seq, const uint32_t *tokens, uint32_t n, uint32_t chunk, float *out)
{
    size_t n_vocab = engine_shape(engine)->n_vocab;
    for (uint32_t done = 0; done < n; done += chunk) {
        uint32_t rows = n - done < chunk ? n - done : chunk;
        BatchSpan span = {seq, 0, rows, engine_seq_tokens(engine, seq), LOGITS_ALL};
        Batch batch = {tokens + done, rows, &span, 1};
        float *logits;
        cr_assert(engine_forward(engine, &batch, &logits, &error), "%s", error.text);
        memcpy(out + done * n_vocab, logits, rows * n_vocab * sizeof *out);
    }
}

static float *new_logits(void)
{
    float *x = calloc((size_t)N_TOKENS * tiny_model_vocab(), sizeof *x);
    cr_assert_not_null(x);
    return x;
}

/* Log-probabilities of the engine and of the plain forward pass over the rows as the file has them (test E1.1). */
static double max_difference(const TinyModel *model, const KernelTable *kernels)
{
    EngineParams params = params_default();
    uint32_t tokens[N_TOKENS], n_vocab = tiny_model_vocab();
    size_t n = (size_t)N_TOKENS * n_vocab;
    double *wanted = calloc(n, sizeof *wanted), *got = calloc(n, sizeof *got), worst = 0;
    float *logits = new_logits();
    params.kernels = kernels;
    Engine *engine = open_tiny(model, params);
    fill_tokens(tokens, N_TOKENS, 5);
    ref_llama_logits(engine_gguf(engine), engine_shape(engine), tokens, N_TOKENS, wanted);
    feed(engine, open_seq(engine), tokens, N_TOKENS, N_TOKENS, logits);
    for (size_t i = 0; i < n; i++) got[i] = (double)logits[i];
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        ref_log_softmax(got + (size_t)t * n_vocab, n_vocab);
        ref_log_softmax(wanted + (size_t)t * n_vocab, n_vocab);
    }
    for (size_t i = 0; i < n; i++) worst = fmax(worst, fabs(got[i] - wanted[i]));
    engine_close(engine);
    free(logits);
    free(wanted);
    free(got);
    return worst;
}

Test(test_engine, equals_the_plain_forward_pass)
{
    for (int i = 0; i < 8; i++) {
        TinyModel model = tiny_model_default();
        model.tied = i & 1;
        model.rope_freqs = i & 2;
        model.qkv_bias = i & 4;
        model.n_kv_heads = i & 1 ? 1 : 4;
        double ref = max_difference(&model, kernels_ref()), cpu = max_difference(&model, NULL);
        cr_expect_lt(ref, 1e-5, "variant %d, reference kernels: %g", i, ref);
        cr_expect_lt(cpu, 1e-5, "variant %d, CPU kernels: %g", i, cpu);
    }
}

static TinyModel model_of_type(DType type)
{
    TinyModel model = tiny_model_default();
    model.n_embd = model.n_ff = 256;
    model.n_heads = 16;
    model.type = type;
    model.embed_type = type;
    return model;
}

static const DType weight_types[] = {
    DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0,   DTYPE_Q4_1,  DTYPE_Q5_0,   DTYPE_Q5_1,
    DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_IQ4_NL, DTYPE_MXFP4, DTYPE_IQ4_XS, DTYPE_Q6_K,
};
enum { N_WEIGHT_TYPES = sizeof weight_types / sizeof *weight_types };

/* 8-bit activations move the worst of 30,000 log-probabilities by a third; a wrong block layout by whole units. */
Test(test_engine, every_weight_type_follows_the_plain_forward_pass)
{
    for (size_t i = 0; i < N_WEIGHT_TYPES; i++) {
        TinyModel model = model_of_type(weight_types[i]);
        double limit = i < 3 ? 1e-4 : 0.5, ref = max_difference(&model, kernels_ref());
        double cpu = max_difference(&model, NULL);
        cr_expect_lt(ref, limit, "%s, reference kernels: %g", dtype_info(weight_types[i])->name, ref);
        cr_expect_lt(cpu, limit, "%s, CPU kernels: %g", dtype_info(weight_types[i])->name, cpu);
    }
}

/* Keys and values of a sequence's tokens, one after another: [n_layers * n_kv_heads, n_tokens, k_dim + v_dim]. */
static size_t copy_cache(const Engine *engine, SeqId seq, uint32_t n_tokens, float *out)
{
    size_t n = 0;
    uint32_t n_classes;
    const KvClassInfo *classes = engine_policy_classes(engine, 0, &n_classes);
    cr_assert_eq(n_classes, 1);
    for (uint32_t slot = 0; slot < classes->n_slots; slot++)
        for (uint32_t token = 0; token < n_tokens; token++) {
            PageSet set;
            size_t bytes;
            engine_seq_page(engine, seq, token / KV_PAGE_TOKENS, &set);
            const char *page = kv_page_data(engine->memory, set.page[0], &bytes);
            const KvPool *pool = engine_page_is_open(engine, set.page[0])
                                     ? kv_memory_image_pool(engine->memory, classes->class_id)
                                     : kv_memory_pool(engine->memory, classes->class_id);
            const KvLayout *layout = &pool->layout;
            kv_slot_get(layout, page + slot * layout->slot_bytes, token % KV_PAGE_TOKENS, out + n,
                        out + n + layout->k_dim);
            n += layout->k_dim + layout->v_dim;
        }
    return n;
}

static float *new_cache(const Engine *engine)
{
    const ModelShape *s = engine_shape(engine);
    float *x = calloc((size_t)N_TOKENS * s->n_layers * s->n_kv_heads * (s->head_dim + s->v_dim), sizeof *x);
    cr_assert_not_null(x);
    return x;
}

static void expect_same_bits(Engine *engine, const uint32_t *tokens, uint32_t chunk, const float *logits,
                             const float *cache, size_t cache_floats)
{
    float *again = new_logits(), *cache_again = new_cache(engine);
    SeqId seq = open_seq(engine);
    feed(engine, seq, tokens, N_TOKENS, chunk, again);
    cr_expect_arr_eq(again, logits, (size_t)N_TOKENS * tiny_model_vocab() * sizeof *again, "chunks of %u: logits",
                     chunk);
    cr_expect_eq(copy_cache(engine, seq, N_TOKENS, cache_again), cache_floats);
    cr_expect_arr_eq(cache_again, cache, cache_floats * sizeof *cache, "chunks of %u: cache", chunk);
    engine_seq_close(engine, seq);
    free(again);
    free(cache_again);
}

Test(test_engine, chunks_do_not_change_a_bit)
{
    static const uint32_t chunks[] = {1, 7, 64};
    uint32_t tokens[N_TOKENS];
    fill_tokens(tokens, N_TOKENS, 11);
    for (size_t i = 0; i < N_WEIGHT_TYPES; i++) {
        TinyModel model = model_of_type(weight_types[i]);
        EngineParams params = params_default();
        params.kv_types = kv_types_all(i % KV_N_TYPES);
        Engine *engine = open_tiny(&model, params);
        float *logits = new_logits(), *cache = new_cache(engine);
        SeqId seq = open_seq(engine);
        feed(engine, seq, tokens, N_TOKENS, N_TOKENS, logits);
        size_t cache_floats = copy_cache(engine, seq, N_TOKENS, cache);
        for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++)
            expect_same_bits(engine, tokens, chunks[c], logits, cache, cache_floats);
        engine_close(engine);
        free(logits);
        free(cache);
    }
}

Test(test_engine, threads_do_not_change_a_bit)
{
    TinyModel model = model_of_type(DTYPE_Q4_1);
    EngineParams params = params_default();
    uint32_t tokens[N_TOKENS];
    float *one = new_logits(), *three = new_logits();
    fill_tokens(tokens, N_TOKENS, 2);
    for (int i = 0; i < 2; i++) {
        params.n_threads = i ? 3 : 1;
        Engine *engine = open_tiny(&model, params);
        feed(engine, open_seq(engine), tokens, N_TOKENS, 33, i ? three : one);
        engine_close(engine);
    }
    cr_assert_arr_eq(one, three, (size_t)N_TOKENS * tiny_model_vocab() * sizeof *one);
    free(one);
    free(three);
}

Test(test_engine, a_fork_goes_another_way)
{
    TinyModel model = tiny_model_default();
    Engine *engine = open_tiny(&model, params_default());
    size_t n_vocab = tiny_model_vocab();
    uint32_t tokens[N_TOKENS], other[20];
    float *logits = new_logits(), *again = new_logits();
    SeqId seq = open_seq(engine), fork = 0;
    fill_tokens(tokens, N_TOKENS, 3);
    fill_tokens(other, 20, 99);
    feed(engine, seq, tokens, 30, 30, logits);
    cr_assert(engine_seq_fork(engine, seq, &fork, &error), "%s", error.text);
    cr_assert_eq(engine_seq_tokens(engine, fork), 30);
    feed(engine, fork, other, 20, 20, again);
    feed(engine, seq, tokens + 30, N_TOKENS - 30, 32, logits + 30 * n_vocab);
    engine_seq_close(engine, fork);
    engine_seq_close(engine, seq);
    seq = open_seq(engine);
    feed(engine, seq, tokens, 30, 30, again);
    feed(engine, seq, tokens + 30, N_TOKENS - 30, 50, again);
    cr_assert_arr_eq(again, logits + 30 * n_vocab, (N_TOKENS - 30) * n_vocab * sizeof *again);
    engine_close(engine);
    free(logits);
    free(again);
}

Test(test_engine, sequences_of_one_batch_do_not_meet)
{
    TinyModel model = tiny_model_default();
    Engine *engine = open_tiny(&model, params_default());
    size_t n_vocab = tiny_model_vocab();
    uint32_t tokens[3][N_TOKENS], rows[60];
    float *alone[3], *logits, *unused = new_logits();
    SeqId seqs[3];
    for (uint32_t i = 0; i < 3; i++) {
        fill_tokens(tokens[i], 20, i * 1000);
        alone[i] = new_logits();
        seqs[i] = open_seq(engine);
        feed(engine, seqs[i], tokens[i], 20, 20, alone[i]);
        engine_seq_close(engine, seqs[i]);
        seqs[i] = open_seq(engine);
        if (i > 0) feed(engine, seqs[i], tokens[i], i * 5, i * 5, unused);
    }
    BatchSpan spans[3] = {
        {seqs[0], 0, 20, 0, LOGITS_LAST}, {seqs[1], 20, 15, 5, LOGITS_NONE}, {seqs[2], 35, 10, 10, LOGITS_ALL}};
    for (uint32_t i = 0; i < 3; i++)
        memcpy(rows + spans[i].first_row, tokens[i] + i * 5, spans[i].n_rows * sizeof *rows);
    cr_assert(engine_forward(engine, &(Batch){rows, 45, spans, 3}, &logits, &error), "%s", error.text);
    cr_assert_arr_eq(logits, alone[0] + 19 * n_vocab, n_vocab * sizeof *logits);
    cr_assert_arr_eq(logits + n_vocab, alone[2] + 10 * n_vocab, 10 * n_vocab * sizeof *logits);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(engine_seq_tokens(engine, seqs[i]), 20);
        free(alone[i]);
    }
    free(unused);
    engine_close(engine);
}

Test(test_engine, a_step_allocates_nothing)
{
    for (size_t i = 0; i < N_WEIGHT_TYPES; i++) {
        TinyModel model = model_of_type(weight_types[i]);
        Engine *engine = open_tiny(&model, params_default());
        uint32_t tokens[N_TOKENS];
        float *logits = new_logits();
        SeqId seq = open_seq(engine);
        fill_tokens(tokens, N_TOKENS, 8);
        uint64_t before = alloc_count();
        cr_assert_gt(before, 0, "the counter counts");
        feed(engine, seq, tokens, 60, 60, logits);
        feed(engine, seq, tokens + 60, N_TOKENS - 60, 1, logits);
        cr_expect_eq(alloc_count(), before, "%s", dtype_info(weight_types[i])->name);
        engine_close(engine);
        free(logits);
    }
}

static void count_pulse(void *arg)
{
    ++*(uint32_t *)arg;
}

Test(test_engine, every_layer_is_a_sign_of_life)
{
    TinyModel model = tiny_model_default();
    Engine *engine = open_tiny(&model, params_default());
    uint32_t tokens[8], n_pulses = 0;
    fill_tokens(tokens, 8, 3);
    float *logits = new_logits();
    engine_set_pulse(engine, count_pulse, &n_pulses);
    feed(engine, open_seq(engine), tokens, 8, 8, logits);
    cr_assert_eq(n_pulses, engine_shape(engine)->n_layers + 2, "%u", n_pulses);
    engine_set_pulse(engine, NULL, NULL);
    feed(engine, open_seq(engine), tokens, 8, 8, logits);
    cr_assert_eq(n_pulses, engine_shape(engine)->n_layers + 2, "%u", n_pulses);
    free(logits);
    engine_close(engine);
}

Test(test_engine, bad_batches_change_nothing)
{
    TinyModel model = tiny_model_default();
    EngineParams params = params_default();
    params.context = 100;
    params.max_logit_rows = 8;
    Engine *engine = open_tiny(&model, params);
    SeqId a = open_seq(engine), b = open_seq(engine);
    uint32_t tokens[200] = {0};
    float *logits = NULL;
    const struct {
        uint32_t n_rows, n_spans;
        BatchSpan spans[2];
        ErrorCode code;
    } bad[] = {
        {0, 0, {{0}}, ERR_INTERNAL},
        {MAX_ROWS + 1, 1, {{a, 0, MAX_ROWS + 1, 0, LOGITS_NONE}}, ERR_INTERNAL},
        {4, 0, {{0}}, ERR_INTERNAL},
        {4, 1, {{a, 0, 3, 0, LOGITS_NONE}}, ERR_INTERNAL},
        {4, 1, {{a, 0, 5, 0, LOGITS_NONE}}, ERR_INTERNAL},
        {4, 1, {{a, 1, 3, 0, LOGITS_NONE}}, ERR_INTERNAL},
        {4, 1, {{a, 0, 4, 1, LOGITS_NONE}}, ERR_INTERNAL},
        {4, 1, {{77, 0, 4, 0, LOGITS_NONE}}, ERR_INTERNAL},
        {4, 2, {{a, 0, 2, 0, LOGITS_NONE}, {a, 2, 2, 0, LOGITS_NONE}}, ERR_INTERNAL},
        {4, 2, {{a, 0, 4, 0, LOGITS_NONE}, {b, 4, 0, 0, LOGITS_NONE}}, ERR_INTERNAL},
        {9, 1, {{a, 0, 9, 0, LOGITS_ALL}}, ERR_INTERNAL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Batch batch = {tokens, bad[i].n_rows, bad[i].spans, bad[i].n_spans};
        cr_assert_not(engine_forward(engine, &batch, &logits, &error), "batch %zu", i);
        cr_assert_eq(error.code, bad[i].code, "batch %zu: %s", i, error.text);
    }
    tokens[2] = tiny_model_vocab();
    BatchSpan span = {a, 0, 4, 0, LOGITS_LAST};
    cr_assert_not(engine_forward(engine, &(Batch){tokens, 4, &span, 1}, &logits, &error));
    cr_assert_eq(error.code, ERR_INVALID);
    tokens[2] = 0;
    span.n_rows = 60;
    cr_assert(engine_forward(engine, &(Batch){tokens, 60, &span, 1}, &logits, &error), "%s", error.text);
    span = (BatchSpan){a, 0, 41, 60, LOGITS_LAST};
    logits = NULL;
    cr_assert_not(engine_forward(engine, &(Batch){tokens, 41, &span, 1}, &logits, &error));
    cr_assert_eq(error.code, ERR_CONTEXT_LENGTH);
    cr_assert_null(logits);
    cr_assert_eq(engine_seq_tokens(engine, a), 60);
    cr_assert_eq(engine_seq_tokens(engine, b), 0);
    engine_close(engine);
}

Test(test_engine, getters_and_limits)
{
    TinyModel model = tiny_model_default();
    EngineParams params = params_default();
    Engine *engine = open_tiny(&model, params);
    cr_assert_eq(engine_context(engine), 512);
    cr_assert_eq(engine_shape(engine)->n_vocab, tiny_model_vocab());
    cr_assert_eq(tok_n_vocab(engine_tokenizer(engine)), tiny_model_vocab());
    cr_assert_not_null(engine_chat_template(engine));
    cr_assert_null(engine_chat_template_error(engine));
    cr_assert(engine_max_batch_rows(engine) == MAX_ROWS && engine_max_logit_rows(engine) == MAX_ROWS);
    cr_assert_eq(engine_kv_usage(engine).total_bytes, 3 * engine_need_bytes(engine, 0, 512));
    cr_assert_geq(engine_need_bytes(engine, 0, 512), 512 * kv_token_bytes(engine_shape(engine), &params.kv_types));
    cr_assert_str_eq(engine_device_name(engine), kernels_cpu()->name);
    for (int i = 0; i < 3; i++) open_seq(engine);
    SeqId seq = 9;
    cr_assert_not(engine_seq_new(engine, 0, &seq, &error));
    cr_assert_eq(error.code, ERR_BUSY);
    engine_seq_close(engine, 1);
    cr_assert(engine_seq_new(engine, 0, &seq, &error));
    cr_assert_eq(seq, 1);
    engine_close(engine);
    engine_close(NULL);
}

Test(test_engine, refuses_to_open)
{
    TinyModel model = tiny_model_default();
    EngineParams params = params_default();
    Engine *engine = NULL;
    params.context = 513;
    cr_assert_not(try_open(&model, params, &engine));
    cr_assert_str_eq(error.param, "ctx");
    params = params_default();
    params.world = 2;
    cr_assert_not(try_open(&model, params, &engine));
    cr_assert_eq(error.code, ERR_UNSUPPORTED);
    params = params_default();
    params.kv_bytes = 3 << 14;
    cr_assert_not(try_open(&model, params, &engine));
    cr_assert_str_eq(error.param, "host_memory");
    params = params_default();
    params.max_batch_rows = 0;
    cr_assert_not(try_open(&model, params, &engine));
    params.model_path = "/nonexistent/model.gguf";
    params.max_batch_rows = 1;
    cr_assert_not(engine_open(&params, &engine, &error));
    cr_assert(strstr(error.text, "/nonexistent/model.gguf"), "%s", error.text);
    cr_assert_null(engine);
}
