/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/select/scan_query.h"
#include "kernels/attention/kv_bounds.h"

#include <math.h>
#include <string.h>

void scan_fill_queries(const ScanParams *params, float *ret_queries)
{
    uint32_t stride = params->row_stride ? params->row_stride : 1;
    float turned[KV_MAX_DIM], cos_sin[KV_MAX_DIM];
    int64_t to = (int64_t)params->query_position + (params->positions == SCAN_CHUNK_INDEXED ? params->n_units - 1 : 0);
    for (uint32_t row = 0; row < params->n_rows; row += stride) {
        uint32_t n = params->n_rows - row < stride ? params->n_rows - row : stride;
        memset(ret_queries, 0, (size_t)params->group * params->k_dim * sizeof *ret_queries);
        for (uint32_t r = row; r < row + n; r++) {
            if (params->positions != SCAN_TRUE) rope_turns_get(params->turns, to - params->first_pos - r, cos_sin);
            for (uint32_t g = 0; g < params->group; g++) {
                const float *q = params->q + ((size_t)r * params->row_heads + g) * params->k_dim;
                float *sum = ret_queries + (size_t)g * params->k_dim;
                memcpy(turned, q, params->k_dim * sizeof *q);
                if (params->positions != SCAN_TRUE) rope_turns_apply(params->turns, cos_sin, params->k_dim, turned);
                for (uint32_t c = 0; c < params->k_dim; c++) sum[c] += turned[c];
            }
        }
        for (uint32_t c = 0; c < params->group * params->k_dim; c++) ret_queries[c] /= (float)n;
        ret_queries += (size_t)params->group * params->k_dim;
    }
}

int64_t scan_key_turn(const ScanParams *params, uint32_t unit, uint32_t sector)
{
    if (params->positions == SCAN_TRUE) return 0;
    return (params->positions == SCAN_CHUNK_INDEXED ? (int64_t)unit : 0) - (int64_t)sector * KV_SECTOR_TOKENS;
}

int64_t scan_bounds_turn(const ScanParams *params, uint32_t unit, uint32_t sector)
{
    if (params->positions == SCAN_RELATIVE) return 0;
    if (params->positions == SCAN_CHUNK_INDEXED) return -(int64_t)unit;
    int64_t segment = sector / SCAN_SEGMENT_SECTORS;
    return -(segment * SCAN_SEGMENT_TOKENS + SCAN_SEGMENT_TOKENS / 2);
}

uint32_t scan_bounds_channels(const ScanParams *params)
{
    const double two_pi = 6.283185307179586477, least = SCAN_MIN_WAVELENGTHS * SCAN_SEGMENT_TOKENS;
    if (params->positions != SCAN_TRUE) return params->k_dim;
    uint32_t n = params->k_dim - 2 * params->turns->n_pairs;
    for (uint32_t j = 0; j < params->turns->n_pairs && params->turns->theta[j] * least <= two_pi; j++) n += 2;
    if (n < KV_SECTOR_TOKENS) n = KV_SECTOR_TOKENS;
    return n < params->k_dim ? n : params->k_dim;
}

/* The highest score of a key over the rows of one head. */
static float score_key(const ScanParams *params, const float *queries, uint32_t head, uint32_t unit, uint32_t token)
{
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
        const float *q = queries + (size_t)i * params->k_dim;
        float sum = 0;
        for (uint32_t c = 0; c < params->k_dim; c++) sum += q[c] * k[c];
        highest = scan_higher(highest, sum);
    }
    return highest;
}

static float descend_head(const ScanParams *params, const float *queries, uint32_t unit, uint32_t head)
{
    bool by_midpoints = params->kind == SCAN_DESCENT;
    uint32_t left = 0, right = params->unit_sectors * KV_SECTOR_TOKENS;
    float highest = -INFINITY, last = -INFINITY;
    for (uint32_t size = right; size >= 1; size /= 2) {
        uint32_t middle = (left + right) / 2;
        uint32_t a = by_midpoints ? (left + middle) / 2 : left, b = by_midpoints ? (middle + right) / 2 : middle;
        float score_a = score_key(params, queries, head, unit, a), score_b = score_key(params, queries, head, unit, b);
        bool go_left = score_a > score_b;
        last = scan_higher(score_a, score_b);
        highest = scan_higher(highest, last);
        *(go_left ? &right : &left) = middle;
    }
    return by_midpoints ? highest : last;
}

float scan_descend(const ScanParams *params, const float *queries, uint32_t unit)
{
    float highest = -INFINITY;
    for (uint32_t g = 0; g < params->group; g++) highest = scan_higher(highest, descend_head(params, queries, unit, g));
    return highest;
}

bool scan_is_supported(const ScanParams *params)
{
    bool needs_bounds = scan_reads_bounds(params->kind);
    return params->k_dim <= KV_MAX_DIM && params->kind < SCAN_N_KINDS &&
           (!needs_bounds || params->pages->pool->bounds_offset);
}

size_t scan_scratch_bytes(uint32_t n_workers, uint32_t max_rows, uint32_t max_group, uint32_t k_dim,
                          uint32_t max_context)
{
    (void)max_context;
    size_t queries = (size_t)max_rows * max_group;
    return (n_workers + 1) * (queries * k_dim * sizeof(float) + 64);
}

uint64_t scan_read_bytes(const ScanParams *params)
{
    const KvLayout *layout = &params->pages->pool->layout;
    uint64_t n_sectors = (uint64_t)params->n_units * params->unit_sectors, n_rounds = 1;
    if (scan_reads_bounds(params->kind)) {
        uint64_t n_blocks = (scan_bounds_channels(params) + KV_BOUNDS_BLOCK - 1) / KV_BOUNDS_BLOCK;
        return n_sectors * (n_blocks * KV_BOUNDS_BLOCK_BYTES + KV_BOUNDS_BLOCK);
    }
    uint64_t sector_bytes = layout->v_offset + (layout->v_scale_offset - layout->k_scale_offset);
    if (!scan_descends(params->kind)) return n_sectors * sector_bytes;
    for (uint32_t size = params->unit_sectors * KV_SECTOR_TOKENS; size > 1; size /= 2) n_rounds++;
    return params->n_units * params->group * 2 * n_rounds * (sector_bytes / KV_SECTOR_TOKENS);
}
