/* SPDX-License-Identifier: Apache-2.0 */
/* The feeding warp group of attend_wgmma.cuh: it finds tiles of queries, walks their keys and brings them. */
#pragma once
#include "kernels/attention/attend_wgmma.cuh"

namespace
{

enum KeyPhase { KEYS_SINK, KEYS_LIST, KEYS_RECENT, KEYS_END };

/* All rows see the sectors from whole_from on, up to whole_end, by recency; whole_from is a tile's first. */
struct KeyWalk {
    uint32_t phase, at; /* sector, or index into the list */
    uint32_t whole_from, whole_end;
    BandRange band; /* of sector `at` but in the list, if that has a band */
};

/*
 * A tile of keys as it is walked: its first sector or, of a listed one, index into the list; KeyTile.bits; and where
 * the two pages of one that is not listed lie: undefined if none of their sectors is seen.
 */
struct Fetch {
    uint32_t first, bits;
    uint32_t pages[2];
};

__device__ inline KeyWalk walk_begin(const Visits &v)
{
    uint32_t begin = v.plan.recent > v.last_pos ? 0 : (v.last_pos - v.plan.recent) / KV_SECTOR_TOKENS + 1;
    return {KEYS_SINK, 0, (begin + kTileSectors - 1) / kTileSectors * kTileSectors,
            (v.first_pos + 1) / KV_SECTOR_TOKENS, {0, 0}};
}

/* What is not held, or lies behind the last row, is nobody's. */
__device__ inline bool is_held(const Visits &v, uint32_t page)
{
    return page <= v.last_pos / KV_PAGE_TOKENS && v.pages[page] != UINT32_MAX;
}

__device__ inline uint32_t walk_end(const Visits &v, uint32_t phase)
{
    return phase == KEYS_SINK ? v.n_sink : phase == KEYS_LIST ? v.n_list : v.first_recent + v.n_recent;
}

/* The next sectors of the list, by whole warps. */
template <int dim, bool has_bands> __device__ inline Fetch walk_list(const Visits &v, KeyWalk &walk)
{
    uint32_t n = min(v.n_list - walk.at, kTileSectors), lane = threadIdx.x % kWarp, n_steps = dim / 16;
    uint32_t sector = lane < n ? v.plan.list[walk.at + lane] : 0;
    if (has_bands && v.plan.n_bands) { /* as many as have the first one's */
        uint32_t own = band_at(v, sector, dim).n_steps;
        n_steps = __shfl_sync(kAllLanes, own, 0);
        n = min(n, (uint32_t)__ffs(__ballot_sync(kAllLanes, lane >= n || own != n_steps)) - 1);
    }
    uint32_t sectors = __ballot_sync(kAllLanes, lane < n && is_held(v, sector / KV_PAGE_SECTORS));
    uint32_t whole =
        __ballot_sync(kAllLanes, lane < n && sector * KV_SECTOR_TOKENS + KV_SECTOR_TOKENS - 1 <= v.first_pos);
    Fetch ret = {walk.at, sectors | kListed | ((sectors & whole) == kAllSectors ? 0 : kMasked), {0, 0}};
    if (has_bands) ret.bits |= n_steps << kStepsAt;
    walk.at += n;
    return ret;
}

/* The sectors from walk.at on of one tile that begins at a multiple of its size. */
template <int dim, bool has_bands> __device__ inline Fetch walk_range(const Visits &v, KeyWalk &walk)
{
    uint32_t first = walk.at / kTileSectors * kTileSectors, end = min(walk_end(v, walk.phase), first + kTileSectors);
    if (has_bands) end = min(end, walk.band.end);
    Fetch ret = {first, (1u << (end - first)) - (1u << (walk.at - first)), {0, 0}};
    walk.at = end;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t page = first / KV_PAGE_SECTORS + i, bits = 15u << i * KV_PAGE_SECTORS;
        if (!(ret.bits & bits)) continue;
        if (is_held(v, page))
            ret.pages[i] = v.pages[page];
        else
            ret.bits &= ~bits;
    }
    bool is_whole = ret.bits == kAllSectors && visits_all_seen<false>(v.plan, false, false, v.first_pos, v.last_pos,
                                                                      first * KV_SECTOR_TOKENS, kTileKeys);
    if (!is_whole) ret.bits |= kMasked;
    if (has_bands) ret.bits |= walk.band.n_steps << kStepsAt;
    return ret;
}

/* False: there are no more. At one place in the code, so that nothing goes through memory. */
template <int dim, bool has_bands>
__device__ __forceinline__ bool walk_keys(const Visits &v, KeyWalk &walk, Fetch &ret)
{
    bool is_whole = walk.phase == KEYS_RECENT && walk.at >= walk.whole_from && walk.at + kTileSectors <= walk.whole_end;
    if (has_bands) is_whole = is_whole && walk.at + kTileSectors <= walk.band.end;
    if (is_whole && walk.at % kTileSectors == 0) {
        const uint32_t *pages = v.pages + walk.at / KV_PAGE_SECTORS;
        ret = {walk.at, kAllSectors | (has_bands ? walk.band.n_steps << kStepsAt : 0), {pages[0], pages[1]}};
        walk.at += kTileSectors;
        return true;
    }
    while (walk.phase != KEYS_END) {
        if (walk.at >= walk_end(v, walk.phase)) {
            walk.phase++;
            walk.at = walk.phase == KEYS_RECENT ? v.first_recent : 0;
            continue;
        }
        if (has_bands && walk.phase != KEYS_LIST && walk.at >= walk.band.end) walk.band = band_at(v, walk.at, dim);
        ret = walk.phase == KEYS_LIST ? walk_list<dim, has_bands>(v, walk) : walk_range<dim, has_bands>(v, walk);
        if (ret.bits & kAllSectors) return true;
    }
    return false;
}

/* Where a block stands in the list of all tiles of queries. */
struct WorkCursor {
    uint64_t before; /* tiles of the spans before */
    uint32_t span, turn;
};

/*
 * Tiles of each span from the longest to the shortest; blocks take turns, every second one in reverse. False: past the
 * last.
 */
template <KvType type> __device__ bool find_work(const AttendParams &p, WorkCursor &cursor, QueryWork *ret)
{
    uint32_t group = p.n_heads / p.n_kv_heads;
    for (;; cursor.turn++) {
        uint32_t place = cursor.turn % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
        uint64_t index = (uint64_t)cursor.turn * gridDim.x + place, n = 0;
        for (; cursor.span < p.n_spans; cursor.span++, cursor.before += n) {
            const KvSpan &span = p.spans[cursor.span];
            n = span.is_split ? 0 : (uint64_t)((span.n_rows * group + kTileQueries - 1) / kTileQueries) * p.n_kv_heads;
            if (index < cursor.before + n) break;
        }
        if (cursor.span == p.n_spans) return false;
        const KvSpan &span = p.spans[cursor.span];
        uint64_t in_span = n - 1 - (index - cursor.before);
        ret->kv_head = (uint32_t)(in_span % p.n_kv_heads);
        if (span.classes[span.heads[ret->kv_head].class_index].pool->layout.type != type) continue;
        ret->first_query = (uint32_t)(in_span / p.n_kv_heads) * kTileQueries;
        ret->n_queries = span.n_rows * group;
        ret->first_row = span.first_row;
        cursor.turn++;
        uint32_t last = min(ret->first_query + kTileQueries, ret->n_queries) - 1;
        ret->visits = visits_count(span, ret->kv_head, false, span.first_pos + ret->first_query / group,
                                   span.first_pos + last / group);
        visits_find(ret->visits, span, ret->kv_head);
        return true;
    }
}

/* Queries are read in 32-bit numbers by those who attend: have them near. */
template <int dim> __device__ void expect_queries(const AttendParams &p, const QueryWork &work)
{
    uint32_t group = p.n_heads / p.n_kv_heads, i = min(work.first_query + threadIdx.x, work.n_queries - 1);
    const float *q = p.q + ((size_t)(work.first_row + i / group) * p.n_heads + work.kv_head * group + i % group) * dim;
    for (int at = 0; at < dim; at += 32) asm volatile("prefetch.global.L2 [%0];" ::"l"(q + at));
}

__device__ __forceinline__ const char *slot_at(const Visits &v, uint32_t page)
{
    return v.base + page * v.page_bytes;
}

/* By the first warp: a lane a sector. */
template <class Tile, bool has_bands>
__device__ __forceinline__ void bring_keys(WgmmaShared &shared, const WgmmaMemory &memory, const Visits &v,
                                           const Fetch &fetch, Ring<Tile::kStages> &ring)
{
    unsigned lane = threadIdx.x, at = ring.at();
    if (lane < kWarp) {
        KeyTile &tile = shared.tiles[ring.slot];
        bool is_seen = lane < kTileSectors && fetch.bits >> lane & 1;
        lw::barrier_wait(&shared.k_empty[at], ring.parity() ^ 1);
        uint32_t sector = fetch.first + lane, page = lane < KV_PAGE_SECTORS ? fetch.pages[0] : fetch.pages[1];
        if (is_seen && (fetch.bits & kListed)) {
            sector = v.plan.list[sector];
            page = v.pages[sector / KV_PAGE_SECTORS];
        }
        const char *place = slot_at(v, page) + sector % KV_PAGE_SECTORS * (2 * Tile::kSectorBytes);
        if (lane < kTileSectors) {
            tile.sectors[lane] = sector;
            tile.places[lane] = place;
        }
        if (lane == 0) tile.bits = fetch.bits;
        __syncwarp();
        const uint32_t bytes = has_bands ? (fetch.bits >> kStepsAt) * Tile::kStepBytes : Tile::kSectorBytes;
        if (lane == 0) lw::barrier_expect(&shared.k_full[at], __popc(fetch.bits & kAllSectors) * bytes);
        if (is_seen)
            lw::bulk_copy(memory.keys + at * Tile::kBytes + lane * Tile::kSectorBytes, place, bytes,
                          &shared.k_full[at]);
        __syncwarp();
    }
    ring.next();
}

/* Values that were asked for, but which nobody has been told of; stage: kNone. */
struct Pending {
    uint32_t stage;
    bool is_masked;
    static constexpr uint32_t kNone = UINT32_MAX;
};

/* The channels of a piece of 8 values that are not finite, as bits; they become 0. */
template <bool bf16> __device__ inline uint32_t tame(uint32_t (&x)[4])
{
    constexpr uint32_t kMask = bf16 ? 0x7F80u : 0x7C00u;
    uint32_t wild = 0;
    for (int i = 0; i < 4; i++)
        for (int half = 0; half < 2; half++)
            if ((x[i] >> 16 * half & kMask) == kMask) {
                wild |= 1u << (2 * i + half);
                x[i] &= half ? 0xFFFFu : 0xFFFF0000u;
            }
    return wild;
}

/* Where this thread's pieces of a tile of values lie: piece i is of token first_token + i * step. */
template <class Tile> struct ValuePieces {
    static constexpr unsigned kPieces = Tile::kRowBytes / 16, kStep = lw::kGroupThreads / kPieces;
    static constexpr unsigned kEach = kTileKeys / kStep;
    unsigned piece, first_token, to;
    __device__ ValuePieces()
    {
        piece = threadIdx.x % kPieces;
        first_token = threadIdx.x / kPieces;
        to = piece / 8 * Tile::kHalfBytes + first_token * 128 + ((piece ^ first_token) % 8) * 16;
    }
};

template <class Tile> __device__ bool tame_values(const WgmmaMemory &memory, uint32_t stage)
{
    using Pieces = ValuePieces<Tile>;
    Pieces at;
    uint32_t any = 0;
    for (unsigned i = 0; i < Pieces::kEach; i++) {
        uint4 *piece = (uint4 *)(memory.values + stage * Tile::kBytes + at.to + i * Pieces::kStep * 128), x = *piece;
        uint32_t words[4] = {x.x, x.y, x.z, x.w}, wild = tame<Tile::kBf16>(words);
        if (wild) *piece = make_uint4(words[0], words[1], words[2], words[3]);
        memory.wild[stage * Tile::kWildBytes + (at.first_token + i * Pieces::kStep) * Pieces::kPieces + at.piece] =
            (uint8_t)wild;
        any |= wild;
    }
    return any;
}

enum { NAMED_FEED = 1, NAMED_TURN }; /* of the hardware's barriers; the second, of two groups */

/* Waits until they have come, and tells those who attend. */
template <class Tile>
__device__ __forceinline__ void show_values(WgmmaShared &shared, const WgmmaMemory &memory, Pending &pending)
{
    if (pending.stage == Pending::kNone) return;
    copies_wait<0>();
    if (pending.is_masked) {
        bool is_wild = lw::named_or(NAMED_FEED, lw::kGroupThreads, tame_values<Tile>(memory, pending.stage));
        if (threadIdx.x == 0) shared.is_wild[pending.stage] = is_wild;
    } else if (threadIdx.x == 0) {
        shared.is_wild[pending.stage] = false;
    }
    lw::fence_async();
    lw::barrier_arrive(&shared.v_full[pending.stage]);
    pending.stage = Pending::kNone;
}

/* A page's share of a tile that every row sees. */
template <class Tile> __device__ __forceinline__ void copy_values(uint32_t to, const char *page)
{
    using Pieces = ValuePieces<Tile>;
#pragma unroll
    for (unsigned i = 0; i < KV_PAGE_TOKENS / Pieces::kStep; i++) {
        unsigned token = i * Pieces::kStep;
        asm volatile(
            "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + token * 128),
            "l"(page + token / KV_SECTOR_TOKENS * 2 * Tile::kSectorBytes + token % KV_SECTOR_TOKENS * Tile::kRowBytes)
            : "memory");
    }
}

/* Sectors that are not seen, and tokens behind the last row, become zeros. from_none: any address. */
template <class Tile>
__device__ __forceinline__ void copy_some_values(uint32_t to, const KeyTile &tile, const ValuePieces<Tile> &piece,
                                                 uint32_t last_pos, const void *from_none)
{
    using Pieces = ValuePieces<Tile>;
#pragma unroll 1
    for (unsigned i = 0; i < Pieces::kEach; i++) {
        unsigned at = i * Pieces::kStep + piece.first_token, sector = at / KV_SECTOR_TOKENS,
                 token = at % KV_SECTOR_TOKENS;
        bool is_there = (tile.bits >> sector & 1) && tile.sectors[sector] * KV_SECTOR_TOKENS + token <= last_pos;
        const char *from = tile.places[sector] + Tile::kSectorBytes + token * Tile::kRowBytes + piece.piece * 16;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + i * Pieces::kStep * 128),
                     "l"(is_there ? from : from_none), "r"(is_there ? 16 : 0)
                     : "memory");
    }
}

template <class Tile>
__device__ __forceinline__ void bring_values(WgmmaShared &shared, const WgmmaMemory &memory, const Visits &v,
                                             const Fetch &fetch, const void *from_none, Ring<Tile::kStages> &ring,
                                             Pending &pending)
{
    ValuePieces<Tile> piece;
    show_values<Tile>(shared, memory, pending); /* of the tile before: they have had a turn's time */
    lw::barrier_wait(&shared.v_empty[ring.at()], ring.parity() ^ 1);
    uint32_t to = shared_address(memory.values + ring.at() * Tile::kBytes + piece.to);
    if (fetch.bits & (kMasked | kListed)) {
        lw::named_wait(NAMED_FEED, lw::kGroupThreads); /* the first warp has said where the sectors are */
        copy_some_values<Tile>(to, shared.tiles[ring.slot], piece, v.last_pos, from_none);
    } else {
        uint32_t in_page = Tile::kSectorBytes + piece.first_token * Tile::kRowBytes + piece.piece * 16;
        copy_values<Tile>(to, slot_at(v, fetch.pages[0]) + in_page);
        copy_values<Tile>(to + KV_PAGE_TOKENS * 128, slot_at(v, fetch.pages[1]) + in_page);
    }
    copies_commit();
    pending = {ring.at(), (fetch.bits & kMasked) != 0};
    ring.next();
}

/* The next tile of queries into work, by one thread; all of the group see it then. */
template <KvType type>
__device__ __forceinline__ void plan_work(const AttendParams &p, WgmmaShared &shared, WorkCursor &cursor,
                                          Ring<kWorks> works)
{
    QueryWork &work = shared.work[works.at()];
    lw::barrier_wait(&shared.work_empty[works.at()], works.parity() ^ 1);
    if (threadIdx.x == 0) work.is_end = !find_work<type>(p, cursor, &work);
    lw::named_wait(NAMED_FEED, lw::kGroupThreads);
}

__device__ __forceinline__ void show_work(WgmmaShared &shared, Ring<kWorks> works, bool is_empty)
{
    if (threadIdx.x != 0) return;
    shared.work[works.at()].is_empty = is_empty;
    lw::barrier_arrive(&shared.work_full[works.at()]);
}

/* Keys are a tile ahead of values, and their pages' numbers one more. */
template <KvType type, int dim, bool has_bands>
__device__ __forceinline__ void feed(const AttendParams &p, WgmmaShared &shared, const WgmmaMemory &memory)
{
    using Tile = WgmmaTile<type, dim>;
    Ring<Tile::kStages> k_ring = {}, v_ring = {};
    Ring<kWorks> works = {};
    WorkCursor cursor = {};
    for (;; works.next()) {
        plan_work<type>(p, shared, cursor, works);
        const QueryWork &work = shared.work[works.at()];
        if (work.is_end) break;
        KeyWalk walk = walk_begin(work.visits);
        Pending pending = {Pending::kNone, false};
        Fetch before = {}, now = {}, next = {};
        unsigned n = 0;
        for (bool is_more = true; is_more; n++, before = now, now = next) {
            is_more = walk_keys<dim, has_bands>(work.visits, walk, next);
            if (n == 0) {
                show_work(shared, works, !is_more);
                expect_queries<dim>(p, work);
                continue;
            }
            if (!is_more) now.bits |= kLast;
            bring_keys<Tile, has_bands>(shared, memory, work.visits, now, k_ring);
            if (n > 1) bring_values<Tile>(shared, memory, work.visits, before, p.q, v_ring, pending);
        }
        if (n > 1) bring_values<Tile>(shared, memory, work.visits, before, p.q, v_ring, pending);
        show_values<Tile>(shared, memory, pending);
    }
    show_work(shared, works, true);
}

} // namespace
