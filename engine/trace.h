/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look at attention as it happens, for eval and bench: called for each layer of a piece of a pass when the keys of
 * its rows are stored and plans and lists are made, just before attention follows them. Nothing may be changed or kept.
 * Engine thread.
 *
 * Where a device computes, what lies in its memory is read by layer_trace_read: queries, lists of plans, and the bytes
 * behind pages. Spans, heads, plans, tables of pages and layouts are the host's everywhere. Steps that are looked at do
 * not run as graphs there; the launches are the same but for keys that attention would store itself.
 */
#pragma once
#include "engine/batch.h"
#include "engine/device.h"
#include "kernels/attention/kv_page.h"
#include "kernels/select/select.h"

typedef struct LayerTrace {
    uint32_t layer, n_rows, n_spans;
    const float *q;        /* [n_rows, n_heads, head_dim], rotated */
    const KvSpan *spans;   /* [n_spans] */
    const SeqId *seqs;     /* [n_spans] */
    const SelectJob *jobs; /* [n_spans] lists that a device has just made; NULL: none */
    Device *device;        /* NULL: the host */
} LayerTrace;

typedef void (*TraceCall)(void *arg, const LayerTrace *trace);

/* n bytes of what may be a device's. False: it failed. */
LW_CHECK static inline bool layer_trace_read(const LayerTrace *trace, void *to, const void *from, size_t n)
{
    return device_copy(trace->device ? trace->device : device_host(), to, from, n);
}
