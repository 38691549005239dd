/* SPDX-License-Identifier: Apache-2.0 */
/* Attention under wavelength windows, as kernels compute it, against masked pairs (sparse-attention.md E1.5). */
#include "engine/select/wavelength.h"
#include "tests/kernels/paged.h"
#include "tests/support/compare.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 330, HEADS = 2, MAX_DIM = 96, V_DIM = 16 };

static const float scale = 0.3f;

/* Which channels take part, one by one: a table of widths, or all of them. */
typedef struct Table {
    const AttnBand *bands;
    uint32_t n_bands, dim;
} Table;

static bool takes_part(const Table *table, uint32_t query, uint32_t key, uint32_t channel)
{
    int64_t page_start = query / 64 * 64, sector_end = key / 16 * 16 + 15, distance = page_start - sector_end;
    return channel < wavelength_width(table->bands, table->n_bands, table->dim, distance > 0 ? (uint32_t)distance : 0);
}

/* Softmax over whole arrays with every product masked by itself; counts those that are not. */
static uint64_t attend_masked(const Paged *paged, const Table *table, uint32_t query, uint32_t head, double *ret_out)
{
    const PagedShape *s = &paged->shape;
    uint32_t kv_head = head / (s->n_heads / s->n_kv_heads);
    const float *q = paged->q + ((size_t)query * s->n_heads + head) * s->k_dim;
    double weights[TOKENS], sum = 0;
    uint64_t n_terms = 0;
    for (uint32_t key = 0; key <= query; key++) {
        double score = 0;
        for (uint32_t c = 0; c < s->k_dim; c++) {
            if (!takes_part(table, query, key, c)) continue;
            score += (double)q[c] * (double)paged->k[((size_t)key * s->n_kv_heads + kv_head) * s->k_dim + c];
            n_terms++;
        }
        sum += weights[key] = exp((double)scale * score);
    }
    for (uint32_t c = 0; c < V_DIM; c++) {
        ret_out[c] = 0;
        for (uint32_t key = 0; key <= query; key++)
            ret_out[c] += weights[key] / sum * (double)paged->v[((size_t)key * s->n_kv_heads + kv_head) * V_DIM + c];
    }
    return n_terms;
}

/* All rows' results [TOKENS, HEADS, V_DIM], and whether the terms that were met are those that are counted. */
static double *masked_results(const Paged *paged, const Table *table)
{
    double *want = malloc(TOKENS * HEADS * V_DIM * sizeof *want);
    uint64_t n_terms = 0;
    cr_assert_not_null(want);
    for (uint32_t i = 0; i < TOKENS * HEADS; i++)
        n_terms += attend_masked(paged, table, i / HEADS, i % HEADS, want + (size_t)i * V_DIM);
    cr_expect_eq(n_terms, HEADS * wavelength_count_bands(table->bands, table->n_bands, table->dim, 0, TOKENS).kept);
    return want;
}

static void expect_results(const double *want, const float *out, const char *row)
{
    for (size_t i = 0; i < TOKENS * HEADS * V_DIM; i++)
        cr_assert(fabs((double)out[i] - want[i]) < 2e-5, "%s: row %zu", row, i / V_DIM / HEADS);
}

static float *attend(const Paged *paged, bool (*row)(const AttendParams *, Stream), uint32_t chunk)
{
    PagedRows chunks[64];
    PagedRun run = {.attend = row, .scale = scale};
    uint32_t n = 0;
    for (uint32_t at = 0; at < TOKENS; at += chunk)
        chunks[n++] = (PagedRows){paged, at, at + chunk < TOKENS ? chunk : TOKENS - at};
    return paged_attend(&run, chunks, n);
}

/* theta of a base that lets windows end inside a context of TOKENS; still channels stand in front. */
static uint32_t make_bands(uint32_t dim, uint32_t n_pairs, double k, AttnBand *ret_bands)
{
    double theta[MAX_DIM / 2];
    for (uint32_t j = 0; j < n_pairs; j++) theta[j] = pow(100, -(double)(n_pairs - 1 - j) / n_pairs);
    const WaveHead head = {theta, n_pairs, dim};
    return wavelength_bands(&(Wavelength){.k_prefill = k}, k, &head, ret_bands);
}

static void expect_rows_masked(uint32_t dim, uint32_t n_pairs, double k)
{
    AttnBand bands[WAVE_MAX_BANDS];
    Table table = {bands, make_bands(dim, n_pairs, k, bands), dim};
    cr_assert_geq(table.n_bands, 2);
    Paged *paged = paged_new((PagedShape){KV_F32, HEADS, 1, dim, V_DIM}, TOKENS, dim);
    paged_set_plan(paged, (AttnPlan){.recent = PLAN_ALL, .bands = bands, .n_bands = table.n_bands});
    double *want = masked_results(paged, &table);
    float *out = attend(paged, kernels_ref()->attend, TOKENS);
    expect_results(want, out, "reference");
    free(out);
    for (size_t i = 0; kernels_cpu_row(i); i++) {
        out = attend(paged, kernels_cpu_row(i)->attend, 37);
        expect_results(want, out, kernels_cpu_row(i)->name);
        free(out);
    }
    free(want);
    paged_free(paged);
}

Test(test_wavelength_attend, equals_masked_pairs)
{
    expect_rows_masked(64, 32, 1);
    expect_rows_masked(96, 40, 0.3);  /* 16 channels without rotation */
    expect_rows_masked(40, 20, 0.2);  /* no multiple of 16 */
    expect_rows_masked(32, 16, 0.01); /* one block is left from the first page on */
}

/* Windows that span the context give the bits of a plan without bands. */
Test(test_wavelength_attend, windows_that_span_the_context_change_nothing)
{
    AttnBand bands[WAVE_MAX_BANDS];
    const AttnPlan windowed = {.recent = PLAN_ALL, .bands = bands, .n_bands = make_bands(64, 32, 1000, bands)};
    Paged *paged = paged_new((PagedShape){KV_F16, HEADS, 1, 64, V_DIM}, TOKENS, 5);
    for (size_t i = 0; kernels_cpu_row(i); i++) {
        paged_set_plan(paged, (AttnPlan){.recent = PLAN_ALL});
        float *whole = attend(paged, kernels_cpu_row(i)->attend, 64);
        paged_set_plan(paged, windowed);
        float *cut = attend(paged, kernels_cpu_row(i)->attend, 64);
        cr_expect(!memcmp(whole, cut, paged_out_floats(paged, TOKENS) * sizeof *cut), "%s", kernels_cpu_row(i)->name);
        free(whole);
        free(cut);
    }
    paged_free(paged);
}
