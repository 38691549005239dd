/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/batch_build.h"

#include <stdlib.h>
#include <string.h>

bool batch_build_init(BatchBuild *build, uint32_t max_rows, uint32_t max_spans, Error *error)
{
    BatchBuild made = {.max_rows = max_rows, .max_spans = max_spans};
    made.tokens = calloc((size_t)max_rows + 1, sizeof *made.tokens);
    made.spans = calloc((size_t)max_spans + 1, sizeof *made.spans);
    if (!made.tokens || !made.spans) {
        batch_build_done(&made);
        return error_set(error, ERR_NO_MEMORY, "no memory for batches of %u rows", max_rows);
    }
    *build = made;
    batch_build_clear(build);
    return true;
}

void batch_build_done(BatchBuild *build)
{
    free(build->tokens);
    free(build->spans);
    *build = (BatchBuild){0};
}

void batch_build_clear(BatchBuild *build)
{
    build->batch = (Batch){.tokens = build->tokens, .spans = build->spans};
}

uint32_t batch_build_room(const BatchBuild *build)
{
    return build->batch.n_spans < build->max_spans ? build->max_rows - build->batch.n_rows : 0;
}

bool batch_build_add(BatchBuild *build, const BatchSpan *span, const uint32_t *tokens)
{
    Batch *batch = &build->batch;
    if (span->n_rows == 0 || span->n_rows > batch_build_room(build)) return false;
    BatchSpan *added = &build->spans[batch->n_spans++];
    *added = *span;
    added->first_row = batch->n_rows;
    memcpy(build->tokens + batch->n_rows, tokens, span->n_rows * sizeof *tokens);
    batch->n_rows += span->n_rows;
    return true;
}
