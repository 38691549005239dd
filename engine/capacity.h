/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fits into memory, reckoned without opening an engine: by the same classes and pages as an engine has. Buffers
 * are told about, within a tenth or so of what a device takes; all else is exact. Any thread.
 *
 * On a host, pages of all classes come from one memory as they are needed. On a device each class has its share from
 * the start (engine/kv/kv_budget.h): room that one class does not use is none for another.
 */
#pragma once
#include "engine/kv/kv_budget.h"

typedef struct CapacityParams {
    const ModelShape *shape;
    KvTypes kv_types;
    double streaming; /* share of the KV heads of each layer that stream, 0 to 1 (where layers see everything) */
    uint32_t sink, recent, recent_prefill; /* tokens that those see; multiples of KV_PAGE_TOKENS */
    const AttnPolicy *policy;              /* of the other heads; without roles */
    uint32_t max_rows;                     /* of a pass */
    bool on_device;
    uint32_t max_passes, max_sequences; /* of a device */
} CapacityParams;

typedef struct Capacity {
    KvClassTable classes;
    Arena arena;
    AttnPolicy policies[2]; /* with streaming heads, an engine has the dense one beside it */
    PolicyId policy;        /* the one that is asked about */
    KvBudget budget;
    bool on_device;
} Capacity;

LW_CHECK bool capacity_init(const CapacityParams *params, Capacity *ret_capacity, Error *error);
void capacity_done(Capacity *capacity);

/* Bytes of keys, values and bounds of a sequence of n tokens that writes one after another. */
uint64_t capacity_sequence_bytes(const Capacity *capacity, uint32_t n_tokens);
/*
 * Sequences of n tokens that the bytes hold, while the prompt of one of them is read in passes of max_rows. context: of
 * the engine; a device is divided by it, or by the longest that it holds.
 */
uint64_t capacity_sequences(const Capacity *capacity, uint64_t bytes, uint32_t context, uint32_t n_tokens);
/* Tokens of the longest sequence that they hold, up to a limit. */
uint32_t capacity_longest(const Capacity *capacity, uint64_t bytes, uint32_t limit);

/* Buffers of passes of max_rows rows, of which max_logit_rows have logits: about. */
uint64_t capacity_buffer_bytes(const ModelShape *shape, uint32_t n_passes, uint32_t max_rows, uint32_t max_logit_rows);
