/* SPDX-License-Identifier: Apache-2.0 */
/* Scores of the chunks of one stage of paper.h: plain loops over keys in one piece. Private to paper.c. */
#pragma once
#include "engine/select/paper.h"

typedef struct PaperScan {
    const PaperInput *input;
    const PaperStage *stage;
    ScanPositions positions;
    uint32_t query_distance; /* of relative and chunk-indexed queries from what they scan */
    const float *keys;       /* as input->k; turned back to position 0 unless positions are true */
    float *queries;          /* [2, n_rows, n_heads, dim] for the left and the right branch: averaged and turned */
    uint32_t n_queries;      /* of each head */
} PaperScan;

/* Keys as a scan at those positions reads them: input->k itself, or a copy in the arena. NULL: no memory. */
const float *paper_scan_keys(const PaperInput *input, ScanPositions positions, Arena *arena);
/* The queries of the stage; of chunk-indexed scans for that chunk of n_chunks. */
void paper_scan_set_queries(PaperScan *scan, uint32_t chunk, uint32_t n_chunks);
/* Of one query head for keys [from, end). */
float paper_scan_chunk(const PaperScan *scan, uint32_t head, uint32_t from, uint32_t end);
