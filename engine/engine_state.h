/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine is made of: shared by the files of engine/ itself, for nobody else. */
#pragma once
#include "engine/engine.h"
#include "engine/kv/kv_seq.h"
#include "engine/model/block.h"

#define N_ROW_KINDS 2 /* of RowKind */
#define SEQ_NONE UINT32_MAX
#define PASS_NONE UINT32_MAX

/* One batch between begin and end. */
typedef struct Pass {
    bool is_open;
    uint32_t n_rows, n_spans;
    BatchSpan *spans;      /* [max_sequences]; seq is SEQ_NONE where it was closed */
    uint32_t *rows_done;   /* [n_layers] */
    uint32_t *positions;   /* [max_batch_rows] */
    float *x;              /* [max_batch_rows, n_embd] */
    float *cos_sin;        /* [max_batch_rows, rope_dim / 2, 2] */
    float *window_cos_sin; /* the same or NULL */
} Pass;

struct Engine {
    EngineParams
        params; /* with the defaults filled in; pointers in it but for kernels are not used after engine_open */
    Gguf *gguf;
    const ModelFamily *family;
    ModelShape shape;
    ModelWeights weights;
    bool smoothed; /* the weights' head norms: smooth_keys */
    Tokenizer *tokenizer;
    ChatTemplate *chat_template;
    Error chat_template_error; /* ERR_NONE: none */
    const KernelTable *kernels;
    Stream stream;
    Arena arena;                /* of policies that were read from files */
    const AttnPolicy *policies; /* [n_policies] */
    uint32_t n_policies;
    KvClassTable classes;
    KvMemory *memory;
    KvSeqs *seqs;
    void (*pulse)(void *arg); /* NULL: none */
    void *pulse_arg;
    TraceCall trace; /* NULL: none */
    void *trace_arg;

    /* One mapping, carved by buffers_new. */
    void *slab;
    size_t slab_bytes;
    AttnPlan *plans;       /* [n_policies, N_ROW_KINDS, n_layers, n_kv_heads] */
    Pass *passes;          /* [max_passes] */
    PassId *seq_pass;      /* [max_sequences]; PASS_NONE: in no pass */
    StepBuffers buf;       /* of the piece that runs; a piece of a layer runs to its end */
    KvSpan *spans;         /* [max_sequences] of the piece that runs */
    SpanHeads *span_heads; /* [max_sequences] */
    SeqId *span_seqs;      /* [max_sequences] */
    float *hidden;         /* [max_logit_rows, n_embd] */
    float *logits;         /* [max_logit_rows, n_vocab] */
};

LW_CHECK bool buffers_new(Engine *engine, Error *error);
void buffers_free(Engine *engine);

/* The layers of a pass (forward.c); false: a kernel failed. */
LW_CHECK bool forward_embed(const Engine *engine, const Pass *pass, const uint32_t *tokens);
LW_CHECK bool forward_layer(const Engine *engine, const Pass *pass, uint32_t layer, uint32_t first_row,
                            uint32_t n_rows);
LW_CHECK bool forward_logits(const Engine *engine, const Pass *pass);

/* Rows with logits of a span: the last ones. */
static inline uint32_t span_logit_rows(const BatchSpan *span)
{
    return span->logits == LOGITS_ALL ? span->n_rows : span->logits == LOGITS_LAST ? 1 : 0;
}

/* Its sequence is gone: the pass goes on without. */
void pass_lose_seq(Engine *engine, SeqId seq);
