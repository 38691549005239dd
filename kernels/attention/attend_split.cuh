/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of few rows over many keys. An item is (span, KV head, tile of 8 or 16 queries); its visits are cut into
 * units, and all units of all items are shared out evenly to a fixed grid, which every block works out for itself from
 * the spans. What a block does of one item is a part. Of a block's warps all but the last take
 * sectors in turn, each through its own ring of stages, and meet at the end of a part; the last one prepares the next
 * part. The block that ends an item's last part merges them all, in order.
 *
 * Queries and weights are pairs of 16-bit numbers (high, rest), so that products keep 16 bits or more. Everything is
 * transposed: scores [tokens, queries], results [channels, queries].
 */
#pragma once
#include "kernels/attention/attend_device.cuh"
#include "kernels/attention/attend_launch.cuh"
#include "kernels/attention/attend_turn.cuh"
#include "kernels/attention/attend_visits.cuh"

namespace
{

constexpr unsigned kUnitVisits = 8, kDetUnits = ATTEND_SPLIT_DET_UNITS, kDetUnitVisits = 16;
constexpr unsigned kMaxTileQueries = ATTEND_SPLIT_QUERIES, kMaxParts = 3, kMaxStages = 8, kSplitMaxWorkers = 4;

struct Part {
    Visits visits;
    uint32_t first_visit, end_visit;
    uint32_t first_head, first_query, n_queries; /* queries of the span, row by row; heads of the group */
    uint32_t first_row, first_pos, last_pos;     /* of the tile; first_row: of the span */
    uint32_t item, n_parts;
    uint64_t slot, first_slot;
    bool is_valid;
    float factor[kMaxTileQueries], q_sum[kMaxTileQueries]; /* score = factor * (scale * product + zero * q_sum) */
    uint32_t position[kMaxTileQueries];
};

/* Where the preparing warp stands. */
struct Cursor {
    uint32_t pair, tile, item;
    uint64_t unit, unit_in_item, end_unit;
    uint64_t n_units;
    uint32_t n_blocks; /* with work */
};

struct Division {
    uint32_t n_tiles, unit_visits;
    uint64_t n_units; /* of one item */
};

/* Of a pair (span, KV head). Without early exits, so that the loads of several pairs overlap. */
template <KvType type>
__device__ Division divide(const SplitArgs &args, uint32_t pair, uint32_t tile_queries, Visits *ret_visits)
{
    const AttendParams &p = args.params;
    const KvSpan &span = p.spans[pair / p.n_kv_heads];
    uint32_t kv_head = pair % p.n_kv_heads, group = p.n_heads / p.n_kv_heads, n_rows = span.is_split ? span.n_rows : 0;
    if (n_rows && p.launch.types & (p.launch.types - 1) &&
        span.classes[span.heads[kv_head].class_index].pool->layout.type != type)
        n_rows = 0;
    Division d = {(n_rows * group + tile_queries - 1) / tile_queries, kUnitVisits, 0};
    if (n_rows == 0) return d;
    *ret_visits = visits_count(span, kv_head, Format<type>::kQuantised, span.first_pos, span.first_pos + n_rows - 1);
    uint32_t n = ret_visits->n_stored + ret_visits->n_images;
    if (p.launch.is_deterministic)
        for (d.unit_visits = kDetUnitVisits; (uint64_t)d.unit_visits * kDetUnits < n;) d.unit_visits *= 2;
    d.n_units = n ? ((uint64_t)n + d.unit_visits - 1) / d.unit_visits : 1; /* a row that sees nothing is written too */
    return d;
}

/* The first unit of a block, and the block of a unit. */
__device__ inline uint64_t first_unit(const Cursor &c, uint32_t block)
{
    return block * c.n_units / c.n_blocks;
}

__device__ inline uint32_t block_of(const Cursor &c, uint64_t unit)
{
    return (uint32_t)(((unit + 1) * c.n_blocks - 1) / c.n_units);
}

/*
 * Where nearly all blocks get as many items each, the others get nothing: items of one length then are done by one
 * block each, and nothing is left to merge.
 */
__device__ inline void share_items(Cursor &c, uint32_t n_items)
{
    if (n_items == 0) return;
    const uint32_t each = (n_items + gridDim.x - 1) / gridDim.x, n_blocks = (n_items + each - 1) / each;
    if (n_blocks * 16 >= gridDim.x * 15) c.n_blocks = min(c.n_blocks, n_blocks);
}

__device__ inline uint32_t pairs_each(const SplitArgs &args)
{
    return (args.params.n_spans * args.params.n_kv_heads + blockDim.x - 1) / blockDim.x;
}

/*
 * What a part's visits are found by comes into the caches while work is counted, where pairs are few: each of these
 * structures names the next one. By one warp.
 */
__device__ inline void fetch_tables(const AttendParams &p)
{
    uint32_t pair = threadIdx.x % kWarp, n_pairs = p.n_spans * p.n_kv_heads;
    if (n_pairs > kWarp || pair >= n_pairs) return;
    const KvSpan &span = p.spans[pair / p.n_kv_heads];
    if (span.n_rows == 0 || !span.is_split) return;
    const KvPool *pool = span.classes[span.heads[pair % p.n_kv_heads].class_index].pool;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(pool) : "memory");
}

/* By all threads: the work of all pairs; prefix [threads], in shared memory: units and items before each one's pairs.
 */
template <KvType type>
__device__ Cursor count_work(const SplitArgs &args, uint32_t tile_queries, uint64_t *scratch, uint2 *prefix)
{
    uint32_t n_pairs = args.params.n_spans * args.params.n_kv_heads, from = threadIdx.x * pairs_each(args);
    uint32_t to = min(from + pairs_each(args), n_pairs);
    uint64_t both = 0, total; /* units from bit 20 on, items below */
#pragma unroll 4
    for (uint32_t pair = from; pair < to; pair++) {
        Visits visits;
        Division d = divide<type>(args, pair, tile_queries, &visits);
        both += (d.n_units * d.n_tiles << 20) + d.n_tiles;
    }
    uint64_t before = block_prefix(both, scratch, &total);
    prefix[threadIdx.x] = make_uint2((uint32_t)(before >> 20), (uint32_t)before & 0xFFFFF);
    Cursor c = {};
    c.n_units = total >> 20;
    c.n_blocks = (uint32_t)min((uint64_t)gridDim.x, c.n_units);
    share_items(c, (uint32_t)total & 0xFFFFF);
    __syncthreads();
    return c;
}

/* Sets the cursor to the start of the block's share. By one warp. */
template <KvType type>
__device__ void find_share(const SplitArgs &args, Cursor &c, uint32_t tile_queries, const uint2 *prefix)
{
    c.unit = first_unit(c, blockIdx.x);
    c.end_unit = first_unit(c, blockIdx.x + 1);
    uint32_t last = 0; /* the last thread whose pairs start no later */
    for (uint32_t i = threadIdx.x % kWarp; i < blockDim.x; i += kWarp)
        if (prefix[i].x <= c.unit) last = i;
    last = __reduce_max_sync(kAllLanes, last);
    uint64_t before = prefix[last].x;
    uint32_t item = prefix[last].y;
    Visits visits;
    Division d;
    for (c.pair = last * pairs_each(args);; c.pair++) {
        d = divide<type>(args, c.pair, tile_queries, &visits);
        if (c.unit < before + d.n_units * d.n_tiles) break;
        before += d.n_units * d.n_tiles;
        item += d.n_tiles;
    }
    c.tile = (uint32_t)((c.unit - before) / d.n_units);
    c.unit_in_item = (c.unit - before) % d.n_units;
    c.item = item + c.tile;
}

/*
 * One query as pairs of 16-bit numbers in fragment order: uint4 [tile of 8][step][lane] = high 0..3, rest 0..3; x
 * becomes what they say.
 */
template <KvType type, int dim, bool bf16>
__device__ float put_query(uint16_t *fragments, uint32_t query, float x[dim / 32])
{
    float sum = 0;
    for (int k = 0; k < dim / 32; k++) {
        KeyPlace place = key_place<type>(k * 32 + threadIdx.x % kWarp);
        uint32_t high = pack<bf16>(x[k], 0), rest = pack_rest<bf16>(x[k], 0, high);
        uint16_t *to = fragments + ((query / 8 * (dim / 16) + place.s) * 32 + query % 8 * 4 + place.t) * 8 + place.i;
        to[0] = (uint16_t)high;
        to[4] = (uint16_t)rest;
        x[k] = unpack<bf16>(high).x + unpack<bf16>(rest).x;
        sum += x[k];
    }
    for (unsigned step = kWarp / 2; step; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    return sum;
}

/*
 * Queries of tiles of 8 as fragments; of quantised types once more for images, and with bands their cut sums
 * [query][dim / 16].
 */
template <KvType type, int dim, bool has_bands> struct QueryPlaces {
    static constexpr int kEach = dim / 16 * 32; /* fragments of a tile */
    static constexpr int kTile = Format<type>::kQuantised ? 2 * kEach + (has_bands ? dim / 8 : 0) : kEach;
    static __device__ __forceinline__ uint4 *images(uint4 *fragments, uint32_t n_tiles)
    {
        return fragments + n_tiles * kEach;
    }
    static __device__ __forceinline__ float *sums(uint4 *fragments, uint32_t n_tiles, uint32_t query)
    {
        return (float *)(fragments + n_tiles * 2 * kEach) + query * (dim / 16);
    }
};

/* One query divided by a power of 2 that keeps it inside f16, and what goes with it. */
template <KvType type, int dim, bool has_bands>
__device__ void put_scaled_query(const SplitArgs &args, Part &part, uint32_t q, float x[dim / 32], uint4 *fragments,
                                 uint32_t n_tiles)
{
    using Places = QueryPlaces<type, dim, has_bands>;
    const AttendParams &p = args.params;
    float largest = 0;
    for (int k = 0; k < dim / 32; k++) largest = fmaxf(largest, fabsf(x[k]));
    for (unsigned step = kWarp / 2; step; step /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
    uint32_t exponent = min(max(__float_as_uint(largest) >> 23, 1u), 253u); /* 2^(exponent - 127) <= largest */
    float up = __uint_as_float(exponent << 23), down = __uint_as_float((254 - exponent) << 23);
    for (int k = 0; k < dim / 32; k++) x[k] *= down;
    if (Format<type>::kQuantised) {
        float copy[dim / 32];
        for (int k = 0; k < dim / 32; k++) copy[k] = x[k];
        put_query<KV_BF16, dim, true>((uint16_t *)Places::images(fragments, n_tiles), q, copy);
    }
    float sum = put_query<type, dim, Format<type>::kBf16>((uint16_t *)fragments, q, x);
    if (Format<type>::kQuantised && has_bands && part.visits.plan.n_bands)
        put_cut_sums<dim>(x, Places::sums(fragments, n_tiles, q));
    if (threadIdx.x % kWarp != 0) return;
    part.factor[q] = up * p.scale * (p.softcap > 0 ? 1 / p.softcap : kLog2e);
    part.q_sum[q] = sum;
}

/* Zeros where a part's queries will be, and what else is known before them. By one warp. */
template <KvType type, int dim, bool has_bands>
__device__ void clear_queries(const SplitArgs &args, Part &part, uint32_t tile_queries, uint4 *fragments)
{
    uint32_t lane = threadIdx.x % kWarp, group = args.params.n_heads / args.params.n_kv_heads;
    for (uint32_t i = lane; i < tile_queries / 8 * QueryPlaces<type, dim, has_bands>::kTile; i += kWarp)
        fragments[i] = make_uint4(0, 0, 0, 0);
    for (uint32_t q = lane; q < tile_queries; q += kWarp) {
        part.factor[q] = part.q_sum[q] = 0;
        part.position[q] = part.visits.first_pos + (part.first_query + (q < part.n_queries ? q : 0)) / group;
    }
}

/* A warp's queries of a part, every n_warps-th from `first` on; some at a time so that their loads overlap. */
template <KvType type, int dim, int together, bool has_bands>
__device__ void put_queries(const SplitArgs &args, Part &part, uint32_t tile_queries, uint4 *fragments, uint32_t first,
                            uint32_t n_warps)
{
    const AttendParams &p = args.params;
    uint32_t lane = threadIdx.x % kWarp, group = p.n_heads / p.n_kv_heads;
    for (; first < part.n_queries; first += together * n_warps) {
        float x[together][dim / 32];
        for (int j = 0; j < together; j++) {
            uint32_t i = part.first_query + min(first + j * n_warps, part.n_queries - 1);
            const float *from =
                p.q + ((size_t)(part.first_row + i / group) * p.n_heads + part.first_head + i % group) * dim;
            for (int k = 0; k < dim / 32; k++) x[j][k] = from[k * 32 + lane];
        }
        if (p.k)
            for (int j = 0; j < together; j++) {
                uint32_t row =
                    part.first_row + (part.first_query + min(first + j * n_warps, part.n_queries - 1)) / group;
                turn_row<dim>(p.turn, p.turn.q_norm, load_angles<dim>(p.turn, row), x[j]);
            }
        for (int j = 0; j < together; j++)
            if (first + j * n_warps < part.n_queries)
                put_scaled_query<type, dim, has_bands>(args, part, first + j * n_warps, x[j], fragments,
                                                       tile_queries / 8);
    }
}

/* The next part, if there is one, but for its queries; they may not be there yet. By one warp. */
template <KvType type>
__device__ void prepare_visits(const SplitArgs &args, Cursor &c, uint32_t tile_queries, Part &part)
{
    unsigned lane = threadIdx.x % kWarp;
    if (lane == 0) part.is_valid = c.unit < c.end_unit;
    if (c.unit >= c.end_unit) return;
    const AttendParams &p = args.params;
    uint32_t group = p.n_heads / p.n_kv_heads, kv_head = c.pair % p.n_kv_heads;
    const KvSpan &span = p.spans[c.pair / p.n_kv_heads];
    Visits visits;
    Division d = divide<type>(args, c.pair, tile_queries, &visits);
    visits_find(visits, span, kv_head);
    uint64_t item_start = c.unit - c.unit_in_item, left = d.n_units - c.unit_in_item;
    uint64_t n = p.launch.is_deterministic ? 1 : min(left, c.end_unit - c.unit);
    if (lane == 0) {
        part.visits = visits;
        part.first_visit = (uint32_t)(c.unit_in_item * d.unit_visits);
        part.end_visit =
            (uint32_t)min((c.unit_in_item + n) * d.unit_visits, (uint64_t)visits.n_stored + visits.n_images);
        part.first_head = kv_head * group;
        part.first_row = span.first_row;
        part.first_query = c.tile * tile_queries;
        part.n_queries = min(tile_queries, span.n_rows * group - part.first_query);
        part.first_pos = span.first_pos + part.first_query / group;
        part.last_pos = span.first_pos + (part.first_query + part.n_queries - 1) / group;
        part.item = c.item;
        if (p.launch.is_deterministic) {
            part.slot = c.unit;
            part.first_slot = item_start;
            part.n_parts = (uint32_t)d.n_units;
        } else {
            uint32_t first_block = block_of(c, item_start);
            part.slot = (uint64_t)blockIdx.x + c.item;
            part.first_slot = (uint64_t)first_block + c.item;
            part.n_parts = block_of(c, item_start + d.n_units - 1) - first_block + 1;
        }
    }
    __syncwarp();
    c.unit += n;
    c.unit_in_item += n;
    if (c.unit_in_item < d.n_units) return;
    c.unit_in_item = 0;
    c.item++;
    if (++c.tile < d.n_tiles) return;
    c.tile = 0;
    if (c.unit < c.end_unit)
        while (divide<type>(args, ++c.pair, tile_queries, &visits).n_units == 0) {
        }
}

template <KvType type, int dim, bool has_bands>
__device__ void prepare(const SplitArgs &args, Cursor &c, uint32_t tile_queries, Part &part, uint4 *fragments)
{
    bool is_there = c.unit < c.end_unit;
    prepare_visits<type>(args, c, tile_queries, part);
    if (!is_there) return;
    clear_queries<type, dim, has_bands>(args, part, tile_queries, fragments);
    __syncwarp();
    put_queries<type, dim, dim <= 128 ? 4 : 2, has_bands>(args, part, tile_queries, fragments, 0, 1);
}

} // namespace
