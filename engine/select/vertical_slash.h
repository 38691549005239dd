/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MInference's vertical-slash pattern as a baseline for eval, with sectors as units: which columns (keys that many rows
 * look at) and which diagonals (distances that many rows look back) hold the softmax of a block, by exact scores of 16
 * of its rows. Its own memory is allocated and freed: no part of serving. Engine thread.
 */
#pragma once
#include "kernels/select/scan.h"

/*
 * Fills scan->scores so that the k best units are the strongest columns and diagonals, taken in turn, about as many
 * sectors for the ones as for the others. Rows at true positions, averaged over nothing; a single row (decode) has
 * columns alone, as each of its keys is on a diagonal of its own. false: no memory.
 */
bool vertical_slash_scan(const ScanParams *scan, float scale, float softcap);
