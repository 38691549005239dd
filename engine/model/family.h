/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model families. A family is one row: how to read its shape from metadata, how to bind its tensors, how to run one
 * layer. One file each (llama.c, ...), read top to bottom. Adding a family is one file and one row.
 */
#pragma once
#include "base/arena.h"
#include "base/tensor.h"
#include "engine/model/gguf.h"

/* Where a rotary pair's members stand in the file's Q and K rows; both end in the order of kernels/pointwise/rope.h. */
typedef enum RopeLayout { ROPE_INTERLEAVED, ROPE_HALF_SPLIT } RopeLayout;

/* Llama 3's stretching of long wavelengths; a GGUF carries its result as rope_freqs.weight instead. factor 0: none. */
typedef struct RopeLlama3 {
    double factor, low_freq, high_freq;
    uint32_t original_context; /* tokens */
} RopeLlama3;

/*
 * YaRN: pairs that turn at most beta_slow times over the original context are slowed by the factor, those that turn
 * beta_fast times or more stay, a ramp between. factor 0: none.
 */
typedef struct RopeYarn {
    double factor, beta_fast, beta_slow;
} RopeYarn;

/* Dimensions of a model; plain data, immutable after load. */
typedef struct ModelShape {
    char architecture[32]; /* general.architecture */
    char name[128];        /* general.name, or the file's name */
    uint32_t n_layers, n_embd, n_ff, n_vocab;
    uint32_t n_heads, n_kv_heads, head_dim; /* of K; V's head_dim is v_dim */
    uint32_t v_dim;
    uint32_t rope_dim; /* rotated channels of a head, even, <= head_dim */
    RopeLayout rope_layout;
    double rope_base;
    double rope_linear_factor; /* positions are divided by it; 1: none */
    RopeLlama3 rope_llama3;    /* named shapes only */
    RopeYarn rope_yarn;
    float rope_magnitude;           /* multiplied into the rotation of Q and K; 1 but for LongRoPE and YaRN */
    uint32_t rope_context;          /* tokens to run with: beyond the original ones LongRoPE takes its long factors */
    uint32_t rope_original_context; /* tokens */
    uint32_t window_tokens;         /* what a sliding-window layer sees; 0: there are no such layers */
    uint32_t full_layer_period;     /* with windows, every period-th layer sees everything; 0: none does */
    double window_rope_base;        /* of sliding-window layers, without scaling; 0: they rotate like the others */
    uint32_t train_context;
    float norm_eps;
    float embed_scale;                      /* 1 for llama */
    float attention_scale;                  /* 1/sqrt(head_dim) for llama */
    float attention_softcap, final_softcap; /* of scores and of logits; 0: none */
    bool tied_output;
    uint64_t n_params;
    uint64_t weight_bytes; /* 0 for a named shape */
} ModelShape;

struct ForwardPass;
struct WeightBinder;

typedef struct ModelFamily {
    const char *architecture;
    /* Fills the fields that the architecture's own keys decide; family_read_shape does the rest. */
    bool (*read_shape)(const Gguf *gguf, ModelShape *shape, Error *error);
    bool (*bind_layer)(struct WeightBinder *binder, uint32_t layer, Error *error);
    bool (*forward_layer)(const struct ForwardPass *pass, uint32_t layer);
} ModelFamily;

/* By general.architecture; ERR_UNSUPPORTED names it and lists the known ones. */
LW_CHECK bool family_find(const Gguf *gguf, const ModelFamily **ret_family, Error *error);
/* Every field checked against the others and against sane limits; an error names the key. */
LW_CHECK bool family_read_shape(const ModelFamily *family, const Gguf *gguf, ModelShape *ret_shape, Error *error);

/*
 * Effective angular velocity of each pair in fp64, ascending, after all scaling: [rope_dim / 2] (sparse-attention.md
 * C1). gguf NULL: a named shape.
 */
LW_CHECK bool family_rope_theta(const ModelShape *shape, const Gguf *gguf, double *ret_theta, Error *error);

/* Tokens that a layer sees of the past, its own among them; 0: all. */
uint32_t shape_layer_window(const ModelShape *shape, uint32_t layer);
/* The shape by which layers rotate whose base is window_rope_base; their theta takes nothing from the file. */
ModelShape shape_of_window_layers(const ModelShape *shape);

/* The named shapes of interfaces.md (llama-3.1-8b, ...) for 'inspect --shape' and 'bench --synthetic'; NULL: no such
 * name. */
const ModelShape *shape_by_name(const char *name);
/* i-th named shape's name, or NULL past the end. */
const char *shape_name_at(size_t i);
