/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What selectors find on synthetic keys, as bands around a study of the same numbers with keys and statistics in fp32
 * (131072 keys of 128 channels, 4 query heads, lists of 2048 tokens; recall of the true 2048 best and softmax mass).
 * No evidence about models: nothing is to be found in the first kind. Rows whose last unit the study has at 8 tokens
 * were run again there at 16.
 */
#include "kernels/select/scan.h"
#include "kernels/select/top_k.h"
#include "kernels/table.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    N = 131072,
    DIM = 128,
    HEADS = 4,
    BUDGET = 2048,
    N_SECTORS = N / KV_SECTOR_TOKENS,
    N_PAGES = N / KV_PAGE_TOKENS
};

/* The 32-bit Mersenne twister, and normal numbers by the polar method, in fp32. */
typedef struct Normals {
    uint32_t state[624], next;
    float saved;
    bool has_saved;
} Normals;

static void seed_normals(Normals *normals, uint32_t seed)
{
    *normals = (Normals){.state = {seed}, .next = 624};
    for (uint32_t i = 1; i < 624; i++) {
        uint32_t last = normals->state[i - 1];
        normals->state[i] = 1812433253u * (last ^ last >> 30) + i;
    }
}

static uint32_t draw(Normals *normals)
{
    uint32_t *s = normals->state;
    if (normals->next == 624) {
        for (uint32_t i = 0; i < 624; i++) {
            uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % 624] & 0x7FFFFFFFu);
            s[i] = s[(i + 397) % 624] ^ y >> 1 ^ (y & 1 ? 0x9908B0DFu : 0);
        }
        normals->next = 0;
    }
    uint32_t y = s[normals->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9D2C5680u;
    y ^= y << 15 & 0xEFC60000u;
    return y ^ y >> 18;
}

static float draw_uniform(Normals *normals)
{
    float u = (float)draw(normals) / 4294967296.0f;
    return (float)(2.0 * (u < 1 ? u : 0x1.fffffep-1f) - 1.0);
}

static float draw_normal(Normals *normals)
{
    if (normals->has_saved) {
        normals->has_saved = false;
        return normals->saved;
    }
    float x, y, square;
    do {
        x = draw_uniform(normals);
        y = draw_uniform(normals);
        square = x * x + y * y;
    } while (square > 1 || square == 0);
    float factor = sqrtf(-2 * logf(square) / square);
    normals->saved = x * factor;
    normals->has_saved = true;
    return y * factor;
}

typedef struct Study {
    Normals normals;
    float *k; /* [N, DIM] */
    float q[HEADS * DIM];
    float *scores;  /* [HEADS, N], of the softmax */
    bool *is_best;  /* [N] */
    float *highest; /* [N] over heads */
    KvPool pool;
    KvPages pages;
    uint32_t numbers[N_PAGES];
    RopeTurns turns; /* none */
    void *scratch;
    uint32_t words[N], chosen[N];
} Study;

static void make_queries(Study *study)
{
    for (int c = 0; c < HEADS * DIM; c++) study->q[c] = draw_normal(&study->normals);
}

static void make_independent(Study *study)
{
    for (size_t i = 0; i < (size_t)N * DIM; i++) study->k[i] = draw_normal(&study->normals);
    make_queries(study);
}

static void make_smooth(Study *study)
{
    float x[DIM], keep = expf(-1.f / 32), add = sqrtf(1 - keep * keep);
    for (int c = 0; c < DIM; c++) x[c] = draw_normal(&study->normals);
    for (int t = 0; t < N; t++)
        for (int c = 0; c < DIM; c++) {
            x[c] = keep * x[c] + add * draw_normal(&study->normals);
            study->k[(size_t)t * DIM + c] = 0.8f * x[c] + 0.6f * draw_normal(&study->normals);
        }
    make_queries(study);
}

static void make_topics(Study *study)
{
    enum { TOPICS = 512, ASKED = 7 };
    static float topics[TOPICS * DIM];
    for (int i = 0; i < TOPICS * DIM; i++) topics[i] = draw_normal(&study->normals);
    for (uint32_t t = 0; t < N;) {
        uint32_t length = 16 + draw(&study->normals) % 81, topic = draw(&study->normals) % TOPICS;
        for (uint32_t end = t + length; t < end && t < N; t++)
            for (int c = 0; c < DIM; c++)
                study->k[(size_t)t * DIM + c] = topics[topic * DIM + c] + 0.7f * draw_normal(&study->normals);
    }
    for (int i = 0; i < HEADS * DIM; i++)
        study->q[i] = 0.6f * topics[ASKED * DIM + i % DIM] + 0.5f * draw_normal(&study->normals);
}

static void make_needles(Study *study)
{
    make_independent(study);
    for (int n = 0; n < 32; n++) {
        float *k = study->k + (size_t)(draw(&study->normals) % N) * DIM;
        for (int c = 0; c < DIM; c++) k[c] = 0.5f * k[c] + study->q[n % HEADS * DIM + c];
    }
}

static void *must(void *p)
{
    cr_assert_not_null(p);
    return p;
}

static void store(Study *study)
{
    static float v[N];
    KvHead head = {0, 0};
    AttnPlan plan = {.recent = PLAN_ALL};
    KvSpan span = {&study->pages, &head, &plan, 0, N, 0, false};
    KvStoreParams params = {study->k, v, &span, 1, 1, DIM, 1};
    KvBoundsParams bounds = {&span, 1, 1, DIM, &study->turns};
    cr_assert(kernels_cpu()->kv_store(&params, (Stream){0}));
    cr_assert(kernels_cpu()->kv_bounds(&bounds, (Stream){0}));
}

static void score(Study *study)
{
    for (int t = 0; t < N; t++) {
        study->highest[t] = -INFINITY;
        for (int g = 0; g < HEADS; g++) {
            float sum = 0;
            for (int c = 0; c < DIM; c++) sum += study->q[g * DIM + c] * study->k[(size_t)t * DIM + c];
            study->scores[(size_t)g * N + t] = sum * 2 / sqrtf(DIM);
            study->highest[t] = fmaxf(study->highest[t], sum);
        }
    }
    memset(study->is_best, 0, N * sizeof *study->is_best);
    uint32_t n = top_k(study->highest, N, BUDGET, study->words, study->chosen);
    for (uint32_t i = 0; i < n; i++) study->is_best[study->chosen[i]] = true;
}

static Study *new_study(void)
{
    Study *study = must(calloc(1, sizeof *study));
    seed_normals(&study->normals, 1);
    study->k = must(malloc((size_t)N * DIM * sizeof(float)));
    study->scores = must(malloc((size_t)N * HEADS * sizeof(float)));
    study->highest = must(malloc(N * sizeof(float)));
    study->is_best = must(malloc(N * sizeof(bool)));
    study->pool.layout = kv_layout(KV_F32, DIM, 1);
    study->pool.bounds_offset = study->pool.layout.slot_bytes;
    study->pool.page_bytes = (study->pool.layout.slot_bytes + kv_bounds_bytes(DIM) + 63) / 64 * 64;
    study->pool.base = must(malloc(study->pool.page_bytes * N_PAGES));
    for (uint32_t i = 0; i < N_PAGES; i++) study->numbers[i] = i;
    study->pages = (KvPages){.pool = &study->pool, .pages = study->numbers};
    study->scratch = must(malloc(scan_scratch_bytes(1, 1, HEADS, DIM)));
    return study;
}

static void free_study(Study *study)
{
    free(study->k);
    free(study->scores);
    free(study->highest);
    free(study->is_best);
    free(study->pool.base);
    free(study->scratch);
    free(study);
}

typedef struct Stage {
    ScanKind kind;
    uint32_t unit_sectors, keep_tokens;
} Stage;

typedef struct Selector {
    const char *name;
    Stage stages[3];
    double recall[4], mass[4]; /* of each kind of keys */
} Selector;

/* Narrows units down; returns how many sectors are left in `units`. */
static uint32_t run_stages(Study *study, const Selector *selector, uint32_t *units)
{
    static float scores[N_SECTORS];
    static uint32_t split[N_SECTORS];
    uint32_t n_sectors = N_SECTORS;
    for (uint32_t i = 0; i < N_SECTORS; i++) units[i] = i;
    for (const Stage *stage = selector->stages; stage < selector->stages + 3 && stage->unit_sectors; stage++) {
        uint32_t n = 0, unit = stage->unit_sectors;
        for (uint32_t i = 0; i < n_sectors; i += unit) split[n++] = units[i];
        ScanParams params = {.q = study->q,
                             .n_rows = 1,
                             .row_heads = HEADS,
                             .group = HEADS,
                             .k_dim = DIM,
                             .first_pos = N,
                             .pages = &study->pages,
                             .kind = stage->kind,
                             .row_stride = 1,
                             .units = split,
                             .n_units = n,
                             .unit_sectors = unit,
                             .turns = &study->turns,
                             .scores = scores,
                             .scratch = study->scratch};
        cr_assert(kernels_cpu()->scan(&params, (Stream){0}));
        n = top_k(scores, n, stage->keep_tokens / KV_SECTOR_TOKENS / unit, study->words, study->chosen);
        n_sectors = n * unit;
        for (uint32_t i = 0; i < n_sectors; i++) units[i] = split[study->chosen[i / unit]] + i % unit;
    }
    return n_sectors;
}

static double mass_of(const Study *study, const uint32_t *units, uint32_t n_sectors)
{
    double mass = 0;
    for (int g = 0; g < HEADS; g++) {
        const float *s = study->scores + (size_t)g * N;
        double all = 0, selected = 0, max = -INFINITY;
        for (int t = 0; t < N; t++) max = fmax(max, s[t]);
        for (int t = 0; t < N; t++) all += exp(s[t] - max);
        for (uint32_t i = 0; i < n_sectors * KV_SECTOR_TOKENS; i++)
            selected += exp(s[units[i / KV_SECTOR_TOKENS] * KV_SECTOR_TOKENS + i % KV_SECTOR_TOKENS] - max);
        mass += selected / all / HEADS;
    }
    return mass;
}

static const Selector selectors[] = {
    {"box, pages", {{SCAN_BOX, 4, 2048}}, {.021, .135, .175, .020}, {.018, .059, .965, .143}},
    {"box, sectors", {{SCAN_BOX, 1, 2048}}, {.022, .225, .154, .024}, {.020, .096, .965, .305}},
    {"mean", {{SCAN_MEAN, 1, 2048}}, {.035, .286, .442, .044}, {.025, .128, .967, .589}},
    {"descent 256, 32, 16",
     {{SCAN_DESCENT, 16, 32768}, {SCAN_DESCENT, 2, 8192}, {SCAN_DESCENT, 1, 2048}},
     {.081, .216, .367, .082},
     {.036, .101, .481, .115}},
    {"descent by the first token 256, 32, 16",
     {{SCAN_DESCENT_FIRST, 16, 32768}, {SCAN_DESCENT_FIRST, 2, 8192}, {SCAN_DESCENT_FIRST, 1, 2048}},
     {.080, .163, .373, .075},
     {.035, .074, .852, .043}},
    {"box, then exact",
     {{SCAN_BOX, 1, 8192}, {SCAN_EXACT, 1, 2048}},
     {.077, .249, .222, .074},
     {.034, .120, .979, .500}},
    {"exact, sectors", {{SCAN_EXACT, 1, 2048}}, {.081, .227, .406, .076}, {.094, .125, .981, 1}},
    {"exact, pages", {{SCAN_EXACT, 4, 2048}}, {.026, .103, .333, .028}, {.055, .073, .980, 1}},
};

Test(test_scan_recall, selectors_find_what_they_did, .timeout = 300)
{
    static void (*const makers[])(Study *) = {make_independent, make_smooth, make_topics, make_needles};
    static uint32_t units[N_SECTORS];
    Study *study = new_study();
    for (int kind = 0; kind < 4; kind++) {
        makers[kind](study);
        store(study);
        score(study);
        for (size_t i = 0; i < sizeof selectors / sizeof *selectors; i++) {
            uint32_t n = run_stages(study, &selectors[i], units), found = 0;
            cr_assert_eq(n * KV_SECTOR_TOKENS, BUDGET);
            for (uint32_t j = 0; j < BUDGET; j++)
                found += study->is_best[units[j / KV_SECTOR_TOKENS] * KV_SECTOR_TOKENS + j % KV_SECTOR_TOKENS];
            double recall = (double)found / BUDGET, mass = mass_of(study, units, n);
            cr_expect_float_eq(recall, selectors[i].recall[kind], 0.02, "%s, keys %d: recall %.3f, not %.3f",
                               selectors[i].name, kind, recall, selectors[i].recall[kind]);
            cr_expect_float_eq(mass, selectors[i].mass[kind], 0.02, "%s, keys %d: mass %.3f, not %.3f",
                               selectors[i].name, kind, mass, selectors[i].mass[kind]);
        }
    }
    free_study(study);
}
