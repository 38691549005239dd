/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/paged.h"
#include "tests/support/weights.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void forget(Paged *paged)
{
    memset(paged->pool.base, 0xFF, paged->pool.page_bytes * paged->n_pages);
    memset(paged->image_pool.base, 0xFF, paged->pages.images ? paged->image_pool.page_bytes * paged->n_pages : 0);
}

static bool same_pools(const Paged *a, const Paged *b)
{
    return memcmp(a->pool.base, b->pool.base, a->pool.page_bytes * a->n_pages) == 0 &&
           (!a->pages.images ||
            memcmp(a->image_pool.base, b->image_pool.base, a->image_pool.page_bytes * a->n_pages) == 0);
}

/* Rows in chunks: after each the pages of what is written so far equal the reference's. */
static void store_in_chunks(const KernelTable *table, Paged *paged, uint32_t size, Stream stream)
{
    for (uint32_t first = 0; first < paged->n_tokens; first += size) {
        KvSpan span = paged_span(paged, first, paged->n_tokens - first < size ? paged->n_tokens - first : size, first);
        KvStoreParams params = paged_store_params(paged, &span, 1);
        cr_assert(table->kv_store(&params, stream));
    }
}

static void spoil(Paged *paged)
{
    const float odd[] = {NAN, INFINITY, -INFINITY, 1e-30f, -0.0f, 7e4f, 3e38f, 6e-8f};
    const PagedShape *s = &paged->shape;
    for (size_t i = 0; i < 8 && i < paged->n_tokens; i++) {
        paged->k[i * s->n_kv_heads * s->k_dim + i % s->k_dim] = odd[i];
        paged->v[(i * s->n_kv_heads + s->n_kv_heads - 1) * s->v_dim] = odd[7 - i];
    }
    if (paged->n_tokens < 20) return;
    for (size_t c = 0; c < s->k_dim; c++) { /* constant, all zero, zeros of both signs */
        paged->k[11 * s->n_kv_heads * s->k_dim + c] = 0.7f;
        paged->k[12 * s->n_kv_heads * s->k_dim + c] = 0;
        paged->k[13 * s->n_kv_heads * s->k_dim + c] = c % 2 ? -0.0f : 0.0f;
        paged->k[14 * s->n_kv_heads * s->k_dim + c] = c % 2 ? -0.0f : 0.5f;
    }
}

Test(test_kv_store, every_byte_equals_the_reference)
{
    static const struct {
        uint32_t n_kv_heads, k_dim, v_dim, n_tokens, chunk;
    } rows[] = {{1, 1, 1, 1, 1},       {3, 64, 64, 130, 130}, {2, 20, 12, 128, 7}, {2, 33, 19, 100, 64},
                {1, 128, 256, 70, 33}, {5, 80, 48, 129, 1},   {2, 17, 31, 64, 63}};
    ThreadPool *pool = NULL;
    Error error;
    cr_assert(threads_new(3, &pool, &error), "%s", error.text);
    for (int type = 0; type < KV_N_TYPES; type++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            PagedShape shape = {(KvType)type, rows[i].n_kv_heads, rows[i].n_kv_heads, rows[i].k_dim, rows[i].v_dim};
            Paged *want = paged_new(shape, rows[i].n_tokens, i), *got = paged_new(shape, rows[i].n_tokens, i);
            forget(want);
            spoil(want);
            spoil(got);
            store_in_chunks(kernels_ref(), want, rows[i].n_tokens, (Stream){0});
            const KernelTable *table;
            for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
                forget(got);
                store_in_chunks(table, got, rows[i].chunk, (Stream){.pool = i % 2 ? pool : NULL});
                cr_assert(same_pools(got, want), "%s, %s: row %zu", table->name, kv_type_info((KvType)type)->name, i);
            }
            paged_free(want);
            paged_free(got);
        }
    threads_free(pool);
}

/* A page that its last row has not reached stays open: nothing is stored of it. */
Test(test_kv_store, only_full_pages_are_closed)
{
    const KernelTable *table = kernels_ref();
    for (size_t row = 0; table; table = kernels_cpu_row(row++)) {
        Paged *paged = paged_new((PagedShape){KV_INT8, 2, 2, 16, 16}, 127, 1);
        forget(paged);
        store_in_chunks(table, paged, 50, (Stream){0});
        size_t slot_bytes = paged->pool.layout.slot_bytes;
        for (uint32_t page = 0; page < 2; page++) {
            const char *slot = kv_slot_at(&paged->pool, paged->numbers[page], paged->heads[0].slot);
            bool is_written = false;
            for (size_t i = 0; i < slot_bytes; i++) is_written = is_written || slot[i] != (char)0xFF;
            cr_assert_eq(is_written, page == 0, "%s", table->name);
        }
        const char *spare = kv_slot_at(&paged->pool, paged->numbers[0], 0); /* of no head */
        for (size_t i = 0; i < slot_bytes; i++) cr_assert_eq(spare[i], (char)0xFF);
        paged_free(paged);
    }
}
