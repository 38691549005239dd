/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/family.h"
#include "engine/text/tokenizer.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <string.h>

static Error error;

static Buffer build(const char *const *assignments)
{
    TinyModel model = tiny_model_default();
    Buffer bytes;
    buffer_init(&bytes, SIZE_MAX / 4);
    for (; *assignments; assignments++) cr_assert(tiny_model_set(&model, *assignments), "%s", *assignments);
    cr_assert(tiny_model_build(&model, &bytes, &error), "%s", error.text);
    return bytes;
}

#define BUILD(...) build((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static uint64_t hash(const void *data, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001B3u;
    return h;
}

static uint64_t hash_of(const char *seed, const char *type)
{
    Buffer bytes = BUILD(seed, type);
    uint64_t h = hash(bytes.data, bytes.n);
    buffer_done(&bytes);
    return h;
}

/* Recorded numbers of other tests stand on these weights: a change here must be seen. */
Test(test_tiny_model, same_file_everywhere)
{
    cr_assert_eq(hash_of("seed=1", "type=F32"), 0xC8DC5282B487C20Fu, "%lx", hash_of("seed=1", "type=F32"));
    cr_assert_eq(hash_of("seed=1", "type=Q8_0"), 0xF9D88433DA2ADF25u, "%lx", hash_of("seed=1", "type=Q8_0"));
    cr_assert_neq(hash_of("seed=1", "type=F32"), hash_of("seed=2", "type=F32"));
}

static void check_shape(const Buffer *bytes, uint32_t n_embd, uint32_t n_layers, bool tied)
{
    Gguf *gguf;
    const ModelFamily *family;
    ModelShape shape;
    Tokenizer *tokenizer;
    cr_assert(gguf_open_memory(bytes->data, bytes->n, "tiny", &gguf, &error), "%s", error.text);
    cr_assert(family_find(gguf, &family, &error) && family_read_shape(family, gguf, &shape, &error), "%s", error.text);
    cr_assert(shape.n_embd == n_embd && shape.n_layers == n_layers && shape.tied_output == tied);
    cr_assert_eq(shape.n_vocab, tiny_model_vocab());
    cr_assert(tok_new(gguf, &tokenizer, &error), "%s", error.text);
    cr_assert_eq(tok_n_vocab(tokenizer), tiny_model_vocab());
    cr_assert_eq(tok_find(tokenizer, "<|im_end|>", 10), TINY_IM_END);
    cr_assert_eq(tok_eos(tokenizer), TINY_IM_END);
    tok_free(tokenizer);
    gguf_close(gguf);
}

Test(test_tiny_model, settings_reach_the_file)
{
    Buffer bytes = BUILD("layers=3", "embd=128", "tied=0", "rope_freqs=1", "pre=llama-bpe", "type=F16");
    check_shape(&bytes, 128, 3, false);
    buffer_done(&bytes);
    bytes = BUILD();
    check_shape(&bytes, 64, 2, true);
    buffer_done(&bytes);
}

/* Adding a tensor must not move the numbers of another. */
Test(test_tiny_model, tensors_have_their_own_numbers)
{
    Buffer tied = BUILD(), untied = BUILD("tied=0", "rope_freqs=1");
    Gguf *a, *b;
    cr_assert(gguf_open_memory(tied.data, tied.n, "tied", &a, &error));
    cr_assert(gguf_open_memory(untied.data, untied.n, "untied", &b, &error));
    cr_assert_null(gguf_tensor(a, "output.weight"));
    cr_assert_not_null(gguf_tensor(b, "output.weight"));
    cr_assert_not_null(gguf_tensor(b, "rope_freqs.weight"));
    for (size_t i = 0; i < gguf_n_tensors(a); i++) {
        const GgufTensor *x = gguf_tensor_at(a, i);
        char name[64] = "";
        memcpy(name, x->name.data, x->name.n);
        cr_assert_arr_eq(x->view.data, gguf_tensor(b, name)->view.data, x->n_bytes, "%s", name);
    }
    gguf_close(a);
    gguf_close(b);
    buffer_done(&tied);
    buffer_done(&untied);
}

Test(test_tiny_model, wrong_settings)
{
    static const char *const wrong[] = {"", "seed", "seed=", "seed=x", "colour=1", "type=Q9", "see=1", "seeds=1"};
    TinyModel model = tiny_model_default();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert_not(tiny_model_set(&model, wrong[i]), "%s", wrong[i]);
    Buffer bytes;
    buffer_init(&bytes, SIZE_MAX / 4);
    cr_assert(tiny_model_set(&model, "type=Q6_K"));
    cr_assert_not(tiny_model_build(&model, &bytes, &error));
    cr_assert(strstr(error.text, "no multiple of Q6_K's block of 256"), "%s", error.text);
    buffer_done(&bytes);
}
