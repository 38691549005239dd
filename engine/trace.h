/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look at attention as it happens, for eval: called for each layer of a piece of a pass when the keys of its rows are
 * stored and plans are made, just before attention follows them. Nothing may be changed or kept. Engine thread.
 */
#pragma once
#include "engine/batch.h"
#include "kernels/attention/kv_page.h"

typedef struct LayerTrace {
    uint32_t layer, n_rows, n_spans;
    const float *q;      /* [n_rows, n_heads, head_dim], rotated */
    const KvSpan *spans; /* [n_spans] */
    const SeqId *seqs;   /* [n_spans] */
} LayerTrace;

typedef void (*TraceCall)(void *arg, const LayerTrace *trace);
