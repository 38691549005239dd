/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/llama.h"

#include "engine/model/block.h"
#include "engine/model/weights.h"

#include <math.h>

static bool llama_read_shape(const Gguf *gguf, ModelShape *shape, Error *error)
{
    uint32_t n_experts = 0;
    if (!gguf_opt_u32(gguf, "llama.expert_count", &n_experts, error)) return false;
    if (n_experts)
        return error_set_param(error, ERR_UNSUPPORTED, "llama.expert_count",
                               "key 'llama.expert_count' is %u: mixtures of experts are not supported", n_experts);
    shape->rope_layout = ROPE_INTERLEAVED;
    shape->embed_scale = 1;
    shape->attention_scale = 1 / sqrtf((float)shape->head_dim);
    return true;
}

static bool bind_attention(WeightBinder *binder, uint32_t layer, LayerWeights *w, Error *error)
{
    const ModelShape *s = binder->shape;
    uint32_t q_rows = s->n_heads * s->head_dim, k_rows = s->n_kv_heads * s->head_dim, v_rows = s->n_kv_heads * s->v_dim;
    const struct {
        const char *suffix;
        uint32_t n_rows, n_cols;
        Matrix *matrix;
    } matrices[] = {
        {"attn_q.weight", q_rows, s->n_embd, &w->q},
        {"attn_k.weight", k_rows, s->n_embd, &w->k},
        {"attn_v.weight", v_rows, s->n_embd, &w->v},
        {"attn_output.weight", s->n_embd, s->n_heads * s->v_dim, &w->o},
    };
    const struct {
        const char *suffix;
        uint32_t n;
        const float **vector;
    } biases[] = {
        {"attn_q.bias", q_rows, &w->q_bias},
        {"attn_k.bias", k_rows, &w->k_bias},
        {"attn_v.bias", v_rows, &w->v_bias},
    };
    char name[TENSOR_NAME_BYTES];
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        bind_layer_name(name, layer, matrices[i].suffix);
        if (!bind_matrix(binder, name, matrices[i].n_rows, matrices[i].n_cols, matrices[i].matrix, error)) return false;
    }
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++) {
        bind_layer_name(name, layer, biases[i].suffix);
        if (!bind_optional_vector(binder, name, biases[i].n, biases[i].vector, error)) return false;
    }
    return bind_reorder_heads(binder, s->n_heads, &w->q, &w->q_bias, error) &&
           bind_reorder_heads(binder, s->n_kv_heads, &w->k, &w->k_bias, error);
}

static bool bind_mlp(WeightBinder *binder, uint32_t layer, LayerWeights *w, Error *error)
{
    const ModelShape *s = binder->shape;
    char name[TENSOR_NAME_BYTES];
    bind_layer_name(name, layer, "ffn_gate.weight");
    if (!bind_matrix(binder, name, s->n_ff, s->n_embd, &w->gate, error)) return false;
    bind_layer_name(name, layer, "ffn_up.weight");
    if (!bind_matrix(binder, name, s->n_ff, s->n_embd, &w->up, error)) return false;
    bind_layer_name(name, layer, "ffn_down.weight");
    return bind_matrix(binder, name, s->n_embd, s->n_ff, &w->down, error);
}

static bool llama_bind_layer(WeightBinder *binder, uint32_t layer, Error *error)
{
    LayerWeights *w = &binder->weights->layers[layer];
    char name[TENSOR_NAME_BYTES];
    bind_layer_name(name, layer, "attn_norm.weight");
    if (!bind_vector(binder, name, binder->shape->n_embd, &w->attn_norm, error)) return false;
    bind_layer_name(name, layer, "ffn_norm.weight");
    if (!bind_vector(binder, name, binder->shape->n_embd, &w->ffn_norm, error)) return false;
    return bind_attention(binder, layer, w, error) && bind_mlp(binder, layer, w, error);
}

static bool llama_forward_layer(const ForwardPass *pass, uint32_t layer)
{
    return block_attention(pass, layer) && block_gated_mlp(pass, layer, GLU_SILU);
}

const ModelFamily family_llama = {"llama", llama_read_shape, llama_bind_layer, llama_forward_layer};
