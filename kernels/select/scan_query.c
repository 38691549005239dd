/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/select/scan_query.h"
#include "kernels/attention/attend_work.h"
#include "kernels/attention/kv_bounds.h"

#include <math.h>
#include <string.h>

enum { SCRATCH_ALIGN = 64 };

/* Unpacking writes whole blocks: of up to 32 channels. */
static size_t key_floats(uint32_t k_dim)
{
    return attend_pad(k_dim) * ATTEND_GROUP_KEYS;
}

/* Chunk-indexed: the position of unit i. */
static int64_t chunk_of(const ScanParams *params, uint32_t unit)
{
    uint32_t n_each = params->unit_sectors < SCAN_SEGMENT_SECTORS ? SCAN_SEGMENT_SECTORS / params->unit_sectors : 1;
    return unit / n_each;
}

void scan_fill_queries(const ScanParams *params, float *ret_queries)
{
    uint32_t stride = params->row_stride ? params->row_stride : 1;
    float turned[KV_MAX_DIM], cos_sin[KV_MAX_DIM];
    int64_t to = params->query_position;
    if (params->positions == SCAN_CHUNK_INDEXED) to += chunk_of(params, params->n_units - 1);
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
    return (params->positions == SCAN_CHUNK_INDEXED ? chunk_of(params, unit) : 0) - (int64_t)sector * KV_SECTOR_TOKENS;
}

int64_t scan_bounds_turn(const ScanParams *params, uint32_t unit, uint32_t sector)
{
    if (params->positions == SCAN_RELATIVE) return 0;
    if (params->positions == SCAN_CHUNK_INDEXED) return -chunk_of(params, unit);
    int64_t segment = sector / SCAN_SEGMENT_SECTORS;
    return -(segment * SCAN_SEGMENT_TOKENS + SCAN_SEGMENT_TOKENS / 2);
}

uint32_t scan_bounds_width(const RopeTurns *turns, uint32_t k_dim)
{
    const double two_pi = 6.283185307179586477, least = SCAN_MIN_WAVELENGTHS * SCAN_SEGMENT_TOKENS;
    uint32_t n = k_dim - 2 * turns->n_pairs;
    for (uint32_t j = 0; j < turns->n_pairs && turns->theta[j] * least <= two_pi; j++) n += 2;
    if (n < KV_SECTOR_TOKENS) n = KV_SECTOR_TOKENS;
    return n < k_dim ? n : k_dim;
}

uint32_t scan_bounds_channels(const ScanParams *params)
{
    return params->positions == SCAN_TRUE ? scan_bounds_width(params->turns, params->k_dim) : params->k_dim;
}

static float descend_head(const ScanParams *params, ScanKeyScore score_key, void *arg, uint32_t unit, uint32_t head)
{
    bool by_midpoints = params->kind == SCAN_DESCENT;
    uint32_t left = 0, right = params->unit_sectors * KV_SECTOR_TOKENS;
    float highest = -INFINITY, last = -INFINITY;
    for (uint32_t size = right; size >= 1; size /= 2) {
        uint32_t middle = (left + right) / 2;
        uint32_t a = by_midpoints ? (left + middle) / 2 : left, b = by_midpoints ? (middle + right) / 2 : middle;
        float score_a = score_key(arg, unit, a, head);
        float score_b = a == b ? score_a : score_key(arg, unit, b, head);
        last = scan_higher(score_a, score_b);
        highest = scan_higher(highest, last);
        *(score_a > score_b ? &right : &left) = middle;
    }
    return by_midpoints ? highest : last;
}

float scan_descend(const ScanParams *params, ScanKeyScore score_key, void *arg, uint32_t unit)
{
    float highest = -INFINITY;
    for (uint32_t g = 0; g < params->group; g++)
        highest = scan_higher(highest, descend_head(params, score_key, arg, unit, g));
    return highest;
}

bool scan_is_supported(const ScanParams *params)
{
    bool needs_bounds = scan_reads_bounds(params->kind);
    return params->k_dim <= KV_MAX_DIM && params->kind < SCAN_N_KINDS &&
           (!needs_bounds || params->pages->pool->bounds_offset);
}

/* Of the queries, n of them for each of `group` heads; and of one worker. */
static size_t query_floats(size_t n, uint32_t group, uint32_t k_dim)
{
    return n * group * k_dim;
}

static size_t worker_floats(size_t n, uint32_t group, uint32_t k_dim)
{
    return key_floats(k_dim) + 2 * query_floats(n, group, k_dim) + SCAN_MEMO_SECTORS * group * KV_SECTOR_TOKENS;
}

size_t scan_scratch_bytes(uint32_t n_workers, uint32_t max_rows, uint32_t max_group, uint32_t k_dim)
{
    size_t floats = query_floats(max_rows, max_group, k_dim) + n_workers * worker_floats(max_rows, max_group, k_dim);
    return floats * sizeof(float) + SCRATCH_ALIGN;
}

ScanScratch scan_scratch_at(const ScanParams *params, uint32_t worker)
{
    uint32_t n = scan_n_queries(params) / params->group;
    size_t queries = query_floats(n, params->group, params->k_dim);
    char *base = (char *)(((uintptr_t)params->scratch + SCRATCH_ALIGN - 1) & ~(uintptr_t)(SCRATCH_ALIGN - 1));
    ScanScratch scratch = {.queries = (float *)(void *)base};
    scratch.keys = scratch.queries + queries + worker * worker_floats(n, params->group, params->k_dim);
    scratch.turned = scratch.keys + key_floats(params->k_dim);
    scratch.memo = scratch.turned + 2 * queries;
    return scratch;
}

uint64_t scan_read_bytes(const ScanParams *params)
{
    const KvLayout *layout = &params->pages->pool->layout;
    uint64_t n_sectors = (uint64_t)params->n_units * params->unit_sectors;
    if (scan_reads_bounds(params->kind)) {
        uint64_t n_blocks = (scan_bounds_channels(params) + KV_BOUNDS_BLOCK - 1) / KV_BOUNDS_BLOCK;
        return n_sectors * (n_blocks * KV_BOUNDS_BLOCK_BYTES + KV_BOUNDS_BLOCK);
    }
    return n_sectors * (layout->v_offset + (layout->v_scale_offset - layout->k_scale_offset));
}
