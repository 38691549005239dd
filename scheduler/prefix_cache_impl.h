/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the prefix cache: what matching (prefix_match.c) and publishing (prefix_cache.c) share. Engine thread. */
#pragma once
#include "scheduler/prefix_cache.h"
#include "scheduler/prefix_tree.h"

struct PrefixCache {
    Engine *engine;
    PrefixTree tree;
    bool exact;
    uint64_t max_idle_bytes; /* UINT64_MAX: any number */
    uint64_t (*clock_usec)(void);
    PrefixStats stats;
    /* Scratch of one call, by logical page; a sequence has at most max_pages. */
    uint32_t max_pages;
    uint32_t *path;                    /* [max_pages] */
    uint32_t (*first)[KV_MAX_CLASSES]; /* [max_pages + 1] by depth in pages: where the unbroken pages before it begin */
    PageSet *sets;                     /* [max_pages] */
};

typedef struct PrefixClasses {
    const KvClassInfo *info; /* [n] */
    uint32_t n;
    bool in_part;      /* full pages can be taken in part */
    bool tells_decode; /* decoded pages differ from prefilled ones */
    bool in_blocks;    /* prompts go on from page boundaries alone */
} PrefixClasses;

PrefixClasses prefix_classes(const PrefixCache *cache, PolicyId policy);
/* The first page beyond the sink that a query at n needs. */
uint32_t prefix_first_needed(const KvClassInfo *info, uint32_t n);
/* In half-lives. */
double prefix_now(const PrefixCache *cache);
/* The root of a key's nodes, live; NODE_NONE: no place, or no such key can be. */
uint32_t prefix_namespace(PrefixCache *cache, const PrefixKey *key);
