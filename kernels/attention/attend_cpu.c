/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/score_tile.h"
#include "kernels/isa.h"
#include "kernels/parallel.h"

#include <math.h>
#include <string.h>

/* The sectors of a chunk that some row of a task sees, in order, and which of their keys each row sees. */
typedef struct Chunk {
    uint32_t n_sectors, n_groups;
    uint32_t next_listed; /* the first listed sector of later chunks, as an index into the list */
    const char *data[ATTEND_CHUNK_SECTORS];
    const KvLayout *layout[ATTEND_CHUNK_SECTORS];
    uint32_t number[ATTEND_CHUNK_SECTORS];              /* the logical sector */
    uint32_t position[ATTEND_CHUNK_SECTORS];            /* at which its first key stands */
    uint32_t n_channels[ATTEND_CHUNK_SECTORS];          /* that its scores take */
    bool is_scaled[ATTEND_CHUNK_SECTORS];               /* its numbers are to be scaled */
    bool is_moved[ATTEND_CHUNK_SECTORS];                /* its keys are scaled and turned before they are scored */
    uint64_t seen[KV_PAGE_TOKENS][ATTEND_CHUNK_GROUPS]; /* by row; a bit for each key of a group */
} Chunk;

typedef struct Job {
    const AttendParams *params;
    const AttendTask *task;
    AttendScratch scratch;
    uint32_t group, n_queries, n_sums;
    size_t partial_floats;
} Job;

/* Queries that share a group's keys and values. */
typedef struct Tile {
    ScoreTile s; /* scores later hold weights */
    float *out[TILE_QUERIES];
    uint64_t seen[TILE_QUERIES];
    uint64_t seen_by_any, seen_by_all;
} Tile;

/* exp(x - max) where an empty side (max = -infinity) weighs nothing. */
SIMD_INLINE F32x16 weight_of(F32x16 x, float max)
{
    return f32x16_exp(f32x16_sub(x, f32x16_set1(max == -INFINITY ? 0.0f : max)));
}

static uint32_t low_bits(uint32_t n)
{
    return n < KV_SECTOR_TOKENS ? (1u << n) - 1 : 0xFFFF;
}

/* Keys of a sector that the query at a position sees. */
static uint32_t seen_keys(const AttnPlan *plan, uint32_t position, uint32_t sector, bool is_listed)
{
    uint32_t base = sector * KV_SECTOR_TOKENS, recent = attend_recent_begin(plan, position);
    if (position < base) return 0;
    uint32_t causal = low_bits(position - base + 1);
    if (is_listed) return causal;
    uint32_t sink = plan->sink > base ? low_bits(plan->sink - base) : 0;
    return causal & (sink | ~(recent > base ? low_bits(recent - base) : 0));
}

static void locate_sector(const Job *job, Chunk *chunk, uint32_t sector)
{
    const AttendTask *task = job->task;
    const AttnPlan *plan = task->plan;
    uint32_t s = chunk->n_sectors++, own_page = task->first_pos / KV_PAGE_TOKENS, page = sector / KV_PAGE_SECTORS;
    const char *slot = kv_pages_slot(task->pages, page, own_page, task->slot, &chunk->layout[s]);
    chunk->data[s] = slot + sector % KV_PAGE_SECTORS * chunk->layout[s]->sector_bytes;
    chunk->is_scaled[s] = kv_type_info(chunk->layout[s]->type)->is_quantised;
    chunk->number[s] = sector;
    chunk->position[s] = plan_sector_position(plan, sector);
    chunk->n_channels[s] = plan_channels(plan, own_page, chunk->position[s], job->params->k_dim);
    chunk->is_moved[s] = chunk->position[s] != sector * KV_SECTOR_TOKENS || plan->positions == POSITIONS_GROUPED;
}

static void add_sector(const Job *job, Chunk *chunk, uint32_t sector, bool is_listed)
{
    const AttendTask *task = job->task;
    const AttnPlan *plan = task->plan;
    uint32_t s = chunk->n_sectors, n_rows = task->n_rows, all = 0;
    uint32_t base = sector * KV_SECTOR_TOKENS, end = base + KV_SECTOR_TOKENS;
    if (!is_listed && base >= plan->sink && end <= attend_recent_begin(plan, task->first_pos)) return;
    uint32_t first = seen_keys(plan, task->first_pos, sector, is_listed);
    uint32_t last = seen_keys(plan, task->first_pos + n_rows - 1, sector, is_listed);
    bool is_full = (first & last) == 0xFFFF; /* what the first and the last row see whole, those between do too */
    for (uint32_t r = 0; r < n_rows; r++) {
        uint32_t bits = is_full ? 0xFFFF : seen_keys(plan, task->first_pos + r, sector, is_listed);
        uint64_t *seen = &chunk->seen[r][s / ATTEND_GROUP_SECTORS];
        if (s % ATTEND_GROUP_SECTORS == 0) *seen = 0;
        *seen |= (uint64_t)bits << s % ATTEND_GROUP_SECTORS * KV_SECTOR_TOKENS;
        all |= bits;
    }
    if (all) locate_sector(job, chunk, sector);
}

static void find_sectors(const Job *job, Chunk *chunk, uint32_t number)
{
    const AttnPlan *plan = job->task->plan;
    uint32_t last = (job->task->first_pos + job->task->n_rows - 1) / KV_SECTOR_TOKENS;
    uint32_t first = number * ATTEND_CHUNK_SECTORS, listed = plan_find_listed(plan, first);
    chunk->n_sectors = 0;
    for (uint32_t sector = first; sector < first + ATTEND_CHUNK_SECTORS && sector <= last; sector++) {
        bool is_listed = listed < plan->n_list && plan->list[listed] == sector;
        add_sector(job, chunk, sector, is_listed);
        listed += is_listed;
    }
    chunk->next_listed = listed;
    chunk->n_groups = (chunk->n_sectors + ATTEND_GROUP_SECTORS - 1) / ATTEND_GROUP_SECTORS;
    for (uint32_t s = 0; s < chunk->n_sectors; s++) {
        if (!chunk->is_scaled[s]) continue;
        const KvLayout *layout = chunk->layout[s];
        const AttendScratch *to = &job->scratch;
        ISA(kv_unpack_scales)(chunk->data[s] + layout->k_scale_offset, to->k_scale + s * LANES, to->k_zero + s * LANES);
        ISA(kv_unpack_scales)(chunk->data[s] + layout->v_scale_offset, to->v_scale + s * LANES, to->v_zero + s * LANES);
    }
}

static void fetch(const KvLayout *layout, const char *data, bool is_values)
{
    uint32_t begin = is_values ? layout->v_offset : 0, end = is_values ? layout->sector_bytes : layout->v_offset;
    for (uint32_t at = begin; at < end; at += 64) __builtin_prefetch(data + at);
}

static void fetch_keys_of(const AttendTask *task, uint32_t sector)
{
    const KvLayout *layout;
    uint32_t own_page = task->first_pos / KV_PAGE_TOKENS, page = sector / KV_PAGE_SECTORS;
    if (page >= own_page || task->pages->pages[page] == UINT32_MAX) return;
    const char *slot = kv_pages_slot(task->pages, page, own_page, task->slot, &layout);
    fetch(layout, slot + sector % KV_PAGE_SECTORS * layout->sector_bytes, false);
}

/*
 * A sector's keys or values fill half of a page of the machine, so that it has hardly foreseen them when they end, and
 * listed sectors lie anywhere. While sector s of a chunk is unpacked, what is unpacked a group later is fetched: the
 * first values behind the last keys, the keys of the next chunk behind the last values.
 */
static void fetch_later(const Job *job, const Chunk *chunk, uint32_t s, bool is_values)
{
    const AttnPlan *plan = job->task->plan;
    uint32_t later = s + ATTEND_GROUP_SECTORS, n = chunk->n_sectors;
    if (later < n) {
        fetch(chunk->layout[later], chunk->data[later], is_values);
    } else if (!is_values) {
        if (later - n < n) fetch(chunk->layout[later - n], chunk->data[later - n], true);
    } else if (plan->n_list == 0) {
        fetch_keys_of(job->task, chunk->number[n - 1] + 1 + later - n);
    } else if (chunk->next_listed + later - n < plan->n_list) {
        fetch_keys_of(job->task, plan->list[chunk->next_listed + later - n]);
    }
}

/* Query i of a task: heads of the group run fastest. */
static const float *query_of(const Job *job, uint32_t i)
{
    const AttendParams *params = job->params;
    size_t row = job->task->first_row + i / job->group, head = job->task->kv_head * job->group + i % job->group;
    return params->q + (row * params->n_heads + head) * params->k_dim;
}

/* The tile of queries from first on, against a group of sectors; false where none of them sees any. */
static bool make_tile(const Job *job, const Chunk *chunk, uint32_t group, uint32_t first, float *partials, Tile *tile)
{
    uint32_t left = job->n_queries - first;
    tile->s.n_queries = left < TILE_QUERIES ? (int)left : TILE_QUERIES;
    tile->seen_by_any = 0;
    tile->seen_by_all = UINT64_MAX;
    for (int i = 0; i < tile->s.n_queries; i++) {
        uint32_t query = first + (uint32_t)i;
        tile->s.q[i] = query_of(job, query);
        tile->s.scores[i] = job->scratch.scores + query * ATTEND_CHUNK_KEYS + group * ATTEND_GROUP_KEYS;
        tile->out[i] = partials + query * job->partial_floats;
        tile->seen[i] = chunk->seen[query / job->group][group];
        tile->seen_by_any |= tile->seen[i];
        tile->seen_by_all &= tile->seen[i];
    }
    return tile->seen_by_any != 0;
}

/* out += weights * values over the keys that a query sees, for `width` vectors of channels at `values`. */
SIMD_INLINE void weigh_values(const Tile *tile, const float *values, size_t stride, size_t channel, const int n_queries,
                              const int width)
{
    F32x16 out[TILE_QUERIES][TILE_VECTORS];
    SIMD_UNROLL
    for (int i = 0; i < n_queries; i++) SIMD_UNROLL
    for (int v = 0; v < width; v++) out[i][v] = f32x16_load(tile->out[i] + channel + v * LANES);
    for (uint64_t left = tile->seen_by_any; left; left &= left - 1) {
        unsigned k = (unsigned)__builtin_ctzll(left);
        bool seen_by_all = tile->seen_by_all >> k & 1;
        F32x16 value[TILE_VECTORS];
        SIMD_UNROLL
        for (int v = 0; v < width; v++) value[v] = f32x16_load(values + k * stride + channel + v * LANES);
        SIMD_UNROLL
        for (int i = 0; i < n_queries; i++) {
            if (!seen_by_all && !(tile->seen[i] >> k & 1)) continue;
            F32x16 weight = f32x16_set1(tile->s.scores[i][k]);
            SIMD_UNROLL
            for (int v = 0; v < width; v++) out[i][v] = f32x16_madd(weight, value[v], out[i][v]);
        }
    }
    SIMD_UNROLL
    for (int i = 0; i < n_queries; i++) SIMD_UNROLL
    for (int v = 0; v < width; v++) f32x16_store(tile->out[i] + channel + v * LANES, out[i][v]);
}

SIMD_INLINE void weigh_tile(const Tile *tile, const float *values, uint32_t v_dim, const int n_queries)
{
    size_t stride = attend_pad(v_dim), channel = 0;
    for (; channel + TILE_VECTORS * LANES <= v_dim; channel += TILE_VECTORS * LANES)
        weigh_values(tile, values, stride, channel, n_queries, TILE_VECTORS);
    for (; channel < v_dim; channel += LANES) weigh_values(tile, values, stride, channel, n_queries, 1);
}

static void weigh_queries(const Tile *tile, const float *values, uint32_t v_dim)
{
    switch (tile->s.n_queries) {
    case 1:
        weigh_tile(tile, values, v_dim, 1);
        break;
    case 2:
        weigh_tile(tile, values, v_dim, 2);
        break;
    case 3:
        weigh_tile(tile, values, v_dim, 3);
        break;
    case 4:
        weigh_tile(tile, values, v_dim, 4);
        break;
    case 5:
        weigh_tile(tile, values, v_dim, 5);
        break;
    default:
        weigh_tile(tile, values, v_dim, TILE_QUERIES);
        break;
    }
}

static uint32_t group_sectors(const Chunk *chunk, uint32_t group)
{
    uint32_t left = chunk->n_sectors - group * ATTEND_GROUP_SECTORS;
    return left < ATTEND_GROUP_SECTORS ? left : ATTEND_GROUP_SECTORS;
}

/* The keys of a group: numbers as they are stored, or what they stand for, turned to where the plan has them. */
static void read_keys(const Job *job, const Chunk *chunk, uint32_t first, uint32_t n_sectors)
{
    float cos_sin[KV_MAX_DIM];
    for (uint32_t s = first; s < first + n_sectors; s++) {
        float *keys = job->scratch.keys + (s - first) * LANES;
        fetch_later(job, chunk, s, false);
        int64_t turn = (int64_t)chunk->position[s] - (int64_t)chunk->number[s] * KV_SECTOR_TOKENS;
        if (!chunk->is_moved[s]) {
            ISA(kv_unpack_keys)(chunk->layout[s], chunk->data[s], chunk->n_channels[s], keys);
            continue;
        }
        if (turn != 0) rope_turns_get(job->params->turns, turn, cos_sin);
        ISA(kv_read_keys)
        (chunk->layout[s], chunk->data[s], chunk->n_channels[s], job->params->turns, turn ? cos_sin : NULL, keys);
    }
}

/* A tile's scores, as many channels of each sector as the plan gives it. */
static void score_group(const Job *job, const Chunk *chunk, uint32_t first, uint32_t n_sectors, const ScoreTile *tile)
{
    for (uint32_t s = 0, end; s < n_sectors; s = end) {
        uint32_t n_channels = chunk->n_channels[first + s];
        for (end = s + 1; end < n_sectors && chunk->n_channels[first + end] == n_channels;) end++;
        score_tile(tile, job->scratch.keys, n_channels, s, end);
    }
}

/* Keys of a sector that grouped positions move for the query at a position. */
static uint32_t far_keys(const AttnPlan *plan, uint32_t position, uint32_t sector)
{
    uint32_t base = sector * KV_SECTOR_TOKENS;
    return position >= plan->recent && position - plan->recent >= base ? low_bits(position - plan->recent - base + 1)
                                                                       : 0;
}

/* Each key of the group to where grouped positions have it for queries that are far. */
static void group_keys(const Job *job, const Chunk *chunk, uint32_t first, uint32_t n_sectors)
{
    const RopeTurns *turns = job->params->turns;
    float cos_sin[KV_MAX_DIM];
    uint32_t begin = job->params->k_dim - 2 * turns->n_pairs;
    for (uint32_t k = 0; k < n_sectors * KV_SECTOR_TOKENS; k++) {
        uint32_t key = chunk->number[first + k / KV_SECTOR_TOKENS] * KV_SECTOR_TOKENS + k % KV_SECTOR_TOKENS;
        rope_turns_get(turns, plan_grouped_key_turn(job->task->plan, key), cos_sin);
        float *column = job->scratch.keys + begin * ATTEND_GROUP_KEYS + k;
        for (uint32_t j = 0; j < turns->n_pairs; j++, column += 2 * ATTEND_GROUP_KEYS) {
            float c = cos_sin[2 * j], s = cos_sin[2 * j + 1], x0 = column[0], x1 = column[ATTEND_GROUP_KEYS];
            column[0] = x0 * c - x1 * s;
            column[ATTEND_GROUP_KEYS] = x0 * s + x1 * c;
        }
    }
}

/* Grouped positions: scores of far keys take the places of those at true positions. */
static void score_far_keys(const Job *job, const Chunk *chunk, uint32_t first, uint32_t n_sectors)
{
    const AttnPlan *plan = job->task->plan;
    uint32_t last_pos = job->task->first_pos + job->task->n_rows - 1;
    if (!far_keys(plan, last_pos, chunk->number[first])) return;
    group_keys(job, chunk, first, n_sectors);
    float far[TILE_QUERIES][ATTEND_GROUP_KEYS];
    ScoreTile tile;
    for (uint32_t i = 0; i < job->n_queries; i++) {
        uint32_t in_tile = i % TILE_QUERIES, left = job->n_queries - i;
        if (in_tile == 0) {
            tile.n_queries = left < TILE_QUERIES ? (int)left : TILE_QUERIES;
            for (uint32_t j = 0; j < (uint32_t)tile.n_queries; j++) {
                tile.q[j] = job->scratch.far_queries + (size_t)(i + j) * job->params->k_dim;
                tile.scores[j] = far[j];
            }
            score_group(job, chunk, first, n_sectors, &tile);
        }
        float *scores = job->scratch.scores + i * ATTEND_CHUNK_KEYS + first * LANES;
        for (uint32_t s = 0; s < n_sectors; s++, scores += LANES) {
            uint32_t bits = far_keys(plan, job->task->first_pos + i / job->group, chunk->number[first + s]);
            F32x16 moved = f32x16_select(f32x16_load(far[in_tile] + s * LANES), bits, 0);
            f32x16_store(scores, f32x16_add(moved, f32x16_select(f32x16_load(scores), ~bits & 0xFFFF, 0)));
        }
    }
}

static void score_chunk(const Job *job, const Chunk *chunk, float *partials)
{
    Tile tile;
    for (uint32_t g = 0; g < chunk->n_groups; g++) {
        uint32_t first = g * ATTEND_GROUP_SECTORS, n_sectors = group_sectors(chunk, g);
        read_keys(job, chunk, first, n_sectors);
        for (uint32_t i = 0; i < job->n_queries; i += TILE_QUERIES)
            if (make_tile(job, chunk, g, i, partials, &tile)) score_group(job, chunk, first, n_sectors, &tile.s);
        if (job->task->plan->positions == POSITIONS_GROUPED) score_far_keys(job, chunk, first, n_sectors);
    }
}

static void weigh_chunk(const Job *job, const Chunk *chunk, float *partials)
{
    size_t sector_floats = KV_SECTOR_TOKENS * attend_pad(job->params->v_dim);
    Tile tile;
    for (uint32_t g = 0; g < chunk->n_groups; g++) {
        uint32_t first = g * ATTEND_GROUP_SECTORS, n_sectors = group_sectors(chunk, g);
        for (uint32_t s = first; s < first + n_sectors; s++) {
            fetch_later(job, chunk, s, true);
            float *values = job->scratch.values + (s - first) * sector_floats;
            ISA(kv_unpack_values)(chunk->layout[s], chunk->data[s], values);
        }
        for (uint32_t i = 0; i < job->n_queries; i += TILE_QUERIES)
            if (make_tile(job, chunk, g, i, partials, &tile))
                weigh_queries(&tile, job->scratch.values, job->params->v_dim);
    }
}

/*
 * Scaled, capped, and minus infinity where the query does not look; what is not finite is NaN. q_sums: of the query's
 * first 16 channels, 32, ... to all.
 */
SIMD_INLINE F32x16 finish_score(const Job *job, const Chunk *chunk, uint32_t s, const float *q_sums, uint32_t bits,
                                F32x16 x)
{
    if (chunk->is_scaled[s] && !chunk->is_moved[s]) {
        F32x16 q_sum = f32x16_set1(q_sums[(chunk->n_channels[s] - 1) / ATTEND_SUM_CHANNELS]);
        x = f32x16_madd(x, f32x16_load(job->scratch.k_scale + s * LANES),
                        f32x16_mul(f32x16_load(job->scratch.k_zero + s * LANES), q_sum));
    }
    x = f32x16_add(x, f32x16_sub(x, x));
    x = f32x16_mul(x, f32x16_set1(job->params->scale));
    if (job->params->softcap > 0) x = f32x16_softcap(x, job->params->softcap);
    return f32x16_select(x, bits, -INFINITY);
}

/*
 * Scores of query i become weights, which for quantised values hold their scales; begins its partial result, whose
 * channels all start from what the zeros of quantised values add up to.
 */
static void weigh_scores(const Job *job, const Chunk *chunk, uint32_t i, float *partial)
{
    const uint64_t *seen = chunk->seen[i / job->group];
    const float *q_sums = job->scratch.q_sums + i * job->n_sums;
    float *scores = job->scratch.scores + i * ATTEND_CHUNK_KEYS;
    size_t dim = attend_pad(job->params->v_dim);
    F32x16 highest = f32x16_set1(-INFINITY), sum = f32x16_set1(0), zeros = f32x16_set1(0);
    for (uint32_t s = 0; s < chunk->n_sectors; s++) {
        uint32_t bits = seen[s / ATTEND_GROUP_SECTORS] >> s % ATTEND_GROUP_SECTORS * LANES & 0xFFFF;
        if (!bits) continue;
        F32x16 x = finish_score(job, chunk, s, q_sums, bits, f32x16_load(scores + s * LANES));
        f32x16_store(scores + s * LANES, x);
        highest = f32x16_max(highest, x);
    }
    float max = f32x16_highest(highest);
    for (uint32_t s = 0; s < chunk->n_sectors; s++) {
        uint32_t bits = seen[s / ATTEND_GROUP_SECTORS] >> s % ATTEND_GROUP_SECTORS * LANES & 0xFFFF;
        if (!bits) continue;
        F32x16 weight = weight_of(f32x16_load(scores + s * LANES), max);
        sum = f32x16_add(sum, weight);
        if (chunk->is_scaled[s]) {
            F32x16 zero = f32x16_select(f32x16_load(job->scratch.v_zero + s * LANES), bits, 0);
            zeros = f32x16_madd(weight, zero, zeros);
            weight = f32x16_mul(weight, f32x16_load(job->scratch.v_scale + s * LANES));
        }
        f32x16_store(scores + s * LANES, weight);
    }
    F32x16 begin = f32x16_set1(f32x16_sum(zeros));
    for (size_t c = 0; c < dim; c += LANES) f32x16_store(partial + c, begin);
    partial[dim] = max;
    partial[dim + 1] = f32x16_sum(sum);
}

/* All queries of a task against the keys of one chunk. */
static void attend_chunk(const Job *job, uint32_t number, float *partials)
{
    Chunk chunk;
    find_sectors(job, &chunk, number);
    score_chunk(job, &chunk, partials);
    for (uint32_t i = 0; i < job->n_queries; i++) weigh_scores(job, &chunk, i, partials + i * job->partial_floats);
    weigh_chunk(job, &chunk, partials);
}

/* total = total + part, where an empty one changes no bit of the other. */
static void merge_partial(uint32_t v_dim, float *total, const float *part)
{
    size_t dim = attend_pad(v_dim);
    float *state = total + dim, max = part[dim] > state[0] ? part[dim] : state[0];
    if (part[dim + 1] == 0) return;
    if (state[1] == 0) {
        memcpy(total, part, attend_partial_floats(v_dim) * sizeof *part);
        return;
    }
    F32x16 keep = weight_of(f32x16_set1(state[0]), max), take = weight_of(f32x16_set1(part[dim]), max);
    for (size_t c = 0; c < dim; c += LANES)
        f32x16_store(total + c, f32x16_madd(f32x16_load(part + c), take, f32x16_mul(f32x16_load(total + c), keep)));
    float sums[LANES];
    f32x16_store(sums, f32x16_madd(f32x16_set1(part[dim + 1]), take, f32x16_mul(f32x16_set1(state[1]), keep)));
    state[0] = max;
    state[1] = sums[0];
}

static void merge_chunk(const Job *job, float *total, const float *part)
{
    for (uint32_t i = 0; i < job->n_queries; i++)
        merge_partial(job->params->v_dim, total + i * job->partial_floats, part + i * job->partial_floats);
}

static void write_out(const Job *job, const float *totals)
{
    uint32_t v_dim = job->params->v_dim;
    size_t dim = attend_pad(v_dim);
    for (uint32_t i = 0; i < job->n_queries; i++) {
        size_t row = job->task->first_row + i / job->group, head = job->task->kv_head * job->group + i % job->group;
        const float *total = totals + i * job->partial_floats;
        float *out = job->params->out + (row * job->params->n_heads + head) * v_dim;
        for (uint32_t c = 0; c < v_dim; c++) out[c] = total[dim + 1] == 0 ? 0 : total[c] / total[dim + 1];
        if (!job->params->lse) continue;
        float lse = total[dim + 1] == 0 ? -INFINITY : total[dim] + logf(total[dim + 1]);
        job->params->lse[row * job->params->n_heads + head] = lse;
    }
}

static void sum_queries(const Job *job)
{
    for (uint32_t i = 0; i < job->n_queries; i++) {
        const float *q = query_of(job, i);
        float sum = 0, *q_sums = job->scratch.q_sums + i * job->n_sums;
        for (uint32_t c = 0; c < job->params->k_dim; c++) q_sums[c / ATTEND_SUM_CHANNELS] = sum += q[c];
    }
}

/* Grouped positions: the queries as keys far behind meet them. */
static void turn_queries(const Job *job)
{
    float cos_sin[KV_MAX_DIM];
    uint32_t k_dim = job->params->k_dim;
    for (uint32_t i = 0; i < job->n_queries; i++) {
        float *q = job->scratch.far_queries + (size_t)i * k_dim;
        uint32_t position = job->task->first_pos + i / job->group;
        if (position < job->task->plan->recent) continue; /* no key is far from it */
        if (i % job->group == 0)
            rope_turns_get(job->params->turns, plan_grouped_query_turn(job->task->plan, position), cos_sin);
        memcpy(q, query_of(job, i), k_dim * sizeof *q);
        rope_turns_apply(job->params->turns, cos_sin, k_dim, q);
    }
}

static void run_whole(const Job *job)
{
    float *total = job->scratch.total;
    for (uint32_t i = 0; i < job->n_queries; i++)
        memset(total + i * job->partial_floats, 0, job->partial_floats * sizeof *total);
    for (uint32_t i = 0, chunk = 0; i < job->task->n_chunks; i++, chunk++) {
        chunk = attend_task_chunk(job->task, chunk);
        attend_chunk(job, chunk, i ? job->scratch.chunk : total);
        if (i) merge_chunk(job, total, job->scratch.chunk);
    }
    write_out(job, total);
}

/* Some chunks of a divided task; whoever comes to its end last merges all. */
static void run_part(const Job *job, AttendTask *task, uint32_t part, float *partials)
{
    uint32_t begin = (uint32_t)((uint64_t)task->n_chunks * part / task->n_parts);
    uint32_t end = (uint32_t)((uint64_t)task->n_chunks * (part + 1) / task->n_parts);
    size_t step = job->n_queries * job->partial_floats;
    for (uint32_t i = 0, chunk = 0; i < end; i++, chunk++) {
        chunk = attend_task_chunk(task, chunk);
        if (i >= begin) attend_chunk(job, chunk, partials + i * step);
    }
    if (atomic_fetch_sub(&task->n_parts_left, 1) != 1) return;
    for (uint32_t i = 1; i < task->n_chunks; i++) merge_chunk(job, partials, partials + i * step);
    write_out(job, partials);
}

static void run_items(void *arg, uint32_t worker, size_t first, size_t end)
{
    const AttendWork *work = arg;
    Job job = {.params = work->params,
               .scratch = attend_scratch_at(work, worker),
               .group = work->group,
               .n_sums = attend_n_sums(work->head_dim),
               .partial_floats = attend_partial_floats(work->params->v_dim)};
    for (size_t item = first; item < end; item++) {
        AttendTask *task = &work->tasks[work->parts[item].task];
        job.task = task;
        job.n_queries = task->n_rows * work->group;
        if (kv_type_info(task->pages->pool->layout.type)->is_quantised) sum_queries(&job);
        if (task->plan->positions == POSITIONS_GROUPED) turn_queries(&job);
        if (task->n_parts == 1)
            run_whole(&job);
        else
            run_part(&job, task, work->parts[item].part, work->partials + task->first_partial * job.partial_floats);
    }
}

bool ISA(attend)(const AttendParams *params, Stream stream)
{
    if (params->k_dim > KV_MAX_DIM || params->v_dim > KV_MAX_DIM) return false;
    AttendWork work;
    attend_work_begin(&work, params, stream.pool ? threads_count(stream.pool) : 1);
    while (attend_work_next(&work)) parallel_each(stream, work.n_parts, run_items, &work);
    return true;
}
