/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which (layer, KV head) keeps its keys and values in which class. Layers and heads differ in what they look back at,
 * so each policy has up to KV_MAX_CLASSES classes: of the heads that see everything, of streaming heads (LServe 3.3),
 * of the heads of sliding-window layers. Classes that come out the same for two policies are one. Immutable.
 */
#pragma once
#include "base/arena.h"
#include "engine/kv/page.h"
#include "engine/model/family.h"
#include "engine/select/policy.h"

typedef enum KvKind { KV_FULL, KV_STREAM, KV_WINDOW, KV_N_KINDS } KvKind;

typedef struct KvTypes {
    KvType of[KV_N_KINDS];
} KvTypes;

#define KV_NO_SLOT UINT32_MAX
enum { KV_MAX_PAGE_CLASSES = 64 }; /* of all policies together */

typedef struct KvClass {
    KvKind kind;
    KvType type;
    uint32_t sink, window; /* tokens; window PLAN_ALL: everything */
    uint32_t n_slots, k_dim, v_dim;
    const uint32_t *slots;          /* [n_layers, n_kv_heads]; KV_NO_SLOT: not of this class */
    size_t page_bytes, image_bytes; /* of a page in memory; image_bytes 0: the type is not quantised */
    size_t bounds_offset;           /* of the key bounds behind the slots; 0: it keeps none */
} KvClass;

/* What a policy makes of the classes. */
typedef struct KvPolicyMap {
    uint32_t n_classes;
    KvClassInfo classes[KV_MAX_CLASSES];
    const KvHead *heads;     /* [n_layers, n_kv_heads]; .class_index into classes */
    Selection selection;     /* whose lists take memory beside the pages */
    uint32_t n_selecting[2]; /* heads that have some: of early layers [1], of others [0] */
} KvPolicyMap;

typedef struct KvClassTable {
    Arena arena;
    uint32_t n_layers, n_kv_heads;
    KvClass *classes;             /* [n_classes] by class_id */
    uint32_t n_classes, n_needed; /* those of the policies that are there from the start come first */
    KvPolicyMap *policies;        /* [n_policies] of POLICY_MAX_SLOTS, by policy_slot */
    uint32_t n_policies;
    KvPolicyMap *bounded; /* [n_bounded] those of the first policies, with key bounds (kv_classes_add_bounded) */
    uint32_t n_bounded;
    bool is_shared; /* for a device: one class serves policies with and without key bounds, lists are not of its budget
                     */
} KvClassTable;

/* "f16", or "full=int8,stream=bf16": what is not named is f16. An error names kv_type. */
LW_CHECK bool kv_types_parse(const char *text, KvTypes *ret_types, Error *error);

static inline KvTypes kv_types_all(KvType type)
{
    return (KvTypes){{type, type, type}};
}

/* Bytes of one token over all layers of a model, all heads dense; and of all that n tokens keep. */
uint64_t kv_token_bytes(const ModelShape *shape, const KvTypes *types);
uint64_t kv_tokens_bytes(const ModelShape *shape, const KvTypes *types, uint64_t n_tokens);

LW_CHECK bool kv_classes_init(const ModelShape *shape, const AttnPolicy *policies, uint32_t n_policies,
                              const KvTypes *types, KvClassTable *ret_table, Error *error);
/*
 * The same for a device, whose memory is divided between the classes for good: if one policy reads key bounds, the
 * classes of all keep them, and policies that come later may read them too.
 */
LW_CHECK bool kv_classes_init_shared(const ModelShape *shape, const AttnPolicy *policies, uint32_t n_policies,
                                     const KvTypes *types, KvClassTable *ret_table, Error *error);
void kv_classes_done(KvClassTable *table);
/* Does a class keep key bounds? */
bool kv_classes_have_bounds(const KvClassTable *table);
/* Classes with key bounds beside those of the table's policies, for policies that come later. */
LW_CHECK bool kv_classes_add_bounded(const ModelShape *shape, const AttnPolicy *policies, const KvTypes *types,
                                     KvClassTable *table, Error *error);
/* One more policy in the slot, with the classes of the table's policy 'like'. */
void kv_classes_set(KvClassTable *table, uint32_t slot, uint32_t like, const AttnPolicy *policy);

/* Pages that hold n tokens. */
static inline uint32_t kv_n_pages(uint32_t n_tokens)
{
    return n_tokens / KV_PAGE_TOKENS + (n_tokens % KV_PAGE_TOKENS != 0);
}

/* Pages of one class. */
typedef struct KvShare {
    uint64_t n_pages, n_images;
} KvShare;

/* What somebody lacks, of each class of the table: pools of a device do not lend each other pages. */
typedef struct KvNeed {
    uint64_t bytes; /* of all, lists included */
    KvShare of[KV_MAX_PAGE_CLASSES];
} KvNeed;

/* What a sequence of n tokens takes at most of a policy's c-th class when it was built in passes of max_rows rows. */
KvShare kv_class_need(const KvClassTable *table, PolicyId policy, uint32_t c, uint32_t n_tokens, uint32_t max_rows);
/* Bytes that the lists of a sequence of n tokens take at most. */
uint64_t kv_lists_bytes(const KvPolicyMap *map, uint32_t n_tokens);
/* Bytes that a sequence of n tokens takes at most, images and lists included, when it was built in passes of max_rows
 * rows. */
uint64_t kv_classes_need_bytes(const KvClassTable *table, PolicyId policy, uint32_t n_tokens, uint32_t max_rows);
