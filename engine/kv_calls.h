/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine tells of its pages needs nothing of it but these: said once, for whatever engine is linked. */
#pragma once
#include "engine/engine.h"
#include "engine/kv/kv_seq.h"

typedef struct EngineKv {
    const KvClassTable *classes;
    KvMemory *memory;
    KvSeqs *seqs;
    uint32_t max_batch_rows;
} EngineKv;

/* The engine's own; of engine.c, or of an engine that stands in for it. */
EngineKv engine_kv(const Engine *engine);
