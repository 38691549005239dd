/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/paper.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LISTS = 8 };

static Error error;
static Arena arena;

static void open_arena(void)
{
    arena_init(&arena, 1 << 16, SIZE_MAX);
}

static void close_arena(void)
{
    arena_done(&arena);
}

TestSuite(test_paper, .init = open_arena, .fini = close_arena);

/* One row and head whose query is 1, on keys of one channel: their scores. */
static PaperInput line_of(const float *scores, uint32_t n)
{
    static const float one = 1;
    return (PaperInput){
        .q = &one, .k = scores, .n_rows = 1, .n_heads = 1, .n_kv_heads = 1, .n_keys = n, .dim = 1, .first_pos = n - 1};
}

static PaperMethod one_stage(ScanKind scan, uint32_t chunk, uint32_t keep)
{
    return (PaperMethod){.stages = {{scan, chunk, .keep_tokens = keep}}, .n_stages = 1};
}

static void select_all(const PaperMethod *method, const PaperInput *input, PaperList *lists)
{
    cr_assert_leq(paper_n_lists(method, input), MAX_LISTS);
    cr_assert(paper_select(method, input, &arena, lists, &error), "%s", error.text);
}

static void expect_tokens(const PaperList *list, const uint32_t *wanted, uint32_t n)
{
    cr_expect_eq(list->n, n, "%u tokens, not %u", list->n, n);
    for (uint32_t i = 0; i < n && i < list->n; i++)
        cr_expect_eq(list->tokens[i], wanted[i], "token %u is %u, not %u", i, list->tokens[i], wanted[i]);
}

#define EXPECT_LIST(method, input, ...)                                                                                \
    do {                                                                                                               \
        PaperList all_lists[MAX_LISTS];                                                                                \
        const uint32_t listed[] = {__VA_ARGS__};                                                                       \
        select_all(method, input, all_lists);                                                                          \
        expect_tokens(&all_lists[0], listed, sizeof listed / sizeof *listed);                                          \
    } while (0)

/*
 * Of the first chunk, first tokens find 5 (0 3 | 3 4 | 4 5) and never see the 9; midpoints 5 too (1 4 | 0 5 | 4 5). Of
 * the second, midpoints meet 8, then go to 4 and remember the 8 (0 8 | 4 2 | 0 4); first tokens end at it (0 0 | 0 8 |
 * 8 2). The third is 6 everywhere.
 */
static const float three_chunks[] = {0, 9, 1, 2, 3, 0, 4, 5, 0, 0, 0, 0, 0, 4, 8, 2, 6, 6, 6, 6, 6, 6, 6, 6};

Test(test_paper, representatives)
{
    const PaperInput input = line_of(three_chunks, 24);
    PaperMethod method = one_stage(SCAN_DESCENT_FIRST, 8, 16);
    EXPECT_LIST(&method, &input, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23);
    method.stages[0].keep_tokens = 8;
    EXPECT_LIST(&method, &input, 8, 9, 10, 11, 12, 13, 14, 15);
    method.stages[0].scan = SCAN_DESCENT;
    EXPECT_LIST(&method, &input, 8, 9, 10, 11, 12, 13, 14, 15);
    method.stages[0].scan = SCAN_EXACT;
    EXPECT_LIST(&method, &input, 0, 1, 2, 3, 4, 5, 6, 7);
    method.stages[0].scan = SCAN_BOX;
    EXPECT_LIST(&method, &input, 0, 1, 2, 3, 4, 5, 6, 7);
    method.stages[0].scan = SCAN_CENTER; /* 4.5, 4, 6 */
    EXPECT_LIST(&method, &input, 16, 17, 18, 19, 20, 21, 22, 23);
    method.stages[0].scan = SCAN_MEAN; /* 3, 1.75, 6; in halves, 3 3, 0 3.5, 6 6 */
    EXPECT_LIST(&method, &input, 16, 17, 18, 19, 20, 21, 22, 23);
    method.stages[0].keep_tokens = 16;
    EXPECT_LIST(&method, &input, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    method.stages[0].part_tokens = 4;
    EXPECT_LIST(&method, &input, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23);
}

/* 9 is kept only while a chunk of its own holds it: 8 to 4 to 1, exactly and by first tokens. */
Test(test_paper, stages)
{
    const PaperInput input = line_of(three_chunks, 24);
    PaperMethod method = {.stages = {{SCAN_EXACT, 8, .keep_tokens = 16},
                                     {SCAN_EXACT, 4, .keep_tokens = 8},
                                     {SCAN_EXACT, 1, .keep_tokens = 3}},
                          .n_stages = 3};
    EXPECT_LIST(&method, &input, 1, 13, 14); /* chunks 0 and 8; 0 to 3 and 12 to 15; 9, 8 and 4 */
    method.stages[0] = (PaperStage){SCAN_DESCENT_FIRST, 8, .keep_tokens = 16};
    EXPECT_LIST(&method, &input, 14, 16, 17); /* chunks 8 and 16; 12 to 15 and, of equals, 16 to 19; 8, 6 and 6 */
}

Test(test_paper, ranges)
{
    float keys[60] = {0};
    PaperInput input = line_of(keys, 60);
    PaperMethod method = one_stage(SCAN_EXACT, 8, 1000);
    PaperList list;
    input.first_pos = 40;
    method.sink = 4;
    method.recent = 16;
    select_all(&method, &input, &list); /* keys 4 to 24: 25 to 40 are the recent ones of row 40 */
    cr_assert_eq(list.n, 21);
    for (uint32_t i = 0; i < 21; i++) cr_expect_eq(list.tokens[i], 4 + i);

    /* The released code scans chunks that begin up to 32: 4, 12, 20 and 28; the end is in multiples of 8. */
    method.is_released = true;
    select_all(&method, &input, &list);
    cr_assert_eq(list.n, 32);
    for (uint32_t i = 0; i < 32; i++) cr_expect_eq(list.tokens[i], i);

    method.recent = 41;
    method.is_released = false;
    select_all(&method, &input, &list);
    cr_expect_eq(list.n, 0, "all keys are recent");
    method.recent = 37;
    select_all(&method, &input, &list);
    cr_expect(list.n == 0, "all keys but the sink are");
    method.recent = 36;
    select_all(&method, &input, &list);
    cr_expect(list.n == 1 && list.tokens[0] == 4);
}

/* Two KV heads of two query heads each; keys of each KV head have their own favourite, and so has each query head. */
Test(test_paper, scopes)
{
    float q[4][2] = {{1, 0}, {0, 1}, {1, 0}, {0, 1}}, k[2][8][2] = {0};
    k[0][2][0] = 5;
    k[0][5][1] = 4;
    k[1][1][0] = 3;
    k[1][7][1] = 2;
    PaperInput input = {
        .q = *q, .k = **k, .n_rows = 1, .n_heads = 4, .n_kv_heads = 2, .n_keys = 8, .dim = 2, .first_pos = 7};
    PaperMethod method = one_stage(SCAN_EXACT, 1, 1);
    PaperList lists[MAX_LISTS];
    method.scope = PAPER_HEAD;
    static const uint32_t own[] = {2, 5, 1, 7};
    cr_assert_eq(paper_n_lists(&method, &input), 4);
    select_all(&method, &input, lists);
    for (uint32_t i = 0; i < 4; i++) expect_tokens(&lists[i], &own[i], 1);
    method.scope = PAPER_KV_HEAD;
    cr_assert_eq(paper_n_lists(&method, &input), 2);
    select_all(&method, &input, lists);
    expect_tokens(&lists[0], &own[0], 1);
    expect_tokens(&lists[1], &own[2], 1);
    method.scope = PAPER_LAYER;
    method.stages[0].keep_tokens = 3;
    cr_assert_eq(paper_n_lists(&method, &input), 1);
    EXPECT_LIST(&method, &input, 1, 2, 5);
}

/* Rows are one query block: the best of any; four of them averaged are another query. */
Test(test_paper, rows_of_a_block)
{
    float q[4] = {1, -1, -1, -1}, keys[12] = {0, 0, 3, 0, -2, 0, 0, 0, 0, 0, 0, 0};
    PaperInput input = line_of(keys, 12);
    PaperMethod method = one_stage(SCAN_EXACT, 1, 1);
    input.q = q;
    input.n_rows = 4;
    input.first_pos = 8;
    EXPECT_LIST(&method, &input, 2);
    method.stages[0].row_stride = 4;
    EXPECT_LIST(&method, &input, 4);
    method.stages[0].row_stride = 3; /* a mean of -1/3, and a row of -1 */
    EXPECT_LIST(&method, &input, 4);
}

/* Keys and queries that are all the same but for their rotation: scores are cosines of distances. */
static PaperInput turning(const double *theta, uint32_t n, float *q, float *k)
{
    for (uint32_t i = 0; i < n; i++) {
        k[2 * i] = (float)cos(i * *theta);
        k[2 * i + 1] = (float)sin(i * *theta);
    }
    memcpy(q, k + 2 * ((size_t)n - 1), 2 * sizeof *q);
    return (PaperInput){.q = q,
                        .k = k,
                        .n_rows = 1,
                        .n_heads = 1,
                        .n_kv_heads = 1,
                        .n_keys = n,
                        .dim = 2,
                        .first_pos = n - 1,
                        .theta = theta,
                        .n_pairs = 1};
}

Test(test_paper, positions_of_scans)
{
    enum { N = 65 };
    static const double theta = 0.02;
    float q[2], k[2 * N];
    const PaperInput input = turning(&theta, N, q, k);
    PaperMethod method = one_stage(SCAN_EXACT, 8, 8);
    method.recent = 1;
    EXPECT_LIST(&method, &input, 56, 57, 58, 59, 60, 61, 62, 63); /* the nearest are the most alike; 64 is recent */
    method.positions = SCAN_RELATIVE;
    method.stages[0].keep_tokens = 16;
    PaperList list;
    select_all(&method, &input, &list);
    cr_assert_eq(list.n, 16, "which of them is by rounding alone");
    /* Seven of the eight chunks turn away from a query 8 + 1 behind the first: the last stands 2 from it. */
    method.positions = SCAN_CHUNK_INDEXED;
    method.stages[0].keep_tokens = 8;
    EXPECT_LIST(&method, &input, 56, 57, 58, 59, 60, 61, 62, 63);
}

/* Relative: the right probe is one position nearer than the left, 1024 + 1 and 1024 from the query. */
Test(test_paper, branches_of_relative_scans)
{
    enum { N = 1100 };
    static const double theta = 2 * M_PI / 2050; /* cos is -1 at 1025, and more than that at 1024 */
    float *k = malloc(2 * N * sizeof *k), q[2];
    PaperInput input = turning(&theta, N, q, k);
    PaperMethod method = one_stage(SCAN_DESCENT_FIRST, 2, 2);
    PaperList list;
    method.recent = 1024;
    method.positions = SCAN_RELATIVE;
    for (uint32_t i = 0; i < 2 * N; i++) k[i] *= 1000; /* 1000 (cos 1024 t - cos 1025 t) is far from rounding */
    k[2 * 20] *= 0.999f;                               /* left of its chunk: the right one wins, and stands as it did */
    k[2 * 20 + 1] *= 0.999f;
    k[2 * 31] *= 0.999f; /* right of its chunk: wins with a higher score, as it is below zero */
    k[2 * 31 + 1] *= 0.999f;
    select_all(&method, &input, &list);
    expect_tokens(&list, (const uint32_t[]){30, 31}, 2);
    free(k);
}

static uint32_t random_state = 1;

static float random_normal(void)
{
    float u[2];
    for (int i = 0; i < 2; i++) {
        random_state ^= random_state << 13;
        random_state ^= random_state >> 17;
        random_state ^= random_state << 5;
        u[i] = ((float)(random_state >> 8) + 0.5f) / (1 << 24);
    }
    return sqrtf(-2 * logf(u[0])) * cosf((float)(2 * M_PI) * u[1]);
}

static float *random_floats(size_t n)
{
    float *x = malloc(n * sizeof *x);
    cr_assert_not_null(x);
    for (size_t i = 0; i < n; i++) x[i] = random_normal();
    return x;
}

/* LServe as plain loops: bounds of logical pages of keys as they are stored, the best pages, the newest one behind. */
static uint32_t lserve_list(const PaperInput *input, uint32_t head, uint32_t budget, uint32_t page, uint32_t logical,
                            uint32_t *ret_tokens)
{
    const float *k = input->k + (size_t)(head / (input->n_heads / input->n_kv_heads)) * input->n_keys * input->dim;
    uint32_t n_pages = input->n_keys / page, n = 0;
    double best[64];
    bool chosen[64] = {0};
    for (uint32_t p = 0; p < n_pages; p++) {
        best[p] = -INFINITY;
        for (uint32_t at = p * page; at < (p + 1) * page; at += logical) {
            double sum = 0;
            for (uint32_t c = 0; c < input->dim; c++) {
                float max = -INFINITY, min = INFINITY, x = input->q[head * input->dim + c];
                for (uint32_t t = at; t < at + logical; t++) {
                    max = fmaxf(max, k[t * input->dim + c]);
                    min = fminf(min, k[t * input->dim + c]);
                }
                sum += fmax((double)x * (double)max, (double)x * (double)min);
            }
            best[p] = fmax(best[p], sum);
        }
    }
    uint32_t n_chosen = (budget / page > 3 ? budget / page : 3) - 1;
    for (uint32_t i = 0; i < n_chosen && i < n_pages; i++) {
        uint32_t top = UINT32_MAX;
        for (uint32_t p = 0; p < n_pages; p++)
            if (!chosen[p] && (top == UINT32_MAX || best[p] > best[top])) top = p;
        chosen[top] = true;
    }
    for (uint32_t t = 0; t < input->n_keys; t++)
        if (t >= n_pages * page || chosen[t / page]) ret_tokens[n++] = t;
    return n;
}

Test(test_paper, lserve_equals_plain_loops)
{
    enum { N = 500, DIM = 24 };
    static const double theta[] = {0.001, 0.02, 0.3, 1};
    static const struct {
        uint32_t page, logical, budget;
    } cases[] = {{64, 16, 256}, {16, 16, 100}, {32, 8, 0}, {8, 8, 4000}, {40, 10, 160}};
    float *q = random_floats(4 * DIM), *k = random_floats(2 * N * DIM);
    const PaperInput input = {.q = q,
                              .k = k,
                              .n_rows = 1,
                              .n_heads = 4,
                              .n_kv_heads = 2,
                              .n_keys = N,
                              .dim = DIM,
                              .first_pos = N - 1,
                              .theta = theta,
                              .n_pairs = 4};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PaperMethod method = *paper_method("lserve-4k");
        PaperList lists[MAX_LISTS];
        method.stages[0] = (PaperStage){SCAN_BOX, cases[i].page, cases[i].logical, cases[i].budget, 0};
        cr_assert_eq(paper_n_lists(&method, &input), 4);
        select_all(&method, &input, lists);
        for (uint32_t head = 0; head < 4; head++) {
            uint32_t wanted[N], n = lserve_list(&input, head, cases[i].budget, cases[i].page, cases[i].logical, wanted);
            expect_tokens(&lists[head], wanted, n);
        }
    }
    free(q);
    free(k);
}

Test(test_paper, measures)
{
    const float scores[] = {0, 0, logf(2), logf(4), 0, 0, 0, 0};
    const PaperInput input = line_of(scores, 8);
    const PaperMethod method = one_stage(SCAN_EXACT, 1, 1);
    static const uint32_t tokens[] = {2, 5};
    const PaperList list = {tokens, 2};
    PaperRecall recall;
    PaperQuestion question = {&list, 0, 1, 0, 8, 2};
    cr_assert(paper_measure(&method, &input, &question, &recall, &error));
    cr_expect(fabs(recall.top - 0.5) < 1e-12 && fabs(recall.mass - 3.0 / 12) < 1e-7, "%g %g", recall.top, recall.mass);
    question = (PaperQuestion){&list, 0, 2, 1, 6, 1}; /* squares of 1, 2, 4, 1 and 1; the best is missing */
    cr_assert(paper_measure(&method, &input, &question, &recall, &error));
    cr_expect(recall.top == 0 && fabs(recall.mass - 5.0 / 23) < 1e-7, "%g %g", recall.top, recall.mass);
    question.end = 9;
    cr_expect(!paper_measure(&method, &input, &question, &recall, &error));
    question.end = 1;
    cr_expect(!paper_measure(&method, &input, &question, &recall, &error));
}

Test(test_paper, refusals_and_names)
{
    float keys[8] = {0};
    PaperList list = {NULL, 77};
    PaperMethod method = {.stages = {{SCAN_EXACT, 8, .keep_tokens = 8}, {SCAN_EXACT, 3, .keep_tokens = 3}},
                          .n_stages = 2};
    PaperInput input = line_of(keys, 8);
    cr_expect(!paper_select(&method, &input, &arena, &list, &error), "3 does not divide 8");
    method = one_stage(SCAN_EXACT, 0, 1);
    cr_expect(!paper_select(&method, &input, &arena, &list, &error), "chunks of nothing");
    method = one_stage(SCAN_EXACT, 1, 1);
    input.n_rows = 2;
    cr_expect(!paper_select(&method, &input, &arena, &list, &error), "a row without a key");
    input.n_rows = 1;
    input.n_pairs = 1;
    cr_expect(!paper_select(&method, &input, &arena, &list, &error), "more pairs than channels");
    method.n_stages = 0;
    input.n_pairs = 0;
    cr_expect(!paper_select(&method, &input, &arena, &list, &error), "no stage");
    cr_expect(list.n == 77 && !list.tokens, "outputs stay");

    uint32_t n = 0;
    while (paper_method_name(n)) {
        const PaperMethod *named = paper_method(paper_method_name(n++));
        cr_expect(named && named->n_stages >= 1);
    }
    cr_expect(n >= 8 && !paper_method("none"));
    cr_expect(paper_method("hip-code-3k")->stages[0].row_stride == 4 && paper_method("hip-code-3k")->is_released);
}

/*
 * Table E3 of sparse-attention.md: recall of the exact top 2048 of 131072 keys, and of their mass, by lists of 2048
 * tokens of a KV head with 4 query heads, nothing rotated. Other random numbers than there: of keys without topics
 * recall is within 0.02, mass, which hangs on how long four queries are, within 0.04.
 */
enum { E3_KEYS = 131072, E3_DIM = 128, E3_HEADS = 4 };

typedef struct E3Row {
    PaperMethod method;
    double top, mass;
} E3Row;

typedef struct E3Band {
    double top, mass;
} E3Band;

#define E3_DESCENT(kind, a, b, c)                                                                                      \
    {                                                                                                                  \
        .stages = {{kind, a, .keep_tokens = 32768}, {kind, b, .keep_tokens = 8192}, {kind, c, .keep_tokens = 2048}},   \
        .n_stages = 3, .scope = PAPER_KV_HEAD                                                                          \
    }
#define E3_STAGE(kind, chunk, part)                                                                                    \
    {                                                                                                                  \
        .stages = {{kind, chunk, part, 2048}}, .n_stages = 1, .scope = PAPER_KV_HEAD                                   \
    }
#define E3_FUNNEL                                                                                                      \
    {                                                                                                                  \
        .stages = {{SCAN_BOX, 16, .keep_tokens = 8192}, {SCAN_EXACT, 8, .keep_tokens = 2048}}, .n_stages = 2,          \
        .scope = PAPER_KV_HEAD                                                                                         \
    }

static void expect_e3(const float *q, const float *k, const E3Row *rows, size_t n, E3Band band)
{
    const PaperInput input = {.q = q,
                              .k = k,
                              .n_rows = 1,
                              .n_heads = E3_HEADS,
                              .n_kv_heads = 1,
                              .n_keys = E3_KEYS,
                              .dim = E3_DIM,
                              .first_pos = E3_KEYS - 1};
    for (size_t i = 0; i < n; i++) {
        PaperList list;
        PaperRecall recall;
        select_all(&rows[i].method, &input, &list);
        cr_assert_eq(list.n, 2048);
        const PaperQuestion question = {&list, 0, 2 / sqrtf(E3_DIM), 0, E3_KEYS, 2048};
        cr_assert(paper_measure(&rows[i].method, &input, &question, &recall, &error));
        cr_expect(fabs(recall.top - rows[i].top) < band.top, "row %zu: recall %.3f, not %.3f", i, recall.top,
                  rows[i].top);
        cr_expect(fabs(recall.mass - rows[i].mass) < band.mass, "row %zu: mass %.3f, not %.3f", i, recall.mass,
                  rows[i].mass);
    }
}

Test(test_paper, recall_of_keys_without_order)
{
    static const E3Row rows[] = {
        {E3_STAGE(SCAN_EXACT, 1, 0), 1, 0.287},
        {E3_DESCENT(SCAN_DESCENT, 256, 32, 8), 0.093, 0.042},
        {E3_DESCENT(SCAN_DESCENT_FIRST, 256, 32, 8), 0.103, 0.042},
        {E3_DESCENT(SCAN_DESCENT, 64, 16, 4), 0.178, 0.070},
        {E3_STAGE(SCAN_BOX, 64, 16), 0.021, 0.018},
        {E3_STAGE(SCAN_BOX, 16, 16), 0.022, 0.020},
        {E3_STAGE(SCAN_BOX, 64, 64), 0.024, 0.019},
        {E3_STAGE(SCAN_MEAN, 16, 0), 0.035, 0.025},
        {E3_FUNNEL, 0.089, 0.039},
        {E3_STAGE(SCAN_EXACT, 8, 0), 0.137, 0.123},
    };
    float *q = random_floats(E3_HEADS * E3_DIM), *k = random_floats((size_t)E3_KEYS * E3_DIM);
    expect_e3(q, k, rows, sizeof rows / sizeof *rows, (E3Band){0.02, 0.04});
    free(q);
    free(k);
}

/* Keys that change over about 32 tokens, as neighbours are alike (the locality that a descent lives by). */
Test(test_paper, recall_of_smooth_keys)
{
    static const E3Row rows[] = {
        {E3_DESCENT(SCAN_DESCENT, 256, 32, 8), 0.273, 0.117},
        {E3_DESCENT(SCAN_DESCENT_FIRST, 256, 32, 8), 0.229, 0.088},
        {E3_DESCENT(SCAN_DESCENT, 64, 16, 4), 0.393, 0.148},
        {E3_STAGE(SCAN_BOX, 64, 16), 0.135, 0.059},
        {E3_STAGE(SCAN_BOX, 16, 16), 0.225, 0.096},
        {E3_STAGE(SCAN_MEAN, 16, 0), 0.286, 0.128},
        {E3_FUNNEL, 0.310, 0.135},
        {E3_STAGE(SCAN_EXACT, 8, 0), 0.295, 0.148},
    };
    float *q = random_floats(E3_HEADS * E3_DIM), *k = random_floats((size_t)E3_KEYS * E3_DIM);
    float x[E3_DIM], keeps = expf(-1.0f / 32), takes = sqrtf(1 - keeps * keeps);
    for (uint32_t c = 0; c < E3_DIM; c++) x[c] = random_normal();
    for (uint32_t t = 0; t < E3_KEYS; t++)
        for (uint32_t c = 0; c < E3_DIM; c++) {
            x[c] = keeps * x[c] + takes * k[(size_t)t * E3_DIM + c];
            k[(size_t)t * E3_DIM + c] = 0.8f * x[c] + 0.6f * random_normal();
        }
    expect_e3(q, k, rows, sizeof rows / sizeof *rows, (E3Band){0.02, 0.04});
    free(q);
    free(k);
}

/*
 * Segments of 16 to 96 tokens of 512 topics, and queries after one of them: nearly all of the mass is there, and who
 * finds one segment finds it. How many there are is chance, so that recall strays by 0.1 from seed to seed.
 */
Test(test_paper, recall_of_topics)
{
    enum { TOPICS = 512, ASKED = 7 };
    static const E3Row rows[] = {
        {E3_STAGE(SCAN_EXACT, 1, 0), 1, 0.983},
        {E3_DESCENT(SCAN_DESCENT, 64, 16, 4), 0.495, 0.968},
        {E3_STAGE(SCAN_BOX, 64, 16), 0.175, 0.965},
        {E3_STAGE(SCAN_BOX, 16, 16), 0.154, 0.965},
        {E3_STAGE(SCAN_BOX, 64, 64), 0.142, 0.965},
        {E3_STAGE(SCAN_MEAN, 16, 0), 0.442, 0.967},
        {E3_FUNNEL, 0.231, 0.979},
        {E3_STAGE(SCAN_EXACT, 8, 0), 0.438, 0.981},
    };
    float *topics = random_floats(TOPICS * E3_DIM), *q = random_floats(E3_HEADS * E3_DIM);
    float *k = random_floats((size_t)E3_KEYS * E3_DIM);
    for (uint32_t i = 0; i < E3_HEADS * E3_DIM; i++) q[i] = 0.6f * topics[ASKED * E3_DIM + i % E3_DIM] + 0.5f * q[i];
    for (uint32_t t = 0, end = 0, topic = 0; t < E3_KEYS; t++) {
        if (t == end) {
            end += 16 + (uint32_t)rand() % 81;
            topic = (uint32_t)rand() % TOPICS;
        }
        for (uint32_t c = 0; c < E3_DIM; c++) {
            float *x = &k[(size_t)t * E3_DIM + c];
            *x = topics[topic * E3_DIM + c] + 0.7f * *x;
        }
    }
    expect_e3(q, k, rows, sizeof rows / sizeof *rows, (E3Band){0.13, 0.08});
    free(topics);
    free(q);
    free(k);
}

/* 32 keys that a query is added to among keys without order: which of them are found is chance, and their mass. */
Test(test_paper, recall_of_needles)
{
    static const E3Row rows[] = {
        {E3_STAGE(SCAN_EXACT, 1, 0), 1, 1},
        {E3_DESCENT(SCAN_DESCENT, 256, 32, 8), 0.093, 0.147},
        {E3_DESCENT(SCAN_DESCENT_FIRST, 256, 32, 8), 0.109, 0.075},
        {E3_STAGE(SCAN_BOX, 64, 16), 0.020, 0.143},
        {E3_STAGE(SCAN_BOX, 16, 16), 0.024, 0.305},
        {E3_STAGE(SCAN_BOX, 64, 64), 0.016, 0},
        {E3_STAGE(SCAN_MEAN, 16, 0), 0.044, 0.589},
        {E3_FUNNEL, 0.098, 0.500},
        {E3_STAGE(SCAN_EXACT, 8, 0), 0.140, 1},
    };
    float *q = random_floats(E3_HEADS * E3_DIM), *k = random_floats((size_t)E3_KEYS * E3_DIM);
    for (uint32_t n = 0; n < 32; n++) {
        size_t at = (size_t)rand() % E3_KEYS * E3_DIM;
        for (uint32_t c = 0; c < E3_DIM; c++) k[at + c] = 0.5f * k[at + c] + q[n % E3_HEADS * E3_DIM + c];
    }
    expect_e3(q, k, rows, sizeof rows / sizeof *rows, (E3Band){0.02, 0.2});
    free(q);
    free(k);
}
