/* SPDX-License-Identifier: Apache-2.0 */
/* What a warp of attend_tiled.cuh does with one page: 16 queries against up to 64 keys in shared memory. */
#pragma once
#include "kernels/attention/attend_pages.cuh"

#include <cfloat>

namespace
{

/* A page in shared memory as 16-bit numbers: K of every sector as stored, then V of all tokens (value_offset). Sectors
 * that are not visited are zeros. */
template <int dim> struct PageTile {
    static constexpr unsigned kSectorBytes = KV_SECTOR_TOKENS * dim * 2, kRowBytes = dim * 2; /* of K or V; of V */
    static constexpr unsigned kVFrom = KV_PAGE_SECTORS * kSectorBytes;
    static constexpr unsigned kBytes = 2 * kVFrom;
    static constexpr unsigned kQueryPitch = dim * 2 + 16;
};

/* Lane 4 g + t holds rows g (i = 0) and g + 8 (i = 1) of its warp's 16. */
template <int dim> struct RowSoftmax {
    float out[dim / 8][4]; /* [queries][channels], in the row's `unit`, a function of what the row sees alone */
    float max[2], sum[2], zero[2], unit[2];
    float factor[2], q_sum[2];
    uint32_t position[2];
};

struct PageInfo {
    const char *tile;
    const char *scales; /* of sector 0 of the raw page; the next sector's are scale_pitch further */
    uint32_t scale_pitch;
    PageVisit visit;
    uint32_t first_pos, last_pos; /* of the warp's rows */
};

template <int dim, bool bf16> __device__ void page_scores(float s[8][4], const PageInfo &page, const char *queries)
{
    using T = PageTile<dim>;
    unsigned lane = threadIdx.x % kWarp;
#pragma unroll(dim > 128 ? 1 : 2)
    for (int step = 0; step < dim / 16; step++) {
        uint32_t a[4];
        load_matrices(a, queries + lane % 16 * T::kQueryPitch + step * 32 + lane / 16 * 16);
        for (int sector = 0; sector < KV_PAGE_SECTORS; sector++) {
            uint32_t b[4];
            if (step >= (int)(page.visit.steps >> 8 * sector & 0xFF)) continue;
            load_matrices(b, page.tile + sector * T::kSectorBytes + step * 512 + lane * 16);
            multiply<bf16>(s[2 * sector], a, b[0], b[2]);
            multiply<bf16>(s[2 * sector + 1], a, b[1], b[3]);
        }
    }
}

/* Scale and zero of the keys (which = 0) or values (1) of tokens 2 t and 2 t + 1 of n-tile n. */
__device__ inline void tile_scales(float2 ret[2], const PageInfo &page, int n, int which)
{
    const uint32_t *scales = (const uint32_t *)(page.scales + n / 2 * page.scale_pitch) + which * KV_SECTOR_TOKENS;
    for (int i = 0; i < 2; i++) ret[i] = unpack<false>(scales[n % 2 * 8 + threadIdx.x % 4 * 2 + i]);
}

/* Scaled, capped, times log2 e. cut: the cut sums of the warp's rows, [16][dim / 16]. */
template <KvType type, bool scaled, int dim>
__device__ void finish_scores(float s[8][4], const RowSoftmax<dim> &soft, const PageInfo &page, const float *cut,
                              float softcap)
{
    for (int n = 0; n < 8; n++) {
        const unsigned n_steps = page.visit.steps >> 8 * (n / 2) & 0xFF, g = threadIdx.x % kWarp / 4;
        float sums[2] = {soft.q_sum[0], soft.q_sum[1]};
        for (int i = 0; scaled && n_steps < dim / 16 && i < 2; i++)
            sums[i] = cut[(g + 8 * i) * (dim / 16) + n_steps - 1];
        float2 scales[2] = {};
        if (scaled) tile_scales(scales, page, n, 0);
        for (int i = 0; i < 4; i++) {
            float x = s[n][i];
            if (scaled) x = scales[i % 2].x * Format<type>::kRawScale * x + scales[i % 2].y * sums[i / 2];
            s[n][i] = fmaf(x, 0.0f, x) * soft.factor[i / 2]; /* an infinity becomes NaN */
        }
    }
    if (!(softcap > 0)) return;
    for (int n = 0; n < 8; n++)
        for (int i = 0; i < 4; i++) s[n][i] = capped(s[n][i], softcap);
}

/* What a row does not see becomes -infinity. Returns whether all was seen. */
template <bool quantised, int dim>
__device__ bool hide_scores(float s[8][4], const RowSoftmax<dim> &soft, const PageInfo &page, const AttnPlan &plan)
{
    bool is_image = page.visit.phase == WALK_IMAGES;
    uint32_t first_key = page.visit.page * KV_PAGE_TOKENS;
    if (page.visit.sectors == 15 && (page.visit.listed == 15 || page.visit.listed == 0) &&
        visits_all_seen<quantised>(plan, page.visit.listed == 15, is_image, page.first_pos, page.last_pos, first_key,
                                   KV_PAGE_TOKENS))
        return true;
    for (int n = 0; n < 8; n++) {
        bool is_there = page.visit.sectors >> n / 2 & 1, is_listed = page.visit.listed >> n / 2 & 1;
        for (int i = 0; i < 4; i++) {
            uint32_t key = first_key + n * 8 + threadIdx.x % 4 * 2 + i % 2;
            bool is_seen = visits_sees<quantised>(plan, is_listed, is_image, soft.position[i / 2], key);
            if (!(is_there & is_seen)) s[n][i] = -INFINITY;
        }
    }
    return false;
}

/* shrink: by what the rows' units change. */
template <int dim> __device__ void raise_row_max(RowSoftmax<dim> &soft, const float s[8][4], const float shrink[2])
{
    float factor[2];
    for (int i = 0; i < 2; i++) {
        float max = soft.max[i];
        for (int n = 0; n < 8; n++) max = fmaxf(max, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
        for (int step = 1; step < 4; step *= 2) max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, step));
        factor[i] = max == soft.max[i] ? 1 : exp2_of(soft.max[i] - max);
        soft.max[i] = max;
    }
    if (__all_sync(kAllLanes, factor[0] == 1 && factor[1] == 1 && shrink[0] == 1 && shrink[1] == 1)) return;
    for (int i = 0; i < 2; i++) {
        soft.sum[i] *= factor[i];
        soft.zero[i] *= factor[i];
        for (int m = 0; m < dim / 8; m++)
            for (int k = 0; k < 2; k++) soft.out[m][2 * i + k] *= factor[i] * shrink[i];
    }
}

/* The largest value scale of what a row sees must fit its unit; shrink: by what the units change. */
template <KvType type, int dim>
__device__ void grow_units(float shrink[2], RowSoftmax<dim> &soft, const float s[8][4], const PageInfo &page)
{
    float largest[2] = {};
    for (int n = 0; n < 8; n++) {
        float2 scales[2];
        tile_scales(scales, page, n, 1);
        for (int i = 0; i < 4; i++)
            if (s[n][i] != -INFINITY) largest[i / 2] = fmaxf(largest[i / 2], scales[i % 2].x);
    }
    for (int i = 0; i < 2; i++) {
        for (int step = 1; step < 4; step *= 2)
            largest[i] = fmaxf(largest[i], __shfl_xor_sync(kAllLanes, largest[i], step));
        float unit = __uint_as_float(((__float_as_uint(largest[i] * Format<type>::kRawScale) >> 23) + 1) << 23);
        shrink[i] = unit > soft.unit[i] ? soft.unit[i] * inverse_of(unit) : 1;
        soft.unit[i] = fmaxf(unit, soft.unit[i]);
    }
}

/* Scores become weights, in place. */
template <KvType type, bool scaled, int dim>
__device__ void weights_of(float s[8][4], RowSoftmax<dim> &soft, const PageInfo &page)
{
    float per_unit[2] = {1, 1};
    for (int i = 0; Format<type>::kQuantised && i < 2; i++) per_unit[i] = inverse_of(soft.unit[i]);
    for (int n = 0; n < 8; n++) {
        float2 scales[2] = {};
        if (scaled) tile_scales(scales, page, n, 1);
        for (int i = 0; i < 4; i++) {
            bool is_seen = s[n][i] != -INFINITY;
            float p = is_seen ? exp2_of(s[n][i] - fmaxf(soft.max[i / 2], -FLT_MAX)) : 0;
            soft.sum[i / 2] += p;
            if (scaled && is_seen) soft.zero[i / 2] += p * scales[i % 2].y;
            float f = scaled ? scales[i % 2].x * Format<type>::kRawScale * per_unit[i / 2] : per_unit[i / 2];
            s[n][i] = is_seen ? p * f : 0;
        }
    }
}

/*
 * only_row: of the warp's rows, with the tokens that it sees (keep); 16: all rows and tokens. Either way a row gets the
 * same bits: whether a page has wild values depends on the sectors that other rows read.
 */
template <int dim, bool bf16, bool masked>
__device__ void add_page_values(RowSoftmax<dim> &soft, const float w[8][4], const PageInfo &page, uint64_t keep,
                                unsigned only_row)
{
    using T = PageTile<dim>;
    unsigned lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int sector = 0; sector < KV_PAGE_SECTORS; sector++) {
        uint32_t a[4], kept[2] = {0xFFFFFFFFu, 0xFFFFFFFFu};
        for (int i = 0; i < 4; i++) {
            const float *from = &w[2 * sector + i / 2][i % 2 * 2];
            a[i] = pack<bf16>(from[0], from[1]);
        }
        for (int i = 0; masked && i < 2; i++) {
            unsigned two = (unsigned)(keep >> (sector * 16 + i * 8 + 2 * t)) & 3;
            kept[i] = (two & 1 ? 0xFFFFu : 0) | (two & 2 ? 0xFFFF0000u : 0);
        }
#pragma unroll
        for (int m = 0; m < dim / 16; m++) {
            uint32_t b[4];
            load_matrices_transposed(b,
                                     page.tile + T::kVFrom +
                                         value_offset<T::kRowBytes>(sector * 16 + lane % 16, m * 32 + lane / 16 * 16));
            for (int k = 0; k < 2; k++) {
                if constexpr (!masked) {
                    multiply<bf16>(soft.out[2 * m + k], a, b[2 * k], b[2 * k + 1]);
                } else {
                    float sum[4];
                    for (int i = 0; i < 4; i++) sum[i] = soft.out[2 * m + k][i];
                    multiply<bf16>(sum, a, b[2 * k] & kept[0], b[2 * k + 1] & kept[1]);
                    for (int i = 0; i < 4; i++)
                        if (only_row == g + i / 2 * 8) soft.out[2 * m + k][i] = sum[i];
                }
            }
        }
    }
}

/* Whether any of the page's values is not finite: 0 times it would spoil rows that do not see it. */
template <int dim, bool bf16> __device__ bool has_wild_values(const PageInfo &page)
{
    using T = PageTile<dim>;
    constexpr uint32_t kMask = bf16 ? 0x7F80u : 0x7C00u;
    bool is_wild = false;
    const uint32_t *values = (const uint32_t *)(page.tile + T::kVFrom);
    for (unsigned i = threadIdx.x % kWarp; i < T::kVFrom / 4; i += kWarp)
        is_wild = is_wild || (values[i] & kMask) == kMask || (values[i] >> 16 & kMask) == kMask;
    return __any_sync(kAllLanes, is_wild);
}

template <KvType type, int dim, bool bf16>
__device__ void add_wild_values(RowSoftmax<dim> &soft, const float w[8][4], const PageInfo &page, const AttnPlan &plan)
{
    bool is_image = page.visit.phase == WALK_IMAGES;
#pragma unroll 1
    for (unsigned row = 0; row < 16; row++) {
        uint32_t position = __shfl_sync(kAllLanes, row < 8 ? soft.position[0] : soft.position[1], row % 8 * 4);
        uint64_t keep = 0;
        for (uint32_t token = 0; token < KV_PAGE_TOKENS; token++) {
            bool is_listed = page.visit.listed >> token / KV_SECTOR_TOKENS & 1;
            keep |= (uint64_t)visits_sees<Format<type>::kQuantised>(plan, is_listed, is_image, position,
                                                                    page.visit.page * KV_PAGE_TOKENS + token)
                    << token;
        }
        add_page_values<dim, bf16, true>(soft, w, page, keep, row);
    }
}

/* type: of the class; scaled: the page is raw integers, not 16-bit numbers (an image, or an unquantised page). */
template <KvType type, bool scaled, int dim, bool bf16>
__device__ void attend_page(RowSoftmax<dim> &soft, const PageInfo &page, const char *queries, const AttnPlan &plan,
                            float softcap)
{
    float s[8][4] = {};
    page_scores<dim, bf16>(s, page, queries);
    finish_scores<type, scaled>(s, soft, page, (const float *)(queries + 16 * PageTile<dim>::kQueryPitch), softcap);
    bool all_seen = hide_scores<Format<type>::kQuantised>(s, soft, page, plan);
    float shrink[2] = {1, 1};
    if (scaled) grow_units<type>(shrink, soft, s, page);
    raise_row_max(soft, s, shrink);
    weights_of<type, scaled>(s, soft, page);
    if (scaled || all_seen || !has_wild_values<dim, bf16>(page))
        add_page_values<dim, bf16, false>(soft, s, page, 0, 16);
    else
        add_wild_values<type, dim, bf16>(soft, s, page, plan);
}

} // namespace
