/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MInference's vertical-slash pattern as a baseline for eval, with sectors as units: which columns (keys that many rows
 * look at) and which diagonals (distances that many rows look back) hold the softmax of a block, by exact scores of 16
 * of its rows. Slow: there for comparison. Engine thread.
 */
#pragma once
#include "kernels/select/scan.h"

/*
 * Fills scan->scores so that the k best units are the strongest columns and diagonals, taken in turn, about as many
 * sectors for the ones as for the others. Rows at true positions, averaged over nothing; a single row (decode) has
 * columns alone, as each of its keys is on a diagonal of its own. scratch: vertical_slash_scratch_bytes, of which it
 * touches what the rows' position needs.
 */
void vertical_slash_scan(const ScanParams *scan, float scale, float softcap, void *scratch);
/* Of rows within one page, of a context of so many sectors. */
size_t vertical_slash_scratch_bytes(uint32_t group, uint32_t k_dim, uint32_t max_sectors);
