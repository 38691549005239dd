/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small model's classes under three policies, with pages in a small budget and some sequences: for tests of
 * engine/kv. Policy 0 is dense, 1 streams some heads, 2 streams others with other budgets; every fourth layer sees
 * everything, the rest a window of 100 tokens when has_window. Test code: asserts.
 */
#pragma once
#include "engine/kv/kv_seq.h"

enum { RIG_LAYERS = 4, RIG_KV_HEADS = 2, RIG_POLICIES = 3, RIG_CONTEXT = 1024 };

typedef struct KvRig {
    ModelShape shape;
    AttnPolicy policies[RIG_POLICIES];
    HeadRoles roles[RIG_POLICIES];
    uint8_t streams[RIG_POLICIES][RIG_LAYERS * RIG_KV_HEADS];
    KvClassTable classes;
    KvMemory *memory;
    KvSeqs *seqs;
} KvRig;

void kv_rig_shape(KvRig *rig, bool has_window); /* fills what kv_classes_init wants */
void kv_rig_open(KvRig *rig, bool has_window, const char *kv_types, uint64_t budget_bytes, uint32_t max_sequences);
void kv_rig_close(KvRig *rig);
