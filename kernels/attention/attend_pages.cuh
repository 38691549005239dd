/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tile of queries goes over the pages that any of its rows reads, in the order of attend_visits.cuh, each visit with
 * the sectors of the page that belong to it. Every thread of a block walks alike. What a row's visits are depends on
 * the row alone: sectors that only other rows of the tile see change nothing for it.
 */
#pragma once
#include "kernels/attention/attend_device.cuh"
#include "kernels/attention/attend_visits.cuh"

namespace
{

enum WalkPhase { WALK_SINK, WALK_LIST, WALK_RECENT, WALK_IMAGES, WALK_END };

struct PageVisit {
    uint32_t page, sectors, listed; /* bits of the page's sectors */
    WalkPhase phase;                /* WALK_END: there are no more */
    uint32_t steps;                 /* a byte a sector: of 16 channels of its keys, which scores take */
};

struct PageWalk {
    WalkPhase phase;
    uint32_t at; /* sector, or index into the list */
};

/* The sectors from *at to end that lie in the page of *at. */
__device__ inline uint32_t take_sectors(uint32_t *at, uint32_t end)
{
    uint32_t from = *at % KV_PAGE_SECTORS, page_end = (*at / KV_PAGE_SECTORS + 1) * KV_PAGE_SECTORS;
    uint32_t n = min(end, page_end) - *at;
    *at += n;
    return ((1u << n) - 1) << from;
}

__device__ inline uint32_t take_listed(const AttnPlan &plan, uint32_t page, uint32_t *at)
{
    uint32_t bits = 0;
    for (; *at < plan.n_list && plan.list[*at] / KV_PAGE_SECTORS == page; ++*at)
        bits |= 1u << plan.list[*at] % KV_PAGE_SECTORS;
    return bits;
}

__device__ inline uint32_t listed_of(const AttnPlan &plan, uint32_t page)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; plan.n_list && i < KV_PAGE_SECTORS; i++)
        bits |= (uint32_t)plan_lists(&plan, page * KV_PAGE_SECTORS + i) << i;
    return bits;
}

/* One visit further within a phase; false at its end. */
__device__ inline bool walk_phase(const Visits &v, PageWalk &walk, PageVisit &ret)
{
    uint32_t end = walk.phase == WALK_SINK     ? v.n_sink
                   : walk.phase == WALK_LIST   ? v.n_list
                   : walk.phase == WALK_RECENT ? v.first_recent + v.n_recent
                                               : v.first_own + v.n_images;
    if (walk.at >= end) return false;
    ret.phase = walk.phase;
    ret.page = (walk.phase == WALK_LIST ? v.plan.list[walk.at] : walk.at) / KV_PAGE_SECTORS;
    ret.sectors = walk.phase == WALK_LIST ? take_listed(v.plan, ret.page, &walk.at) : take_sectors(&walk.at, end);
    ret.listed = walk.phase == WALK_LIST ? ret.sectors : walk.phase == WALK_IMAGES ? listed_of(v.plan, ret.page) : 0;
    return true;
}

/* Whether the page is held, and some row may see it so. */
template <bool quantised> __device__ inline bool is_readable(const Visits &v, const PageVisit &visit)
{
    uint32_t own = v.last_pos / KV_PAGE_TOKENS;
    if (visit.phase == WALK_IMAGES) return true;
    return visit.page < own + !quantised && v.pages[visit.page] != UINT32_MAX;
}

/* No band cuts the rows' own page. */
template <int dim> __device__ inline uint32_t steps_of(const Visits &v, const PageVisit &visit)
{
    uint32_t steps = 0;
    if (!v.plan.n_bands || visit.phase == WALK_IMAGES) return 0x01010101u * (dim / 16);
    for (unsigned i = 0; i < KV_PAGE_SECTORS; i++)
        steps |= band_at(v, visit.page * KV_PAGE_SECTORS + i, dim).n_steps << 8 * i;
    return steps;
}

template <bool quantised, int dim> __device__ inline PageVisit walk_next(const Visits &v, PageWalk &walk)
{
    PageVisit visit = {0, 0, 0, WALK_END, 0};
    while (walk.phase != WALK_END) {
        if (!walk_phase(v, walk, visit)) {
            walk.phase = (WalkPhase)(walk.phase + 1);
            walk.at = walk.phase == WALK_RECENT ? v.first_recent : walk.phase == WALK_IMAGES ? v.first_own : 0;
        } else if (is_readable<quantised>(v, visit)) {
            visit.steps = steps_of<dim>(v, visit);
            return visit;
        }
    }
    visit.phase = WALK_END;
    return visit;
}

} // namespace
