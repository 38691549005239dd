/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the selector share: private to them. Engine thread. */
#pragma once
#include "engine/select/attention_count.h"
#include "engine/select/select_stages.h"
#include "engine/select/selector.h"

/* Of one KV head of a wave's span. */
typedef struct PlannedHead {
    bool selects, is_new;          /* by a list; that was made for this row, in part or in full */
    uint32_t n_probes, n_left_out; /* sectors; n_probes 0: nothing is measured, or nothing is left out */
    float estimate;                /* of the missing mass; negative: none */
} PlannedHead;

/* Rows of one layer that attend together: a decoded row's plan may depend on what came of the row before it. */
typedef struct Wave {
    uint32_t n_spans;
    KvSpan *spans;          /* [n_spans] of max_batch_rows */
    SeqId *seqs;            /* [n_spans] */
    const SpanPlans **from; /* [n_spans]; NULL: by the plans of its policy alone */
    AttnPlan *plans;        /* [n_spans, n_kv_heads] */
    PlannedHead *heads;     /* [n_spans, n_kv_heads] */
    float *lse;             /* [rows, n_heads] */
} Wave;

struct Selector {
    SelectorParams params;
    SelectState *state;
    SelectTools tools;
    uint32_t max_sectors;
    void *slab;
    size_t slab_bytes;
    Wave wave;
    uint32_t *list;  /* of one block, with those of its stages */
    uint32_t *words; /* [n_words] lists that the wave's plans point to */
    size_t n_words;
    /* What is measured or corrected beside the wave. */
    KvSpan *more_spans;         /* [max_batch_rows] */
    AttnPlan *more_plans;       /* [max_batch_rows, n_kv_heads] */
    float *more_lse, *more_out; /* [rows, n_heads], [rows, n_heads, v_dim] */
};

/* One layer's piece of a pass. */
typedef struct LayerCall {
    Selector *selector;
    const ForwardPass *pass;
    const AttendParams *params;
    uint32_t layer;
} LayerCall;

/* The question that a KV head of a wave's span puts to the stages. */
SelectQuery selector_query(const LayerCall *call, uint32_t span, uint32_t kv_head);

/* ---- selector_measure.c: what lists leave out ---- */

/* Is something of the wave measured? */
bool selector_needs_lse(const LayerCall *call);
/* Probes and audits of the wave's rows, after its attention; budgets follow. */
bool selector_measure(const LayerCall *call);

/* ---- selector_delta.c: dense rows of prompts that correct those beside them (A7.1) ---- */

bool selector_correct(const LayerCall *call);
