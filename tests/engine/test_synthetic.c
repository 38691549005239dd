/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"
#include "engine/model/synthetic.h"
#include "kernels/linear/dequant.h"
#include "tests/support/alloc_count.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static Error error;

static ModelShape small_shape(const char *architecture)
{
    ModelShape shape = {.n_layers = 2,
                        .n_embd = 256,
                        .n_ff = 512,
                        .n_vocab = 300,
                        .n_heads = 4,
                        .n_kv_heads = 2,
                        .head_dim = 64,
                        .v_dim = 64,
                        .rope_dim = 64,
                        .rope_base = 1e4,
                        .rope_linear_factor = 1,
                        .rope_magnitude = 1,
                        .train_context = 64,
                        .norm_eps = 1e-5f,
                        .embed_scale = 1,
                        .attention_scale = 0.125f};
    strcpy(shape.architecture, architecture);
    strcpy(shape.name, "small");
    return shape;
}

static ThreadPool *new_pool(uint32_t n_threads)
{
    ThreadPool *pool;
    cr_assert(threads_new(n_threads, &pool, &error), "%s", error.text);
    return pool;
}

/* A file of the shape, filled by n_threads. */
static Gguf *filled(const ModelShape *shape, DType type, uint64_t seed, uint32_t n_threads)
{
    Synthetic *synthetic;
    Gguf *gguf;
    ThreadPool *pool = new_pool(n_threads);
    cr_assert(synthetic_new(shape, type, &synthetic, &error), "%s", error.text);
    cr_assert(synthetic_fill(synthetic, seed, pool, &error), "%s", error.text);
    cr_assert(gguf_open(synthetic_path(synthetic), &gguf, &error), "%s", error.text);
    synthetic_free(synthetic);
    threads_free(pool);
    return gguf;
}

static void check_same_shape(const ModelShape *file, const ModelShape *named)
{
    const char *name = named->name;
    cr_expect_eq(file->n_layers, named->n_layers, "%s", name);
    cr_expect_eq(file->n_embd, named->n_embd, "%s", name);
    cr_expect_eq(file->n_ff, named->n_ff, "%s", name);
    cr_expect_eq(file->n_vocab, named->n_vocab, "%s", name);
    cr_expect_eq(file->n_heads, named->n_heads, "%s", name);
    cr_expect_eq(file->n_kv_heads, named->n_kv_heads, "%s", name);
    cr_expect_eq(file->head_dim, named->head_dim, "%s", name);
    cr_expect_eq(file->v_dim, named->v_dim, "%s", name);
    cr_expect_eq(file->rope_dim, named->rope_dim, "%s", name);
    cr_expect_eq(file->rope_layout, named->rope_layout, "%s", name);
    cr_expect_eq(file->window_tokens, named->window_tokens, "%s", name);
    cr_expect_eq(file->full_layer_period, named->full_layer_period, "%s", name);
    cr_expect_eq(file->window_rope_base, named->window_rope_base, "%s", name);
    cr_expect_eq(file->train_context, named->train_context, "%s", name);
    cr_expect_eq(file->norm_eps, named->norm_eps, "%s", name);
    cr_expect_float_eq(file->embed_scale, named->embed_scale, 1e-5, "%s", name);
    cr_expect_float_eq(file->attention_scale, named->attention_scale, 1e-7, "%s", name);
    cr_expect_eq(file->tied_output, named->tied_output, "%s", name);
    uint32_t n_divisors = named->rope_llama3.factor != 0 ? named->rope_dim / 2 : 0;
    cr_expect_eq(file->n_params, named->n_params + n_divisors, "%s", name);
}

/* Weights stay holes in the file, so this takes little memory. */
Test(test_synthetic, files_have_the_named_shapes)
{
    for (size_t i = 0; shape_name_at(i); i++) {
        const ModelShape *named = shape_by_name(shape_name_at(i));
        const ModelFamily *family;
        ModelShape shape;
        Synthetic *synthetic;
        Gguf *gguf;
        cr_assert(synthetic_new(named, DTYPE_Q8_0, &synthetic, &error), "%s", error.text);
        cr_assert(gguf_open(synthetic_path(synthetic), &gguf, &error), "%s", error.text);
        cr_assert(family_find(gguf, &family, &error) && family_read_shape(family, gguf, &shape, &error), "%s",
                  error.text);
        check_same_shape(&shape, named);
        gguf_close(gguf);
        synthetic_free(synthetic);
    }
}

Test(test_synthetic, files_have_the_stretching_of_llama_3)
{
    ModelShape shape = small_shape("llama");
    shape.rope_llama3 = (RopeLlama3){8, 1, 4, 64};
    Gguf *gguf = filled(&shape, DTYPE_F32, 1, 1);
    double of_file[32], of_shape[32];
    cr_assert(family_rope_theta(&shape, gguf, of_file, &error), "%s", error.text);
    cr_assert(family_rope_theta(&shape, NULL, of_shape, &error), "%s", error.text);
    for (uint32_t r = 0; r < 32; r++) cr_expect_float_eq(of_file[r] / of_shape[r], 1, 1e-6, "pair %u", r);
    cr_expect_float_eq(of_file[0] * 8, pow(1e4, -62.0 / 64), 1e-9, "the longest wavelength is stretched");
    gguf_close(gguf);
}

/* Mean about 0, and squares that add up to about 1 in a row of every type. */
Test(test_synthetic, weights_of_every_type_are_sane)
{
    ModelShape shape = small_shape("llama");
    for (uint32_t id = 0; id < 64; id++) {
        const DTypeInfo *info = dtype_info((DType)id);
        if (!info) continue;
        Gguf *gguf = filled(&shape, (DType)id, 7, 2);
        const GgufTensor *tensor = gguf_tensor(gguf, "blk.1.ffn_down.weight");
        uint32_t n = shape.n_ff * shape.n_embd;
        float *values = malloc(n * sizeof *values);
        double sum = 0, squares = 0;
        cr_assert(dequant_row_ref((DType)id, tensor->view.data, values, n));
        for (uint32_t i = 0; i < n; i++) {
            sum += (double)values[i];
            squares += (double)values[i] * (double)values[i];
        }
        cr_expect_float_eq(squares / shape.n_embd, 1, id == DTYPE_MXFP4 ? 0.7 : 0.1, "%s: %g", info->name,
                           squares / shape.n_embd);
        cr_expect_lt(fabs(sum / n), 0.15 * sqrt(squares / n), "%s: mean %g", info->name, sum / n);
        free(values);
        gguf_close(gguf);
    }
}

Test(test_synthetic, weights_depend_on_the_seed_alone)
{
    ModelShape shape = small_shape("gemma3");
    shape.window_tokens = 16;
    shape.full_layer_period = 2;
    shape.window_rope_base = 1e4;
    Gguf *one = filled(&shape, DTYPE_Q4_0, 3, 1), *same = filled(&shape, DTYPE_Q4_0, 3, 3);
    Gguf *other = filled(&shape, DTYPE_Q4_0, 4, 1);
    for (size_t i = 0; i < gguf_n_tensors(one); i++) {
        const GgufTensor *a = gguf_tensor_at(one, i), *b = gguf_tensor_at(same, i), *c = gguf_tensor_at(other, i);
        cr_assert_eq(a->n_bytes, b->n_bytes);
        cr_expect(!memcmp(a->view.data, b->view.data, a->n_bytes), "%.*s", (int)a->name.n, a->name.data);
        cr_expect(memcmp(a->view.data, c->view.data, a->n_bytes), "%.*s", (int)a->name.n, a->name.data);
        for (size_t j = 0; j < i; j++)
            cr_expect(memcmp(a->view.data, gguf_tensor_at(one, j)->view.data, 64), "tensors %zu and %zu", i, j);
    }
    gguf_close(one);
    gguf_close(same);
    gguf_close(other);
}

Test(test_synthetic, engines_run_them)
{
    static const char *const architectures[] = {"llama", "qwen2", "gemma3"};
    for (size_t i = 0; i < 3; i++) {
        ModelShape shape = small_shape(architectures[i]);
        Synthetic *synthetic;
        ThreadPool *pool = new_pool(1);
        cr_assert(synthetic_new(&shape, DTYPE_Q4_K, &synthetic, &error), "%s", error.text);
        cr_assert(synthetic_fill(synthetic, 1, pool, &error), "%s", error.text);
        EngineParams params = {.model_path = synthetic_path(synthetic),
                               .max_sequences = 1,
                               .max_batch_rows = 8,
                               .max_logit_rows = 8,
                               .n_threads = 1,
                               .kv_types = {{KV_F16, KV_F16, KV_F16}},
                               .world = 1};
        Engine *engine;
        SeqId seq;
        float *logits;
        cr_assert(engine_open(&params, &engine, &error), "%s", error.text);
        synthetic_free(synthetic);
        threads_free(pool);
        cr_assert(engine_seq_new(engine, 0, &seq, &error), "%s", error.text);
        BatchSpan span = {seq, 0, 3, 0, LOGITS_ALL};
        cr_assert(engine_forward(engine, &(Batch){(uint32_t[]){1, 2, 299}, 3, &span, 1}, &logits, &error), "%s",
                  error.text);
        double squares = 0;
        for (uint32_t v = 0; v < 3 * shape.n_vocab; v++) squares += (double)logits[v] * (double)logits[v];
        cr_expect(squares > 100 && squares < 1e5, "%s: %g", architectures[i], squares);
        engine_close(engine);
    }
}

Test(test_synthetic, names_are_parsed)
{
    static const char *const bad[] = {"",
                                      ":",
                                      "llama-3.1-8b",
                                      "llama-3.1-8b:",
                                      ":q8_0",
                                      "llama-3.1-8b:q8",
                                      "none:q8_0",
                                      "llama-3.1-8b:q8_0 ",
                                      "llama-3.1-8b:q8_0:1",
                                      "smollm2-135m:q4_k"};
    const ModelShape *shape = NULL;
    DType type = DTYPE_F32;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_not(synthetic_parse(bad[i], &shape, &type, &error), "'%s'", bad[i]);
        cr_expect_str_eq(error.param, "synthetic");
        cr_expect(!shape && type == DTYPE_F32);
    }
    cr_expect(strstr(error.text, "rows of 576"), "%s", error.text);
    cr_assert(synthetic_parse("llama-3.1-8b:q4_k", &shape, &type, &error), "%s", error.text);
    cr_expect(shape == shape_by_name("llama-3.1-8b") && type == DTYPE_Q4_K);
    cr_assert(synthetic_parse("smollm2-135m:BF16", &shape, &type, &error), "%s", error.text);
    cr_expect(shape == shape_by_name("smollm2-135m") && type == DTYPE_BF16);
}

Test(test_synthetic, other_architectures_are_refused)
{
    ModelShape shape = small_shape("phi3");
    Synthetic *synthetic = NULL;
    cr_expect_not(synthetic_new(&shape, DTYPE_F32, &synthetic, &error));
    cr_expect_eq(error.code, ERR_UNSUPPORTED);
    cr_expect_null(synthetic);
}

Test(test_synthetic, every_allocation_that_fails_is_an_error)
{
    ModelShape shape = small_shape("llama");
    shape.rope_llama3 = (RopeLlama3){8, 1, 4, 64};
    uint32_t n = 0;
    for (bool failed = true; failed; n++) {
        Synthetic *synthetic = NULL;
        alloc_fail_at(n + 1);
        bool made = synthetic_new(&shape, DTYPE_F32, &synthetic, &error);
        failed = alloc_failed();
        alloc_fail_at(0);
        cr_expect_eq(made, !failed, "allocation %u", n + 1);
        synthetic_free(synthetic);
    }
    cr_expect_gt(n, 4);
}
