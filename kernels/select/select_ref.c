/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/select/scan.h"
#include "kernels/select/select.h"
#include "kernels/select/top_k.h"

#include <string.h>

enum { ALIGN = 64 };

/* What one head's choice works in. */
typedef struct RefScratch {
    uint32_t *units, *indices, *top;
    float *scores;
    void *scan;
} RefScratch;

static size_t words_bytes(uint32_t max_pages)
{
    return ((size_t)max_pages * sizeof(uint32_t) + ALIGN - 1) / ALIGN * ALIGN;
}

size_t select_ref_scratch_bytes(uint32_t group, uint32_t k_dim, uint32_t max_pages)
{
    return 4 * words_bytes(max_pages) + scan_scratch_bytes(1, 1, group, k_dim);
}

static RefScratch scratch_at(const SelectParams *params)
{
    char *at = params->scratch;
    size_t each = words_bytes(params->max_pages);
    return (RefScratch){.units = (uint32_t *)(void *)at,
                        .indices = (uint32_t *)(void *)(at + each),
                        .top = (uint32_t *)(void *)(at + 2 * each),
                        .scores = (float *)(void *)(at + 3 * each),
                        .scan = at + 4 * each};
}

static bool choose(const SelectParams *params, const KvSpan *span, const SelectJob *job, uint32_t kv_head,
                   uint32_t *ret_list)
{
    const RefScratch scratch = scratch_at(params);
    const uint32_t group = params->n_heads / params->n_kv_heads;
    for (uint32_t i = 0; i < job->n_pages; i++) scratch.units[i] = (job->first_page + i) * KV_PAGE_SECTORS;
    const ScanParams scan = {.q = params->q +
                                  ((size_t)span->first_row * params->n_heads + kv_head * group) * params->k_dim,
                             .n_rows = 1,
                             .row_heads = params->n_heads,
                             .group = group,
                             .k_dim = params->k_dim,
                             .first_pos = span->first_pos,
                             .pages = &span->classes[span->heads[kv_head].class_index],
                             .slot = span->heads[kv_head].slot,
                             .kind = SCAN_BOX,
                             .positions = SCAN_TRUE,
                             .row_stride = 1,
                             .units = scratch.units,
                             .n_units = job->n_pages,
                             .unit_sectors = KV_PAGE_SECTORS,
                             .turns = params->turns,
                             .scores = scratch.scores,
                             .scratch = scratch.scan};
    if (!scan_ref(&scan)) return false;
    uint32_t n = top_k(scratch.scores, job->n_pages, job->n_keep, scratch.top, scratch.indices);
    for (uint32_t i = 0; i < n * KV_PAGE_SECTORS; i++)
        ret_list[i] = scratch.units[scratch.indices[i / KV_PAGE_SECTORS]] + i % KV_PAGE_SECTORS;
    return true;
}

bool select_ref(const SelectParams *params)
{
    for (uint32_t s = 0; s < params->n_spans; s++) {
        const KvSpan *span = &params->spans[s];
        if (!params->jobs[s].n_keep || !span->n_rows) continue;
        for (uint32_t h = 0; h < params->n_kv_heads; h++) {
            const AttnPlan *plan = &span->plans[h];
            if (plan->list && !choose(params, span, &params->jobs[s], h, (uint32_t *)(uintptr_t)plan->list))
                return false;
        }
    }
    return true;
}
