/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Key bounds of some sequences without the keys, in shuffled pages, on the host and on the device, with the queries and
 * lists of one step: what selection reads and writes. Ends the program on an error.
 */
#pragma once
#include "kernels/table.h"
#include "tests/gpu/device_check.h"

enum { RIG_MAX_SEQS = 40, RIG_MAX_HEADS = 8, RIG_MAX_TOKENS = 3 << 19, RIG_GUARD = 0x5A5A5A5A };

typedef struct RigSeq {
    uint32_t n_tokens; /* of context; the row is the next */
    SelectJob job;     /* n_keep 0: it is not due */
} RigSeq;

typedef struct RigShape {
    uint32_t dim, group, n_kv_heads, n_pairs;
    const RigSeq *seqs;
    uint32_t n_seqs;
    uint32_t n_records; /* different ones; 0: all differ */
    bool is_still;      /* no pair turns: equal records have equal scores everywhere */
    bool is_wild;       /* open bounds, large keys, queries with NaN */
    bool half_streams;  /* odd heads have no list */
} RigShape;

typedef struct Rig {
    RigShape shape;
    uint32_t max_pages, n_lists; /* words of a list: 4 max_pages, and one that guards it */
    RopeTurns turns, device_turns;
    float *q, *raw; /* [n_seqs, heads, dim] turned, and before its norm and turn */
    float *device_q, *device_raw;
    KvTurn turn; /* of raw, on the device */
    KvSpan spans[RIG_MAX_SEQS];
    AttnPlan plans[RIG_MAX_SEQS][RIG_MAX_HEADS];
    KvPages pages[RIG_MAX_SEQS];
    KvPool pool;
    KvHead heads[RIG_MAX_HEADS];
    uint32_t *lists, *device_lists; /* [n_seqs, n_kv_heads, n_lists] */
    void *scratch, *device_scratch;
    SelectParams device_params;
    void *owned[64];
    uint32_t n_owned;
} Rig;

Rig *rig_new(const RigShape *shape, uint64_t seed);
void rig_free(Rig *rig);
/* What the twin is to work on. */
SelectParams rig_params(const Rig *rig);
/* The lists [n_seqs, n_kv_heads, n_lists] that the device makes; is_raw: of queries that it has to turn first. */
bool rig_run(Rig *rig, const KernelTable *table, bool is_raw, uint32_t *ret_lists);
