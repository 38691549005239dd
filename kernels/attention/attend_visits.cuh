/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which sectors the rows of a span read for one KV head, in the order sink, list, recent, own pages; and which of their
 * keys a row sees. Own pages come apart only for quantised types, where they are images (KV fact 3): a row sees the
 * image of its own page alone, and as stored only the pages before.
 */
#pragma once
#include "kernels/attention/attend.h"
#include "kernels/attention/kv_device.cuh"

namespace
{

struct Visits {
    AttnPlan plan;
    const uint32_t *pages, *images;
    const char *base, *image_base; /* the slot in page 0 of either pool */
    size_t page_bytes, image_page_bytes;
    uint32_t sector_bytes, image_sector_bytes, first_image;
    uint32_t first_pos, last_pos; /* of the rows */
    uint32_t n_sink, n_list, n_recent, first_recent;
    uint32_t n_stored;            /* the sum of those three */
    uint32_t n_images, first_own; /* sectors */
};

struct Visit {
    uint32_t sector;
    bool is_listed, is_image;
};

/* Counts only: what the division of work needs. */
__device__ inline Visits visits_count(const KvSpan &span, uint32_t kv_head, bool is_quantised, uint32_t first_pos,
                                      uint32_t last_pos)
{
    Visits v = {};
    v.plan = span.plans[kv_head];
    v.first_pos = first_pos;
    v.last_pos = last_pos;
    v.first_own = first_pos / KV_PAGE_TOKENS * KV_PAGE_SECTORS;
    uint32_t end = last_pos / KV_SECTOR_TOKENS + 1;
    if (is_quantised) {
        v.n_images = end - v.first_own;
        end = last_pos / KV_PAGE_TOKENS * KV_PAGE_SECTORS;
    }
    uint32_t sink = min(v.plan.sink, last_pos + 1), recent = min(v.plan.recent, first_pos + 1);
    v.n_sink = min((sink + KV_SECTOR_TOKENS - 1) / KV_SECTOR_TOKENS, end);
    v.first_recent = max((first_pos + 1 - recent) / KV_SECTOR_TOKENS, v.n_sink);
    v.n_recent = v.plan.recent && end > v.first_recent ? end - v.first_recent : 0;
    v.n_list = v.plan.n_list;
    v.n_stored = v.n_sink + v.n_list + v.n_recent;
    return v;
}

__device__ inline void visits_find(Visits &v, const KvSpan &span, uint32_t kv_head)
{
    KvHead head = span.heads[kv_head];
    const KvPages &pages = span.classes[head.class_index];
    const KvPool &pool = *pages.pool;
    v.pages = pages.pages;
    v.base = pool.base + head.slot * pool.layout.slot_bytes;
    v.page_bytes = pool.page_bytes;
    v.sector_bytes = pool.layout.sector_bytes;
    if (v.n_images == 0) return;
    const KvPool &images = *pages.image_pool;
    v.images = pages.images;
    v.first_image = pages.first_image;
    v.image_base = images.base + head.slot * images.layout.slot_bytes;
    v.image_page_bytes = images.page_bytes;
    v.image_sector_bytes = images.layout.sector_bytes;
}

__device__ inline Visit visits_at(const Visits &v, uint32_t i)
{
    if (i < v.n_sink) return {i, false, false};
    i -= v.n_sink;
    if (i < v.n_list) return {v.plan.list[i], true, false};
    i -= v.n_list;
    if (i < v.n_recent) return {v.first_recent + i, false, false};
    uint32_t sector = v.first_own + i - v.n_recent;
    return {sector, plan_lists(&v.plan, sector), true};
}

/* Where a sector lies; NULL: no row can see it. */
__device__ inline const char *visits_sector(const Visits &v, uint32_t sector, bool is_image)
{
    uint32_t page = sector / KV_PAGE_SECTORS, in_page = sector % KV_PAGE_SECTORS;
    if (page > v.last_pos / KV_PAGE_TOKENS) return nullptr;
    if (is_image)
        return v.image_base + v.images[page - v.first_image] * v.image_page_bytes +
               (size_t)in_page * v.image_sector_bytes;
    uint32_t number = v.pages[page];
    if (number == UINT32_MAX) return nullptr;
    return v.base + number * v.page_bytes + (size_t)in_page * v.sector_bytes;
}

/* Sectors that stand apart from the rows by one band: those from the one that was asked for up to `end`. */
struct BandRange {
    uint32_t end, n_steps; /* of 16 channels, which their scores take */
};

/* Of rows in one page (plan_channels). */
__device__ inline BandRange band_at(const Visits &v, uint32_t sector, uint32_t k_dim)
{
    const AttnPlan &plan = v.plan;
    constexpr uint32_t kStep = 16, kLast = KV_SECTOR_TOKENS - 1; /* channels; token of a sector */
    uint32_t page = v.first_pos / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    BandRange ret = {UINT32_MAX, k_dim / kStep};
    for (uint32_t i = 0; i < plan.n_bands; i++) {
        AttnBand band = plan.bands[i];
        bool is_any = page >= kLast && page - kLast >= band.first_distance; /* the first sector at least */
        uint32_t end = is_any ? (page - kLast - band.first_distance) / KV_SECTOR_TOKENS + 1 : 0;
        if (i == 0) end = UINT32_MAX;
        if (sector >= end) break;
        ret = {end, min(band.n_channels, k_dim) / kStep};
    }
    return ret;
}

/* BandRange.n_steps of a sector a lane, by a warp: a table has no more bands than lanes. */
__device__ inline uint32_t band_steps(const Visits &v, uint32_t sector, uint32_t k_dim)
{
    const uint32_t lane = threadIdx.x % kWarp, page = v.first_pos / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    const uint32_t last = sector * KV_SECTOR_TOKENS + KV_SECTOR_TOKENS - 1, apart = page > last ? page - last : 0;
    AttnBand band = {0, k_dim};
    if (lane < v.plan.n_bands) band = v.plan.bands[lane];
    uint32_t n_channels = k_dim;
    for (uint32_t i = 0; i < v.plan.n_bands; i++) {
        uint32_t first = __shfl_sync(kAllLanes, band.first_distance, i), n = __shfl_sync(kAllLanes, band.n_channels, i);
        if (first <= apart) n_channels = n;
    }
    return min(n_channels, k_dim) / 16;
}

/* Whether the row at position `row` sees a key of a visited sector. */
template <bool quantised>
__device__ inline bool visits_sees(const AttnPlan &plan, bool is_listed, bool is_image, uint32_t row, uint32_t key)
{
    bool is_shown = (key <= row) & (is_listed | (key < plan.sink) | (row - key < plan.recent)); /* without branches */
    return is_shown & (!quantised || (key / KV_PAGE_TOKENS == row / KV_PAGE_TOKENS) == is_image);
}

/* Whether every row from first to last sees all n keys from `key` on. */
template <bool quantised>
__device__ inline bool visits_all_seen(const AttnPlan &plan, bool is_listed, bool is_image, uint32_t first,
                                       uint32_t last, uint32_t key, uint32_t n)
{
    uint32_t end = key + n - 1;
    if (end > first || !(is_listed || end < plan.sink || last - key < plan.recent)) return false;
    if (!quantised) return true;
    uint32_t page = key / KV_PAGE_TOKENS;
    return is_image ? page == first / KV_PAGE_TOKENS && page == last / KV_PAGE_TOKENS : page < first / KV_PAGE_TOKENS;
}

} // namespace
