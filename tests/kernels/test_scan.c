/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/select/scan.h"
#include "kernels/select/top_k.h"
#include "tests/kernels/paged.h"
#include "tests/support/compare.h"
#include "tests/support/weights.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 1100, LAST = TOKENS - 1, CLOSED_SECTORS = TOKENS / KV_PAGE_TOKENS * KV_PAGE_SECTORS, MAX_UNITS = 400 };

static void add_bounds(Paged *paged)
{
    KvSpan span = paged_span(paged, 0, paged->n_tokens, 0);
    KvBoundsParams params = {&span, 1, paged->shape.n_kv_heads, paged->shape.k_dim, &paged->turns};
    cr_assert(kv_bounds_ref(&params));
}

static Paged *new_paged(PagedShape shape, uint32_t n_tokens, uint64_t seed)
{
    Paged *paged = paged_new(shape, n_tokens, seed);
    add_bounds(paged);
    return paged;
}

/* A scan by the last rows of the sequence, of KV head 0 unless q and slot say otherwise. */
static ScanParams params_of(const Paged *paged, ScanKind kind, ScanPositions positions, uint32_t n_rows)
{
    uint32_t first_pos = paged->n_tokens - n_rows;
    return (ScanParams){.q = paged->q + (size_t)first_pos * paged->shape.n_heads * paged->shape.k_dim,
                        .n_rows = n_rows,
                        .row_heads = paged->shape.n_heads,
                        .group = paged->shape.n_heads / paged->shape.n_kv_heads,
                        .k_dim = paged->shape.k_dim,
                        .first_pos = first_pos,
                        .pages = &paged->pages,
                        .slot = paged->heads[0].slot,
                        .kind = kind,
                        .positions = positions,
                        .query_position = 769,
                        .row_stride = 1,
                        .turns = &paged->turns};
}

static void run(const KernelTable *table, ScanParams params, const uint32_t *units, uint32_t n, float *ret,
                Stream stream)
{
    uint32_t n_workers = stream.pool ? threads_count(stream.pool) : 1;
    params.units = units;
    params.n_units = n;
    params.scores = ret;
    params.scratch = malloc(scan_scratch_bytes(n_workers, params.n_rows, params.group, params.k_dim));
    cr_assert_not_null(params.scratch);
    cr_assert(table->scan(&params, stream));
    free(params.scratch);
}

/* Units of a list: every one from `begin` on, or with gaps. */
static uint32_t list_units(uint32_t begin, uint32_t end, uint32_t unit_sectors, uint32_t step, uint32_t *ret)
{
    uint32_t n = 0;
    for (uint32_t s = begin; s + unit_sectors <= end; s += unit_sectors * step) ret[n++] = s;
    return n;
}

static ThreadPool *new_pool(void)
{
    ThreadPool *pool = NULL;
    Error error;
    cr_assert(threads_new(3, &pool, &error), "%s", error.text);
    return pool;
}

Test(test_scan, rows_equal_the_reference, .timeout = 300)
{
    static const struct {
        KvType type;
        uint32_t k_dim, n_rows, stride, unit_sectors, begin, step;
    } cases[] = {{KV_F16, 64, 1, 1, 1, 4, 1},   {KV_BF16, 64, 9, 4, 4, 0, 1},  {KV_F32, 33, 3, 1, 2, 1, 3},
                 {KV_INT8, 64, 64, 4, 1, 5, 2}, {KV_INT4, 20, 2, 3, 16, 3, 1}, {KV_F8, 128, 5, 1, 3, 0, 1},
                 {KV_INT8, 2, 1, 1, 1, 7, 5},   {KV_INT4, 64, 1, 1, 1, 1, 1}};
    ThreadPool *pool = new_pool();
    char text[200];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Paged *paged = new_paged((PagedShape){cases[i].type, 6, 2, cases[i].k_dim, 8}, TOKENS, i);
        uint32_t units[MAX_UNITS];
        uint32_t n = list_units(cases[i].begin, CLOSED_SECTORS, cases[i].unit_sectors, cases[i].step, units);
        for (int kind = 0; kind < SCAN_N_KINDS; kind++)
            for (int positions = SCAN_TRUE; positions <= SCAN_CHUNK_INDEXED; positions++) {
                ScanParams params = params_of(paged, (ScanKind)kind, (ScanPositions)positions, cases[i].n_rows);
                float want[MAX_UNITS], got[MAX_UNITS];
                params.row_stride = cases[i].stride;
                params.unit_sectors = cases[i].unit_sectors;
                run(kernels_ref(), params, units, n, want, (Stream){0});
                const KernelTable *table;
                for (size_t row = 0; (table = kernels_cpu_row(row)); row++) {
                    const Tolerance close = {.abs = 3e-4, .rel = 2e-5};
                    run(table, params, units, n, got, (Stream){.pool = kind % 2 ? pool : NULL});
                    cr_assert(compare_floats(got, want, n, close, text, sizeof text),
                              "%s: case %zu, kind %d, positions %d: %s", table->name, i, kind, positions, text);
                }
            }
        paged_free(paged);
    }
    threads_free(pool);
}

/* A unit's bits depend on no other unit, nor on threads. */
Test(test_scan, a_unit_alone_scores_the_same)
{
    ThreadPool *pool = new_pool();
    Paged *paged = new_paged((PagedShape){KV_INT8, 6, 2, 64, 8}, TOKENS, 3);
    uint32_t units[MAX_UNITS], n = list_units(3, CLOSED_SECTORS, 1, 1, units);
    const KernelTable *table;
    for (size_t row = 0; (table = kernels_cpu_row(row)); row++)
        for (int kind = 0; kind < SCAN_N_KINDS; kind++) {
            ScanParams params = params_of(paged, (ScanKind)kind, kind % 2 ? SCAN_RELATIVE : SCAN_TRUE, 5);
            float all[MAX_UNITS], alone;
            params.unit_sectors = 1;
            run(table, params, units, n, all, (Stream){.pool = pool});
            for (uint32_t u = 0; u < n; u += 7) {
                run(table, params, units + u, 1, &alone, (Stream){0});
                cr_assert_eq(memcmp(&alone, &all[u], sizeof alone), 0, "%s, kind %d, unit %u", table->name, kind, u);
            }
        }
    paged_free(paged);
    threads_free(pool);
}

/* x turned by n tokens, in fp64. */
static void turn(const Paged *paged, const float *x, int64_t n, double *ret)
{
    uint32_t first = paged->shape.k_dim - 2 * paged->turns.n_pairs;
    for (uint32_t c = 0; c < first; c++) ret[c] = x[c];
    for (uint32_t j = 0; j < paged->turns.n_pairs; j++) {
        double angle = (double)n * paged->theta[j], x0 = x[first + 2 * j], x1 = x[first + 2 * j + 1];
        ret[first + 2 * j] = x0 * cos(angle) - x1 * sin(angle);
        ret[first + 2 * j + 1] = x0 * sin(angle) + x1 * cos(angle);
    }
}

static void read_key(const Paged *paged, uint32_t position, float *ret)
{
    const char *slot = kv_slot_at(&paged->pool, paged->numbers[position / KV_PAGE_TOKENS], paged->heads[0].slot);
    kv_slot_get_key(&paged->pool.layout, slot, position % KV_PAGE_TOKENS, ret);
}

/* q k for a row (by position) and a head of the first group, both turned so far. */
static double product(const Paged *paged, uint32_t row, uint32_t head, int64_t q_turn, uint32_t key, int64_t k_turn)
{
    float k[KV_MAX_DIM];
    double a[KV_MAX_DIM], b[KV_MAX_DIM], sum = 0;
    read_key(paged, key, k);
    turn(paged, paged->q + ((size_t)row * paged->shape.n_heads + head) * paged->shape.k_dim, q_turn, a);
    turn(paged, k, k_turn, b);
    for (uint32_t c = 0; c < paged->shape.k_dim; c++) sum += a[c] * b[c];
    return sum;
}

/* Chunk-indexed units of so many sectors stand at the number of the 256 tokens of the list that they are in. */
static int64_t chunk_of(uint32_t unit, uint32_t unit_sectors)
{
    return unit * unit_sectors / 16;
}

/* Never less than any q k with the keys of a sector at one position (relative and chunk-indexed), whatever the type. */
Test(test_scan, box_is_a_bound)
{
    for (int type = 0; type < KV_N_TYPES; type++) {
        Paged *paged = new_paged((PagedShape){(KvType)type, 4, 2, 64, 8}, TOKENS, 4);
        uint32_t units[MAX_UNITS], n = list_units(1, CLOSED_SECTORS, 1, 1, units);
        for (int positions = SCAN_RELATIVE; positions <= SCAN_CHUNK_INDEXED; positions++) {
            ScanParams params = params_of(paged, SCAN_BOX, (ScanPositions)positions, 1);
            float scores[MAX_UNITS];
            params.unit_sectors = 1;
            run(kernels_cpu(), params, units, n, scores, (Stream){0});
            for (uint32_t u = 0; u < n; u++)
                for (uint32_t key = units[u] * 16; key < units[u] * 16 + 16; key++)
                    for (uint32_t head = 0; head < 2; head++) {
                        int64_t chunks = chunk_of(n - 1, 1) - chunk_of(u, 1);
                        int64_t to = 769 + (positions == SCAN_CHUNK_INDEXED ? chunks : 0);
                        double exact = product(paged, LAST, head, to - LAST, key, -(int64_t)key);
                        cr_assert_geq(scores[u], exact - 1e-4, "%s: unit %u", kv_type_info((KvType)type)->name, u);
                    }
        }
        paged_free(paged);
    }
}

/* Exact: true positions, every sector at 0 with the query 769 behind, or chunks at their numbers: in fp64. */
Test(test_scan, exact_by_hand)
{
    Paged *paged = new_paged((PagedShape){KV_F32, 4, 2, 64, 8}, TOKENS, 5);
    uint32_t units[MAX_UNITS], n = list_units(2, CLOSED_SECTORS, 2, 1, units);
    for (int positions = SCAN_TRUE; positions <= SCAN_CHUNK_INDEXED; positions++) {
        ScanParams params = params_of(paged, SCAN_EXACT, (ScanPositions)positions, 1);
        float scores[MAX_UNITS];
        params.unit_sectors = 2;
        run(kernels_ref(), params, units, n, scores, (Stream){0});
        for (uint32_t u = 0; u < n; u++) {
            double highest = -INFINITY;
            for (uint32_t key = units[u] * 16; key < units[u] * 16 + 32; key++)
                for (uint32_t head = 0; head < 2; head++) {
                    int64_t start = key / 16 * 16, q_turn = 0, k_turn = 0;
                    if (positions == SCAN_RELATIVE) q_turn = 769 - LAST, k_turn = -start;
                    if (positions == SCAN_CHUNK_INDEXED)
                        q_turn = 769 + chunk_of(n - 1, 2) - LAST, k_turn = chunk_of(u, 2) - start;
                    highest = fmax(highest, product(paged, LAST, head, q_turn, key, k_turn));
                }
            cr_assert_float_eq(scores[u], highest, 1e-4, "positions %d, unit %u", positions, u);
        }
    }
    paged_free(paged);
}

/* InfiniteHiP's binary search as its code has it: midpoints, the highest score met. */
static double descend_by_code(const double *scores, uint32_t n)
{
    double highest = -32000;
    uint32_t left = 0, right = n;
    for (double size = n; size >= 1; size /= 2) {
        uint32_t center = (left + right) / 2;
        double a = scores[(left + center) / 2], b = scores[(center + right) / 2];
        if (a > b)
            right = center;
        else
            left = center;
        highest = fmax(highest, fmax(a, b));
    }
    return highest;
}

/* As its paper has it: the first of each half, the score of the key that is left. */
static double descend_by_paper(const double *scores, uint32_t n)
{
    uint32_t first = 0, count = n;
    while (count > 1) {
        uint32_t half = count / 2;
        if (scores[first + half] >= scores[first]) first += half;
        count = half;
    }
    return scores[first];
}

Test(test_scan, descent_by_hand)
{
    Paged *paged = new_paged((PagedShape){KV_F32, 4, 2, 32, 8}, TOKENS, 6);
    const uint32_t sizes[] = {1, 2, 16};
    for (size_t i = 0; i < 3; i++)
        for (int positions = SCAN_TRUE; positions <= SCAN_RELATIVE; positions++) {
            uint32_t units[MAX_UNITS], n = list_units(1, CLOSED_SECTORS, sizes[i], 1, units), n_keys = sizes[i] * 16;
            ScanParams params = params_of(paged, SCAN_DESCENT, (ScanPositions)positions, 3);
            float by_code[MAX_UNITS], by_paper[MAX_UNITS];
            params.unit_sectors = sizes[i];
            run(kernels_cpu(), params, units, n, by_code, (Stream){0});
            params.kind = SCAN_DESCENT_FIRST;
            run(kernels_cpu(), params, units, n, by_paper, (Stream){0});
            for (uint32_t u = 0; u < n; u++) {
                double code = -INFINITY, paper = -INFINITY, scores[256];
                for (uint32_t head = 0; head < 2; head++) { /* each head descends on its own, its rows together */
                    for (uint32_t t = 0; t < n_keys; t++) {
                        uint32_t key = units[u] * 16 + t;
                        scores[t] = -INFINITY;
                        for (uint32_t row = LAST - 2; row <= LAST; row++) {
                            bool is_true = positions == SCAN_TRUE;
                            double x = product(paged, row, head, is_true ? 0 : 769 - (int64_t)row, key,
                                               is_true ? 0 : -(int64_t)(key / 16 * 16));
                            scores[t] = fmax(scores[t], x);
                        }
                    }
                    code = fmax(code, descend_by_code(scores, n_keys));
                    paper = fmax(paper, descend_by_paper(scores, n_keys));
                }
                cr_assert_float_eq(by_code[u], code, 1e-4, "%u keys, unit %u: code", n_keys, u);
                cr_assert_float_eq(by_paper[u], paper, 1e-4, "%u keys, unit %u: paper", n_keys, u);
            }
        }
    paged_free(paged);
}

/* The mean of a sector's keys, and averaged rows: of rows that stand at one position. */
Test(test_scan, means_by_hand)
{
    enum { ROWS = 7, STRIDE = 3 };
    Paged *paged = new_paged((PagedShape){KV_F32, 4, 2, 32, 8}, TOKENS, 7);
    uint32_t units[MAX_UNITS], n = list_units(1, CLOSED_SECTORS, 2, 1, units);
    for (int positions = SCAN_TRUE; positions <= SCAN_RELATIVE; positions++) {
        ScanParams params = params_of(paged, SCAN_MEAN, (ScanPositions)positions, ROWS);
        float scores[MAX_UNITS];
        params.unit_sectors = 2;
        params.row_stride = STRIDE;
        run(kernels_cpu(), params, units, n, scores, (Stream){0});
        for (uint32_t u = 0; u < n; u++) {
            double highest = -INFINITY;
            for (uint32_t head = 0; head < 2; head++)
                for (uint32_t sector = units[u]; sector < units[u] + 2; sector++)
                    for (uint32_t row = TOKENS - ROWS; row < TOKENS; row += STRIDE) {
                        uint32_t end = row + STRIDE < TOKENS ? row + STRIDE : TOKENS;
                        double sum = 0;
                        for (uint32_t r = row; r < end; r++)
                            for (uint32_t key = sector * 16; key < sector * 16 + 16; key++)
                                sum += positions == SCAN_TRUE
                                           ? product(paged, r, head, 0, key, 0)
                                           : product(paged, r, head, 769 - (int64_t)r, key, -(int64_t)sector * 16);
                        highest = fmax(highest, sum / 16 / (end - row));
                    }
            cr_assert_float_eq(scores[u], highest, 1e-4, "positions %d, unit %u", positions, u);
        }
    }
    paged_free(paged);
}

/* One list a KV head: the scores of a group are the highest of its heads', each scanned alone. */
Test(test_scan, a_group_takes_the_highest_of_its_heads)
{
    Paged *paged = new_paged((PagedShape){KV_F16, 6, 2, 64, 8}, TOKENS, 8);
    uint32_t units[MAX_UNITS], n = list_units(1, CLOSED_SECTORS, 1, 1, units);
    for (int kind = 0; kind < SCAN_N_KINDS; kind++) {
        ScanParams params = params_of(paged, (ScanKind)kind, SCAN_TRUE, 2);
        float together[MAX_UNITS], alone[MAX_UNITS], highest[MAX_UNITS];
        params.unit_sectors = 1;
        run(kernels_cpu(), params, units, n, together, (Stream){0});
        params.group = 1;
        for (uint32_t u = 0; u < n; u++) highest[u] = -INFINITY;
        for (uint32_t head = 0; head < 3; head++, params.q += params.k_dim) {
            run(kernels_cpu(), params, units, n, alone, (Stream){0});
            for (uint32_t u = 0; u < n; u++) highest[u] = fmaxf(highest[u], alone[u]);
        }
        cr_assert_eq(memcmp(together, highest, n * sizeof *highest), 0, "kind %d", kind);
    }
    paged_free(paged);
}

/* Overwrites the first head's key at a position. */
static void put_key(Paged *paged, uint32_t position, const float *k)
{
    float old[KV_MAX_DIM], v[KV_MAX_DIM];
    char *slot = kv_slot_at(&paged->pool, paged->numbers[position / KV_PAGE_TOKENS], paged->heads[0].slot);
    kv_slot_get(&paged->pool.layout, slot, position % KV_PAGE_TOKENS, old, v);
    kv_slot_put(&paged->pool.layout, slot, position % KV_PAGE_TOKENS, k, v);
}

/* A key that is a large multiple of the query, at any depth and offset: who puts it on a list of an eighth? */
Test(test_scan, needles_at_every_depth)
{
    enum { DIM = 64, CASES = 64 };
    uint32_t found[SCAN_N_KINDS] = {0}, units[MAX_UNITS], scratch[MAX_UNITS], chosen[MAX_UNITS];
    for (uint32_t i = 0; i < CASES; i++) {
        Paged *paged = paged_new((PagedShape){KV_F16, 1, 1, DIM, 8}, TOKENS, 9);
        uint32_t position = 16 + i * 16 + i * 7 % 16, n = list_units(1, CLOSED_SECTORS, 1, 1, units);
        double turned[DIM];
        float needle[DIM];
        turn(paged, paged->q + (size_t)LAST * DIM, 769 - LAST, turned);
        for (uint32_t c = 0; c < DIM; c++) needle[c] = (float)turned[c];
        turn(paged, needle, position / 16 * 16, turned);
        for (uint32_t c = 0; c < DIM; c++) needle[c] = (float)turned[c];
        put_key(paged, position, needle);
        add_bounds(paged);
        for (int kind = 0; kind < SCAN_N_KINDS; kind++) {
            ScanParams params = params_of(paged, (ScanKind)kind, SCAN_RELATIVE, 1);
            float scores[MAX_UNITS];
            params.unit_sectors = 1;
            run(kernels_cpu(), params, units, n, scores, (Stream){0});
            uint32_t n_chosen = top_k(scores, n, n / 8, scratch, chosen);
            for (uint32_t j = 0; j < n_chosen; j++) found[kind] += units[chosen[j]] == position / 16;
        }
        paged_free(paged);
    }
    cr_assert_eq(found[SCAN_EXACT], CASES);
    cr_assert_eq(found[SCAN_BOX], CASES);
    cr_assert_geq(found[SCAN_MEAN], CASES * 3 / 4, "%u of %u", found[SCAN_MEAN], CASES);
    cr_assert_lt(found[SCAN_DESCENT], CASES, "descent looks at half of the keys of a sector");
    cr_assert_lt(found[SCAN_DESCENT_FIRST], CASES);
}

static uint32_t find(const uint32_t *units, uint32_t n, uint32_t sector)
{
    uint32_t i = 0;
    while (i < n && units[i] != sector) i++;
    return i;
}

/*
 * Two stages, of 4 sectors, then of 1: what is kept counts exactly, children lie in their parents, and more parents
 * never lose a child that would have been found.
 */
Test(test_scan, stages_narrow_down)
{
    enum { FINAL = 12 };
    Paged *paged = new_paged((PagedShape){KV_F16, 2, 1, 64, 8}, TOKENS, 11);
    uint32_t coarse[MAX_UNITS], children[MAX_UNITS], kept[MAX_UNITS], scratch[MAX_UNITS], last_found = 0;
    uint32_t all[MAX_UNITS], best[FINAL], n = list_units(4, CLOSED_SECTORS, 4, 1, coarse);
    uint32_t n_all = list_units(4, CLOSED_SECTORS, 1, 1, all);
    float scores[MAX_UNITS];
    ScanParams params = params_of(paged, SCAN_EXACT, SCAN_TRUE, 1);
    params.unit_sectors = 1;
    run(kernels_cpu(), params, all, n_all, scores, (Stream){0});
    cr_assert_eq(top_k(scores, n_all, FINAL, scratch, best), FINAL);
    for (uint32_t parents = 3; parents <= n; parents++) {
        params.unit_sectors = 4;
        run(kernels_cpu(), params, coarse, n, scores, (Stream){0});
        cr_assert_eq(top_k(scores, n, parents, scratch, kept), parents);
        uint32_t n_children = 0, found = 0;
        for (uint32_t i = 0; i < parents; i++)
            for (uint32_t s = 0; s < 4; s++) children[n_children++] = coarse[kept[i]] + s;
        params.unit_sectors = 1;
        run(kernels_cpu(), params, children, n_children, scores, (Stream){0});
        uint32_t n_final = top_k(scores, n_children, FINAL, scratch, kept);
        cr_assert_eq(n_final, FINAL);
        for (uint32_t i = 0; i < FINAL; i++) found += find(children, n_children, all[best[i]]) < n_children;
        for (uint32_t i = 1; i < FINAL; i++) cr_assert_lt(kept[i - 1], kept[i]);
        cr_assert_geq(found, last_found, "%u parents", parents);
        last_found = found;
    }
    cr_assert_eq(last_found, FINAL);
    paged_free(paged);
}

/* A NaN or an infinity in a key is seen in its unit's score and in no other; one in a query in all. */
Test(test_scan, what_is_broken_is_seen)
{
    const float odd[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        Paged *paged = paged_new((PagedShape){KV_F16, 2, 1, 32, 8}, TOKENS, 12);
        float k[32], scores[MAX_UNITS];
        read_key(paged, 500, k);
        k[30] = odd[i];
        put_key(paged, 500, k);
        add_bounds(paged);
        uint32_t units[MAX_UNITS], n = list_units(1, CLOSED_SECTORS, 1, 1, units);
        const KernelTable *table = kernels_ref();
        for (size_t row = 0; table; table = kernels_cpu_row(row++))
            for (int kind = 0; kind < SCAN_N_KINDS; kind++) {
                if (kind == SCAN_DESCENT || kind == SCAN_DESCENT_FIRST) continue; /* may not meet it */
                ScanParams params = params_of(paged, (ScanKind)kind, SCAN_TRUE, 1);
                params.unit_sectors = 1;
                run(table, params, units, n, scores, (Stream){0});
                for (uint32_t u = 0; u < n; u++)
                    cr_assert_eq(isnan(scores[u]), units[u] == 500 / 16, "%s, kind %d, unit %u: %g", table->name, kind,
                                 u, (double)scores[u]);
            }
        paged->q[(size_t)LAST * 2 * 32 + 3] = odd[i];
        for (int kind = 0; kind < SCAN_N_KINDS; kind++) {
            ScanParams params = params_of(paged, (ScanKind)kind, SCAN_TRUE, 1);
            params.unit_sectors = 1;
            run(kernels_cpu(), params, units, n, scores, (Stream){0});
            for (uint32_t u = 0; u < n; u++) cr_assert(isnan(scores[u]), "kind %d, unit %u", kind, u);
        }
        paged_free(paged);
    }
}

Test(test_scan, refuses_bounds_that_are_not_kept)
{
    Paged *paged = paged_new((PagedShape){KV_F16, 2, 1, 32, 8}, 100, 13);
    paged->pool.bounds_offset = 0;
    ScanParams params = params_of(paged, SCAN_BOX, SCAN_TRUE, 1);
    cr_assert_not(kernels_ref()->scan(&params, (Stream){0}));
    cr_assert_not(kernels_cpu()->scan(&params, (Stream){0}));
    params.k_dim = KV_MAX_DIM + 1;
    params.kind = SCAN_EXACT;
    cr_assert_not(kernels_ref()->scan(&params, (Stream){0}));
    cr_assert_not(kernels_cpu()->scan(&params, (Stream){0}));
    paged_free(paged);
}

Test(test_scan, bytes_read)
{
    Paged *paged = new_paged((PagedShape){KV_INT8, 2, 1, 64, 8}, TOKENS, 14);
    ScanParams params = params_of(paged, SCAN_BOX, SCAN_RELATIVE, 1);
    params.n_units = 10;
    params.unit_sectors = 4;
    cr_assert_eq(scan_read_bytes(&params), 40 * (4 * 32 + 16));
    params.positions = SCAN_TRUE; /* of 32 pairs to 2 pi 10^4 tokens those of at least 1024 */
    cr_assert_eq(scan_read_bytes(&params), 40 * (2 * 32 + 16));
    params.kind = SCAN_EXACT;
    cr_assert_eq(scan_read_bytes(&params), 40 * (64 * 16 + 64));
    params.kind = SCAN_DESCENT; /* at most */
    cr_assert_eq(scan_read_bytes(&params), 40 * (64 * 16 + 64));
    paged_free(paged);
}
