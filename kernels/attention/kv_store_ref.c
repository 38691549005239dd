/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/kv_store.h"

static void close_slot(const KvPages *pages, uint32_t page, uint32_t slot)
{
    float k[KV_MAX_DIM], v[KV_MAX_DIM];
    const KvLayout *layout;
    const char *image = kv_pages_slot(pages, page, page, slot, &layout);
    char *stored = kv_slot_at(pages->pool, pages->pages[page], slot);
    for (uint32_t t = 0; t < KV_PAGE_TOKENS; t++) {
        kv_slot_get(layout, image, t, k, v);
        kv_slot_put(&pages->pool->layout, stored, t, k, v);
    }
}

bool kv_store_ref(const KvStoreParams *params)
{
    if (params->k_dim > KV_MAX_DIM || params->v_dim > KV_MAX_DIM) return false;
    for (uint32_t s = 0; s < params->n_spans; s++) {
        const KvSpan *span = &params->spans[s];
        for (uint32_t i = 0; i < span->n_rows * params->n_kv_heads; i++) {
            size_t from = (size_t)span->first_row * params->n_kv_heads + i;
            const KvHead *head = &span->heads[i % params->n_kv_heads];
            const KvPages *pages = &span->classes[head->class_index];
            uint32_t position = span->first_pos + i / params->n_kv_heads;
            uint32_t page = position / KV_PAGE_TOKENS, token = position % KV_PAGE_TOKENS;
            const KvLayout *layout;
            char *slot = kv_pages_slot(pages, page, page, head->slot, &layout);
            kv_slot_put(layout, slot, token, params->k + from * params->k_dim, params->v + from * params->v_dim);
            if (pages->images && token == KV_PAGE_TOKENS - 1) close_slot(pages, page, head->slot);
        }
    }
    return true;
}
