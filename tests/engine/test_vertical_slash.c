/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/vertical_slash.h"
#include "tests/kernels/paged.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 256, TOKENS = 256, SECTORS = TOKENS / KV_SECTOR_TOKENS };

/* Key i is the i-th unit vector, so that a query chooses its keys one by one. */
static Paged *unit_keys(KvType type)
{
    Paged *paged = paged_new((PagedShape){type, 1, 1, DIM, 16}, TOKENS, 1);
    memset(paged->k, 0, (size_t)TOKENS * DIM * sizeof *paged->k);
    memset(paged->q, 0, (size_t)TOKENS * DIM * sizeof *paged->q);
    for (uint32_t i = 0; i < TOKENS; i++) paged->k[i * DIM + i] = 1;
    KvSpan all = paged_span(paged, 0, TOKENS, 0);
    KvStoreParams store = paged_store_params(paged, &all, 1);
    cr_assert(kv_store_ref(&store));
    return paged;
}

static ScanParams scan_of(const Paged *paged, uint32_t first_pos, uint32_t n_rows, const uint32_t *units, uint32_t n,
                          float *scores)
{
    uint32_t n_heads = paged->shape.n_heads;
    return (ScanParams){.q = paged->q + (size_t)first_pos * n_heads * paged->shape.k_dim,
                        .n_rows = n_rows,
                        .row_heads = n_heads,
                        .group = n_heads / paged->shape.n_kv_heads,
                        .k_dim = paged->shape.k_dim,
                        .first_pos = first_pos,
                        .pages = &paged->pages,
                        .slot = paged->heads[0].slot,
                        .units = units,
                        .n_units = n,
                        .unit_sectors = 1,
                        .scores = scores};
}

/* In memory that held something else before. */
static void rank(const ScanParams *scan, float scale, float softcap)
{
    size_t n = vertical_slash_scratch_bytes(scan->group, scan->k_dim, (scan->first_pos + scan->n_rows) / 16 + 1);
    char *scratch = malloc(n + 64);
    cr_assert_not_null(scratch);
    memset(scratch, 0x7A, n + 64);
    vertical_slash_scan(scan, scale, softcap, scratch + 63 - ((uintptr_t)scratch + 63) % 64);
    free(scratch);
}

/* Every unit has a place of its own, from n down to 1. */
static void expect_places(const float *scores, uint32_t n)
{
    bool seen[64] = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t place = (uint32_t)scores[i];
        cr_assert(place >= 1 && place <= n && !seen[place - 1], "unit %u: %g", i, (double)scores[i]);
        seen[place - 1] = true;
    }
}

static void expect_best(const uint32_t *units, const float *scores, uint32_t n_units, const uint32_t *wanted,
                        uint32_t n)
{
    expect_places(scores, n_units);
    for (uint32_t i = 0; i < n_units; i++) {
        bool is_wanted = false;
        for (uint32_t j = 0; j < n; j++) is_wanted = is_wanted || wanted[j] == units[i];
        cr_expect_eq(scores[i] > (float)(n_units - n), is_wanted, "sector %u has place %g", units[i],
                     (double)scores[i]);
    }
}

/* Rows 192 to 255 look 80 back and at key 40: distances 80 to 95 meet sectors 6 to 10, and key 40 is in sector 2. */
Test(test_vertical_slash, a_diagonal_and_a_column)
{
    static const uint32_t units[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, wanted[] = {2, 6, 7, 8, 9, 10};
    static const KvType types[] = {KV_F32, KV_INT8};
    for (size_t i = 0; i < 2; i++) {
        Paged *paged = unit_keys(types[i]);
        float scores[11];
        for (uint32_t p = 192; p < TOKENS; p++) {
            paged->q[p * DIM + p - 80] = 12;
            paged->q[p * DIM + 40] = 11.5f;
        }
        ScanParams scan = scan_of(paged, 192, 64, units, 11, scores);
        rank(&scan, 1, 0);
        expect_best(units, scores, 11, wanted, 6);

        /* The diagonal is the heaviest; the column is the first of as many columns as it has sectors. */
        for (uint32_t u = 5; u < 10; u++) cr_expect(scores[u] > 6);
        cr_expect_eq(scores[1], 6);
        paged_free(paged);
    }
}

/* Units of two sectors: 0 1 | 2 3 | ... take the place of the better one. */
Test(test_vertical_slash, larger_units)
{
    static const uint32_t units[] = {0, 2, 4, 6, 8, 10}, wanted[] = {2, 6, 8, 10};
    Paged *paged = unit_keys(KV_F32);
    float scores[6];
    for (uint32_t p = 192; p < TOKENS; p++) {
        paged->q[p * DIM + p - 80] = 12;
        paged->q[p * DIM + 40] = 11.5f;
    }
    ScanParams scan = scan_of(paged, 192, 64, units, 6, scores);
    scan.unit_sectors = 2;
    rank(&scan, 1, 0);
    expect_best(units, scores, 6, wanted, 4);
    paged_free(paged);
}

/* A decoded row ranks sectors by the softmax that its heads have there. */
Test(test_vertical_slash, a_single_row)
{
    enum { N = 300, POSITION = 299, UNITS = 14, HEADS = 3 };
    Paged *paged = paged_new((PagedShape){KV_F32, HEADS, 1, 32, 16}, N, 7);
    uint32_t units[UNITS];
    float scores[UNITS];
    double mass[UNITS] = {0};
    for (uint32_t i = 0; i < UNITS; i++) units[i] = i + 2;
    ScanParams scan = scan_of(paged, POSITION, 1, units, UNITS, scores);
    rank(&scan, 0.3f, 5);
    for (uint32_t h = 0; h < HEADS; h++) {
        double weights[N], sum = 0;
        for (uint32_t j = 0; j < N; j++) {
            double s = 0;
            for (uint32_t c = 0; c < 32; c++)
                s += (double)paged->q[((size_t)POSITION * HEADS + h) * 32 + c] * (double)paged->k[j * 32 + c];
            sum += weights[j] = exp(5 * tanh((double)0.3f * s / 5));
        }
        for (uint32_t i = 0; i < UNITS; i++)
            for (uint32_t t = 0; t < 16; t++) mass[i] += weights[units[i] * 16 + t] / sum;
    }
    expect_places(scores, UNITS);
    for (uint32_t i = 0; i < UNITS; i++)
        for (uint32_t j = 0; j < UNITS; j++)
            if (mass[i] > mass[j] + 1e-5) cr_expect_gt(scores[i], scores[j], "sectors %u, %u", units[i], units[j]);
    paged_free(paged);
}

/* Rows that see no more than their own sector have nothing to rank; a context may begin with the block. */
Test(test_vertical_slash, short_contexts)
{
    Paged *paged = unit_keys(KV_F32);
    float score = 7;
    const uint32_t unit = 0;
    ScanParams scan = scan_of(paged, 0, 1, NULL, 0, NULL);
    rank(&scan, 1, 0); /* no unit */
    scan = scan_of(paged, 0, 17, &unit, 1, &score);
    rank(&scan, 1, 0);
    cr_expect_eq(score, 1);
    paged_free(paged);
}
