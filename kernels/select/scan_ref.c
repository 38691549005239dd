/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/kv_bounds.h"
#include "kernels/select/scan_query.h"

#include <math.h>
#include <string.h>

/* Sum over channels of the larger (box) or of the mean of the products with both bounds. */
static float score_bounds(const ScanParams *params, const float *queries, uint32_t unit, uint32_t sector)
{
    float max[KV_MAX_DIM], min[KV_MAX_DIM], q[KV_MAX_DIM], cos_sin[KV_MAX_DIM], highest = -INFINITY;
    uint32_t page = params->pages->pages[sector / KV_PAGE_SECTORS], n_channels = scan_bounds_channels(params);
    kv_bounds_get(params->pages->pool, page, params->slot, sector % KV_PAGE_SECTORS, max, min);
    bool is_open = false;
    for (uint32_t c = 0; c < params->k_dim; c++) is_open = is_open || !isfinite(max[c]);
    if (is_open) return NAN;
    rope_turns_get(params->turns, scan_bounds_turn(params, unit, sector), cos_sin);
    for (uint32_t i = 0; i < scan_n_queries(params); i++) {
        memcpy(q, queries + (size_t)i * params->k_dim, params->k_dim * sizeof *q);
        rope_turns_apply(params->turns, cos_sin, params->k_dim, q);
        double sum = 0;
        for (uint32_t c = 0; c < n_channels; c++) {
            double a = (double)q[c] * max[c], b = (double)q[c] * min[c];
            sum += isnan(q[c]) ? (double)q[c] : params->kind == SCAN_BOX ? fmax(a, b) : (a + b) / 2;
        }
        highest = scan_higher(highest, isfinite((float)sum) ? (float)sum : NAN);
    }
    return highest;
}

/* The highest q k over a sector, or the highest mean of them. */
static float score_keys(const ScanParams *params, const float *queries, uint32_t unit, uint32_t sector)
{
    float k[KV_MAX_DIM], cos_sin[KV_MAX_DIM], highest = -INFINITY;
    const KvLayout *layout;
    const char *slot = scan_sector(params, sector, &layout);
    int64_t turn = scan_key_turn(params, unit, sector);
    if (turn != 0) rope_turns_get(params->turns, turn, cos_sin);
    for (uint32_t i = 0; i < scan_n_queries(params); i++) {
        const float *q = queries + (size_t)i * params->k_dim;
        double mean = 0;
        for (uint32_t t = 0; t < KV_SECTOR_TOKENS; t++) {
            kv_slot_get_key(layout, slot, sector % KV_PAGE_SECTORS * KV_SECTOR_TOKENS + t, k);
            if (turn != 0) rope_turns_apply(params->turns, cos_sin, params->k_dim, k);
            double sum = 0;
            for (uint32_t c = 0; c < params->k_dim; c++) sum += (double)q[c] * k[c];
            if (!isfinite(sum)) return NAN;
            mean += sum / KV_SECTOR_TOKENS;
            if (params->kind == SCAN_EXACT) highest = scan_higher(highest, (float)sum);
        }
        if (params->kind == SCAN_MEAN) highest = scan_higher(highest, (float)mean);
    }
    return highest;
}

typedef struct Descent {
    const ScanParams *params;
    const float *queries;
} Descent;

static float score_key(void *arg, uint32_t unit, uint32_t token, uint32_t head)
{
    const Descent *descent = arg;
    const ScanParams *params = descent->params;
    float k[KV_MAX_DIM], cos_sin[KV_MAX_DIM], highest = -INFINITY;
    const KvLayout *layout;
    uint32_t sector = params->units[unit] + token / KV_SECTOR_TOKENS;
    const char *slot = scan_sector(params, sector, &layout);
    kv_slot_get_key(layout, slot, sector % KV_PAGE_SECTORS * KV_SECTOR_TOKENS + token % KV_SECTOR_TOKENS, k);
    int64_t turn = scan_key_turn(params, unit, sector);
    if (turn != 0) {
        rope_turns_get(params->turns, turn, cos_sin);
        rope_turns_apply(params->turns, cos_sin, params->k_dim, k);
    }
    for (uint32_t i = head; i < scan_n_queries(params); i += params->group) {
        const float *q = descent->queries + (size_t)i * params->k_dim;
        double sum = 0;
        for (uint32_t c = 0; c < params->k_dim; c++) sum += (double)q[c] * k[c];
        highest = scan_higher(highest, isfinite(sum) ? (float)sum : NAN);
    }
    return highest;
}

bool scan_ref(const ScanParams *params)
{
    if (!scan_is_supported(params)) return false;
    float *queries = scan_scratch_at(params, 0).queries;
    scan_fill_queries(params, queries);
    for (uint32_t u = 0; u < params->n_units; u++) {
        params->scores[u] =
            scan_descends(params->kind) ? scan_descend(params, score_key, &(Descent){params, queries}, u) : -INFINITY;
        for (uint32_t s = 0; s < params->unit_sectors && !scan_descends(params->kind); s++) {
            uint32_t sector = params->units[u] + s;
            float score = scan_reads_bounds(params->kind) ? score_bounds(params, queries, u, sector)
                                                          : score_keys(params, queries, u, sector);
            params->scores[u] = scan_higher(params->scores[u], score);
        }
    }
    return true;
}
