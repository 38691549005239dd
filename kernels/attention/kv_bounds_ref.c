/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/kv_bounds.h"

#include <math.h>

static void bound_sector(const KvBoundsParams *params, const KvPool *pool, const char *slot, uint32_t position,
                         uint8_t *record)
{
    float k[KV_MAX_DIM], max[KV_MAX_DIM], min[KV_MAX_DIM], cos_sin[KV_MAX_DIM];
    for (uint32_t t = 0; t < KV_SECTOR_TOKENS; t++, position++) {
        kv_slot_get_key(&pool->layout, slot, position % KV_PAGE_TOKENS, k);
        rope_turns_get(params->turns, -(int64_t)position, cos_sin);
        rope_turns_apply(params->turns, cos_sin, params->k_dim, k);
        for (uint32_t c = 0; c < params->k_dim; c++) {
            if (!isfinite(k[c])) k[c] = NAN;
            max[c] = t == 0 || isnan(k[c]) || max[c] < k[c] ? k[c] : max[c];
            min[c] = t == 0 || isnan(k[c]) || min[c] > k[c] ? k[c] : min[c];
        }
    }
    kv_bounds_put(record, params->k_dim, max, min);
}

bool kv_bounds_ref(const KvBoundsParams *params)
{
    if (params->k_dim > KV_MAX_DIM) return false;
    for (uint32_t s = 0; s < params->n_spans; s++) {
        const KvSpan *span = &params->spans[s];
        for (uint32_t h = 0; h < params->n_kv_heads; h++) {
            const KvHead *head = &span->heads[h];
            const KvPages *pages = &span->classes[head->class_index];
            if (!pages->pool->bounds_offset) continue;
            for (uint32_t p = kv_bounds_first_page(span); p < kv_bounds_end_page(span); p++) {
                uint32_t page = pages->pages[p];
                const char *slot = kv_slot_at(pages->pool, page, head->slot);
                for (uint32_t i = 0; i < KV_PAGE_SECTORS; i++)
                    bound_sector(params, pages->pool, slot, p * KV_PAGE_TOKENS + i * KV_SECTOR_TOKENS,
                                 kv_bounds_at(pages->pool, page, head->slot, i));
            }
        }
    }
    return true;
}
