/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores of units of keys for the queries of one block and one KV head: how large may (or does) q k get inside the
 * unit. A unit is a run of sectors; its score is the highest over the rows of the block and the query heads of the
 * group (sparse-attention.md, decision 6), not scaled, not softmaxed. NaN where a key or a query is NaN.
 *
 *   box      max over the unit's sectors of sum over channels of max(q kmax, q kmin): at least every q k (LServe 3.5.2)
 *   center   the same of q (kmax + kmin) / 2
 *   mean     q times the mean of a sector's keys; reads keys
 *   descent  InfiniteHiP's binary search for a representative, by midpoints, score the highest met (its code; A2)
 *   descent_first  the same by the first token of each half, score of the last representative (its paper, Alg. 1)
 *   exact    max of q k; reads keys
 *
 * Positions of a scan (A3): true; relative (RT): every sector at position 0, the query at query_position; chunk-indexed
 * (CI): the sectors of the n-th 256 tokens of the list's units at position n, the query query_position behind the last.
 * The last two turn a whole sector, and offsets inside it stay, but for box and center, which know none (decision 2).
 * Box and center at true positions turn the query back by the middle of the key's 256-token segment and use only pairs
 * whose wavelength is at least 4 * 256 tokens, and at least 16 channels (decision 3): no bound there, a score.
 * Rows are averaged as they are turned for the scan: stored ones at true positions, all at one position else.
 */
#pragma once
#include "kernels/attention/kv_page.h"
#include "kernels/pointwise/rope_turns.h"
#include "kernels/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum ScanKind {
    SCAN_BOX,
    SCAN_CENTER,
    SCAN_MEAN,
    SCAN_DESCENT,
    SCAN_DESCENT_FIRST,
    SCAN_EXACT,
    SCAN_N_KINDS
} ScanKind;

typedef enum ScanPositions { SCAN_TRUE, SCAN_RELATIVE, SCAN_CHUNK_INDEXED } ScanPositions;

typedef struct ScanParams {
    const float *q; /* row r, head g: q + (r * row_heads + g) * k_dim, rotated at first_pos + r */
    uint32_t n_rows, row_heads, group, k_dim, first_pos;
    const KvPages *pages; /* of the class that holds the KV head */
    uint32_t slot;
    ScanKind kind;
    ScanPositions positions;
    uint32_t query_position; /* relative and chunk-indexed */
    uint32_t row_stride;     /* this many consecutive rows are averaged into one query; 1: none (A2: 4) */
    const uint32_t *units;   /* [n_units] first sector of each, ascending; all closed or unquantised, and complete */
    uint32_t n_units, unit_sectors;
    const RopeTurns *turns;
    float *scores; /* [n_units] */
    void *scratch; /* scan_scratch_bytes */
} ScanParams;

/* max_rows: of a block, before they are averaged. */
size_t scan_scratch_bytes(uint32_t n_workers, uint32_t max_rows, uint32_t max_group, uint32_t k_dim);
/* Bytes of keys and of bounds that a call reads; of a descent, which looks at some keys only, at most. */
uint64_t scan_read_bytes(const ScanParams *params);
/* Channels that scores by bounds take at true positions, of a head of k_dim. */
uint32_t scan_bounds_width(const RopeTurns *turns, uint32_t k_dim);
/* Refuses heads of more than KV_MAX_DIM channels, and bounds where the class keeps none. */
bool scan_ref(const ScanParams *params);

#ifdef __cplusplus
}
#endif
