/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of keys and values that rows read, and what dense attention of the same rows would have. Engine thread. */
#pragma once
#include "engine/model/family.h"
#include "engine/trace.h"

typedef struct KvCounts {
    uint64_t kv_bytes, select_bytes, dense_bytes;
} KvCounts;

static inline void kv_counts_add(KvCounts *to, const KvCounts *more)
{
    to->kv_bytes += more->kv_bytes;
    to->select_bytes += more->select_bytes;
    to->dense_bytes += more->dense_bytes;
}

/* A TraceCall adds what the plans read; what selecting them read is counted by the engine. */
typedef struct CountTrace {
    const ModelShape *shape;
    KvCounts counts;
} CountTrace;
void counts_look(void *count_trace, const LayerTrace *trace);
