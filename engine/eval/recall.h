/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lists of decoded rows hold of what they should: for chosen rows, every layer and every KV head that selects,
 * all scores are computed from the stored keys and compared with the plan. Plans at true positions only. Engine thread.
 */
#pragma once
#include "engine/eval/counts.h"
#include "engine/eval/results.h"

typedef struct Recall Recall;

typedef struct RecallParams {
    const ModelShape *shape;
    const char *policy;
    uint32_t position; /* of the first row; every stride-th is looked at */
    uint32_t stride;
    const char *trace_dir; /* NULL, or where recall_end writes POLICY-POSITION-{plans,lists,scores,masses}.npy */
} RecallParams;

LW_CHECK bool recall_new(const RecallParams *params, Recall **ret_recall, Error *error);
void recall_free(Recall *recall);                        /* NULL is fine */
void recall_look(void *recall, const LayerTrace *trace); /* a TraceCall */
/* Adds a cell of each layer to the results (NULL: they have them), and writes the files. */
LW_CHECK bool recall_end(Recall *recall, Results *results, Error *error);
