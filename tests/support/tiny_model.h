/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small models with random weights, the same for the same numbers on every machine, and a real byte-level BPE tokenizer
 * and ChatML template: for tests that need structure and not meaning. Special tokens have small output rows, so that
 * greedy text goes on for long. Test code: aborts when memory is out. Any thread.
 */
#pragma once
#include "base/buffer.h"
#include "base/tensor.h"

typedef struct TinyModel {
    const char *arch; /* general.architecture: one that longwave knows */
    uint64_t seed;
    uint32_t n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim;
    uint32_t context;
    uint32_t window;                        /* of sliding-window layers; 0: none */
    uint32_t original_context;              /* phi3: LongRoPE with two sets of factors; with yarn, its own; 0: none */
    float yarn;                             /* factor of YaRN; 0: none */
    float yarn_beta_fast, yarn_attn_factor; /* 0: not in the file */
    uint32_t rope_dim;                      /* 0: head_dim */
    float rope_base;
    bool tied;       /* no output.weight */
    bool rope_freqs; /* the factors of Llama 3 in rope_freqs.weight */
    bool qkv_bias;   /* attn_q.bias and its like */
    bool add_bos;
    DType type;       /* of the matrices; norms and factors are F32 */
    DType embed_type; /* of token_embd and output */
    const char *pre;  /* tokenizer.ggml.pre */
    const char *chat; /* one of tiny_chat_template's */
} TinyModel;

/* Ids of the special tokens; the 256 bytes follow them, then the merged tokens. */
enum { TINY_ENDOFTEXT, TINY_IM_START, TINY_IM_END, TINY_FIRST_BYTE };

/* llama, 2 layers, 64 channels, 4 heads of 16, 2 KV heads, 128 inner channels, context 512, F32, tied, 'smollm'. */
TinyModel tiny_model_default(void);
/* Sets one member from "name=value" (make_tiny_model's arguments); false: no such name or value. */
LW_CHECK bool tiny_model_set(TinyModel *model, const char *assignment);

uint32_t tiny_model_vocab(void);
/* Row lengths must be multiples of the types' blocks. Appends a whole GGUF file. */
LW_CHECK bool tiny_model_build(const TinyModel *model, Buffer *out, Error *error);
LW_CHECK bool tiny_model_save(const TinyModel *model, const char *path, Error *error);
/* Saves into a fresh file under $TMPDIR or /tmp; the caller unlinks it. path: [n] */
LW_CHECK bool tiny_model_temp(const TinyModel *model, char *path, size_t n, Error *error);
