/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages as seen from outside engine/kv: integers with a reference count, never pointers (KV fact 9). A page holds
 * KV_PAGE_TOKENS tokens of all layers and heads of one class. Which class a page belongs to is part of its number.
 */
#pragma once
#include "kernels/attention/kv_page.h"

typedef uint32_t PageId;
#define PAGE_NONE UINT32_MAX

enum { KV_MAX_CLASSES = 3 }; /* of one policy: full, stream, window */

/*
 * One logical page of a sequence: its page in every class of the sequence's policy, in their order; the rest PAGE_NONE.
 */
typedef struct PageSet {
    PageId page[KV_MAX_CLASSES];
} PageSet;

/* How many of a sequence's tokens are in this logical page, which is one of its. */
static inline uint32_t kv_tokens_of_page(uint32_t n_tokens, uint32_t logical_page)
{
    uint32_t rest = n_tokens - logical_page * KV_PAGE_TOKENS;
    return rest < KV_PAGE_TOKENS ? rest : KV_PAGE_TOKENS;
}

typedef struct KvClassInfo {
    uint32_t class_id;     /* engine_page_new */
    const char *name;      /* "full", "stream", "window" */
    uint32_t sink, window; /* tokens that a query sees at most; window PLAN_ALL: all */
    bool is_quantised;     /* closed pages cannot be taken in part */
    uint32_t n_slots;
    size_t page_bytes;
} KvClassInfo;

/* Does a query at position n need a page that covers tokens [first, first + KV_PAGE_TOKENS) in this class? */
static inline bool kv_class_needs(const KvClassInfo *info, uint64_t n, uint64_t first)
{
    return info->window == PLAN_ALL || first < info->sink || first + KV_PAGE_TOKENS - 1 + info->window > n;
}

/* Does any of the classes [n] keep no more than a window? */
static inline bool kv_classes_have_windows(const KvClassInfo *classes, uint32_t n)
{
    for (uint32_t c = 0; c < n; c++)
        if (classes[c].window != PLAN_ALL) return true;
    return false;
}

static inline bool kv_classes_are_quantised(const KvClassInfo *classes, uint32_t n)
{
    for (uint32_t c = 0; c < n; c++)
        if (classes[c].is_quantised) return true;
    return false;
}

typedef struct KvUsage {
    uint64_t total_bytes, used_bytes;   /* used: pages with an owner, images of open pages too */
    uint64_t total_tokens, used_tokens; /* the same in tokens of the widest class */
    uint32_t n_pages_used, n_images_used;
    uint32_t n_pages_of[KV_MAX_CLASSES]; /* used, by kind of class: full, stream, window */
} KvUsage;
