/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine is made of: shared by the files of engine/ itself, for nobody else. */
#pragma once
#include "engine/device_weights.h"
#include "engine/engine.h"
#include "engine/kv/kv_seq.h"
#include "engine/model/block.h"
#include "engine/model/gguf_ahead.h"
#include "engine/select/presets.h"
#include "engine/select/roles.h"
#include "engine/select/selector.h"
#include "engine/select/wavelength.h"

typedef struct DeviceStep DeviceStep;
typedef struct DeviceLogits DeviceLogits;

#define N_ROW_KINDS 2 /* of RowKind */
#define SEQ_NONE UINT32_MAX
#define PASS_NONE UINT32_MAX

/* One batch between begin and end. */
typedef struct Pass {
    bool is_open;
    bool is_step;    /* on a device: one row of each sequence, to run as a whole with its logits (device_step.h) */
    bool has_logits; /* it has */
    uint32_t n_rows, n_spans;
    const DigestAsk *asks; /* [n_rows] of a step, while it runs; NULL: none */
    BatchSpan *spans;      /* [max_sequences]; seq is SEQ_NONE where it was closed */
    uint32_t *rows_done;   /* [n_layers] */
    uint32_t *tokens;      /* [max_batch_rows] */
    uint32_t *positions;   /* [max_batch_rows] */
    /* Where the engine computes. */
    float *x;              /* [max_batch_rows, n_embd] */
    float *cos_sin;        /* [max_batch_rows, rope_dim / 2, 2] */
    float *window_cos_sin; /* the same or NULL */
} Pass;

/* The part of a span that lies in the rows of a piece; rows count from the first of them. */
typedef struct PieceSpan {
    SeqId seq;
    RowKind kind;
    uint32_t first_row, n_rows, first_pos;
    bool is_split; /* KvSpan.is_split */
} PieceSpan;

/* Rows that go through layers together. */
typedef struct Piece {
    uint32_t n_spans, first_layer;
    const KvSpan *spans;   /* where the engine computes: of first_layer, and of each further one layer_stride behind */
    uint32_t layer_stride; /* 0: they are set for each layer */
    const SelectJob *jobs; /* the same of what spans select; NULL: none does */
    uint64_t due_layers;   /* bit i: something may be due in layer i; those from 64 on are looked at */
    uint32_t n_closed;     /* on a device: pages that the rows fill, in every layer */
    KvLaunch launch;
    const char *packet; /* on a device: the host's copy of what the spans lie in; NULL: of a step */
} Piece;

/* A policy, whoever brought it; what it needs at its side lives as long. */
typedef struct PolicySlot {
    AttnPolicy policy;
    PolicyId id;
    bool is_used;
    uint32_t n_users;                               /* of one that came with a request */
    uint64_t last_use;                              /* by policy_clock */
    AttnBand bands[N_ROW_KINDS][2][WAVE_MAX_BANDS]; /* of layers that see everything, of those with a window */
    bool has_bands[N_ROW_KINDS];                    /* in any layer */
} PolicySlot;

struct Engine {
    EngineParams
        params; /* with the defaults filled in; pointers in it but for kernels are not used after engine_open */
    Gguf *gguf;
    GgufAhead *ahead;
    const ModelFamily *family;
    ModelShape shape;
    ModelWeights weights;
    bool smoothed;            /* the weights' head norms: smooth_keys */
    uint32_t fitting_context; /* where memory does not hold the context: the longest that it does hold */
    Tokenizer *tokenizer;
    ChatTemplate *chat_template;
    Error chat_template_error; /* ERR_NONE: none */
    Device *device;
    DeviceWeights on_device;         /* nothing where the host computes */
    const ModelWeights *run_weights; /* what the kernels read: weights, or on_device.weights */
    DeviceStep *step;                /* NULL where the host computes */
    DeviceLogits *device_logits;     /* the same */
    const KernelTable *kernels;
    Stream stream;
    Arena arena;                         /* of policies that were read from files */
    PolicySlot *policies;                /* [n_policies] of POLICY_MAX_SLOTS, by policy_slot */
    uint32_t n_policies, n_own_policies; /* the first of them were there when it was opened, and stay */
    PolicyId default_policy;
    Error certificate_error; /* ERR_NONE: none */
    uint32_t certified_tokens, certified_from;
    uint64_t policy_clock;
    uint32_t max_list; /* on a device: sectors of the longest list that a policy may want; 0: none selects */
    KvClassTable classes;
    KvMemory *memory;
    KvSeqs *seqs;
    Selector *selector;
    RopeTurns turns, window_turns; /* of layers that see everything, of those with a window */
    RopeTurns device_turns;        /* turns with tables on the device, where it keeps key bounds */
    void (*pulse)(void *arg);      /* NULL: none */
    void *pulse_arg;
    TraceCall trace; /* NULL: none */
    void *trace_arg;

    /* Carved by buffers_new out of one piece of the host's memory and one of the device's. */
    void *slab, *device_slab;
    size_t slab_bytes, device_slab_bytes;
    AttnPlan *plans;        /* [POLICY_MAX_SLOTS, N_ROW_KINDS, n_layers, n_kv_heads] */
    Pass *passes;           /* [max_passes] */
    PassId *seq_pass;       /* [max_sequences]; PASS_NONE: in no pass */
    PieceSpan *piece_spans; /* [engine_piece_spans] of the piece that runs */
    KvSpan *spans;          /* [engine_piece_spans] the same for the kernels of the host */
    SpanPlans *span_plans;  /* [max_sequences] */
    SeqId *span_seqs;       /* [engine_piece_spans] */
    float *host_logits;     /* [max_logit_rows, n_vocab] */
    /* Where the engine computes. */
    StepBuffers buf;      /* of the piece that runs; a piece of a layer runs to its end */
    float *hidden;        /* [max_logit_rows, n_embd] */
    float *logits;        /* [max_logit_rows, n_vocab]; host_logits where the host computes */
    void *select_scratch; /* of a device that selects */
};

/* The most spans of a piece: on a device, those that bands cut come apart where pages end, and what comes apart stands
 * behind the others. */
static inline uint32_t engine_piece_spans(const Engine *engine)
{
    const EngineParams *p = &engine->params;
    return engine->device->is_host ? p->max_sequences : 2 * p->max_sequences + p->max_batch_rows / KV_PAGE_TOKENS;
}

/* Does a device keep key bounds, so that it can select? */
static inline bool engine_bounds_on_device(const Engine *engine)
{
    return !engine->device->is_host && kv_classes_have_bounds(&engine->classes);
}

/* What the lists of all sequences take there. */
static inline uint64_t engine_lists_device_bytes(const Engine *engine)
{
    return select_state_device_bytes(engine->params.max_sequences, engine->shape.n_layers * engine->shape.n_kv_heads,
                                     engine->max_list);
}

/* What buffers_new will take of a device. */
LW_CHECK bool buffers_device_bytes(const Engine *engine, uint64_t *ret_bytes, Error *error);

/* The engine's own policies, and their classes; then, with buffers, the plans of all. */
LW_CHECK bool policies_open(Engine *engine, const AttnPolicy *policies, uint32_t n, Error *error);
void policies_fill(Engine *engine);

/* [n_layers, n_kv_heads] of a policy's slot. */
static inline AttnPlan *engine_plans(const Engine *engine, uint32_t slot, RowKind kind)
{
    size_t n_heads = (size_t)engine->shape.n_layers * engine->shape.n_kv_heads;
    return engine->plans + (slot * N_ROW_KINDS + (size_t)kind) * n_heads;
}

LW_CHECK bool buffers_new(Engine *engine, Error *error);
void buffers_free(Engine *engine);

/* The layers of a pass (forward.c); false: a kernel failed. ids, positions: [pass->n_rows], where it computes. */
LW_CHECK bool forward_embed(const Engine *engine, const Pass *pass, const uint32_t *ids, const uint32_t *positions);
/* The spans of rows [first_row, first_row + n_rows), for layers from first_layer on. */
LW_CHECK bool forward_piece(Engine *engine, const Pass *pass, const WorkItem *item, Piece *ret_piece);
LW_CHECK bool forward_layer(const Engine *engine, const Pass *pass, const Piece *piece, uint32_t layer,
                            uint32_t first_row, uint32_t n_rows);
/* On a device: bounds of the pages that a piece has filled, in its layers. */
LW_CHECK bool forward_bounds(const Engine *engine, const Piece *piece, uint32_t n_layers);
/* Only stores keys and values: what buf.k and buf.v hold. */
LW_CHECK bool forward_store(const Engine *engine, const Piece *piece, uint32_t layer);
/* x: [n_rows, n_embd] of the residual stream; into engine->logits. */
LW_CHECK bool forward_output(const Engine *engine, const float *x, uint32_t n_rows);
/* Of the rows that want them, into engine->host_logits, or their digests. */
LW_CHECK bool forward_logits(Engine *engine, const Pass *pass);

/* Rows with logits of a span: the last ones. */
static inline uint32_t span_logit_rows(const BatchSpan *span)
{
    return span->logits == LOGITS_ALL ? span->n_rows : span->logits == LOGITS_LAST ? 1 : 0;
}

/* Its sequence is gone: the pass goes on without. */
void pass_lose_seq(Engine *engine, SeqId seq);
