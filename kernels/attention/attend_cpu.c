/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/isa.h"
#include "kernels/parallel.h"

typedef struct RowJob {
    const AttendParams *params;
    const KvSpan *span;
} RowJob;

static void attend_rows(void *arg, uint32_t worker, size_t first, size_t end)
{
    (void)worker;
    const RowJob *job = arg;
    KvSpan part = *job->span;
    part.first_row += (uint32_t)first;
    part.first_pos += (uint32_t)first;
    part.n_rows = (uint32_t)(end - first);
    AttendParams params = *job->params;
    params.spans = &part;
    params.n_spans = 1;
    (void)attend_ref(&params); /* only fails for heads that the caller below has tried */
}

bool ISA(attend)(const AttendParams *params, Stream stream)
{
    AttendParams nothing = *params;
    nothing.n_spans = 0;
    if (!attend_ref(&nothing)) return false;
    for (uint32_t s = 0; s < params->n_spans; s++) {
        RowJob job = {params, &params->spans[s]};
        parallel_for(stream, params->spans[s].n_rows, 1, attend_rows, &job);
    }
    return true;
}
