/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces that families are built from, and what one forward pass hands to them. StepBuffers are buffers of fixed
 * size that the engine owns; nothing is allocated here. Engine thread.
 */
#pragma once
#include "engine/model/weights.h"
#include "engine/select/policy.h"
#include "engine/trace.h"
#include "kernels/table.h"

/* Sized for the largest batch when the engine opens. */
typedef struct StepBuffers {
    float *x;              /* [rows, n_embd] the residual stream; this and the tables of angles are the pass's own */
    float *normed;         /* [rows, n_embd] */
    float *q;              /* [rows, n_heads, head_dim] */
    float *k;              /* [rows, n_kv_heads, head_dim] */
    float *v;              /* [rows, n_kv_heads, v_dim] */
    float *attn;           /* [rows, n_heads, v_dim] */
    float *gate;           /* [rows, n_ff] */
    float *up;             /* [rows, n_ff] */
    float *cos_sin;        /* [rows, rope_dim / 2, 2] */
    float *window_cos_sin; /* the same for sliding-window layers that have a base of their own, else NULL */
    void *matmul_scratch;
    void *attention_scratch;
} StepBuffers;

/* By what a span attends in the layer that runs. */
typedef struct SpanPlans {
    const AttnPlan *plans; /* [n_kv_heads] what its policy alone says */
    const AttnPolicy *policy;
    RowKind kind;
} SpanPlans;

struct Selector;

/* Consecutive rows of a batch on their way through a layer; rows of spans and buffers count from the first of them.
 * Rows of no span, whose sequence was closed meanwhile, go along and mean nothing. */
typedef struct ForwardPass {
    const KernelTable *kernels;
    Stream stream;
    const ModelShape *shape;
    const ModelWeights *weights;
    const StepBuffers *buf;
    const KvSpan *spans;    /* [n_spans] as the kernels read them, of the layer that runs */
    const SeqId *span_seqs; /* [n_spans] */
    uint32_t n_spans, n_rows;
    const SpanPlans *span_plans; /* [n_spans]; this and what follows: of the host */
    struct Selector *selector;   /* NULL: no span's plans depend on more than its policy */
    bool has_bounds;             /* some span's keys have bounds */
    const SelectParams *select;  /* on a device, where rows select: all but what the layer brings; NULL: none */
    const RopeTurns *turns, *window_turns; /* of layers that see everything, of those with a window */
    KvLaunch launch;                       /* where a device reads them */
    bool is_deterministic;
    TraceCall trace; /* NULL: none */
    void *trace_arg;
    const LayerTrace *device_trace; /* on a device: what the host knows of the layer; NULL: all that is shown */
} ForwardPass;

/* Shows spans that are about to attend; seqs [n_spans]. */
void block_trace(const ForwardPass *pass, uint32_t layer, const KvSpan *spans, const SeqId *seqs, uint32_t n_spans);
/* One output of a matmul; bias may be NULL. */
MatmulOut block_matmul_out(const Matrix *matrix, const float *bias, float *y, bool accumulate);
/* x += post_norm(Wo attention(norm(x))): the new keys and values go into the cache first. */
bool block_attention(const ForwardPass *pass, uint32_t layer);
/* x += post_norm(Wdown (act(Wgate norm(x)) * Wup norm(x))) */
bool block_gated_mlp(const ForwardPass *pass, uint32_t layer, GluActivation activation);
