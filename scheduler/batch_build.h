/* SPDX-License-Identifier: Apache-2.0 */
/* From the rows that sequences ask for to the batch of one forward pass; memory is taken once. Engine thread. */
#pragma once
#include "base/error.h"
#include "engine/batch.h"

typedef struct BatchBuild {
    Batch batch;
    uint32_t *tokens; /* [max_rows] */
    BatchSpan *spans; /* [max_spans] */
    uint32_t max_rows, max_spans;
} BatchBuild;

LW_CHECK bool batch_build_init(BatchBuild *build, uint32_t max_rows, uint32_t max_spans, Error *error);
void batch_build_done(BatchBuild *build); /* {0} is fine */
void batch_build_clear(BatchBuild *build);
uint32_t batch_build_room(const BatchBuild *build); /* rows */
/* The span's rows, tokens [n_rows], go behind what is there, whatever its first_row says; false: no room for them. */
LW_CHECK bool batch_build_add(BatchBuild *build, const BatchSpan *span, const uint32_t *tokens);
