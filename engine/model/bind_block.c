/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/bind_block.h"

typedef struct NamedMatrix {
    const char *suffix;
    uint32_t n_rows, n_cols;
    Matrix *matrix;
} NamedMatrix;

typedef struct NamedVector {
    const char *suffix;
    uint32_t n;
    const float **vector;
} NamedVector;

/* Rows of Q, K and V. */
typedef struct QkvRows {
    uint32_t q, k, v;
} QkvRows;

static QkvRows qkv_rows(const ModelShape *s)
{
    return (QkvRows){s->n_heads * s->head_dim, s->n_kv_heads * s->head_dim, s->n_kv_heads * s->v_dim};
}

static bool bind_matrices(WeightBinder *binder, uint32_t layer, const NamedMatrix *matrices, size_t n, Error *error)
{
    char name[TENSOR_NAME_BYTES];
    for (size_t i = 0; i < n; i++) {
        bind_layer_name(name, layer, matrices[i].suffix);
        if (!bind_matrix(binder, name, matrices[i].n_rows, matrices[i].n_cols, matrices[i].matrix, error)) return false;
    }
    return true;
}

static bool bind_vectors(WeightBinder *binder, uint32_t layer, const NamedVector *vectors, size_t n, Error *error)
{
    char name[TENSOR_NAME_BYTES];
    for (size_t i = 0; i < n; i++) {
        bind_layer_name(name, layer, vectors[i].suffix);
        if (!bind_vector(binder, name, vectors[i].n, vectors[i].vector, error)) return false;
    }
    return true;
}

bool bind_norms(WeightBinder *binder, uint32_t layer, Error *error)
{
    LayerWeights *w = &binder->weights->layers[layer];
    uint32_t n = binder->shape->n_embd;
    const NamedVector vectors[] = {{"attn_norm.weight", n, &w->attn_norm}, {"ffn_norm.weight", n, &w->ffn_norm}};
    return bind_vectors(binder, layer, vectors, 2, error);
}

bool bind_post_norms(WeightBinder *binder, uint32_t layer, Error *error)
{
    LayerWeights *w = &binder->weights->layers[layer];
    uint32_t n = binder->shape->n_embd;
    const NamedVector vectors[] = {{"post_attention_norm.weight", n, &w->attn_post_norm},
                                   {"post_ffw_norm.weight", n, &w->ffn_post_norm}};
    return bind_vectors(binder, layer, vectors, 2, error);
}

static bool bind_biases(WeightBinder *binder, uint32_t layer, LayerWeights *w, Error *error)
{
    QkvRows rows = qkv_rows(binder->shape);
    const NamedVector biases[] = {
        {"attn_q.bias", rows.q, &w->q_bias}, {"attn_k.bias", rows.k, &w->k_bias}, {"attn_v.bias", rows.v, &w->v_bias}};
    char name[TENSOR_NAME_BYTES];
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++) {
        bind_layer_name(name, layer, biases[i].suffix);
        if (!bind_optional_vector(binder, name, biases[i].n, biases[i].vector, error)) return false;
    }
    return true;
}

static bool reorder_qk(WeightBinder *binder, uint32_t layer, LayerWeights *w, Error *error)
{
    const ModelShape *s = binder->shape;
    return bind_reorder_heads(binder, layer, s->n_heads, &w->q, &w->q_bias, error) &&
           bind_reorder_heads(binder, layer, s->n_kv_heads, &w->k, &w->k_bias, error);
}

bool bind_attention(WeightBinder *binder, uint32_t layer, Error *error)
{
    const ModelShape *s = binder->shape;
    LayerWeights *w = &binder->weights->layers[layer];
    QkvRows rows = qkv_rows(s);
    const NamedMatrix matrices[] = {
        {"attn_q.weight", rows.q, s->n_embd, &w->q},
        {"attn_k.weight", rows.k, s->n_embd, &w->k},
        {"attn_v.weight", rows.v, s->n_embd, &w->v},
        {"attn_output.weight", s->n_embd, s->n_heads * s->v_dim, &w->o},
    };
    return bind_matrices(binder, layer, matrices, 4, error) && bind_biases(binder, layer, w, error) &&
           reorder_qk(binder, layer, w, error);
}

/* Rows [first, first + n) of a matrix. */
static Matrix matrix_rows(const Matrix *whole, uint32_t first, uint32_t n)
{
    const char *data = whole->data;
    return (Matrix){data + first * dtype_row_bytes(whole->type, whole->n_cols), whole->type, n, whole->n_cols};
}

bool bind_attention_fused(WeightBinder *binder, uint32_t layer, Error *error)
{
    const ModelShape *s = binder->shape;
    LayerWeights *w = &binder->weights->layers[layer];
    QkvRows rows = qkv_rows(s);
    Matrix qkv;
    const NamedMatrix matrices[] = {
        {"attn_qkv.weight", rows.q + rows.k + rows.v, s->n_embd, &qkv},
        {"attn_output.weight", s->n_embd, s->n_heads * s->v_dim, &w->o},
    };
    if (!bind_matrices(binder, layer, matrices, 2, error)) return false;
    w->q = matrix_rows(&qkv, 0, rows.q);
    w->k = matrix_rows(&qkv, rows.q, rows.k);
    w->v = matrix_rows(&qkv, rows.q + rows.k, rows.v);
    return reorder_qk(binder, layer, w, error);
}

bool bind_head_norms(WeightBinder *binder, uint32_t layer, Error *error)
{
    LayerWeights *w = &binder->weights->layers[layer];
    uint32_t n = binder->shape->head_dim;
    const NamedVector vectors[] = {{"attn_q_norm.weight", n, &w->q_norm}, {"attn_k_norm.weight", n, &w->k_norm}};
    return bind_vectors(binder, layer, vectors, 2, error) && bind_reorder_vector(binder, layer, 1, &w->q_norm, error) &&
           bind_reorder_vector(binder, layer, 1, &w->k_norm, error);
}

bool bind_gated_mlp(WeightBinder *binder, uint32_t layer, Error *error)
{
    const ModelShape *s = binder->shape;
    LayerWeights *w = &binder->weights->layers[layer];
    const NamedMatrix matrices[] = {
        {"ffn_gate.weight", s->n_ff, s->n_embd, &w->gate},
        {"ffn_up.weight", s->n_ff, s->n_embd, &w->up},
        {"ffn_down.weight", s->n_embd, s->n_ff, &w->down},
    };
    return bind_matrices(binder, layer, matrices, 3, error);
}

bool bind_gated_mlp_fused(WeightBinder *binder, uint32_t layer, Error *error)
{
    const ModelShape *s = binder->shape;
    LayerWeights *w = &binder->weights->layers[layer];
    Matrix gate_up;
    const NamedMatrix matrices[] = {
        {"ffn_up.weight", 2 * s->n_ff, s->n_embd, &gate_up},
        {"ffn_down.weight", s->n_embd, s->n_ff, &w->down},
    };
    if (!bind_matrices(binder, layer, matrices, 2, error)) return false;
    w->gate = matrix_rows(&gate_up, 0, s->n_ff);
    w->up = matrix_rows(&gate_up, s->n_ff, s->n_ff);
    return true;
}
