/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attention plan: which keys the queries of one KV head see, however long the context is. Planners (engine/select/)
 * hold the policy and make plans; kernels execute them and never know which paper an entry came from.
 *
 * The query at position p sees the key at position j <= p when
 *     j < sink,  or  p - j < recent and j >= recent_from,  or  the sector of j is listed.
 * Listed sectors are sorted, without duplicates, and disjoint from both ranges of every query of the block.
 * Dense: recent = PLAN_ALL. Sliding window of w: sink 0, recent w. Streaming (LServe 3.3): sink + recent. Selecting
 * planners: sink + list + everything from recent_from on, where the range began when the list was made, so that no key
 * falls between the two while the list is reused.
 *
 * Bands (ATFlash 3): a query of own page P (its position / KV_PAGE_TOKENS) meets the keys of sector s at distance
 *     z = max(0, KV_PAGE_TOKENS * P - (KV_SECTOR_TOKENS * s + KV_SECTOR_TOKENS - 1)),
 * the least of any (query of the page, key of the sector), and its score takes only the first n_channels channels of
 * the last band whose first_distance is at most z. Values are never cut.
 *
 * Positions (sparse-attention.md, decisions 2 and 5). True: keys are where they are stored. Packed: the n sectors of
 * the sink and of the list, in order, are moved to end where the recent range begins: the i-th starts at position
 * recent_from - KV_SECTOR_TOKENS * (n - i). sink and recent_from are multiples of KV_SECTOR_TOKENS then, and
 * recent_from is at least KV_SECTOR_TOKENS * n. Grouped (SelfExtend): a key at distance of at least `recent` stands at
 * floor(j / group) for a query at floor(p / group) + recent - floor(recent / group); nearer ones are true, and all are
 * seen. Bands go by the distance that results: a packed sector counts from its new start, grouped plans have no bands.
 */
#pragma once
#include "base/host_device.h"
#include <stdbool.h>
#include <stdint.h>

enum { KV_SECTOR_TOKENS = 16, KV_PAGE_TOKENS = 64, KV_PAGE_SECTORS = KV_PAGE_TOKENS / KV_SECTOR_TOKENS };

#define PLAN_ALL UINT32_MAX

typedef enum PositionRule { POSITIONS_TRUE, POSITIONS_PACKED, POSITIONS_GROUPED } PositionRule;

typedef struct AttnBand {
    uint32_t first_distance, n_channels; /* a multiple of 16, at least 16; or the whole head */
} AttnBand;

typedef struct AttnPlan {
    uint32_t sink, recent; /* tokens */
    uint32_t recent_from;  /* position */
    const uint32_t *list;  /* [n_list] logical sector numbers: position / 16; NULL: none */
    uint32_t n_list;
    const AttnBand *bands; /* [n_bands] ascending, the first at distance 0; NULL: all channels */
    uint32_t n_bands;
    PositionRule positions;
    uint32_t group; /* POSITIONS_GROUPED */
} AttnPlan;

LW_INLINE bool plan_sees_range(const AttnPlan *plan, uint32_t query, uint32_t key)
{
    bool is_near = query - key < plan->recent && key >= plan->recent_from;
    return key <= query && (key < plan->sink || is_near || plan->positions == POSITIONS_GROUPED);
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

/* Where the keys of a sector that the plan shows begin: the position of the first. */
LW_INLINE uint32_t plan_sector_position(const AttnPlan *plan, uint32_t sector)
{
    uint32_t stored = sector * KV_SECTOR_TOKENS, n_sink = plan->sink / KV_SECTOR_TOKENS;
    if (plan->positions != POSITIONS_PACKED || stored >= plan->recent_from) return stored;
    uint32_t i = sector < n_sink ? sector : n_sink + plan_find_listed(plan, sector);
    return plan->recent_from - KV_SECTOR_TOKENS * (n_sink + plan->n_list - i);
}

/* How far grouped positions turn the key at a position for queries at least `recent` behind it; and such queries. */
LW_INLINE int64_t plan_grouped_key_turn(const AttnPlan *plan, uint32_t key)
{
    return (int64_t)(key / plan->group) - key;
}

LW_INLINE int64_t plan_grouped_query_turn(const AttnPlan *plan, uint32_t query)
{
    return (int64_t)(query / plan->group) + plan->recent - plan->recent / plan->group - query;
}

/* Channels that scores of a sector which begins at a position take, of queries whose own page is own_page. */
LW_INLINE uint32_t plan_channels(const AttnPlan *plan, uint32_t own_page, uint32_t sector_position, uint32_t k_dim)
{
    uint32_t from = own_page * KV_PAGE_TOKENS, last = sector_position + KV_SECTOR_TOKENS - 1;
    uint32_t distance = from > last ? from - last : 0, n = k_dim;
    for (uint32_t i = 0; i < plan->n_bands && plan->bands[i].first_distance <= distance; i++)
        n = plan->bands[i].n_channels;
    return n < k_dim ? n : k_dim;
}
