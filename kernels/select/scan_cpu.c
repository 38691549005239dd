/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/kv_bounds.h"
#include "kernels/attention/score_tile.h"
#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/select/scan_query.h"

#include <math.h>

enum { GRAIN_SECTORS = 64, BOUNDS_TILE_QUERIES = 4 };

/* Sectors that are scored together, a lane each beside their bounds, a vector each of keys. */
typedef struct Batch {
    uint32_t n, units[LANES], sectors[LANES];
} Batch;

typedef struct Job {
    const ScanParams *params;
    const float *queries; /* scan_fill_queries */
    uint32_t n_queries, n_channels;
    float *turned; /* [queries, channels, 2] what meets the largest and the smallest of each channel */
    float *keys;   /* [channels, ATTEND_GROUP_KEYS], or bounds: [channels, 2, LANES] */
    float *memo;   /* [SCAN_MEMO_SECTORS, group, KV_SECTOR_TOKENS] scores of the sectors with these numbers: */
    size_t memo_numbers[SCAN_MEMO_SECTORS];
    int64_t turn; /* of turned */
} Job;

/* The queries as they meet bounds: box takes the larger product, which is of the largest key where q > 0. */
static void turn_queries(Job *job, int64_t turn)
{
    const ScanParams *params = job->params;
    float cos_sin[KV_MAX_DIM], q[KV_MAX_DIM], *to = job->turned;
    rope_turns_get(params->turns, turn, cos_sin);
    for (uint32_t i = 0; i < job->n_queries; i++) {
        memcpy(q, job->queries + (size_t)i * params->k_dim, params->k_dim * sizeof *q);
        rope_turns_apply(params->turns, cos_sin, params->k_dim, q);
        for (uint32_t c = 0; c < job->n_channels; c++, to += 2) {
            to[0] = params->kind == SCAN_CENTER ? q[c] / 2 : q[c] <= 0 ? 0 : q[c];
            to[1] = params->kind == SCAN_CENTER ? q[c] / 2 : q[c] >= 0 ? 0 : q[c];
        }
    }
    job->turn = turn;
}

/* Columns of bounds: channel by channel the largest of each lane's sector, then the smallest, less their exponent. */
static void read_bounds(const Job *job, const uint8_t *const records[LANES])
{
    _Alignas(64) uint8_t rows[LANES][KV_BOUNDS_BLOCK_BYTES];
    float *to = job->keys;
    for (uint32_t at = 0; at < job->n_channels; at += KV_BOUNDS_BLOCK) {
        W8x64 max[4], min[4];
        for (int i = 0; i < LANES; i++) memcpy(rows[i], records[i] + at * 2, KV_BOUNDS_BLOCK_BYTES);
        w8x64_load_rows(max, rows[0], KV_BOUNDS_BLOCK_BYTES);
        w8x64_load_rows(min, rows[0] + KV_BOUNDS_BLOCK, KV_BOUNDS_BLOCK_BYTES);
        SIMD_UNROLL
        for (int c = 0; c < KV_BOUNDS_BLOCK; c++, to += 2 * LANES) {
            f32x16_store(to, f32x16_from_f8(i32x16_lanes(max[c / 4]), c % 4 * 8));
            f32x16_store(to + LANES, f32x16_from_f8(i32x16_lanes(min[c / 4]), c % 4 * 8));
        }
    }
}

/* Adds a few queries to the highest score of each lane; broken becomes NaN where one is not finite. */
SIMD_INLINE void score_bounds(const Job *job, uint32_t first, const int n, F32x16 *highest, F32x16 *broken)
{
    F32x16 a[BOUNDS_TILE_QUERIES], b[BOUNDS_TILE_QUERIES];
    const float *q = job->turned + (size_t)first * job->n_channels * 2, *bounds = job->keys;
    SIMD_UNROLL
    for (int i = 0; i < n; i++) a[i] = b[i] = f32x16_set1(0);
    for (uint32_t c = 0; c < job->n_channels; c++, q += 2, bounds += 2 * LANES) {
        F32x16 max = f32x16_load(bounds), min = f32x16_load(bounds + LANES);
        SIMD_UNROLL
        for (int i = 0; i < n; i++) {
            const float *at = q + (size_t)i * job->n_channels * 2;
            a[i] = f32x16_madd(f32x16_set1(at[0]), max, a[i]);
            b[i] = f32x16_madd(f32x16_set1(at[1]), min, b[i]);
        }
    }
    SIMD_UNROLL
    for (int i = 0; i < n; i++) {
        F32x16 sum = f32x16_add(a[i], b[i]);
        *broken = f32x16_add(*broken, f32x16_sub(sum, sum));
        *highest = f32x16_max(sum, *highest);
    }
}

static void score_bounds_tile(const Job *job, uint32_t first, F32x16 *highest, F32x16 *broken)
{
    switch (job->n_queries - first) {
    case 1:
        score_bounds(job, first, 1, highest, broken);
        break;
    case 2:
        score_bounds(job, first, 2, highest, broken);
        break;
    case 3:
        score_bounds(job, first, 3, highest, broken);
        break;
    default:
        score_bounds(job, first, BOUNDS_TILE_QUERIES, highest, broken);
        break;
    }
}

static void raise_score(const Job *job, uint32_t unit, float score)
{
    job->params->scores[unit] = scan_higher(job->params->scores[unit], score);
}

/* All sectors of the batch have one turn; lanes that there is no sector for repeat the first. */
static void scan_bounds(Job *job, const Batch *batch)
{
    const ScanParams *params = job->params;
    const uint8_t *records[LANES];
    int32_t exponents[LANES];
    size_t tail = kv_bounds_sector_bytes(params->k_dim) - KV_BOUNDS_BLOCK;
    for (uint32_t i = 0; i < LANES; i++) {
        uint32_t sector = batch->sectors[i < batch->n ? i : 0], page = params->pages->pages[sector / KV_PAGE_SECTORS];
        records[i] = kv_bounds_at(params->pages->pool, page, params->slot, sector % KV_PAGE_SECTORS);
        exponents[i] = (int8_t)records[i][tail];
    }
    read_bounds(job, records);
    F32x16 highest = f32x16_set1(-INFINITY), broken = f32x16_set1(0);
    for (uint32_t i = 0; i < job->n_queries; i += BOUNDS_TILE_QUERIES) score_bounds_tile(job, i, &highest, &broken);
    _Alignas(64) float scores[LANES];
    f32x16_store(scores, f32x16_mul(f32x16_add(highest, broken), f32x16_pow2(i32x16_load(exponents))));
    for (uint32_t i = 0; i < batch->n; i++)
        raise_score(job, batch->units[i], records[i][tail + 1] || !isfinite(scores[i]) ? NAN : scores[i]);
}

static void read_keys(const Job *job, const Batch *batch)
{
    const ScanParams *params = job->params;
    float cos_sin[KV_MAX_DIM];
    for (uint32_t i = 0; i < batch->n; i++) {
        const KvLayout *layout;
        const char *data = scan_sector(params, batch->sectors[i], &layout);
        data += batch->sectors[i] % KV_PAGE_SECTORS * layout->sector_bytes;
        int64_t turn = scan_key_turn(params, batch->units[i], batch->sectors[i]);
        if (turn != 0) rope_turns_get(params->turns, turn, cos_sin);
        ISA(kv_read_keys)(layout, data, params->k_dim, params->turns, turn ? cos_sin : NULL, job->keys + i * LANES);
    }
}

/* Products of the next few queries with the keys of a batch. */
static void score_batch(const Job *job, const Batch *batch, uint32_t first,
                        float scores[TILE_QUERIES][ATTEND_GROUP_KEYS], ScoreTile *tile)
{
    uint32_t left = job->n_queries - first;
    tile->n_queries = left < TILE_QUERIES ? (int)left : TILE_QUERIES;
    for (int i = 0; i < tile->n_queries; i++) {
        tile->q[i] = job->queries + (size_t)(first + (uint32_t)i) * job->params->k_dim;
        tile->scores[i] = scores[i];
    }
    score_tile(tile, job->keys, job->params->k_dim, 0, batch->n);
}

/* The highest product with a key of each sector, or the highest mean of its products. */
static void scan_keys(const Job *job, const Batch *batch)
{
    float scores[TILE_QUERIES][ATTEND_GROUP_KEYS];
    F32x16 highest[ATTEND_GROUP_SECTORS], broken[ATTEND_GROUP_SECTORS];
    ScoreTile tile;
    read_keys(job, batch);
    for (uint32_t s = 0; s < batch->n; s++) {
        highest[s] = f32x16_set1(-INFINITY);
        broken[s] = f32x16_set1(0);
    }
    for (uint32_t first = 0; first < job->n_queries; first += TILE_QUERIES) {
        score_batch(job, batch, first, scores, &tile);
        for (int i = 0; i < tile.n_queries; i++)
            for (uint32_t s = 0; s < batch->n; s++) {
                F32x16 x = f32x16_load(scores[i] + s * LANES);
                broken[s] = f32x16_add(broken[s], f32x16_sub(x, x));
                if (job->params->kind == SCAN_MEAN) x = f32x16_set1(f32x16_sum(x) / LANES);
                highest[s] = f32x16_max(x, highest[s]);
            }
    }
    for (uint32_t s = 0; s < batch->n; s++)
        raise_score(job, batch->units[s], f32x16_highest(highest[s]) + f32x16_sum(broken[s]));
}

static float *memo_of(const Job *job, size_t number, uint32_t head)
{
    return job->memo + (number % SCAN_MEMO_SECTORS * job->params->group + head) * KV_SECTOR_TOKENS;
}

/*
 * Scores of all keys of sector `number` of the units' sectors, for each head, into the memo: a search comes back to a
 * sector more often than it has keys. Those of small units are taken together with the next.
 */
static void memorise_sectors(Job *job, size_t number)
{
    const ScanParams *params = job->params;
    size_t n_all = (size_t)params->n_units * params->unit_sectors;
    uint32_t n = params->unit_sectors <= ATTEND_GROUP_SECTORS ? ATTEND_GROUP_SECTORS : 1;
    float scores[TILE_QUERIES][ATTEND_GROUP_KEYS];
    ScoreTile tile;
    Batch batch = {.n = n_all - number < n ? (uint32_t)(n_all - number) : n};
    for (uint32_t s = 0; s < batch.n; s++) {
        batch.units[s] = (uint32_t)((number + s) / params->unit_sectors);
        batch.sectors[s] = params->units[batch.units[s]] + (uint32_t)((number + s) % params->unit_sectors);
        job->memo_numbers[(number + s) % SCAN_MEMO_SECTORS] = number + s;
        for (uint32_t g = 0; g < params->group; g++) f32x16_store(memo_of(job, number + s, g), f32x16_set1(-INFINITY));
    }
    read_keys(job, &batch);
    for (uint32_t first = 0; first < job->n_queries; first += TILE_QUERIES) {
        score_batch(job, &batch, first, scores, &tile);
        for (uint32_t i = 0; i < (uint32_t)tile.n_queries; i++)
            for (uint32_t s = 0; s < batch.n; s++) {
                float *memo = memo_of(job, number + s, (first + i) % params->group);
                F32x16 x = f32x16_load(scores[i] + s * LANES); /* less itself: NaN if it is not finite */
                f32x16_store(memo, f32x16_add(f32x16_max(x, f32x16_load(memo)), f32x16_sub(x, x)));
            }
    }
}

/* ScanKeyScore */
static float score_key(void *arg, uint32_t unit, uint32_t token, uint32_t head)
{
    Job *job = arg;
    size_t number = (size_t)unit * job->params->unit_sectors + token / KV_SECTOR_TOKENS;
    if (job->memo_numbers[number % SCAN_MEMO_SECTORS] != number) memorise_sectors(job, number);
    return memo_of(job, number, head)[token % KV_SECTOR_TOKENS];
}

/* What a batch to come will read, so that pages that lie apart are there in time. */
static void prefetch_sector(const Job *job, uint32_t sector)
{
    const ScanParams *params = job->params;
    const KvLayout *layout;
    const char *at = scan_sector(params, sector, &layout) + sector % KV_PAGE_SECTORS * layout->sector_bytes;
    uint32_t n_bytes = layout->v_offset, page = params->pages->pages[sector / KV_PAGE_SECTORS];
    if (scan_reads_bounds(params->kind)) {
        at = (const char *)kv_bounds_at(params->pages->pool, page, params->slot, sector % KV_PAGE_SECTORS);
        n_bytes = job->n_channels * 2;
    }
    for (uint32_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(at + i);
}

static void scan_units(Job *job, uint32_t first, uint32_t end)
{
    const ScanParams *params = job->params;
    bool by_bounds = scan_reads_bounds(params->kind);
    uint32_t room = by_bounds ? LANES : ATTEND_GROUP_SECTORS;
    uint32_t ahead = 2 * room / params->unit_sectors;
    Batch batch = {0};
    for (uint32_t u = first; u < end; u++) {
        params->scores[u] = -INFINITY;
        for (uint32_t s = 0; s < params->unit_sectors; s++) {
            uint32_t sector = params->units[u] + s;
            if (u + ahead < params->n_units) prefetch_sector(job, params->units[u + ahead] + s);
            int64_t turn = by_bounds ? scan_bounds_turn(params, u, sector) : job->turn;
            if (batch.n == room || (batch.n && turn != job->turn)) {
                by_bounds ? scan_bounds(job, &batch) : scan_keys(job, &batch);
                batch.n = 0;
            }
            if (turn != job->turn) turn_queries(job, turn);
            batch.units[batch.n] = u;
            batch.sectors[batch.n++] = sector;
        }
    }
    if (batch.n) by_bounds ? scan_bounds(job, &batch) : scan_keys(job, &batch);
}

static void scan_items(void *arg, uint32_t worker, size_t first, size_t end)
{
    const ScanParams *params = arg;
    ScanScratch scratch = scan_scratch_at(params, worker);
    Job job = {.params = params,
               .queries = scratch.queries,
               .n_queries = scan_n_queries(params),
               .n_channels = scan_bounds_channels(params),
               .turned = scratch.turned,
               .keys = scratch.keys,
               .memo = scratch.memo,
               .turn = INT64_MIN};
    for (size_t i = 0; i < SCAN_MEMO_SECTORS; i++) job.memo_numbers[i] = SIZE_MAX;
    if (!scan_descends(params->kind))
        scan_units(&job, (uint32_t)first, (uint32_t)end);
    else
        for (size_t u = first; u < end; u++) params->scores[u] = scan_descend(params, score_key, &job, (uint32_t)u);
}

bool ISA(scan)(const ScanParams *params, Stream stream)
{
    if (!scan_is_supported(params)) return false;
    ScanParams copy = *params;
    scan_fill_queries(params, scan_scratch_at(params, 0).queries);
    parallel_for(stream, params->n_units, 1 + GRAIN_SECTORS / params->unit_sectors, scan_items, &copy);
    return true;
}
