/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attention plan: which keys the queries of one KV head see, however long the context is. Planners (engine/select/)
 * hold the policy and make plans; kernels execute them and never know which paper an entry came from.
 *
 * The query at position p sees the key at position j <= p when
 *     j < sink,  or  p - j < recent,  or  the sector of j is listed.
 * Listed sectors are sorted, without duplicates, and disjoint from both ranges of every query of the block.
 * Dense: recent = PLAN_ALL. Sliding window of w: sink 0, recent w. Streaming (LServe 3.3): sink + recent.
 */
#pragma once
#include "base/host_device.h"
#include <stdbool.h>
#include <stdint.h>

enum { KV_SECTOR_TOKENS = 16, KV_PAGE_TOKENS = 64, KV_PAGE_SECTORS = KV_PAGE_TOKENS / KV_SECTOR_TOKENS };

#define PLAN_ALL UINT32_MAX

typedef struct AttnPlan {
    uint32_t sink, recent; /* tokens */
    const uint32_t *list;  /* [n_list] logical sector numbers: position / 16; NULL: none */
    uint32_t n_list;
} AttnPlan;

LW_INLINE bool plan_sees_range(const AttnPlan *plan, uint32_t query, uint32_t key)
{
    return key <= query && (key < plan->sink || query - key < plan->recent);
}

/* The first listed sector from `sector` on, as an index into the list; n_list: there is none. */
LW_INLINE uint32_t plan_find_listed(const AttnPlan *plan, uint32_t sector)
{
    uint32_t low = 0, high = plan->n_list;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (plan->list[middle] < sector)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

LW_INLINE bool plan_lists(const AttnPlan *plan, uint32_t sector)
{
    uint32_t i = plan_find_listed(plan, sector);
    return i < plan->n_list && plan->list[i] == sector;
}

LW_INLINE bool plan_sees(const AttnPlan *plan, uint32_t query, uint32_t key)
{
    return plan_sees_range(plan, query, key) || (key <= query && plan_lists(plan, key / KV_SECTOR_TOKENS));
}
