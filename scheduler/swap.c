/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/swap.h"

#include <stdlib.h>

typedef struct SwappedPage {
    void *data; /* NULL: the class held none here */
    bool is_open;
} SwappedPage;

struct Swapped {
    uint64_t bytes; /* of all data */
    uint32_t first_token, n_tokens, n_pages, n_classes;
    uint32_t class_id[KV_MAX_CLASSES];
    void *state;         /* what the engine keeps of the sequence beside pages */
    PageSet *sets;       /* [n_pages] to put them back */
    SwappedPage pages[]; /* [n_pages, n_classes] */
};

static bool copy_page(SwapStore *store, const Engine *engine, PageId page, uint32_t n_tokens, Swapped *swapped,
                      SwappedPage *copy, Error *error)
{
    if (page == PAGE_NONE) return true;
    size_t bytes = engine_page_bytes(engine, page);
    if (bytes > store->max_bytes - store->used_bytes)
        return error_set(error, ERR_BUSY, "the swap store of %llu bytes is full", (unsigned long long)store->max_bytes);
    copy->data = malloc(bytes);
    if (!copy->data) return error_set(error, ERR_NO_MEMORY, "no memory for a swapped page of %zu bytes", bytes);
    copy->is_open = engine_page_is_open(engine, page);
    if (!engine_page_read(engine, page, n_tokens, copy->data, error)) return false;
    swapped->bytes += bytes;
    store->used_bytes += bytes;
    return true;
}

static bool copy_state(SwapStore *store, const Engine *engine, SeqId seq, Swapped *swapped, Error *error)
{
    size_t bytes = engine_seq_state_bytes(engine, seq);
    if (bytes > store->max_bytes - store->used_bytes)
        return error_set(error, ERR_BUSY, "the swap store of %llu bytes is full", (unsigned long long)store->max_bytes);
    swapped->state = malloc(bytes);
    if (!swapped->state) return error_set(error, ERR_NO_MEMORY, "no memory for %zu swapped bytes", bytes);
    engine_seq_state_read(engine, seq, swapped->state);
    swapped->bytes += bytes;
    store->used_bytes += bytes;
    return true;
}

bool swap_out(SwapStore *store, const Engine *engine, PolicyId policy, SeqId seq, uint32_t first_token,
              Swapped **ret_swapped, Error *error)
{
    uint32_t n_classes, end = engine_seq_tokens(engine, seq), first_page = first_token / KV_PAGE_TOKENS;
    const KvClassInfo *classes = engine_policy_classes(engine, policy, &n_classes);
    uint32_t n_pages = (end + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS - first_page;
    Swapped *swapped = calloc(1, sizeof *swapped + (size_t)n_pages * n_classes * sizeof *swapped->pages);
    PageSet *sets = calloc(n_pages, sizeof *sets);
    if (!swapped || !sets) {
        free(swapped);
        free(sets);
        return error_set(error, ERR_NO_MEMORY, "no memory for %u swapped pages", n_pages);
    }
    *swapped = (Swapped){.first_token = first_token,
                         .n_tokens = end - first_token,
                         .n_pages = n_pages,
                         .n_classes = n_classes,
                         .sets = sets};
    for (uint32_t c = 0; c < n_classes; c++) swapped->class_id[c] = classes[c].class_id;
    bool ok = copy_state(store, engine, seq, swapped, error);
    for (uint32_t i = 0; ok && i < n_pages; i++) {
        PageSet set;
        engine_seq_page(engine, seq, first_page + i, &set);
        for (uint32_t c = 0; ok && c < n_classes; c++)
            ok = copy_page(store, engine, set.page[c], kv_tokens_of_page(end, first_page + i), swapped,
                           &swapped->pages[i * n_classes + c], error);
    }
    if (!ok) {
        swap_drop(store, swapped);
        return false;
    }
    *ret_swapped = swapped;
    return true;
}

uint32_t swapped_first(const Swapped *swapped)
{
    return swapped->first_token;
}

uint64_t swapped_bytes(const Swapped *swapped)
{
    return swapped->bytes;
}

static bool take_pages(Engine *engine, const Swapped *swapped, Error *error)
{
    for (uint32_t i = 0; i < swapped->n_pages; i++)
        for (uint32_t c = 0; c < swapped->n_classes; c++) {
            const SwappedPage *copy = &swapped->pages[i * swapped->n_classes + c];
            PageId *page = &swapped->sets[i].page[c];
            if (!copy->data) continue;
            if (!engine_page_new(engine, swapped->class_id[c], copy->is_open, page, error) ||
                !engine_page_write(engine, *page, copy->data, error))
                return false;
        }
    return true;
}

bool swap_in(Engine *engine, SeqId seq, const Swapped *swapped, Error *error)
{
    for (uint32_t i = 0; i < swapped->n_pages; i++)
        for (uint32_t c = 0; c < KV_MAX_CLASSES; c++) swapped->sets[i].page[c] = PAGE_NONE;
    bool ok =
        take_pages(engine, swapped, error) && engine_seq_adopt(engine, seq, swapped->sets, swapped->n_tokens, error);
    if (ok) engine_seq_state_write(engine, seq, swapped->state);
    /* The sequence has its own references by now, or nobody needs the pages. */
    for (uint32_t i = 0; i < swapped->n_pages; i++) engine_pages_unref(engine, &swapped->sets[i]);
    return ok;
}

void swap_drop(SwapStore *store, Swapped *swapped)
{
    if (!swapped) return;
    for (uint32_t i = 0; i < swapped->n_pages * swapped->n_classes; i++) free(swapped->pages[i].data);
    store->used_bytes -= swapped->bytes;
    free(swapped->state);
    free(swapped->sets);
    free(swapped);
}
