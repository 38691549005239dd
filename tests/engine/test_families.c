/* SPDX-License-Identifier: Apache-2.0 */
/* What families have beside llama's: windows, caps, norms, fused matrices. Their numbers: test_engine_golden.c. */
#include "tests/support/engine_rig.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static Error error;

static EngineParams rig_params(void)
{
    EngineParams params = engine_rig_params((KvTypes){{KV_F16, KV_F16, KV_F16}}, 1, 128);
    params.n_threads = 2;
    return params;
}

#define OPEN(...) ENGINE_RIG(rig_params(), __VA_ARGS__)

/* Logits of n rows that come in chunks. [n, n_vocab] */
static float *run_chunks(Engine *engine, uint32_t n, uint32_t chunk)
{
    uint32_t n_vocab = engine_shape(engine)->n_vocab, ids[128];
    float *all = calloc((size_t)n * n_vocab, sizeof *all), *logits;
    SeqId seq;
    cr_assert(engine_seq_new(engine, 0, &seq, &error), "%s", error.text);
    for (uint32_t i = 0; i < n; i++) ids[i] = (i * 37 + 11) % n_vocab;
    for (uint32_t first = 0; first < n; first += chunk) {
        uint32_t rows = n - first < chunk ? n - first : chunk;
        BatchSpan span = {seq, 0, rows, first, LOGITS_ALL};
        cr_assert(engine_forward(engine, &(Batch){ids + first, rows, &span, 1}, &logits, &error), "%s", error.text);
        memcpy(all + (size_t)first * n_vocab, logits, (size_t)rows * n_vocab * sizeof *all);
    }
    engine_seq_close(engine, seq);
    return all;
}

static void check_chunks(Engine *engine)
{
    enum { ROWS = 100 };
    static const uint32_t chunks[] = {1, 7, 64};
    size_t bytes = (size_t)ROWS * engine_shape(engine)->n_vocab * sizeof(float);
    float *whole = run_chunks(engine, ROWS, ROWS);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        float *parts = run_chunks(engine, ROWS, chunks[i]);
        cr_assert_eq(memcmp(whole, parts, bytes), 0, "%s in chunks of %u", engine_shape(engine)->name, chunks[i]);
        free(parts);
    }
    free(whole);
    engine_close(engine);
}

Test(test_families, chunks_do_not_change_a_bit)
{
    check_chunks(OPEN("arch=qwen2", "qkv_bias=1"));
    check_chunks(OPEN("arch=qwen3", "head_dim=24"));
    check_chunks(OPEN("arch=gemma2", "window=20", "layers=3"));
    check_chunks(OPEN("arch=gemma3", "window=33", "layers=7"));
    check_chunks(OPEN("arch=phi3", "tied=0", "rope_dim=12", "original_context=64"));
    check_chunks(OPEN("arch=llama", "window=20"));
}

Test(test_families, gemma_layers_see_what_they_should)
{
    Engine *engine = OPEN("arch=gemma3", "window=9", "layers=13");
    const ModelShape *s = engine_shape(engine);
    for (uint32_t i = 0; i < 13; i++) cr_assert_eq(shape_layer_window(s, i), i == 5 || i == 11 ? 0 : 9, "layer %u", i);
    cr_assert(s->window_rope_base == 10000 && s->attention_softcap == 0 && s->embed_scale == 8);
    const KvTypes types = kv_types_all(KV_F16);
    cr_assert_eq(kv_tokens_bytes(s, &types, 100), (2 * 100 + 11 * 9) * (kv_token_bytes(s, &types) / 13));
    engine_close(engine);
    engine = OPEN("arch=gemma2", "layers=3");
    s = engine_shape(engine);
    for (uint32_t i = 0; i < 3; i++) cr_assert_eq(shape_layer_window(s, i), i == 1 ? 0 : 4096, "layer %u", i);
    cr_assert(s->attention_softcap == 50 && s->final_softcap == 30);
    engine_close(engine);
    engine = OPEN("arch=phi3", "window=9");
    cr_assert(shape_layer_window(engine_shape(engine), 0) == 9 && shape_layer_window(engine_shape(engine), 1) == 9);
    engine_close(engine);
}

/* Mistral's files are llama's with a window in each layer: rows that it does not cut are those without it. */
Test(test_families, a_llama_may_have_windows)
{
    enum { ROWS = 60, WINDOW = 20 };
    Engine *plain = OPEN("arch=llama"), *mistral = OPEN("arch=llama", "window=20");
    const ModelShape *s = engine_shape(mistral);
    for (uint32_t i = 0; i < s->n_layers; i++) cr_assert_eq(shape_layer_window(s, i), WINDOW, "layer %u", i);
    float *all = run_chunks(plain, ROWS, ROWS), *near = run_chunks(mistral, ROWS, ROWS);
    for (uint32_t row = 0; row < ROWS; row++) {
        bool is_same = !memcmp(all + row * s->n_vocab, near + row * s->n_vocab, s->n_vocab * sizeof *all);
        cr_expect_eq(is_same, row < WINDOW, "row %u", row);
    }
    uint32_t n;
    const KvClassInfo *classes = engine_policy_classes(mistral, 0, &n);
    cr_expect(n == 1 && !strcmp(classes[0].name, "window"), "no layer keeps more than its window");
    free(all);
    free(near);
    engine_close(plain);
    engine_close(mistral);
}

/* A file of a few keys and one tensor, for family_read_shape. */
static bool read_shape(const char *key, bool is_float, float value, ModelShape *shape)
{
    static const struct {
        const char *key;
        uint32_t value;
    } needed[] = {
        {"gemma3.block_count", 2},     {"gemma3.embedding_length", 8},     {"gemma3.feed_forward_length", 8},
        {"gemma3.context_length", 64}, {"gemma3.attention.head_count", 2},
    };
    static const float table[16];
    GgufWriter writer;
    Buffer file;
    Gguf *gguf;
    const ModelFamily *family;
    gguf_writer_init(&writer);
    gguf_writer_string(&writer, "general.architecture", "gemma3");
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        gguf_writer_u32(&writer, needed[i].key, needed[i].value);
    if (is_float)
        gguf_writer_f32(&writer, key, value);
    else
        gguf_writer_u32(&writer, key, (uint32_t)value);
    gguf_writer_tensor(&writer, "token_embd.weight", DTYPE_F32, 2, (uint64_t[]){8, 2}, table, sizeof table);
    buffer_init(&file, 1 << 20);
    gguf_writer_finish(&writer, &file);
    gguf_writer_done(&writer);
    cr_assert(gguf_open_memory(file.data, file.n, "test", &gguf, &error), "%s", error.text);
    cr_assert(family_find(gguf, &family, &error), "%s", error.text);
    bool ok = family_read_shape(family, gguf, shape, &error);
    gguf_close(gguf);
    buffer_done(&file);
    return ok;
}

Test(test_families, wild_values_are_refused)
{
    static const struct {
        const char *key;
        bool is_float;
        float value;
    } wild[] = {
        {"gemma3.final_logit_softcapping", true, NAN},    {"gemma3.final_logit_softcapping", true, -1},
        {"gemma3.attn_logit_softcapping", true, 1e-30f},  {"gemma3.attn_logit_softcapping", true, INFINITY},
        {"gemma3.rope.freq_base_swa", true, 0},           {"gemma3.rope.scaling.attn_factor", true, 0},
        {"gemma3.attention.sliding_window", false, 1e9f}, {"gemma3.attention.sliding_window_pattern", false, 5000},
    };
    ModelShape shape;
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
        cr_assert_not(read_shape(wild[i].key, wild[i].is_float, wild[i].value, &shape), "%s", wild[i].key);
        cr_assert(error.code == ERR_INVALID && strstr(error.text, wild[i].key), "%s", error.text);
    }
    cr_assert(read_shape("gemma3.attention.sliding_window", false, 0, &shape) && shape.window_tokens == 0);
    cr_assert(read_shape("gemma3.final_logit_softcapping", true, 0, &shape) && shape.final_softcap == 0);
    cr_assert(read_shape("gemma3.final_logit_softcapping", true, 12, &shape) && shape.final_softcap == 12);
}

/* One magnitude serves both kinds of layers, but only one kind would be scaled. */
Test(test_families, yarn_beside_a_base_for_windows_is_refused)
{
    static const char *const settings[] = {"arch=gemma3", "window=12", "yarn=4", "original_context=64"};
    TinyModel model = tiny_model_default();
    Buffer bytes;
    Gguf *gguf;
    const ModelFamily *family;
    ModelShape shape;
    buffer_init(&bytes, 1 << 24);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) cr_assert(tiny_model_set(&model, settings[i]));
    cr_assert(tiny_model_build(&model, &bytes, &error), "%s", error.text);
    cr_assert(gguf_open_memory(bytes.data, bytes.n, "tiny", &gguf, &error), "%s", error.text);
    cr_assert(family_find(gguf, &family, &error), "%s", error.text);
    cr_expect_not(family_read_shape(family, gguf, &shape, &error));
    cr_expect_eq(error.code, ERR_UNSUPPORTED);
    cr_expect(strstr(error.text, "yarn"), "%s", error.text);
    gguf_close(gguf);
    buffer_done(&bytes);
}
