/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/family.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* Counted from the dimensions, tensor by tensor. */
static uint64_t count_params(const ModelShape *s)
{
    uint64_t q = (uint64_t)s->n_heads * s->head_dim, k = (uint64_t)s->n_kv_heads * s->head_dim;
    uint64_t v = (uint64_t)s->n_kv_heads * s->v_dim, out = (uint64_t)s->n_heads * s->v_dim;
    bool is_gemma = !strcmp(s->architecture, "gemma3");
    uint64_t biases = !strcmp(s->architecture, "qwen2") ? q + k + v : 0;
    uint64_t norms = is_gemma ? 4ull * s->n_embd + 2 * s->head_dim : 2ull * s->n_embd;
    uint64_t layer = s->n_embd * (q + k + v + out + 3ull * s->n_ff) + biases + norms;
    uint64_t embedding = (uint64_t)s->n_vocab * s->n_embd;
    return embedding * (s->tied_output ? 1 : 2) + s->n_layers * layer + s->n_embd;
}

Test(test_shapes, fields_agree_with_each_other)
{
    size_t n = 0;
    for (; shape_name_at(n); n++) {
        const char *name = shape_name_at(n);
        const ModelShape *s = shape_by_name(name);
        cr_assert_not_null(s, "%s", name);
        cr_assert_eq(s->n_params, count_params(s), "%s: counted %lu parameters", name, count_params(s));
        cr_assert_eq(s->n_heads % s->n_kv_heads, 0, "%s", name);
        cr_assert(s->rope_dim % 2 == 0 && s->rope_dim <= s->head_dim, "%s", name);
        cr_assert_float_eq(s->attention_scale, 1 / sqrtf((float)s->head_dim), 1e-7, "%s", name);
        cr_assert(s->rope_base >= 10000 && s->rope_linear_factor == 1 && s->train_context >= 4096, "%s", name);
        cr_assert(s->norm_eps > 0 && s->embed_scale >= 1, "%s", name);
    }
    cr_assert_eq(n, 7);
    cr_assert_null(shape_by_name("llama-3.1-8B"));
    cr_assert_null(shape_by_name(""));
}
