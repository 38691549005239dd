/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/scratch.h"
#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"

#include <math.h>
#include <string.h>

enum {
    KEY_VECTORS = ATTN_BLOCK_KEYS / LANES,
    TILE_QUERIES = (SIMD_TILE_TOKENS + 1) / 2, /* that share each key and value once it is in a register */
};

/* The queries of one KV head in a run of rows. */
typedef struct Task {
    const AttentionParams *params;
    const AttnSpan *span;
    uint32_t kv_head, group;
    uint32_t first_row, n_rows; /* within the span */
    uint32_t head_dim;          /* the larger of k_dim and v_dim */
} Task;

/*
 * Up to TILE_QUERIES queries against one block; lanes without a query of their own repeat the last and store nothing.
 */
typedef struct QueryTile {
    const float *q[TILE_QUERIES];
    float *partial[TILE_QUERIES];
    uint32_t n_hidden[TILE_QUERIES];  /* keys of the block before the query's window */
    uint32_t n_visible[TILE_QUERIES]; /* keys of the block up to the query's own position; 0: store nothing */
    _Alignas(64) float weights[TILE_QUERIES][ATTN_BLOCK_KEYS];
} QueryTile;

SIMD_INLINE F32x16 load_vector(DType type, const void *base, size_t i)
{
    if (type == DTYPE_F32) return f32x16_load((const float *)base + i);
    const uint16_t *half = (const uint16_t *)base + i;
    return type == DTYPE_F16 ? f32x16_load_f16(half) : f32x16_load_bf16(half);
}

/* Channels c and up of a row of n, zeros past its end. */
SIMD_INLINE F32x16 load_channels(DType type, const void *base, size_t row_start, uint32_t c, uint32_t n)
{
    if (c + LANES <= n) return load_vector(type, base, row_start + c);
    _Alignas(64) char padded[LANES * sizeof(float)] = {0};
    size_t size = type == DTYPE_F32 ? 4 : 2;
    memcpy(padded, (const char *)base + (row_start + c) * size, (n - c) * size);
    return load_vector(type, padded, 0);
}

SIMD_INLINE void unpack_keys(DType type, const KvView *kv, size_t first_key, uint32_t n_keys, float *ret)
{
    for (uint32_t k0 = 0; k0 < ATTN_BLOCK_KEYS; k0 += LANES) {
        for (uint32_t c = 0; c < kv->k_dim; c += LANES) {
            F32x16 x[LANES];
            for (uint32_t i = 0; i < LANES; i++)
                x[i] = k0 + i < n_keys ? load_channels(type, kv->k, (first_key + k0 + i) * kv->k_dim, c, kv->k_dim)
                                       : f32x16_set1(0);
            f32x16_transpose(x);
            for (uint32_t i = 0; i < LANES; i++) f32x16_store(ret + (c + i) * ATTN_BLOCK_KEYS + k0, x[i]);
        }
    }
}

SIMD_INLINE void unpack_values(DType type, const KvView *kv, size_t first_key, uint32_t n_keys, float *ret)
{
    size_t stride = attn_pad(kv->v_dim);
    for (uint32_t k = 0; k < n_keys; k++)
        for (uint32_t c = 0; c < kv->v_dim; c += LANES)
            f32x16_store(ret + k * stride + c, load_channels(type, kv->v, (first_key + k) * kv->v_dim, c, kv->v_dim));
}

static void unpack_block(const KvView *kv, size_t first_key, uint32_t n_keys, const AttnScratch *scratch)
{
    switch (kv->type) {
    case DTYPE_F32:
        unpack_keys(DTYPE_F32, kv, first_key, n_keys, scratch->keys);
        unpack_values(DTYPE_F32, kv, first_key, n_keys, scratch->values);
        break;
    case DTYPE_F16:
        unpack_keys(DTYPE_F16, kv, first_key, n_keys, scratch->keys);
        unpack_values(DTYPE_F16, kv, first_key, n_keys, scratch->values);
        break;
    default:
        unpack_keys(DTYPE_BF16, kv, first_key, n_keys, scratch->keys);
        unpack_values(DTYPE_BF16, kv, first_key, n_keys, scratch->values);
        break;
    }
}

/* exp(x - max) where an empty side (max = -infinity) weighs nothing. */
SIMD_INLINE F32x16 weight_of(F32x16 x, float max)
{
    return f32x16_exp(f32x16_sub(x, f32x16_set1(max == -INFINITY ? 0.0f : max)));
}

/* Minus infinity in the first lanes, whatever is there. */
SIMD_INLINE F32x16 hide_lanes(F32x16 x, uint32_t n)
{
    return n < LANES ? f32x16_min(x, f32x16_keep(f32x16_set1(-INFINITY), n, INFINITY)) : f32x16_set1(-INFINITY);
}

/* Scores of query i of the tile become weights; returns what earlier weights are to be multiplied with. */
SIMD_INLINE float update_softmax(F32x16 score[KEY_VECTORS], QueryTile *tile, int i, const AttentionParams *params,
                                 float *state)
{
    uint32_t n_visible = tile->n_visible[i], n_hidden = tile->n_hidden[i];
    F32x16 highest = f32x16_set1(-INFINITY), sum = f32x16_set1(0);
    for (uint32_t g = 0; g < KEY_VECTORS; g++) {
        uint32_t visible = n_visible > g * LANES ? n_visible - g * LANES : 0;
        score[g] = f32x16_mul(score[g], f32x16_set1(params->scale));
        if (params->softcap > 0) score[g] = f32x16_softcap(score[g], params->softcap);
        if (visible < LANES) score[g] = f32x16_keep(score[g], visible, -INFINITY);
        if (n_hidden > g * LANES) score[g] = hide_lanes(score[g], n_hidden - g * LANES);
        highest = f32x16_max(highest, score[g]);
    }
    float block_max = f32x16_highest(highest), max = block_max > state[0] ? block_max : state[0];
    for (uint32_t g = 0; g < KEY_VECTORS; g++) {
        F32x16 weight = weight_of(score[g], max);
        f32x16_store(tile->weights[i] + g * LANES, weight);
        sum = f32x16_add(sum, weight);
    }
    float correction[LANES];
    f32x16_store(correction, weight_of(f32x16_set1(state[0]), max));
    state[0] = max;
    state[1] = state[1] * correction[0] + f32x16_sum(sum);
    return correction[0];
}

SIMD_INLINE void score_tile(QueryTile *tile, const float *keys, uint32_t k_dim, F32x16 score[TILE_QUERIES][KEY_VECTORS])
{
    SIMD_UNROLL
    for (int i = 0; i < TILE_QUERIES; i++) SIMD_UNROLL
    for (int g = 0; g < KEY_VECTORS; g++) score[i][g] = f32x16_set1(0);
    for (uint32_t c = 0; c < k_dim; c++) {
        F32x16 key[KEY_VECTORS];
        SIMD_UNROLL
        for (int g = 0; g < KEY_VECTORS; g++) key[g] = f32x16_load(keys + c * ATTN_BLOCK_KEYS + (uint32_t)g * LANES);
        SIMD_UNROLL
        for (int i = 0; i < TILE_QUERIES; i++) SIMD_UNROLL
        for (int g = 0; g < KEY_VECTORS; g++)
            score[i][g] = f32x16_madd(f32x16_set1(tile->q[i][c]), key[g], score[i][g]);
    }
}

/* out += weights * values over those keys in [from, to) that query i sees. */
SIMD_INLINE void weigh_range(const QueryTile *tile, int i, uint32_t from, uint32_t to, const float *values,
                             size_t stride, const int width, F32x16 *out)
{
    if (from < tile->n_hidden[i]) from = tile->n_hidden[i];
    if (to > tile->n_visible[i]) to = tile->n_visible[i];
    for (uint32_t k = from; k < to; k++) SIMD_UNROLL
    for (int v = 0; v < width; v++)
        out[v] = f32x16_madd(f32x16_set1(tile->weights[i][k]), f32x16_load(values + k * stride + (size_t)(v * LANES)),
                             out[v]);
}

/* out = out * correction + weights * values, for `width` vectors of channels at `values`. */
SIMD_INLINE void weigh_values(const QueryTile *tile, const float *correction, const float *values, size_t stride,
                              size_t channel, const int width)
{
    F32x16 out[TILE_QUERIES][4];
    uint32_t shared_from = 0, shared_to = tile->n_visible[0]; /* keys that all queries see; may be none */
    SIMD_UNROLL
    for (int i = 0; i < TILE_QUERIES; i++) {
        if (tile->n_visible[i] < shared_to) shared_to = tile->n_visible[i];
        if (tile->n_hidden[i] > shared_from) shared_from = tile->n_hidden[i];
        SIMD_UNROLL
        for (int v = 0; v < width; v++)
            out[i][v] = f32x16_mul(f32x16_load(tile->partial[i] + channel + v * LANES), f32x16_set1(correction[i]));
    }
    SIMD_UNROLL
    for (int i = 0; i < TILE_QUERIES; i++) /* earlier rows see more of the block in which windows begin */
        weigh_range(tile, i, tile->n_hidden[i], shared_from, values + channel, stride, width, out[i]);
    for (uint32_t k = shared_from; k < shared_to; k++) SIMD_UNROLL
    for (int v = 0; v < width; v++) {
        F32x16 value = f32x16_load(values + k * stride + channel + (size_t)(v * LANES));
        SIMD_UNROLL
        for (int i = 0; i < TILE_QUERIES; i++)
            out[i][v] = f32x16_madd(f32x16_set1(tile->weights[i][k]), value, out[i][v]);
    }
    SIMD_UNROLL
    for (int i = 0; i < TILE_QUERIES; i++) {
        /* later rows see more of the block that holds them */
        weigh_range(tile, i, shared_to > shared_from ? shared_to : shared_from, ATTN_BLOCK_KEYS, values + channel,
                    stride, width, out[i]);
        if (tile->n_visible[i] == 0) continue;
        SIMD_UNROLL
        for (int v = 0; v < width; v++) f32x16_store(tile->partial[i] + channel + v * LANES, out[i][v]);
    }
}

static void attend_tile(QueryTile *tile, const Task *task, const AttnScratch *scratch)
{
    const KvView *kv = &task->span->kv;
    size_t v_pad = attn_pad(kv->v_dim), channel = 0;
    F32x16 score[TILE_QUERIES][KEY_VECTORS];
    float correction[TILE_QUERIES];
    score_tile(tile, scratch->keys, kv->k_dim, score);
    for (int i = 0; i < TILE_QUERIES; i++) {
        float unused[2] = {0};
        float *state = tile->n_visible[i] ? tile->partial[i] + attn_pad(task->head_dim) : unused;
        correction[i] = update_softmax(score[i], tile, i, task->params, state);
    }
    for (; channel + 4 * LANES <= v_pad; channel += 4 * LANES)
        weigh_values(tile, correction, scratch->values, v_pad, channel, 4);
    for (; channel < v_pad; channel += LANES) weigh_values(tile, correction, scratch->values, v_pad, channel, 1);
}

/* Query i of a task: heads of the group run fastest. */
static const float *task_query(const Task *task, uint32_t i)
{
    size_t row = task->span->first_row + task->first_row + i / task->group;
    size_t head = task->kv_head * task->group + i % task->group;
    return task->params->q + (row * task->params->n_heads + head) * task->span->kv.k_dim;
}

static uint32_t task_position(const Task *task, uint32_t i)
{
    return task->span->first_pos + task->first_row + i / task->group;
}

static void attend_block(const Task *task, const AttnScratch *scratch, uint32_t first_key, uint32_t n_keys,
                         float *partials)
{
    uint32_t n_queries = task->n_rows * task->group;
    size_t stride = attn_partial_floats(task->head_dim);
    unpack_block(&task->span->kv, (size_t)task->kv_head * task->span->kv.capacity + first_key, n_keys, scratch);
    for (uint32_t i0 = 0; i0 < n_queries; i0 += TILE_QUERIES) {
        QueryTile tile;
        uint32_t most = 0;
        for (uint32_t j = 0; j < TILE_QUERIES; j++) {
            uint32_t i = i0 + j < n_queries ? i0 + j : n_queries - 1, position = task_position(task, i);
            uint32_t seen = position < first_key ? 0 : position - first_key + 1;
            uint32_t begin = attn_first_key(task->params->window, position);
            tile.q[j] = task_query(task, i);
            tile.partial[j] = partials + i * stride;
            tile.n_hidden[j] = begin > first_key ? begin - first_key : 0;
            tile.n_visible[j] = i0 + j >= n_queries ? 0 : seen < n_keys ? seen : n_keys;
            if (tile.n_hidden[j] >= tile.n_visible[j]) tile.n_hidden[j] = tile.n_visible[j] = 0;
            if (tile.n_visible[j] > most) most = tile.n_visible[j];
        }
        if (most > 0) attend_tile(&tile, task, scratch);
    }
}

/* All queries of a task against the keys of one chunk; partials [queries]. */
static void attend_chunk(const Task *task, const AttnScratch *scratch, uint32_t chunk, float *partials)
{
    uint32_t n_queries = task->n_rows * task->group, dim = (uint32_t)attn_pad(task->head_dim);
    size_t stride = attn_partial_floats(task->head_dim);
    uint32_t n_context = task->span->first_pos + task->first_row + task->n_rows;
    uint32_t first = chunk * ATTN_CHUNK_KEYS;
    uint32_t end = n_context - first < ATTN_CHUNK_KEYS ? n_context : first + ATTN_CHUNK_KEYS;
    for (uint32_t i = 0; i < n_queries; i++) {
        memset(partials + i * stride, 0, stride * sizeof *partials);
        partials[i * stride + dim] = -INFINITY;
    }
    uint32_t seen = attn_first_key(task->params->window, task_position(task, 0)) / ATTN_BLOCK_KEYS * ATTN_BLOCK_KEYS;
    for (uint32_t key = seen > first ? seen : first; key < end; key += ATTN_BLOCK_KEYS)
        attend_block(task, scratch, key, end - key < ATTN_BLOCK_KEYS ? end - key : ATTN_BLOCK_KEYS, partials);
}

/* total = total + part; a total that is empty takes the part's bits. */
static void merge_partial(uint32_t head_dim, float *total, const float *part)
{
    size_t dim = attn_pad(head_dim);
    float *state = total + dim, max = part[dim] > state[0] ? part[dim] : state[0];
    if (state[1] == 0) {
        memcpy(total, part, attn_partial_floats(head_dim) * sizeof *part);
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

static void write_out(const Task *task, uint32_t i, const float *total)
{
    size_t row = task->span->first_row + task->first_row + i / task->group;
    size_t head = task->kv_head * task->group + i % task->group;
    uint32_t v_dim = task->span->kv.v_dim;
    float *out = task->params->out + (row * task->params->n_heads + head) * v_dim;
    float sum = total[attn_pad(task->head_dim) + 1];
    for (uint32_t c = 0; c < v_dim; c++) out[c] = total[c] / sum;
}

/* The first chunk that the first row, and with it any row, sees something of. */
static uint32_t first_chunk_of(const Task *task)
{
    return attn_first_key(task->params->window, task_position(task, 0)) / ATTN_CHUNK_KEYS;
}

static void run_task(const Task *task, const AttnScratch *scratch)
{
    uint32_t n_queries = task->n_rows * task->group;
    uint32_t last = task->span->first_pos + task->first_row + task->n_rows - 1;
    size_t stride = attn_partial_floats(task->head_dim);
    uint32_t first_chunk = first_chunk_of(task);
    attend_chunk(task, scratch, first_chunk, scratch->total);
    for (uint32_t chunk = first_chunk + 1; chunk <= last / ATTN_CHUNK_KEYS; chunk++) {
        attend_chunk(task, scratch, chunk, scratch->chunk);
        for (uint32_t i = 0; i < n_queries; i++)
            if (task_position(task, i) >= chunk * ATTN_CHUNK_KEYS)
                merge_partial(task->head_dim, scratch->total + i * stride, scratch->chunk + i * stride);
    }
    for (uint32_t i = 0; i < n_queries; i++) write_out(task, i, scratch->total + i * stride);
}

static Task task_of_span(const AttentionParams *params, const AttnSpan *span)
{
    const KvView *kv = &span->kv;
    return (Task){.params = params,
                  .span = span,
                  .group = params->n_heads / kv->n_kv_heads,
                  .head_dim = kv->k_dim > kv->v_dim ? kv->k_dim : kv->v_dim};
}

static uint32_t rows_per_task(const Task *task)
{
    return task->group >= ATTN_TASK_QUERIES ? 1 : ATTN_TASK_QUERIES / task->group;
}

/* Items of a span: KV heads of the first run of rows, then of the next. */
static void span_items(void *arg, uint32_t worker, size_t first, size_t end)
{
    Task task = *(const Task *)arg;
    AttnScratch scratch = attention_scratch_at(task.params, task.head_dim, worker);
    uint32_t n_kv_heads = task.span->kv.n_kv_heads, run = rows_per_task(&task);
    for (size_t item = first; item < end; item++) {
        task.kv_head = (uint32_t)(item % n_kv_heads);
        task.first_row = (uint32_t)(item / n_kv_heads) * run;
        uint32_t left = task.span->n_rows - task.first_row;
        task.n_rows = left < run ? left : run;
        run_task(&task, &scratch);
    }
}

typedef struct DividedRow {
    Task task;
    uint32_t first_chunk;
    float *partials; /* [n_chunks, n_heads, attn_partial_floats] */
} DividedRow;

static void chunk_items(void *arg, uint32_t worker, size_t first, size_t end)
{
    const DividedRow *row = arg;
    Task task = row->task;
    AttnScratch scratch = attention_scratch_at(task.params, task.head_dim, worker);
    uint32_t n_kv_heads = task.span->kv.n_kv_heads;
    for (size_t item = first; item < end; item++) {
        task.kv_head = (uint32_t)(item % n_kv_heads);
        size_t at = item / n_kv_heads * task.params->n_heads + task.kv_head * task.group;
        attend_chunk(&task, &scratch, row->first_chunk + (uint32_t)(item / n_kv_heads),
                     row->partials + at * attn_partial_floats(task.head_dim));
    }
}

/* A single row with a long context: its chunks are shared out, then merged in order. */
static void run_divided(Task task, Stream stream, uint32_t n_workers)
{
    size_t stride = attn_partial_floats(task.head_dim);
    uint32_t n_heads = task.params->n_heads, first_chunk = first_chunk_of(&task);
    uint32_t n_chunks = task.span->first_pos / ATTN_CHUNK_KEYS + 1 - first_chunk;
    task.n_rows = 1;
    DividedRow row = {task, first_chunk, attention_scratch_at(task.params, task.head_dim, n_workers).keys};
    parallel_for(stream, (size_t)n_chunks * task.span->kv.n_kv_heads, 1, chunk_items, &row);
    for (uint32_t head = 0; head < n_heads; head++) {
        float *total = row.partials + head * stride;
        for (uint32_t chunk = 1; chunk < n_chunks; chunk++)
            merge_partial(task.head_dim, total, row.partials + ((size_t)chunk * n_heads + head) * stride);
        task.kv_head = head / task.group;
        write_out(&task, head % task.group, total);
    }
}

bool ISA(attention)(const AttentionParams *params, Stream stream)
{
    uint32_t n_workers = stream.pool ? threads_count(stream.pool) : 1;
    for (uint32_t i = 0; i < params->n_spans; i++) {
        DType type = params->spans[i].kv.type;
        if (type != DTYPE_F32 && type != DTYPE_F16 && type != DTYPE_BF16) return false;
    }
    for (uint32_t i = 0; i < params->n_spans; i++) {
        const AttnSpan *span = &params->spans[i];
        Task task = task_of_span(params, span);
        uint32_t run = rows_per_task(&task);
        size_t items = ((size_t)span->n_rows + run - 1) / run * span->kv.n_kv_heads;
        if (n_workers > 1 && span->n_rows == 1 && span->first_pos >= ATTN_CHUNK_KEYS)
            run_divided(task, stream, n_workers);
        else
            parallel_for(stream, items, 1, span_items, &task);
    }
    return true;
}
