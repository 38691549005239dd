/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/vertical_slash.h"

#include "base/carver.h"

#include <math.h>
#include <string.h>

enum { SAMPLED_ROWS = 16, MOST_ROWS = 2 * SAMPLED_ROWS - 1, MOST_UNIT_SECTORS = 256, ALIGNMENT = 64 };

/* Sums of softmax weights, or places in an order. */
typedef struct Ranked {
    float weight;
    uint32_t index;
} Ranked;

typedef struct Estimate {
    const ScanParams *scan;
    float scale, softcap;
    uint32_t row_step, n_rows; /* of every row_step rows the last is looked at */
    uint32_t n_sectors;        /* up to the last row's own */
    Ranked *columns;           /* [n_sectors] */
    Ranked *diagonals;         /* [n_sectors] of KV_SECTOR_TOKENS distances each */
    uint32_t *unit_of; /* [n_sectors + MOST_UNIT_SECTORS] 1 + the unit that holds the sector; 0: it is not scanned, or
                          has a place */
    float *scores;     /* [n_rows, group, n_sectors * KV_SECTOR_TOKENS] */
    float *keys;       /* [k_dim, KV_SECTOR_TOKENS] of one sector */
} Estimate;

static uint32_t row_of(const Estimate *estimate, uint32_t query)
{
    return (query / estimate->scan->group + 1) * estimate->row_step - 1;
}

static void load_keys(const Estimate *estimate, uint32_t sector)
{
    const ScanParams *scan = estimate->scan;
    uint32_t own_page = scan->first_pos / KV_PAGE_TOKENS;
    const KvLayout *layout;
    const char *slot = kv_pages_slot(scan->pages, sector / KV_PAGE_SECTORS, own_page, scan->slot, &layout);
    float k[KV_MAX_DIM];
    for (uint32_t t = 0; t < KV_SECTOR_TOKENS; t++) {
        bool is_stored = sector * KV_SECTOR_TOKENS + t < scan->first_pos + scan->n_rows;
        if (is_stored) kv_slot_get_key(layout, slot, sector % KV_PAGE_SECTORS * KV_SECTOR_TOKENS + t, k);
        for (uint32_t c = 0; c < scan->k_dim; c++) estimate->keys[c * KV_SECTOR_TOKENS + t] = is_stored ? k[c] : 0;
    }
}

/* Scores of a query for the keys of the sector that is loaded. */
static void score_sector(const Estimate *estimate, uint32_t query, float *ret_scores)
{
    const ScanParams *scan = estimate->scan;
    const float *q = scan->q + ((size_t)row_of(estimate, query) * scan->row_heads + query % scan->group) * scan->k_dim;
    float sums[KV_SECTOR_TOKENS] = {0};
    for (uint32_t c = 0; c < scan->k_dim; c++)
        for (uint32_t t = 0; t < KV_SECTOR_TOKENS; t++) sums[t] += q[c] * estimate->keys[c * KV_SECTOR_TOKENS + t];
    for (uint32_t t = 0; t < KV_SECTOR_TOKENS; t++) {
        float score = sums[t] * estimate->scale, cap = estimate->softcap;
        ret_scores[t] = cap > 0 ? cap * tanhf(score / cap) : score;
    }
}

/* The softmax of one query goes to the columns and the diagonals that its keys are on. */
static void add_query(Estimate *estimate, uint32_t query, const float *scores)
{
    uint32_t position = estimate->scan->first_pos + row_of(estimate, query);
    float max = -INFINITY, sum = 0;
    for (uint32_t key = 0; key <= position; key++) max = fmaxf(max, scores[key]);
    for (uint32_t key = 0; key <= position; key++) sum += expf(scores[key] - max);
    for (uint32_t key = 0; key <= position; key++) {
        float weight = expf(scores[key] - max) / sum;
        estimate->columns[key / KV_SECTOR_TOKENS].weight += weight;
        estimate->diagonals[(position - key) / KV_SECTOR_TOKENS].weight += weight;
    }
}

static void estimate_weights(Estimate *estimate)
{
    uint32_t n_queries = estimate->n_rows * estimate->scan->group;
    size_t n_keys = (size_t)estimate->n_sectors * KV_SECTOR_TOKENS;
    for (uint32_t sector = 0; sector < estimate->n_sectors; sector++) {
        load_keys(estimate, sector);
        for (uint32_t i = 0; i < n_queries; i++)
            score_sector(estimate, i, estimate->scores + i * n_keys + (size_t)sector * KV_SECTOR_TOKENS);
    }
    for (uint32_t i = 0; i < n_queries; i++) add_query(estimate, i, estimate->scores + i * n_keys);
}

static bool is_heavier(const Ranked *a, const Ranked *b)
{
    return a->weight != b->weight ? a->weight > b->weight : a->index < b->index;
}

static void swap(Ranked *a, Ranked *b)
{
    Ranked kept = *a;
    *a = *b;
    *b = kept;
}

/* Everything below `at` in a heap whose lightest is at its top. */
static void sift_down(Ranked *items, uint32_t n, uint32_t at)
{
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_heavier(&items[child], &items[child + 1])) child++;
        if (!is_heavier(&items[at], &items[child])) return;
        swap(&items[at], &items[child]);
    }
}

/* Heaviest first, in place: qsort may allocate. */
static void sort_ranked(Ranked *items, uint32_t n)
{
    for (uint32_t i = n / 2; i > 0; i--) sift_down(items, n, i - 1);
    for (uint32_t end = n; end > 1; end--) {
        swap(&items[0], &items[end - 1]);
        sift_down(items, end - 1, 0);
    }
}

/* Gives the sector's unit the next place; 1 unless it has one or is not scanned. */
static uint32_t take(Estimate *estimate, uint32_t sector, float *place)
{
    uint32_t unit = estimate->unit_of[sector];
    if (!unit) return 0;
    const ScanParams *scan = estimate->scan;
    for (uint32_t s = 0; s < scan->unit_sectors; s++) estimate->unit_of[scan->units[unit - 1] + s] = 0;
    scan->scores[unit - 1] = (*place)--;
    return 1;
}

/* All sectors that the rows meet on a diagonal. */
static uint32_t take_diagonal(Estimate *estimate, uint32_t diagonal, float *place)
{
    const ScanParams *scan = estimate->scan;
    uint32_t last = scan->first_pos + scan->n_rows - 1, far = diagonal * KV_SECTOR_TOKENS + KV_SECTOR_TOKENS - 1;
    uint32_t from = scan->first_pos > far ? scan->first_pos - far : 0, n = 0;
    if (last < diagonal * KV_SECTOR_TOKENS) return 0;
    uint32_t end = (last - diagonal * KV_SECTOR_TOKENS) / KV_SECTOR_TOKENS;
    for (uint32_t sector = from / KV_SECTOR_TOKENS; sector <= end; sector++) n += take(estimate, sector, place);
    return n;
}

static void rank_units(Estimate *estimate)
{
    const ScanParams *scan = estimate->scan;
    float place = (float)scan->n_units;
    uint32_t n = estimate->n_sectors, column = 0;
    for (uint32_t u = 0; u < scan->n_units; u++)
        for (uint32_t s = 0; s < scan->unit_sectors; s++)
            if (scan->units[u] + s < n) estimate->unit_of[scan->units[u] + s] = u + 1;
    for (uint32_t i = 0; i < n; i++) estimate->columns[i].index = estimate->diagonals[i].index = i;
    sort_ranked(estimate->columns, n);
    sort_ranked(estimate->diagonals, n);
    bool has_diagonals = scan->n_rows > 1;
    for (uint32_t diagonal = 0; diagonal < n; diagonal++) {
        uint32_t due = has_diagonals ? take_diagonal(estimate, estimate->diagonals[diagonal].index, &place) : 1;
        while (due > 0 && column < n) due -= take(estimate, estimate->columns[column++].index, &place);
    }
    while (column < n) take(estimate, estimate->columns[column++].index, &place);
}

/* scores come last: only as much of them as there are rows and sectors is touched. */
static void lay_out(Estimate *estimate, uint32_t group, uint32_t k_dim, uint32_t n_sectors, Carver *carver)
{
    estimate->columns = carve(carver, n_sectors, sizeof *estimate->columns);
    estimate->diagonals = carve(carver, n_sectors, sizeof *estimate->diagonals);
    estimate->unit_of = carve(carver, (size_t)n_sectors + MOST_UNIT_SECTORS, sizeof *estimate->unit_of);
    estimate->keys = carve(carver, (size_t)k_dim * KV_SECTOR_TOKENS, sizeof *estimate->keys);
    estimate->scores = carve(carver, (size_t)MOST_ROWS * group * n_sectors, KV_SECTOR_TOKENS * sizeof(float));
}

size_t vertical_slash_scratch_bytes(uint32_t group, uint32_t k_dim, uint32_t max_sectors)
{
    Estimate unused;
    Carver measure = {.alignment = ALIGNMENT};
    lay_out(&unused, group, k_dim, max_sectors, &measure);
    return measure.overflow ? SIZE_MAX : measure.used_bytes;
}

void vertical_slash_scan(const ScanParams *scan, float scale, float softcap, void *scratch)
{
    uint32_t n = (scan->first_pos + scan->n_rows - 1) / KV_SECTOR_TOKENS + 1;
    uint32_t row_step = scan->n_rows > SAMPLED_ROWS ? scan->n_rows / SAMPLED_ROWS : 1;
    Estimate estimate = {.scan = scan, .scale = scale, .softcap = softcap, .row_step = row_step, .n_sectors = n};
    Carver carver = {scratch, ALIGNMENT};
    estimate.n_rows = scan->n_rows / row_step;
    lay_out(&estimate, scan->group, scan->k_dim, n, &carver);
    memset(estimate.columns, 0, n * sizeof *estimate.columns);
    memset(estimate.diagonals, 0, n * sizeof *estimate.diagonals);
    memset(estimate.unit_of, 0, (n + scan->unit_sectors) * sizeof *estimate.unit_of);
    estimate_weights(&estimate);
    rank_units(&estimate);
}
