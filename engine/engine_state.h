/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine is made of: shared by engine.c (its life) and forward.c (its step), for nobody else. */
#pragma once
#include "engine/engine.h"
#include "engine/model/block.h"

struct Engine {
    EngineParams params; /* with the defaults filled in; pointers in it are not used after engine_open */
    Gguf *gguf;
    const ModelFamily *family;
    ModelShape shape;
    ModelWeights weights;
    Tokenizer *tokenizer;
    ChatTemplate *chat_template;
    Error chat_template_error; /* ERR_NONE: none */
    const KernelTable *kernels;
    Stream stream;
    KvCache *kv;
    void (*pulse)(void *arg); /* NULL: none */
    void *pulse_arg;

    /* Buffers of one step: one mapping, carved by forward_new_buffers. */
    void *slab;
    size_t slab_bytes;
    StepBuffers buf;
    uint32_t *positions; /* [max_batch_rows] */
    AttnSpan *spans;     /* [max_sequences] */
    SeqId *seqs;         /* [max_sequences] */
    float *hidden;       /* [max_logit_rows, n_embd] */
    float *logits;       /* [max_logit_rows, n_vocab] */
};

LW_CHECK bool forward_new_buffers(Engine *engine, Error *error);
void forward_free_buffers(Engine *engine);
