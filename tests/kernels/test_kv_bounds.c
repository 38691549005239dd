/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/kv_bounds.h"
#include "tests/kernels/paged.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void bound(const KernelTable *table, const Paged *paged, uint32_t first, uint32_t n, Stream stream)
{
    KvSpan span = paged_span(paged, 0, n, first);
    KvBoundsParams params = {&span, 1, paged->shape.n_kv_heads, paged->shape.k_dim, &paged->turns};
    cr_assert(table->kv_bounds(&params, stream));
}

/* The key as later queries read it, turned back by its position with angles in fp64. */
static void key_turned_back(const Paged *paged, uint32_t kv_head, uint32_t position, double *ret)
{
    float k[KV_MAX_DIM];
    uint32_t dim = paged->shape.k_dim, n_pairs = paged->turns.n_pairs, first = dim - 2 * n_pairs;
    const char *slot = kv_slot_at(&paged->pool, paged->numbers[position / KV_PAGE_TOKENS], paged->heads[kv_head].slot);
    kv_slot_get_key(&paged->pool.layout, slot, position % KV_PAGE_TOKENS, k);
    for (uint32_t c = 0; c < first; c++) ret[c] = k[c];
    for (uint32_t j = 0; j < n_pairs; j++) {
        double angle = -(double)position * paged->theta[j], x0 = k[first + 2 * j], x1 = k[first + 2 * j + 1];
        ret[first + 2 * j] = x0 * cos(angle) - x1 * sin(angle);
        ret[first + 2 * j + 1] = x0 * sin(angle) + x1 * cos(angle);
    }
}

/* Every key of every full page lies inside, and no bound is further off than rounding outward to 8 bits puts it. */
static void check_bounds(const Paged *paged, const char *what)
{
    float max[KV_MAX_DIM], min[KV_MAX_DIM];
    double k[KV_MAX_DIM];
    uint32_t dim = paged->shape.k_dim;
    for (uint32_t sector = 0; sector < paged->n_tokens / KV_PAGE_TOKENS * KV_PAGE_SECTORS; sector++)
        for (uint32_t h = 0; h < paged->shape.n_kv_heads; h++) {
            double highest[KV_MAX_DIM], lowest[KV_MAX_DIM];
            for (uint32_t t = 0; t < KV_SECTOR_TOKENS; t++) {
                key_turned_back(paged, h, sector * KV_SECTOR_TOKENS + t, k);
                for (uint32_t c = 0; c < dim; c++) {
                    highest[c] = t == 0 ? k[c] : fmax(highest[c], k[c]);
                    lowest[c] = t == 0 ? k[c] : fmin(lowest[c], k[c]);
                }
            }
            kv_bounds_get(&paged->pool, paged->numbers[sector / KV_PAGE_SECTORS], paged->heads[h].slot,
                          sector % KV_PAGE_SECTORS, max, min);
            for (uint32_t c = 0; c < dim; c++) {
                double slack = 2e-6 * (1 + fabs(highest[c]) + fabs(lowest[c]));
                cr_assert(max[c] >= highest[c] - slack && min[c] <= lowest[c] + slack, "%s: sector %u, channel %u",
                          what, sector, c);
                double step = 1.0 / 512 + fmax(fabs(highest[c]), fabs(lowest[c])) / 8;
                cr_assert(max[c] - highest[c] <= step + slack && lowest[c] - min[c] <= step + slack,
                          "%s: sector %u, channel %u: %g..%g for %g..%g", what, sector, c, (double)min[c],
                          (double)max[c], lowest[c], highest[c]);
            }
        }
}

Test(test_kv_bounds, keys_lie_inside)
{
    static const uint32_t dims[] = {64, 16, 20, 33, 128, 2};
    const KernelTable *table = kernels_ref();
    for (size_t row = 0; table; table = kernels_cpu_row(row++))
        for (int type = 0; type < KV_N_TYPES; type++)
            for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
                Paged *paged = paged_new((PagedShape){(KvType)type, 2, 2, dims[i], 8}, 200, i);
                bound(table, paged, 0, 200, (Stream){0});
                check_bounds(paged, kv_type_info((KvType)type)->name);
                paged_free(paged);
            }
}

static void fill_bounds(Paged *paged, int byte)
{
    for (uint32_t page = 0; page < paged->n_pages + 2; page++) {
        char *at = paged->pool.base + page * paged->pool.page_bytes + paged->pool.bounds_offset;
        memset(at, byte, paged->pool.page_bytes - paged->pool.bounds_offset);
    }
}

static void put_key(Paged *paged, uint32_t position, uint32_t kv_head, uint32_t channel, float x)
{
    float k[KV_MAX_DIM], v[KV_MAX_DIM];
    char *slot = kv_slot_at(&paged->pool, paged->numbers[position / KV_PAGE_TOKENS], paged->heads[kv_head].slot);
    kv_slot_get(&paged->pool.layout, slot, position % KV_PAGE_TOKENS, k, v);
    k[channel] = x;
    kv_slot_put(&paged->pool.layout, slot, position % KV_PAGE_TOKENS, k, v);
}

/* Chunks of any size, any row, any number of threads, over whatever a recycled page held: the reference's bytes. */
Test(test_kv_bounds, every_byte_equals_the_reference)
{
    static const uint32_t chunks[] = {1, 7, 63, 64, 65, 200, 331};
    const float odd[] = {NAN, INFINITY, -INFINITY, 500, -3e38f, 1e-30f, -1e-42f, 448, -449};
    ThreadPool *pool = NULL;
    Error error;
    cr_assert(threads_new(3, &pool, &error), "%s", error.text);
    for (int type = 0; type < KV_N_TYPES; type++) {
        PagedShape shape = {(KvType)type, 6, 3, type % 2 ? 20 : 64, 16};
        Paged *want = paged_new(shape, 331, 4), *got = paged_new(shape, 331, 4);
        for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
            put_key(want, (uint32_t)i * 33, (uint32_t)i % 3, (uint32_t)i, odd[i]);
            put_key(got, (uint32_t)i * 33, (uint32_t)i % 3, (uint32_t)i, odd[i]);
        }
        fill_bounds(want, 0x5A);
        bound(kernels_ref(), want, 0, 331, (Stream){0});
        const KernelTable *table;
        for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
            for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
                fill_bounds(got, 0x5A);
                for (uint32_t first = 0; first < 331; first += chunks[i])
                    bound(table, got, first, 331 - first < chunks[i] ? 331 - first : chunks[i],
                          (Stream){.pool = i % 2 ? pool : NULL});
                cr_assert_eq(memcmp(want->pool.base, got->pool.base, want->pool.page_bytes * want->n_pages), 0,
                             "%s, %s: chunks of %u", table->name, kv_type_info((KvType)type)->name, chunks[i]);
            }
        paged_free(want);
        paged_free(got);
    }
    threads_free(pool);
}

/* What a page held before, infinities too, leaves no trace; a NaN opens its channel's pair and no other. */
Test(test_kv_bounds, broken_keys_open_their_channels)
{
    float max[16], min[16];
    const float odd[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        Paged *paged = paged_new((PagedShape){KV_F32, 1, 1, 16, 8}, 128, 4);
        put_key(paged, 70, 0, 5, odd[i]);
        fill_bounds(paged, i % 2 ? 0x7F : 0x7E);
        bound(kernels_cpu(), paged, 0, 128, (Stream){0});
        for (uint32_t sector = 0; sector < 8; sector++) {
            kv_bounds_get(&paged->pool, paged->numbers[sector / 4], paged->heads[0].slot, sector % 4, max, min);
            const uint8_t *record =
                kv_bounds_at(&paged->pool, paged->numbers[sector / 4], paged->heads[0].slot, sector % 4);
            cr_assert_eq(record[33], sector == 4);
            for (uint32_t c = 0; c < 16; c++) {
                bool is_open = sector == 4 && c / 2 == 2;
                cr_assert_eq(isinf(max[c]) && max[c] > 0, is_open, "sector %u, channel %u", sector, c);
                cr_assert_eq(isinf(min[c]) && min[c] < 0, is_open, "sector %u, channel %u", sector, c);
            }
        }
        paged_free(paged);
    }
}

/* Beyond e4m3 an exponent of the sector's own takes over, and bounds stay outside. */
Test(test_kv_bounds, large_keys_have_an_exponent)
{
    float max[16], min[16];
    const float large[] = {448, 448.5f, 5000, -1e10f, 3e38f};
    for (size_t i = 0; i < 5; i++) {
        Paged *paged = paged_new((PagedShape){KV_F32, 1, 1, 16, 8}, 64, 4);
        put_key(paged, 0, 0, 3, large[i]); /* position 0: not turned */
        bound(kernels_cpu(), paged, 0, 64, (Stream){0});
        const uint8_t *record = kv_bounds_at(&paged->pool, paged->numbers[0], paged->heads[0].slot, 0);
        kv_bounds_get(&paged->pool, paged->numbers[0], paged->heads[0].slot, 0, max, min);
        cr_assert_eq(record[32] == 0, i == 0);
        cr_assert(large[i] > 0 ? max[3] >= large[i] && max[3] <= large[i] * 1.2f
                               : min[3] <= large[i] && min[3] >= large[i] * 1.2f);
        kv_bounds_get(&paged->pool, paged->numbers[0], paged->heads[0].slot, 1, max, min);
        for (uint32_t c = 0; c < 16; c++) cr_assert(max[c] < 2 && min[c] > -2);
        paged_free(paged);
    }
}
