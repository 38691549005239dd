/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/family.h"
#include "tests/support/gguf_writer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static Error error;

/* One metadata key of a llama file; text NULL: a number, written as U32 or F32. */
typedef struct Key {
    const char *name;
    const char *text;
    double number;
    bool is_float;
} Key;

static const Key good_keys[] = {
    {"general.architecture", "llama", 0, false},
    {"general.name", "A model", 0, false},
    {"llama.block_count", NULL, 3, false},
    {"llama.context_length", NULL, 4096, false},
    {"llama.embedding_length", NULL, 48, false},
    {"llama.feed_forward_length", NULL, 100, false},
    {"llama.attention.head_count", NULL, 6, false},
    {"llama.attention.head_count_kv", NULL, 2, false},
    {"llama.attention.layer_norm_rms_epsilon", NULL, 1e-6, true},
    {"llama.rope.freq_base", NULL, 500000, true},
    {"llama.rope.dimension_count", NULL, 8, false},
    {"llama.vocab_size", NULL, 7, false},
};
enum { N_GOOD_KEYS = sizeof good_keys / sizeof *good_keys };

static void write_key(GgufWriter *writer, const Key *key)
{
    if (key->text)
        gguf_writer_string(writer, key->name, key->text);
    else if (key->is_float)
        gguf_writer_f32(writer, key->name, (float)key->number);
    else
        gguf_writer_u32(writer, key->name, (uint32_t)key->number);
}

/* The good keys, but without 'dropped', and with the changed ones instead of those of their name. */
static void write_keys(GgufWriter *writer, const char *dropped, const Key *changed, size_t n_changed)
{
    for (size_t i = 0; i < N_GOOD_KEYS; i++) {
        bool wanted = !dropped || strcmp(good_keys[i].name, dropped) != 0;
        for (size_t c = 0; c < n_changed; c++) wanted = wanted && strcmp(good_keys[i].name, changed[c].name) != 0;
        if (wanted) write_key(writer, &good_keys[i]);
    }
    for (size_t c = 0; c < n_changed; c++) write_key(writer, &changed[c]);
}

static bool read_shape(const char *dropped, const Key *changed, size_t n_changed, bool untied, ModelShape *shape)
{
    static const float zeros[7 * 48];
    GgufWriter writer;
    Buffer bytes;
    Gguf *gguf = NULL;
    const ModelFamily *family;
    gguf_writer_init(&writer);
    buffer_init(&bytes, 1 << 20);
    write_keys(&writer, dropped, changed, n_changed);
    gguf_writer_tensor(&writer, "token_embd.weight", DTYPE_F32, 2, (uint64_t[]){48, 7}, zeros, sizeof zeros);
    if (untied) gguf_writer_tensor(&writer, "output.weight", DTYPE_F32, 2, (uint64_t[]){48, 7}, zeros, sizeof zeros);
    gguf_writer_finish(&writer, &bytes);
    cr_assert(gguf_open_memory(bytes.data, bytes.n, "dir/file.gguf", &gguf, &error), "%s", error.text);
    bool ok = family_find(gguf, &family, &error) && family_read_shape(family, gguf, shape, &error);
    gguf_close(gguf);
    gguf_writer_done(&writer);
    buffer_done(&bytes);
    return ok;
}

Test(test_family, reads_every_field)
{
    ModelShape s;
    cr_assert(read_shape(NULL, NULL, 0, false, &s), "%s", error.text);
    cr_assert_str_eq(s.architecture, "llama");
    cr_assert_str_eq(s.name, "A model");
    cr_assert(s.n_layers == 3 && s.n_embd == 48 && s.n_ff == 100 && s.n_vocab == 7 && s.train_context == 4096);
    cr_assert(s.n_heads == 6 && s.n_kv_heads == 2 && s.head_dim == 8 && s.v_dim == 8 && s.rope_dim == 8);
    cr_assert(s.rope_layout == ROPE_INTERLEAVED && s.rope_base == 500000 && s.rope_linear_factor == 1);
    cr_assert(s.norm_eps == 1e-6f && s.embed_scale == 1);
    cr_assert_float_eq(s.attention_scale, 1 / sqrt(8.0), 1e-7);
    cr_assert(s.tied_output && s.n_params == 7 * 48 && s.weight_bytes == 7 * 48 * 4);
}

Test(test_family, defaults)
{
    static const char *const optional[] = {"general.name",         "llama.attention.head_count_kv",
                                           "llama.rope.freq_base", "llama.rope.dimension_count",
                                           "llama.vocab_size",     "llama.attention.layer_norm_rms_epsilon"};
    ModelShape s;
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        cr_assert(read_shape(optional[i], NULL, 0, true, &s), "without %s: %s", optional[i], error.text);
    cr_assert_not(s.tied_output);
    cr_assert(read_shape("general.name", NULL, 0, false, &s));
    cr_assert_str_eq(s.name, "file.gguf");
    cr_assert(read_shape(NULL, &(Key){"general.name", "", 0, false}, 1, false, &s));
    cr_assert_str_eq(s.name, "file.gguf");
    cr_assert(read_shape("llama.attention.head_count_kv", NULL, 0, false, &s));
    cr_assert_eq(s.n_kv_heads, 6);
    cr_assert(read_shape("llama.rope.freq_base", NULL, 0, false, &s));
    cr_assert_eq(s.rope_base, 10000);
}

Test(test_family, required_keys_are_named)
{
    static const char *const required[] = {"general.architecture",      "llama.block_count",
                                           "llama.context_length",      "llama.embedding_length",
                                           "llama.feed_forward_length", "llama.attention.head_count"};
    ModelShape s = {.n_layers = 99};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        cr_assert_not(read_shape(required[i], NULL, 0, false, &s), "%s", required[i]);
        cr_assert(strstr(error.text, required[i]), "%s", error.text);
    }
    cr_assert_eq(s.n_layers, 99, "the output is untouched on failure");
}

Test(test_family, insane_values_are_named)
{
    static const Key bad[] = {
        {"general.architecture", "rwkv", 0, false},
        {"llama.block_count", NULL, 0, false},
        {"llama.block_count", NULL, 1e6, false},
        {"llama.block_count", "three", 0, false},
        {"llama.context_length", NULL, 0, false},
        {"llama.context_length", NULL, 4e9, false},
        {"llama.embedding_length", NULL, 0, false},
        {"llama.embedding_length", NULL, 1 << 20, false},
        {"llama.feed_forward_length", NULL, 1 << 30, false},
        {"llama.attention.head_count", NULL, 0, false},
        {"llama.attention.head_count", NULL, 100000, false},
        {"llama.attention.head_count_kv", NULL, 0, false},
        {"llama.attention.head_count_kv", NULL, 4, false},
        {"llama.attention.head_count_kv", NULL, 12, false},
        {"llama.attention.key_length", NULL, 0, false},
        {"llama.attention.value_length", NULL, 99999, false},
        {"llama.attention.layer_norm_rms_epsilon", NULL, 0, true},
        {"llama.attention.layer_norm_rms_epsilon", NULL, -1, true},
        {"llama.attention.layer_norm_rms_epsilon", NULL, NAN, true},
        {"llama.rope.freq_base", NULL, 0, true},
        {"llama.rope.freq_base", NULL, INFINITY, true},
        {"llama.rope.dimension_count", NULL, 7, false},
        {"llama.rope.dimension_count", NULL, 10, false},
        {"llama.rope.dimension_count", NULL, 0, false},
        {"llama.rope.scaling.type", "dynamic", 0, false},
        {"llama.rope.scaling.factor", NULL, 0, true},
        {"llama.vocab_size", NULL, 8, false},
        {"llama.expert_count", NULL, 8, false},
    };
    ModelShape s;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_not(read_shape(NULL, &bad[i], 1, false, &s), "%s = %s %g", bad[i].name, bad[i].text, bad[i].number);
        cr_assert(strstr(error.text, bad[i].name), "'%s' does not name %s", error.text, bad[i].name);
    }
}

Test(test_family, an_unknown_architecture_lists_the_known_ones)
{
    ModelShape s;
    cr_assert_not(read_shape(NULL, &(Key){"general.architecture", "mamba\n2", 0, false}, 1, false, &s));
    cr_assert_eq(error.code, ERR_UNSUPPORTED);
    cr_assert(strstr(error.text, "mamba?2") && strstr(error.text, "llama"), "%s", error.text);
}

Test(test_family, heads_that_do_not_divide_need_explicit_sizes)
{
    ModelShape s;
    const Key keys[] = {{"llama.attention.head_count", NULL, 5, false},
                        {"llama.attention.head_count_kv", NULL, 5, false},
                        {"llama.attention.key_length", NULL, 8, false},
                        {"llama.attention.value_length", NULL, 12, false}};
    cr_assert_not(read_shape(NULL, keys, 2, false, &s));
    cr_assert(strstr(error.text, "llama.attention.key_length"), "%s", error.text);
    cr_assert(read_shape(NULL, keys, 4, false, &s), "%s", error.text);
    cr_assert(s.head_dim == 8 && s.v_dim == 12);
}

Test(test_family, linear_rope_scaling)
{
    ModelShape s;
    const Key linear[] = {{"llama.rope.scaling.type", "linear", 0, false},
                          {"llama.rope.scaling.factor", NULL, 4, true}};
    cr_assert(read_shape(NULL, linear, 2, false, &s), "%s", error.text);
    cr_assert_eq(s.rope_linear_factor, 4);
    cr_assert(read_shape(NULL, linear + 1, 1, false, &s), "%s", error.text);
    cr_assert_eq(s.rope_linear_factor, 4, "a factor without a type is linear");
    const Key none[] = {{"llama.rope.scaling.type", "none", 0, false}, {"llama.rope.scaling.factor", NULL, 4, true}};
    cr_assert(read_shape(NULL, none, 2, false, &s), "%s", error.text);
    cr_assert_eq(s.rope_linear_factor, 1);
}

Test(test_family, yarn)
{
    ModelShape s;
    Key keys[] = {{"llama.rope.scaling.type", "yarn", 0, false},
                  {"llama.rope.scaling.factor", NULL, 4, true},
                  {"llama.rope.scaling.original_context_length", NULL, 32, false},
                  {"llama.rope.scaling.yarn_log_multiplier", NULL, 1, true}};
    cr_assert(read_shape(NULL, keys, 3, false, &s), "%s", error.text);
    cr_assert(s.rope_yarn.factor == 4 && s.rope_yarn.beta_fast == 32 && s.rope_yarn.beta_slow == 1);
    cr_assert(s.rope_original_context == 32 && s.rope_linear_factor == 1);
    cr_assert_float_eq(s.rope_magnitude, 1 + 0.1 * log(4), 1e-6);
    cr_assert(read_shape(NULL, keys, 4, false, &s), "%s", error.text);
    cr_assert_float_eq(s.rope_magnitude, 1, 1e-6);
    keys[3].number = 0.5;
    cr_assert(read_shape(NULL, keys, 4, false, &s), "%s", error.text);
    cr_assert_float_eq(s.rope_magnitude, (1 + 0.1 * log(4)) / (1 + 0.05 * log(4)), 1e-6);
    keys[3] = (Key){"llama.rope.scaling.yarn_attn_factor", NULL, 1.5, true};
    cr_assert(read_shape(NULL, keys, 4, false, &s), "%s", error.text);
    cr_assert_float_eq(s.rope_magnitude, 1.5, 1e-6);
}

Test(test_family, insane_yarn_is_named)
{
    static const Key bad[] = {
        {"llama.rope.scaling.factor", NULL, 0.5, true},
        {"llama.rope.scaling.factor", NULL, NAN, true},
        {"llama.rope.scaling.original_context_length", NULL, 0, false},
        {"llama.rope.scaling.yarn_ext_factor", NULL, 0.5, true},
        {"llama.rope.scaling.yarn_ext_factor", NULL, -1, true},
        {"llama.rope.scaling.yarn_attn_factor", NULL, 0, true},
        {"llama.rope.scaling.yarn_log_multiplier", NULL, -1, true},
        {"llama.rope.scaling.yarn_beta_fast", NULL, 0, true},
        {"llama.rope.scaling.yarn_beta_slow", NULL, INFINITY, true},
    };
    ModelShape s;
    Key keys[] = {{"llama.rope.scaling.type", "yarn", 0, false}, {"llama.rope.scaling.factor", NULL, 4, true}, {0}};
    cr_assert_not(read_shape(NULL, keys, 1, false, &s));
    cr_assert(strstr(error.text, "llama.rope.scaling.factor"), "without a factor: %s", error.text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bool is_factor = !strcmp(bad[i].name, keys[1].name);
        keys[is_factor ? 1 : 2] = bad[i];
        cr_assert_not(read_shape(NULL, keys, is_factor ? 2 : 3, false, &s), "%s %g", bad[i].name, bad[i].number);
        cr_assert(strstr(error.text, bad[i].name), "'%s' does not name %s", error.text, bad[i].name);
        keys[1].number = 4;
    }
}

Test(test_family, a_vocabulary_is_needed)
{
    GgufWriter writer;
    Buffer bytes;
    Gguf *gguf;
    const ModelFamily *family;
    ModelShape s;
    gguf_writer_init(&writer);
    buffer_init(&bytes, 1 << 20);
    write_keys(&writer, NULL, NULL, 0);
    gguf_writer_finish(&writer, &bytes);
    cr_assert(gguf_open_memory(bytes.data, bytes.n, "x", &gguf, &error), "%s", error.text);
    cr_assert(family_find(gguf, &family, &error));
    cr_assert_not(family_read_shape(family, gguf, &s, &error));
    cr_assert_str_eq(error.param, "token_embd.weight");
    gguf_close(gguf);
    gguf_writer_done(&writer);
    buffer_done(&bytes);
}
