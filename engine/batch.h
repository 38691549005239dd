/* SPDX-License-Identifier: Apache-2.0 */
/* What a forward pass needs: plain data, filled by scheduler/batch_build, read by the engine. */
#pragma once
#include "kernels/sample/digest.h"
#include <stdbool.h>
#include <stdint.h>

typedef uint32_t SeqId;

typedef enum LogitRows { LOGITS_NONE, LOGITS_LAST, LOGITS_ALL } LogitRows;
typedef enum RowKind { ROWS_PREFILL, ROWS_DECODE } RowKind; /* which part of the attention policy they follow */

/* Consecutive rows of one sequence. first_pos equals the tokens that the sequence holds before the step. */
typedef struct BatchSpan {
    SeqId seq;
    uint32_t first_row, n_rows, first_pos;
    LogitRows logits;
    RowKind kind;
} BatchSpan;

typedef struct Batch {
    const uint32_t *tokens; /* [n_rows] ids below the vocabulary size */
    uint32_t n_rows;
    const BatchSpan *spans; /* cover the rows in order; a sequence is in one of them */
    uint32_t n_spans;
    /* [n_spans] of engine_step where each span is one row: digests may come in place of rows (engine_digest); NULL:
     * rows come. */
    const DigestAsk *asks;
} Batch;

/*
 * A pass is one batch on its way through the layers; a work item is a piece of it, small enough for nobody to notice.
 */
typedef uint32_t PassId;

typedef struct WorkItem {
    PassId pass;
    uint32_t first_layer, n_layers;
    uint32_t first_row, n_rows; /* of the batch */
} WorkItem;
