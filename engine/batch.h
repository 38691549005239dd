/* SPDX-License-Identifier: Apache-2.0 */
/* What one forward pass needs: plain data, filled by scheduler/batch_build, read by engine_forward. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef uint32_t SeqId;

typedef enum LogitRows { LOGITS_NONE, LOGITS_LAST, LOGITS_ALL } LogitRows;

/* Consecutive rows of one sequence. first_pos equals the tokens that the sequence holds before the step. */
typedef struct BatchSpan {
    SeqId seq;
    uint32_t first_row, n_rows, first_pos;
    LogitRows logits;
} BatchSpan;

typedef struct Batch {
    const uint32_t *tokens; /* [n_rows] ids below the vocabulary size */
    uint32_t n_rows;
    const BatchSpan *spans; /* cover the rows in order */
    uint32_t n_spans;
} Batch;
