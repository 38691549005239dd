/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of few keys within a chain of products. A block takes one KV head of a row, or a part of its keys: warps
 * take pairs of queries and sectors in turn, keys before queries are there, and meet once in shared memory. Everything
 * is fp32. The block that has a row's own sector rounds and stores its key and value. What a KV head reads is looked up
 * at the start of the kernel (AttendParams.launch.is_early).
 */
#pragma once
#include "kernels/attention/attend_device.cuh"
#include "kernels/attention/attend_turn.cuh"
#include "kernels/attention/attend_visits.cuh"
#include "kernels/linear/gemv_exchange.cuh"
#include "kernels/linear/gemv_feed.cuh"

#include <cfloat>

namespace lw
{

constexpr int kHeads = GEMV_ATTEND_HEADS;

/* Which row, KV head and part a block has. */
struct AttendItem {
    uint32_t row, kv_head, part;

    __device__ __forceinline__ explicit AttendItem(const GemvAttend &attend)
        : row(blockIdx.x / attend.n_parts / attend.params.n_kv_heads),
          kv_head(blockIdx.x / attend.n_parts % attend.params.n_kv_heads), part(blockIdx.x % attend.n_parts)
    {
    }
};

__device__ __forceinline__ bool has_item(const GemvAttend &attend)
{
    return blockIdx.x < attend.params.n_spans * attend.params.n_kv_heads * attend.n_parts;
}

/* By a thread for each attention of the chain; what many steps have in common is read before they are waited for. */
__device__ __forceinline__ void attend_find(const GemvAttend *attends, uint32_t n_attends, Visits *visits)
{
    const uint32_t i = threadIdx.x;
    if (i >= n_attends || !has_item(attends[i])) return;
    const AttendItem item(attends[i]);
    const KvSpan &span = attends[i].params.spans[item.row];
    Visits v = {};
    if (span.n_rows > 0) {
        v = visits_count(span, item.kv_head, false, span.first_pos, span.first_pos);
        visits_find(v, span, item.kv_head);
    }
    visits[i] = v;
}

/* The visits of a part. */
struct AttendRange {
    uint32_t begin, end;

    __device__ __forceinline__ AttendRange(const GemvAttend &attend, const AttendItem &item, const Visits &v)
        : begin(v.n_stored * item.part / attend.n_parts), end(v.n_stored * (item.part + 1) / attend.n_parts)
    {
    }
};

/* What a block has ready when queries come: where its sectors lie, and the angles of its row. */
struct AttendReady {
    const char *sectors[GEMV_ATTEND_KEYS / KV_SECTOR_TOKENS / GEMV_ATTEND_PARTS + 4]; /* NULL: no row sees it */
    float2 angles[128 / 2];
};
constexpr uint32_t kReadySectors = GEMV_ATTEND_KEYS / KV_SECTOR_TOKENS / GEMV_ATTEND_PARTS + 4;

__device__ __forceinline__ const char *sector_at(const AttendReady &ready, const Visits &v, uint32_t begin,
                                                 uint32_t visit)
{
    if (visit - begin < kReadySectors) return ready.sectors[visit - begin];
    return visits_sector(v, visits_at(v, visit).sector, false);
}

/* Long before its queries come; keys and values go to the second-level cache. */
__device__ __forceinline__ void attend_prepare(const GemvAttend &attend, const Visits &v, AttendReady *ready)
{
    if (!has_item(attend)) return;
    const AttendParams &p = attend.params;
    const AttendItem item(attend);
    const AttendRange range(attend, item, v);
    const uint32_t n = min(range.end - range.begin, kReadySectors), n_pairs = p.turn.n_pairs;
    const float2 *angles = reinterpret_cast<const float2 *>(p.turn.cos_sin) + (size_t)item.row * n_pairs;
    for (uint32_t i = threadIdx.x; i < n_pairs; i += worker_threads()) ready->angles[i] = angles[i];
    if (threadIdx.x < n)
        ready->sectors[threadIdx.x] = visits_sector(v, visits_at(v, range.begin + threadIdx.x).sector, false);
    sync_workers();
    const uint32_t lines = KV_SECTOR_TOKENS * p.k_dim * 4 / 128; /* of a sector */
    for (uint32_t i = threadIdx.x; i < n * lines; i += worker_threads()) {
        const char *sector = ready->sectors[i / lines];
        if (sector) asm volatile("prefetch.global.L2 [%0];" ::"l"(sector + i % lines * 128));
    }
}

/* Where the parts of a block's shared memory begin, in floats: shares of warps, then queries, then the row's own. */
struct AttendPlaces {
    uint32_t dim, max, sum, queries, key, value; /* shares come first: [warps, kHeads, dim] */

    __device__ __forceinline__ explicit AttendPlaces(const AttendParams &p) : dim(p.k_dim)
    {
        max = GEMV_MAX_WARPS * kHeads * dim;
        sum = max + GEMV_MAX_WARPS * kHeads;
        queries = sum + GEMV_MAX_WARPS * kHeads;
        key = queries + GEMV_ATTEND_GROUP * dim;
        value = key + dim / 2;
    }
};

/* Warps share pairs of queries and sectors out: `pair`, and every n_slots-th visit from `slot` on. */
struct AttendShare {
    uint32_t n_pairs, n_slots, pair, slot;

    __device__ __forceinline__ explicit AttendShare(uint32_t group)
        : n_pairs((group + kHeads - 1) / kHeads), n_slots(worker_threads() / 32 / n_pairs),
          pair(threadIdx.x / 32 % n_pairs), slot(threadIdx.x / 32 / n_pairs)
    {
    }
};

/* A lane's pieces of a sector, 8 channels of a token each; heads of 64 channels have half as many. */
constexpr int kPieces = 128 / 16;

/* Pieces of 16 tokens: keys lie in blocks of 8 channels, values in rows of `width` pieces. */
__device__ __forceinline__ uint32_t key_block(int i)
{
    return 2 * i + threadIdx.x % 32 / 16;
}

__device__ __forceinline__ uint32_t value_token(int i, uint32_t width)
{
    return (i * 32 + threadIdx.x % 32) / width;
}

__device__ __forceinline__ void load_keys(const char *sector, uint32_t width, uint4 *ret)
{
    const uint4 *from = reinterpret_cast<const uint4 *>(sector);
#pragma unroll
    for (int i = 0; i < kPieces; i++)
        if (2 * i < (int)width) ret[i] = __ldcg(from + key_block(i) * KV_SECTOR_TOKENS + threadIdx.x % 16);
}

__device__ __forceinline__ void load_values(const char *sector, uint32_t width, uint4 *ret)
{
    const uint4 *from = reinterpret_cast<const uint4 *>(sector) + KV_SECTOR_TOKENS * width;
#pragma unroll
    for (int i = 0; i < kPieces; i++)
        if (2 * i < (int)width) ret[i] = __ldcg(from + i * 32 + threadIdx.x % 32);
}

__device__ __forceinline__ void channels_of(const uint4 &piece, bool is_bf16, float *ret)
{
    const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 two = is_bf16 ? unpack<true>(words[i]) : unpack<false>(words[i]);
        ret[2 * i] = two.x;
        ret[2 * i + 1] = two.y;
    }
}

/* A lane's channels of a head's row, loaded until they are there. */
template <int dim> __device__ __forceinline__ void await_row(const float *from, float *x)
{
    bool is_all;
    from += threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < dim / 32; k++) x[k] = load_handed(from + 32 * k);
    do {
        is_all = true;
#pragma unroll
        for (int k = 0; k < dim / 32; k++) {
            if (is_there(x[k])) continue;
            is_all = false;
            x[k] = load_handed(from + 32 * k);
        }
    } while (!__all_sync(0xFFFFFFFFu, is_all));
}

/* The row's own key or value, rounded: to shared memory, and into the page. */
template <int dim>
__device__ __forceinline__ void put_own_row(const Visits &v, const float *x, bool is_bf16, bool is_value, float *own)
{
    const uint32_t token = v.last_pos % KV_SECTOR_TOKENS, lane = threadIdx.x % 32;
    char *sector = const_cast<char *>(visits_sector(v, v.last_pos / KV_SECTOR_TOKENS, false));
#pragma unroll
    for (int k = 0; k < dim / 32; k++) {
        const uint32_t c = 32 * k + lane;
        const uint16_t bits = (uint16_t)(is_bf16 ? pack<true>(x[k], 0) : pack<false>(x[k], 0));
        const uint32_t at = is_value ? (KV_SECTOR_TOKENS + token) * dim + c
                                     : (c / 8 * KV_SECTOR_TOKENS + token) * 8 + c % 8; /* values behind all keys */
        reinterpret_cast<uint16_t *>(own)[c] = bits;
        if (sector) reinterpret_cast<uint16_t *>(sector)[at] = bits;
    }
}

/* Queries of the group, and in the last part the row's own key and value: a warp each. */
template <int dim>
__device__ __forceinline__ void take_rows(const GemvAttend &attend, const AttendItem &item, const Visits &v,
                                          const AttendReady &ready, const float *set, float *shared)
{
    const AttendParams &p = attend.params;
    const AttendPlaces at(p);
    const uint32_t first = dim - 2 * p.turn.n_pairs, group = p.n_heads / p.n_kv_heads, lane = threadIdx.x % 32;
    const float *row = set + attend.qkv_at + item.row * attend.qkv_stride;
    RowAngles<dim> angles = {};
    const float scale = p.scale * (p.softcap > 0 ? 1 / p.softcap : kLog2e);
    const bool is_bf16 = p.launch.types == 1u << KV_BF16;
    const uint32_t n = group + (item.part == attend.n_parts - 1 && v.n_stored > 0 ? 2 : 0);
#pragma unroll
    for (int k = 0; k < dim / 32; k++)
        if (32 * k + lane >= first) angles.at[k] = ready.angles[(32 * k + lane - first) / 2];
    for (uint32_t i = threadIdx.x / 32; i < n; i += worker_threads() / 32) {
        float x[dim / 32];
        const bool is_value = i == group + 1;
        await_row<dim>(i < group ? row + (item.kv_head * group + i) * dim
                                 : row + (is_value ? attend.v_from : attend.k_from) + item.kv_head * dim,
                       x);
        if (!is_value) turn_row<dim>(p.turn, i < group ? p.turn.q_norm : p.turn.k_norm, angles, x);
        if (i >= group) {
            put_own_row<dim>(v, x, is_bf16, is_value, shared + (is_value ? at.value : at.key));
            continue;
        }
#pragma unroll
        for (int k = 0; k < dim / 32; k++) shared[at.queries + i * dim + 32 * k + lane] = x[k] * scale;
    }
}

/* Scores of the lane's token, times log2 e; those that are not finite are NaN. */
__device__ __forceinline__ void score(const uint4 *keys, const float *queries, uint32_t dim, bool is_bf16,
                                      float softcap, float *s)
{
#pragma unroll
    for (int h = 0; h < kHeads; h++) s[h] = 0;
#pragma unroll
    for (int i = 0; i < kPieces; i++) {
        float key[8];
        if (16 * i >= (int)dim) break;
        channels_of(keys[i], is_bf16, key);
#pragma unroll
        for (int h = 0; h < kHeads; h++) {
            const float *query = queries + h * dim + key_block(i) * 8;
            const float4 a = *reinterpret_cast<const float4 *>(query);
            const float4 b = *reinterpret_cast<const float4 *>(query + 4);
            s[h] += key[0] * a.x + key[1] * a.y + key[2] * a.z + key[3] * a.w;
            s[h] += key[4] * b.x + key[5] * b.y + key[6] * b.z + key[7] * b.w;
        }
    }
#pragma unroll
    for (int h = 0; h < kHeads; h++) {
        s[h] += __shfl_xor_sync(0xFFFFFFFFu, s[h], 16);
        s[h] = fmaf(s[h], 0.0f, s[h]);
        if (softcap > 0) s[h] = capped(s[h], softcap);
    }
}

/* A warp's softmax; sum: of this lane's tokens, which the lane 16 further has too; out: of 8 channels. */
struct AttendSoftmax {
    float max[kHeads], sum[kHeads], out[kHeads][8];
};

/* From scores to weights; without keys that are seen all is as before. */
__device__ __forceinline__ void weigh(bool is_seen, float *s, AttendSoftmax &soft)
{
#pragma unroll
    for (int h = 0; h < kHeads; h++) {
        float max = is_seen ? s[h] : -INFINITY;
#pragma unroll
        for (int step = 8; step; step /= 2) max = fmaxf(max, __shfl_xor_sync(0xFFFFFFFFu, max, step));
        max = fmaxf(max, soft.max[h]);
        const float factor = max == soft.max[h] ? 1 : exp2_of(soft.max[h] - max);
        s[h] = is_seen ? exp2_of(s[h] - fmaxf(max, -FLT_MAX)) : 0;
        soft.max[h] = max;
        soft.sum[h] = soft.sum[h] * factor + s[h];
#pragma unroll
        for (int c = 0; c < 8; c++) soft.out[h][c] *= factor;
    }
}

/* Values of keys that are not seen do not count, whatever they are. */
__device__ __forceinline__ void add_values(const uint4 *values, uint32_t width, bool is_bf16, uint32_t seen,
                                           const float *weights, AttendSoftmax &soft)
{
#pragma unroll
    for (int i = 0; i < kPieces; i++) {
        float value[8];
        const uint32_t token = value_token(i, width);
        if (2 * i >= (int)width) break;
        channels_of(values[i], is_bf16, value);
#pragma unroll
        for (int c = 0; c < 8; c++) value[c] = seen >> token & 1 ? value[c] : 0;
#pragma unroll
        for (int h = 0; h < kHeads; h++) {
            const float weight = __shfl_sync(0xFFFFFFFFu, weights[h], token);
#pragma unroll
            for (int c = 0; c < 8; c++) soft.out[h][c] += weight * value[c];
        }
    }
}

/* The sector's own row is not in memory yet. */
__device__ __forceinline__ void put_own_key(const float *own, uint32_t token, uint4 *keys)
{
#pragma unroll
    for (int i = 0; i < kPieces; i++)
        if (threadIdx.x % 16 == token) keys[i] = reinterpret_cast<const uint4 *>(own)[key_block(i)];
}

__device__ __forceinline__ void put_own_value(const float *own, uint32_t token, uint32_t width, uint4 *values)
{
#pragma unroll
    for (int i = 0; i < kPieces; i++)
        if (value_token(i, width) == token) values[i] = reinterpret_cast<const uint4 *>(own)[threadIdx.x % width];
}

/* The sectors of a warp; the keys of the first one are there. */
__device__ __forceinline__ void attend_sectors(const GemvAttend &attend, const Visits &v, const AttendReady &ready,
                                               const AttendRange &range, uint32_t visit, uint4 *pieces,
                                               const char *sector, const float *shared, AttendSoftmax &soft)
{
    const AttendParams &p = attend.params;
    const AttendPlaces at(p);
    const AttendShare mine(p.n_heads / p.n_kv_heads);
    const uint32_t width = at.dim / 8, own = v.last_pos / KV_SECTOR_TOKENS, own_token = v.last_pos % KV_SECTOR_TOKENS;
    const bool is_bf16 = p.launch.types == 1u << KV_BF16;
#pragma unroll 1
    while (visit < range.end) {
        const Visit which = visits_at(v, visit);
        const uint32_t key = which.sector * KV_SECTOR_TOKENS + threadIdx.x % 16;
        if (sector) {
            float s[kHeads];
            if (which.sector == own) put_own_key(shared + at.key, own_token, pieces);
            score(pieces, shared + at.queries + mine.pair * kHeads * at.dim, at.dim, is_bf16, p.softcap, s);
            load_values(sector, width, pieces);
            const bool is_seen = visits_sees<false>(v.plan, which.is_listed, false, v.last_pos, key);
            weigh(is_seen, s, soft);
            if (which.sector == own) put_own_value(shared + at.value, own_token, width, pieces);
            add_values(pieces, width, is_bf16, __ballot_sync(0xFFFFFFFFu, is_seen), s, soft);
        }
        visit += mine.n_slots;
        if (visit >= range.end) return;
        sector = sector_at(ready, v, range.begin, visit);
        if (sector) load_keys(sector, width, pieces);
    }
}

/* A warp's share to shared memory. */
__device__ __forceinline__ void put_share(const AttendPlaces &at, AttendSoftmax &soft, float *shared)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, width = at.dim / 8;
#pragma unroll
    for (int h = 0; h < kHeads; h++) {
#pragma unroll
        for (int step = 8; step; step /= 2) soft.sum[h] += __shfl_xor_sync(0xFFFFFFFFu, soft.sum[h], step);
#pragma unroll
        for (int c = 0; c < 8; c++) {
            soft.out[h][c] += __shfl_xor_sync(0xFFFFFFFFu, soft.out[h][c], 16);
            if (width == 8) soft.out[h][c] += __shfl_xor_sync(0xFFFFFFFFu, soft.out[h][c], 8);
        }
        const uint32_t share = warp * kHeads + h;
        if (lane == 0) shared[at.max + share] = soft.max[h];
        if (lane == 0) shared[at.sum + share] = soft.sum[h];
        if (lane >= width) continue;
        float4 *to = reinterpret_cast<float4 *>(shared + share * at.dim + 8 * lane);
        to[0] = make_float4(soft.out[h][0], soft.out[h][1], soft.out[h][2], soft.out[h][3]);
        to[1] = make_float4(soft.out[h][4], soft.out[h][5], soft.out[h][6], soft.out[h][7]);
    }
}

/* The sum of the first n_shares slots; without keys: 0. */
__device__ __forceinline__ void hand_shares(const GemvAttend &attend, const AttendItem &item, const float *shared,
                                            uint32_t n_shares, float *set)
{
    const uint32_t n_heads = attend.params.n_heads, group = n_heads / attend.params.n_kv_heads;
    const AttendPlaces at(attend.params);
    const AttendShare mine(group);
    float *out = set + attend.out_at + item.row * attend.out_stride, *stats = out + attend.n_parts * n_heads * at.dim;
    for (uint32_t i = threadIdx.x; i < group * at.dim; i += worker_threads()) {
        const uint32_t h = i / at.dim, c = i % at.dim, head = item.kv_head * group + h;
        const uint32_t step = mine.n_pairs * kHeads; /* from slot to slot */
        float max = -INFINITY, sum = 0, value = 0;
        for (uint32_t slot = 0; slot < n_shares; slot++) max = fmaxf(max, shared[at.max + h + slot * step]);
        for (uint32_t slot = 0; slot < n_shares; slot++) {
            const uint32_t share = h + slot * step;
            const float weight = shared[at.max + share] == -INFINITY ? 0 : exp2_of(shared[at.max + share] - max);
            sum += shared[at.sum + share] * weight;
            value += shared[share * at.dim + c] * weight;
        }
        if (attend.n_parts == 1) {
            hand_over(out + head * at.dim + c, sum != 0 ? value / sum : 0);
            continue;
        }
        hand_over(out + (item.part * n_heads + head) * at.dim + c, value);
        if (c < 2) hand_over(stats + (item.part * n_heads + head) * 2 + c, c ? sum : max);
    }
}

/* shared: memory that nobody else uses before and after. */
__device__ __forceinline__ void attend_in_chain(const GemvAttend &attend, const Visits &v, const AttendReady &ready,
                                                float *set, float *shared)
{
    if (!has_item(attend)) return;
    const AttendParams &p = attend.params;
    const AttendItem item(attend);
    const AttendRange range(attend, item, v);
    const AttendShare mine(p.n_heads / p.n_kv_heads);
    const uint32_t visit = mine.slot < mine.n_slots ? range.begin + mine.slot : range.end;
    const char *sector = visit < range.end ? sector_at(ready, v, range.begin, visit) : nullptr;
    uint4 pieces[kPieces];
    if (sector) load_keys(sector, p.k_dim / 8, pieces);
    if (p.k_dim == 64)
        take_rows<64>(attend, item, v, ready, set, shared);
    else
        take_rows<128>(attend, item, v, ready, set, shared);
    sync_workers();
    AttendSoftmax soft = {};
#pragma unroll
    for (int h = 0; h < kHeads; h++) soft.max[h] = -INFINITY;
    attend_sectors(attend, v, ready, range, visit, pieces, sector, shared, soft);
    if (visit < range.end) put_share(AttendPlaces(p), soft, shared);
    sync_workers();
    hand_shares(attend, item, shared, min(mine.n_slots, range.end - range.begin), set);
    sync_workers();
}

} // namespace lw
