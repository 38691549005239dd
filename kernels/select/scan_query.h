/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all rows of scan share: the queries of a scan as they are turned before any key is met, how far each sector's
 * keys (or, beside its bounds, the queries) are turned from there, and the search for a representative. Any thread.
 */
#pragma once
#include "kernels/select/scan.h"

enum {
    SCAN_SEGMENT_TOKENS = 256,
    SCAN_SEGMENT_SECTORS = SCAN_SEGMENT_TOKENS / KV_SECTOR_TOKENS,
    SCAN_MEMO_SECTORS = 16,
    SCAN_MIN_WAVELENGTHS = 4, /* of a segment: of pairs that box and center use at true positions */
};

static inline bool scan_reads_bounds(ScanKind kind)
{
    return kind == SCAN_BOX || kind == SCAN_CENTER;
}

static inline bool scan_descends(ScanKind kind)
{
    return kind == SCAN_DESCENT || kind == SCAN_DESCENT_FIRST;
}

/* Averaged rows, times the heads of the group. */
static inline uint32_t scan_n_queries(const ScanParams *params)
{
    uint32_t stride = params->row_stride ? params->row_stride : 1;
    return (params->n_rows + stride - 1) / stride * params->group;
}

/* The stored slot of a sector, and its layout: earlier pages are read as they are stored. */
static inline const char *scan_sector(const ScanParams *params, uint32_t sector, const KvLayout **ret_layout)
{
    return kv_pages_slot(params->pages, sector / KV_PAGE_SECTORS, UINT32_MAX, params->slot, ret_layout);
}

/* [scan_n_queries, k_dim]: the heads of the group run fastest. */
void scan_fill_queries(const ScanParams *params, float *ret_queries);

typedef struct ScanScratch {
    float *queries; /* scan_fill_queries */
    float *keys;    /* of one worker: [channels to whole blocks, ATTEND_GROUP_KEYS] */
    float *turned;  /* of one worker: [scan_n_queries, k_dim, 2] */
    float *memo;    /* of one worker: [SCAN_MEMO_SECTORS, group, KV_SECTOR_TOKENS] */
} ScanScratch;

ScanScratch scan_scratch_at(const ScanParams *params, uint32_t worker);

/* From where it is stored to where the scan has it: keys of a sector of unit i. */
int64_t scan_key_turn(const ScanParams *params, uint32_t unit, uint32_t sector);
/* Queries, so that they meet the bounds of a sector of unit i. */
int64_t scan_bounds_turn(const ScanParams *params, uint32_t unit, uint32_t sector);
/* Channels of bounds that a scan uses. */
uint32_t scan_bounds_channels(const ScanParams *params);

/* The highest product of the rows of one head of the group with the key of a token (from 0) of unit i. */
typedef float (*ScanKeyScore)(void *arg, uint32_t unit, uint32_t token, uint32_t head);
/* The score of unit i by descent, in either form. */
float scan_descend(const ScanParams *params, ScanKeyScore score_key, void *arg, uint32_t unit);
/* Refuses what no row has a variant for. */
bool scan_is_supported(const ScanParams *params);

/* The higher score; NaN where one is. */
static inline float scan_higher(float a, float b)
{
    return a > b || a != a ? a : b;
}
