/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names to tensors. Everything is used in place from the mapping, but for Wq and Wk, their biases and norms, which are
 * copied into the channel order of rope_order.h. Immutable after weights_bind; the Gguf must outlive it. Any thread.
 */
#pragma once
#include "engine/model/rope_order.h"

typedef struct Matrix {
    const void *data; /* [n_rows, n_cols] */
    DType type;
    uint32_t n_rows, n_cols;
} Matrix;

typedef struct LayerWeights {
    const float *attn_norm, *ffn_norm;           /* [n_embd] */
    const float *attn_post_norm, *ffn_post_norm; /* [n_embd] or NULL */
    Matrix q, k, v, o;                           /* q and k in rope order */
    const float *q_bias, *k_bias, *v_bias;       /* [rows of the matrix] or NULL */
    const float *q_norm, *k_norm;                /* [head_dim] in rope order, or NULL */
    Matrix gate, up, down;
} LayerWeights;

typedef struct ModelWeights {
    Matrix token_embd;        /* [n_vocab, n_embd] */
    Matrix output;            /* [n_vocab, n_embd]; token_embd when tied */
    const float *output_norm; /* [n_embd] */
    LayerWeights *layers;     /* [n_layers] */
    RopeOrder rope;
    RopeOrder window_rope; /* of sliding-window layers */
    Arena arena;
} ModelWeights;

/* Called after each layer. */
typedef struct BindProgress {
    void (*fn)(void *arg, double fraction); /* may be NULL */
    void *arg;
} BindProgress;

/* False for a type that nothing here computes with: the error names it and the tensor. */
LW_CHECK bool weights_check_types(const Gguf *gguf, Error *error);
/* A missing, superfluous, misshapen or mistyped tensor is an error that names it. */
LW_CHECK bool weights_bind(const ModelFamily *family, const ModelShape *shape, const Gguf *gguf, BindProgress progress,
                           ModelWeights *ret_weights, Error *error);
void weights_done(ModelWeights *weights);

/* For a family's bind_layer: looks tensors up, checks them and notes which ones are taken. */
typedef struct WeightBinder {
    const Gguf *gguf;
    const ModelShape *shape;
    ModelWeights *weights;
    const GgufTensor **taken; /* [n_taken] */
    size_t n_taken, max_taken;
} WeightBinder;

/* Formats "blk.LAYER.SUFFIX"; the result lives in name. */
enum { TENSOR_NAME_BYTES = 96 };
void bind_layer_name(char name[TENSOR_NAME_BYTES], uint32_t layer, const char *suffix);
LW_CHECK bool bind_matrix(WeightBinder *binder, const char *name, uint32_t n_rows, uint32_t n_cols, Matrix *ret_matrix,
                          Error *error);
LW_CHECK bool bind_vector(WeightBinder *binder, const char *name, uint32_t n, const float **ret_vector, Error *error);
/* *ret_vector is NULL when the file lacks it. */
LW_CHECK bool bind_optional_vector(WeightBinder *binder, const char *name, uint32_t n, const float **ret_vector,
                                   Error *error);
/* Replaces a matrix and its bias (NULL is fine) of n_heads heads by copies in the layer's rope order. */
LW_CHECK bool bind_reorder_heads(WeightBinder *binder, uint32_t layer, uint32_t n_heads, Matrix *matrix,
                                 const float **bias, Error *error);
/* The same for vectors of n_heads heads; NULL stays. */
LW_CHECK bool bind_reorder_vector(WeightBinder *binder, uint32_t layer, uint32_t n_heads, const float **vector,
                                  Error *error);
