/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the memory of a device is divided between the classes before any of it is taken: pools there do not grow, so each
 * class has its share for good, in the proportions of one whole context. Any thread.
 */
#pragma once
#include "engine/kv/kv_class.h"

typedef struct KvBudget {
    const KvClassTable *classes;
    uint32_t n_policies; /* the first ones of the table; a context may be of any of them */
    uint32_t max_rows;   /* of a pass */
    uint32_t max_passes, max_sequences;
} KvBudget;

typedef struct KvBytes {
    uint64_t pages, images;
} KvBytes;

/*
 * Needs [n_classes] of one context of n tokens, with images for n_passes passes of prefill and an open page of every
 * sequence that decodes, and the bytes of all.
 */
KvBytes kv_budget_need(const KvBudget *budget, uint32_t n_tokens, uint32_t n_passes, KvShare *ret_needs);
/* The same for max_passes, or as few as leave room for the context: those take turns. */
KvBytes kv_budget_need_in(const KvBudget *budget, uint32_t n_tokens, uint64_t room, KvShare *ret_needs);
/* Tokens of the longest context, up to a limit, that fits with one pass. needs [n_classes] is written over. */
uint32_t kv_budget_longest(const KvBudget *budget, uint32_t limit, uint64_t room, KvShare *needs);
/* Pages of 'from' bytes in all become pages of 'to' bytes, in the same proportions. */
void kv_budget_scale(const KvBudget *budget, uint64_t from, uint64_t to, KvShare *shares);
