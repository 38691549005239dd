/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: gpu_select [bench]
 * CUDA selection and key bounds against their twins on device 0; bench: what selection takes instead.
 */
#include "tests/gpu/bounds_check.h"
#include "tests/gpu/select_bench.h"
#include "tests/gpu/select_rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How near to the last chosen page's score another may be taken for its: fp32 sums of up to 256 products. */
static const double NEAR = 1e-4;

static unsigned n_swapped; /* pages that are near enough, over all tests */

static void *must(void *p)
{
    if (!p) exit(1);
    return p;
}

/* Scores of all pages of a head's job, by the twin. */
static void score_pages(const Rig *rig, uint32_t s, uint32_t h, float *ret_scores)
{
    const RigShape *shape = &rig->shape;
    const SelectJob *job = &shape->seqs[s].job;
    uint32_t *units = must(malloc((job->n_pages + 1) * sizeof *units));
    void *scratch = must(malloc(scan_scratch_bytes(1, 1, shape->group, shape->dim)));
    for (uint32_t i = 0; i < job->n_pages; i++) units[i] = (job->first_page + i) * KV_PAGE_SECTORS;
    ScanParams scan = {.q = rig->q + ((size_t)s * shape->n_kv_heads + h) * shape->group * shape->dim,
                       .n_rows = 1,
                       .row_heads = shape->group * shape->n_kv_heads,
                       .group = shape->group,
                       .k_dim = shape->dim,
                       .first_pos = shape->seqs[s].n_tokens,
                       .pages = &rig->pages[s],
                       .slot = rig->heads[h].slot,
                       .kind = SCAN_BOX,
                       .positions = SCAN_TRUE,
                       .row_stride = 1,
                       .units = units,
                       .n_units = job->n_pages,
                       .unit_sectors = KV_PAGE_SECTORS,
                       .turns = &rig->turns,
                       .scores = ret_scores,
                       .scratch = scratch};
    if (!scan_ref(&scan)) must(NULL);
    free(units);
    free(scratch);
}

/* Is a list that lacks this page, or has it against the twin, as good? */
static bool is_near(float score, float cut)
{
    if (isnan(score) || isnan(cut)) return isnan(score) && isnan(cut);
    return fabs((double)score - (double)cut) <= NEAR * (1 + fabs((double)cut));
}

static float cut_of(const SelectJob *job, const uint32_t *list, const float *scores)
{
    float cut = NAN;
    for (uint32_t i = 0; i < job->n_keep; i++) {
        float score = scores[list[i * KV_PAGE_SECTORS] / KV_PAGE_SECTORS - job->first_page];
        if (isnan(cut) || score < cut) cut = score;
    }
    return cut;
}

static bool has_page(const uint32_t *list, uint32_t n_keep, uint32_t page)
{
    for (uint32_t i = 0; i < n_keep; i++)
        if (list[i * KV_PAGE_SECTORS] / KV_PAGE_SECTORS == page) return true;
    return false;
}

/* One head's list, whole pages in order, and nothing behind it. */
static bool check_form(const Rig *rig, const SelectJob *job, const uint32_t *list, bool is_written)
{
    uint32_t n = is_written ? job->n_keep : 0, least = job->first_page;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t page = list[i * KV_PAGE_SECTORS] / KV_PAGE_SECTORS;
        if (page < least || page >= job->first_page + job->n_pages) return false;
        for (uint32_t k = 0; k < KV_PAGE_SECTORS; k++)
            if (list[i * KV_PAGE_SECTORS + k] != page * KV_PAGE_SECTORS + k) return false;
        least = page + 1;
    }
    for (uint32_t i = n * KV_PAGE_SECTORS; i < rig->n_lists; i++)
        if (list[i] != RIG_GUARD) return false;
    return true;
}

static bool check_head(const Rig *rig, uint32_t s, uint32_t h, const uint32_t *got, const uint32_t *want)
{
    const SelectJob *job = &rig->shape.seqs[s].job;
    bool is_written = job->n_keep && rig->plans[s][h].list;
    if (!check_form(rig, job, got, is_written)) return false;
    if (!is_written || !memcmp(got, want, job->n_keep * KV_PAGE_SECTORS * sizeof *got)) return true;
    float *scores = must(malloc(job->n_pages * sizeof *scores)), cut;
    bool good = true;
    score_pages(rig, s, h, scores);
    cut = cut_of(job, want, scores);
    for (uint32_t i = 0; i < job->n_pages && good; i++) {
        uint32_t page = job->first_page + i;
        bool is_chosen = has_page(got, job->n_keep, page), should_be = has_page(want, job->n_keep, page);
        if (is_chosen == should_be) continue;
        good = is_near(scores[i], cut) && !isnan(scores[i]);
        n_swapped++;
        if (!good) printf("page %u scores %g, the cut is at %g\n", page, (double)scores[i], (double)cut);
    }
    free(scores);
    return good;
}

static void test_rig(const KernelTable *table, const RigShape *shape, const char *name)
{
    Rig *rig = rig_new(shape, shape->dim * 7 + shape->group);
    size_t each = rig->n_lists, n = (size_t)shape->n_seqs * shape->n_kv_heads * each;
    uint32_t *got = must(malloc(n * sizeof *got));
    const SelectParams params = rig_params(rig);
    device_report(select_ref(&params), "%s: the twin", name);
    for (int is_raw = 0; is_raw < 2; is_raw++) {
        uint32_t n_bad = 0, first_bad = UINT32_MAX;
        bool ran = rig_run(rig, table, is_raw, got);
        for (uint32_t i = 0; i < shape->n_seqs * shape->n_kv_heads; i++)
            if (!check_head(rig, i / shape->n_kv_heads, i % shape->n_kv_heads, got + i * each, rig->lists + i * each)) {
                n_bad++;
                if (i < first_bad) first_bad = i;
            }
        device_report(ran && n_bad == 0, "%s, %s queries, %u channels, group %u: %u lists differ, the first of %u",
                      name, is_raw ? "raw" : "turned", shape->dim, shape->group, n_bad, first_bad);
    }
    free(got);
    rig_free(rig);
}

/* One page; all of some; one more than are kept; one of many; nothing; a start within a segment; long ones. */
static const RigSeq cruel[] = {
    {500, {1, 1, 1}},      {700, {0, 7, 7}},       {900, {1, 9, 8}},    {5000, {3, 70, 1}},     {300, {0, 4, 0}},
    {40000, {1, 600, 59}}, {9000, {5, 100, 99}},   {700, {2, 3, 2}},    {16500, {7, 240, 120}}, {4200, {1, 60, 60}},
    {20000, {0, 300, 59}}, {20100, {1, 301, 300}}, {4200, {1, 60, 59}},
};
enum { N_CRUEL = sizeof cruel / sizeof *cruel };

static void test_shapes(const KernelTable *table)
{
    static const uint32_t dims[] = {64, 96, 128, 256}, groups[] = {1, 3, 4, 8};
    for (uint32_t d = 0; d < 4; d++)
        for (uint32_t g = 0; g < 4; g++) {
            RigShape shape = {.dim = dims[d],
                              .group = groups[g],
                              .n_kv_heads = 1 + (d + g) % 3,
                              .n_pairs = g == 1 ? dims[d] / 4 : dims[d] / 2,
                              .seqs = cruel + g % 2,
                              .n_seqs = N_CRUEL - g % 2,
                              .half_streams = (d + g) % 2};
            test_rig(table, &shape, "cruel shapes");
            shape.n_records = 3 + d;
            shape.is_still = true;
            test_rig(table, &shape, "ties");
            shape.n_records = 1;
            test_rig(table, &shape, "all equal");
            shape.n_records = 0;
            shape.is_still = false;
            shape.is_wild = true;
            test_rig(table, &shape, "wild");
        }
}

/* Batches of one to forty rows of mixed lengths, some due, as steps have them. */
static void test_batches(const KernelTable *table)
{
    static RigSeq seqs[RIG_MAX_SEQS];
    for (uint32_t n = 1; n <= RIG_MAX_SEQS; n += n < 4 ? 1 : 9) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t tokens = 4200 + (i * 7919 + n * 104729) % 60000, n_pages = (tokens - 320) / KV_PAGE_TOKENS;
            seqs[i] = (RigSeq){tokens, {1, n_pages, n < 4 || (i + n) % 4 == 0 ? 59 : 0}};
        }
        RigShape shape = {
            .dim = 128, .group = 4, .n_kv_heads = 8, .n_pairs = 64, .seqs = seqs, .n_seqs = n, .half_streams = n % 2};
        test_rig(table, &shape, "batches");
    }
}

/* As many pages as a million tokens have; and more than a block has room for keys of (kMostKept), one of all by one. */
static void test_long(const KernelTable *table)
{
    enum { MILLION = 1 << 20, MOST = RIG_MAX_TOKENS };
    static const RigSeq million[] = {{MILLION - 64, {1, (MILLION - 384) / KV_PAGE_TOKENS, 59}}};
    static const RigSeq most[] = {{MOST - 64, {1, (MOST - 384) / KV_PAGE_TOKENS, 59}},
                                  {MILLION + 128, {0, (1 << 14) + 1, 1 << 14}}};
    RigShape shape = {.dim = 128, .group = 4, .n_kv_heads = 2, .n_pairs = 64, .seqs = million, .n_seqs = 1};
    test_rig(table, &shape, "a million tokens");
    shape.n_records = 5;
    shape.is_still = true;
    test_rig(table, &shape, "a million tokens, ties");
    shape = (RigShape){.dim = 64, .group = 3, .n_kv_heads = 1, .n_pairs = 32, .seqs = most, .n_seqs = 2};
    test_rig(table, &shape, "more pages than fit");
    shape.n_records = 5;
    shape.is_still = true;
    test_rig(table, &shape, "more pages than fit, ties");
}

int main(int argc, char **argv)
{
    Error error = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    const KernelTable *table = kernels_cuda(0, &error);
    if (!table) {
        printf("SKIPPED, no device: %s\n0 passed, 0 failed\n", error.text);
        return 77; /* what Meson calls a skip */
    }
    if (argc > 1 && !strcmp(argv[1], "bench")) {
        select_bench(table);
        return 0;
    }
    check_bounds(table);
    test_shapes(table);
    test_batches(table);
    test_long(table);
    printf("%u pages as near to the cut as another\n", n_swapped);
    return device_finish();
}
