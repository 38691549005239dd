/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a warp scores pages by their key bounds, on tensor cores: a segment of 256 tokens at a time, whose 16 sectors are
 * the rows of a product with the queries of 4 heads, two columns each. Queries are turned for the segment into shared
 * memory, while the bounds of the next one are on their way there.
 */
#pragma once
#include "kernels/attention/kv_bounds.h"
#include "kernels/attention/kv_turn.cuh"
#include "kernels/select/select.h"

#include <cuda_fp16.h>

namespace
{

constexpr unsigned kThreads = 256, kWarps = kThreads / kWarp;
constexpr uint32_t kSegmentPages = 4, kSegmentTokens = kSegmentPages * KV_PAGE_TOKENS;
constexpr uint32_t kTogether = 4;               /* heads of a group in one product */
constexpr uint32_t kAhead = 3;                  /* 16 bytes of a record that a lane copies at once */
constexpr uint32_t kAheadBlocks = 2 * kAhead;   /* of channels */
constexpr uint32_t kStages = 2;                 /* segments of a warp: one that is scored, and those on their way */
constexpr uint32_t kCells = 2 * kAhead * kWarp; /* of 16 bytes: turned queries, as they meet what is copied at once */

/* Of one query in shared memory: rows begin in other banks. */
__host__ __device__ constexpr uint32_t row_floats(uint32_t k_dim)
{
    return k_dim + 16;
}

struct SelectArgs {
    SelectParams params;
    RopeTurns turns;
    uint32_t n_blocks;   /* of 16 channels, those that are scored */
    uint32_t first_pair; /* of those that turn */
    bool keeps_keys;     /* a head's keys fit into shared memory when it is chosen from them */
};

/* One head of one span. */
struct Pair {
    const KvSpan *span;
    uint32_t kv_head, first_page, n_pages, n_keep;
    uint32_t first_segment, n_tasks; /* 0 tasks: nothing is due */
};

/* Where the bounds of a pair are. */
struct Records {
    const char *first; /* of page 0 of the pool */
    size_t page_bytes, sector_bytes;
    const uint32_t *pages;
    uint32_t first_page, end_page;
};

__device__ Records records_of(const Pair &pair)
{
    const KvHead head = pair.span->heads[pair.kv_head];
    const KvPages &pages = pair.span->classes[head.class_index];
    const KvPool &pool = *pages.pool;
    return {(const char *)kv_bounds_at(&pool, 0, head.slot, 0),
            pool.page_bytes,
            kv_bounds_sector_bytes(pool.layout.k_dim),
            pages.pages,
            pair.first_page,
            pair.first_page + pair.n_pages};
}

/* ---- what is brought nearer before anything else is known or written ---- */

/* Lines of memory into the L2 cache, shared out over n threads. What is written meanwhile is read as it is then. */
__device__ void fetch_lines(const void *from, size_t n_bytes, uint32_t thread, uint32_t n)
{
    constexpr uint32_t kLine = 128;
    for (size_t at = thread * kLine; at < n_bytes; at += n * kLine)
        asm volatile("prefetch.global.L2 [%0];" ::"l"((const char *)from + at));
}

/* What load_queries reads, and the turns of a warp's first segment. */
__device__ void fetch_queries(const SelectArgs &args, const Pair &pair, uint32_t segment)
{
    const SelectParams &p = args.params;
    const uint32_t group = p.n_heads / p.n_kv_heads, lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const size_t row = pair.span->first_row, turns = args.turns.n_pairs * sizeof(float2);
    fetch_lines(args.turns.coarse + 2 * (size_t)segment * args.turns.n_pairs, turns, lane, kWarp);
    if (warp == 0)
        fetch_lines(p.q + (row * p.n_heads + pair.kv_head * group) * p.k_dim, group * p.k_dim * sizeof(float), lane,
                    kWarp);
    if (warp == 1) fetch_lines(args.turns.fine + kSegmentTokens * args.turns.n_pairs, turns, lane, kWarp);
    if (warp == 2 && p.turn.q_norm) fetch_lines(p.turn.q_norm, p.k_dim * sizeof(float), lane, kWarp);
    if (warp == 3 && p.turn.q)
        fetch_lines(p.turn.cos_sin + 2 * row * p.turn.n_pairs, p.turn.n_pairs * sizeof(float2), lane, kWarp);
}

/* ---- queries ---- */

/* A pair of channels as it meets bounds at the middle of segment 0, which others are whole coarse steps behind. */
__device__ float2 turn_fine(const SelectArgs &args, uint32_t pair, float2 x)
{
    static_assert(kSegmentTokens == ROPE_TURNS_FINE, "a segment's middle is half of a coarse step behind one");
    if (pair < args.first_pair) return x;
    float2 t = ((const float2 *)args.turns.fine)[kSegmentTokens / 2 * args.turns.n_pairs + pair - args.first_pair];
    return make_float2(x.x * t.x + x.y * t.y, x.y * t.x - x.x * t.y);
}

/*
 * The queries of a pair's group, turned, what is scored of them, each times the power of 2 that brings its largest
 * value near 2^10, which leaves all that counts of them to two f16: [rows, row_floats]; scales [rows]: the way back.
 * Whole multiples of kTogether rows, those behind the group's being zeros.
 */
__device__ void load_queries(const SelectArgs &args, const Pair &pair, float *queries, float *scales)
{
    const SelectParams &p = args.params;
    const uint32_t lane = threadIdx.x % kWarp, group = p.n_heads / p.n_kv_heads, row = pair.span->first_row;
    for (uint32_t g = threadIdx.x / kWarp; g < (group + kTogether - 1) / kTogether * kTogether; g += kWarps) {
        const bool is_there = g < group;
        const float *q = p.q + ((size_t)row * p.n_heads + pair.kv_head * group + (is_there ? g : 0)) * p.k_dim;
        float2 x[kSteps];
        float largest = 0;
        if (p.turn.q) turn_head(p.turn, q, p.turn.q_norm, row, p.k_dim, x);
#pragma unroll
        for (uint32_t i = 0; i < kSteps; i++) {
            uint32_t c = 2 * (i * kWarp + lane);
            if (!p.turn.q) x[i] = c < p.k_dim ? *(const float2 *)(q + c) : make_float2(0, 0);
            if (c >= p.n_channels || !is_there) x[i] = make_float2(0, 0);
            largest = fmaxf(largest, fmaxf(fabsf(x[i].x), fabsf(x[i].y)));
        }
        for (unsigned step = kWarp / 2; step; step /= 2)
            largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
        int exponent = isfinite(largest) && largest > 0 ? max(ilogbf(largest) - 10, -126) : 0;
        if (lane == 0) scales[g] = ldexpf(1, exponent);
#pragma unroll
        for (uint32_t i = 0; i < kSteps; i++) {
            uint32_t c = 2 * (i * kWarp + lane);
            if (c >= p.k_dim) continue;
            x[i] = make_float2(ldexpf(x[i].x, -exponent), ldexpf(x[i].y, -exponent));
            *(float2 *)(queries + g * row_floats(p.k_dim) + c) = c < p.n_channels ? turn_fine(args, c / 2, x[i]) : x[i];
        }
    }
    __syncthreads();
}

/* Two values as f16 and what that leaves of them: of maxima (those above 0), then of minima. NaN is in the minima. */
__device__ void pack_signed(float x, float y, uint32_t ret_high[2], uint32_t ret_rest[2])
{
    const __half2 high = __floats2half2_rn(x, y);
    const float2 near = __half22float2(high);
    const __half2 rest = __floats2half2_rn(x - near.x, y - near.y);
    const uint32_t above = __hgt2_mask(high, __half2{});
    ret_high[0] = *(const uint32_t *)&high & above;
    ret_high[1] = *(const uint32_t *)&high & ~above;
    ret_rest[0] = *(const uint32_t *)&rest & above;
    ret_rest[1] = *(const uint32_t *)&rest & ~above;
}

/*
 * Where a lane has its part of the queries for products with 16 bytes of bounds: 8 channels of one head, their f16 or
 * the rest, that meet maxima or minima, one cell for the first and one for the other half of the 16. Cells of one
 * head lie so that neither those who write nor those who read them meet in a bank.
 */
__device__ uint32_t cell_at(uint32_t step, uint32_t half, uint32_t head, uint32_t which)
{
    return ((step * 2 + half) * kTogether + head) * 8 + (which ^ (head * 2 + half));
}

/* The coarse part of what a lane turns its queries by: of one pair of channels of each block. */
struct Turns {
    float2 of[kAheadBlocks];
};

__device__ uint32_t pair_of_lane(uint32_t block)
{
    return block * (KV_BOUNDS_BLOCK / 2) + threadIdx.x % 8;
}

__device__ void load_turns(const SelectArgs &args, uint32_t segment, uint32_t first_block, Turns &ret)
{
    const uint32_t pair = pair_of_lane(first_block), n_pairs = args.turns.n_pairs;
    const float2 *turns = (const float2 *)args.turns.coarse + ((size_t)segment * n_pairs + pair) - args.first_pair;
#pragma unroll
    for (uint32_t i = 0; i < kAheadBlocks; i++) {
        ret.of[i] = make_float2(1, 0);
        if (first_block + i < args.n_blocks && pair + i * (KV_BOUNDS_BLOCK / 2) >= args.first_pair)
            ret.of[i] = __ldg(turns + i * (KV_BOUNDS_BLOCK / 2));
    }
}

/*
 * The queries of kTogether heads, from `queries` on, as they meet the bounds of a segment, from first_block on. By a
 * warp, which meets.
 */
__device__ void turn_queries(const SelectArgs &args, const float *queries, uint32_t first_block, const Turns &turns,
                             uint4 *cells)
{
    const uint32_t head = threadIdx.x % kWarp / 8, word = threadIdx.x % 8;
    queries += head * row_floats(args.params.k_dim) + 2 * pair_of_lane(first_block);
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < kAheadBlocks; i++) {
        if (first_block + i / 2 * 2 >= args.n_blocks) break;
        float2 q = make_float2(0, 0), t = turns.of[i], x;
        if (first_block + i < args.n_blocks) q = *(const float2 *)(queries + i * KV_BOUNDS_BLOCK);
        x = make_float2(q.x * t.x + q.y * t.y, q.y * t.x - q.x * t.y);
        uint32_t high[2], rest[2];
        pack_signed(x.x, x.y, high, rest);
#pragma unroll
        for (uint32_t is_min = 0; is_min < 2; is_min++) {
            uint32_t which = i % 2 * 2 + is_min;
            ((uint32_t *)(cells + cell_at(i / 2, word / 4, head, which)))[word % 4] = high[is_min];
            ((uint32_t *)(cells + cell_at(i / 2, word / 4, head, which + 4)))[word % 4] = rest[is_min];
        }
    }
    __syncwarp();
}

/* ---- scores ---- */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
constexpr int kBoundExponent = 0;

/* Two neighbouring e4m3 of a word, from byte 0 or 2 on, as f16 times 2^-kBoundExponent. */
template <int first> __device__ uint32_t bound_pair(uint32_t word)
{
    uint32_t ret;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(ret) : "h"((uint16_t)(word >> 8 * first)));
    return ret;
}
#else
constexpr int kBoundExponent = 8;

template <int first> __device__ uint32_t bound_pair(uint32_t word)
{
    uint32_t high = __byte_perm(word, 0, first ? 0x3424 : 0x1404);
    return (high & 0x80008000u) | (high & 0x7F007F00u) >> 1;
}
#endif

__device__ void multiply(float sums[4], const uint32_t a[4], uint2 b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}

/* Unsigned numbers in the order of the scores: both zeros are one, every NaN, here +infinity, is the highest (top_k.h).
 */
__device__ uint32_t key_of(float score)
{
    if (!isfinite(score)) return UINT32_MAX;
    uint32_t bits = __float_as_uint(score + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* Two sectors of a segment are a lane's: lane / 4 and 8 behind it. */
__device__ uint32_t page_of_lane(uint32_t segment, uint32_t r)
{
    return segment * kSegmentPages + (threadIdx.x % kWarp / 4 + 8 * r) / KV_PAGE_SECTORS;
}

/* Their pages; none where it is not the job's. */
struct Places {
    uint32_t pages[2];
};

__device__ Places find_places(const Records &records, uint32_t segment)
{
    Places ret;
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t page = page_of_lane(segment, r);
        bool is_there = page >= records.first_page && page < records.end_page;
        ret.pages[r] = is_there ? __ldg(records.pages + page) : UINT32_MAX;
    }
    return ret;
}

/* Of two sectors every fourth 16 bytes of their records, maxima and minima in turn, and what stands behind those. */
struct Stage {
    uint4 bounds[2][kAhead][kWarp];
    uint32_t about[2][kWarp];
};

__device__ void copy_async(void *to, const void *from, uint32_t n_bytes, bool is_there)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to), n_read = is_there ? n_bytes : 0;
    if (n_bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(n_read) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(n_read) : "memory");
}

/* Zeros where there is nothing. Each lane reads what it copies alone. */
__device__ void copy_bounds(const SelectArgs &args, const Records &records, const Places &places, uint32_t first_block,
                            Stage &stage)
{
    const uint32_t lane = threadIdx.x % kWarp, first = 2 * first_block + lane % 4;
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        const bool is_there = places.pages[r] != UINT32_MAX;
        const char *record = records.first;
        if (is_there)
            record += places.pages[r] * records.page_bytes + lane / 4 % KV_PAGE_SECTORS * records.sector_bytes;
#pragma unroll
        for (uint32_t i = 0; i < kAhead; i++)
            copy_async(&stage.bounds[r][i][lane], record + (first + 4 * i) * sizeof(uint4), 16,
                       is_there && first + 4 * i < 2 * args.n_blocks);
        copy_async(&stage.about[r][lane], record + args.params.k_dim * 2, 4, is_there);
    }
}

__device__ void end_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <uint32_t n_left> __device__ void await_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(n_left) : "memory");
}

/* Adds the products of what is there. */
__device__ void add_products(const Stage &stage, uint32_t n_blocks, const uint4 *cells, float sums[4])
{
    const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
    for (uint32_t i = 0; i < kAhead; i++) {
        if (2 * i >= n_blocks) break;
        const uint4 low = stage.bounds[0][i][lane], high = stage.bounds[1][i][lane];
        const uint32_t lows[] = {low.x, low.y, low.z, low.w}, highs[] = {high.x, high.y, high.z, high.w};
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint4 b = cells[cell_at(i, half, lane / 8, lane % 8)];
#pragma unroll
            for (uint32_t w = 2 * half; w < 2 * half + 2; w++) {
                uint32_t a[4] = {bound_pair<0>(lows[w]), bound_pair<0>(highs[w]), bound_pair<2>(lows[w]),
                                 bound_pair<2>(highs[w])};
                multiply(sums, a, w % 2 ? make_uint2(b.z, b.w) : make_uint2(b.x, b.y));
            }
        }
    }
}

/* Where a warp has what it works on. */
struct Work {
    const float *queries;
    const float *scales;
    uint4 *cells;
    Stage *stages;
};

/* Queries and bounds that are not fetched ahead: of further heads, and of channels that a stage has no room for. */
__device__ void add_rest(const SelectArgs &args, const Records &records, uint32_t segment, const Work &work,
                         const float *queries, Stage &stage, bool is_first, float sums[4])
{
    const Places places = find_places(records, segment);
    for (uint32_t block = is_first ? kAheadBlocks : 0; block < args.n_blocks; block += kAheadBlocks) {
        Turns turns;
        load_turns(args, segment, block, turns);
        copy_bounds(args, records, places, block, stage);
        end_copies();
        turn_queries(args, queries, block, turns, work.cells);
        await_copies<0>();
        add_products(stage, args.n_blocks - block, work.cells, sums);
    }
}

/* Of bounds, by what stands behind them: an exponent of 0 and up. */
__device__ float scale_of(uint32_t about)
{
    return __uint_as_float((127 + kBoundExponent + (about & 0x7F)) << 23);
}

/*
 * The highest score of each of a lane's two sectors over the heads of the group, of one or more in each lane; +infinity
 * where one is not finite.
 */
__device__ void score_sectors(const SelectArgs &args, const Records &records, uint32_t segment, const Work &work,
                              Stage &stage, float ret_scores[2])
{
    const SelectParams &p = args.params;
    const uint32_t group = p.n_heads / p.n_kv_heads, lane = threadIdx.x % kWarp;
    const bool is_all = group <= kTogether && args.n_blocks <= kAheadBlocks;
    const uint32_t about[] = {stage.about[0][lane], stage.about[1][lane]};
    ret_scores[0] = ret_scores[1] = -INFINITY;
    for (uint32_t first = 0; first < group; first += kTogether) {
        float sums[4] = {};
        if (first == 0) add_products(stage, args.n_blocks, work.cells, sums);
        if (!is_all)
            add_rest(args, records, segment, work, work.queries + first * row_floats(p.k_dim), stage, first == 0, sums);
        const uint32_t head = first + lane % 4;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if (head >= group) continue;
            float score = (sums[2 * r] + sums[2 * r + 1]) * scale_of(about[r]) * work.scales[head];
            ret_scores[r] = fmaxf(ret_scores[r], isfinite(score) && !(about[r] >> 8 & 1) ? score : INFINITY);
        }
    }
}

/* Keys of the pages of one segment. By a warp: of each two lanes one goes on with the first sector, one with the other.
 */
__device__ void store_keys(const Records &records, uint32_t segment, const float scores[2], uint32_t *keys)
{
    const uint32_t lane = threadIdx.x % kWarp;
    const bool is_odd = lane % 2;
    float score = is_odd ? scores[1] : scores[0];
    score = fmaxf(score, __shfl_xor_sync(kAllLanes, is_odd ? scores[0] : scores[1], 1));
    for (uint32_t step = 2; step < 4 * KV_PAGE_SECTORS; step *= 2)
        score = fmaxf(score, __shfl_xor_sync(kAllLanes, score, step));
    uint32_t page = page_of_lane(segment, lane % 2);
    if (lane % (4 * KV_PAGE_SECTORS) < 2 && page >= records.first_page && page < records.end_page)
        keys[page - records.first_page] = key_of(score);
}

/* Which segments of a pair a warp scores: every kWarps-th of [next, end). */
struct Run {
    uint32_t next, end, n_tasks;
};

__device__ Run run_of(const Pair &pair, uint32_t task, uint32_t n)
{
    uint32_t end = (pair.first_page + pair.n_pages + kSegmentPages - 1) / kSegmentPages;
    uint32_t from = pair.first_segment + task * kWarps;
    return {from + threadIdx.x / kWarp, min(end, from + n * kWarps), n};
}

/* The first of a run, all but one of those that are on their way at once. */
__device__ void begin_copies(const SelectArgs &args, const Records &records, const Run &run, Stage *stages)
{
#pragma unroll
    for (uint32_t i = 0; i + 1 < kStages; i++) {
        uint32_t segment = run.next + i * kWarps;
        if (segment < run.end) copy_bounds(args, records, find_places(records, segment), 0, stages[i]);
        end_copies();
    }
}

/* The keys of a run's pages. By a warp. */
__device__ void score_run(const SelectArgs &args, const Records &records, const Run &run, const Work &work,
                          Turns &turns, uint32_t *keys)
{
    constexpr uint32_t kFar = (kStages - 1) * kWarps;
    Places places = find_places(records, run.next + kFar);
    uint32_t stage = 0;
    for (uint32_t segment = run.next; segment < run.end; segment += kWarps) {
        const uint32_t free = stage ? stage - 1 : kStages - 1;
        turn_queries(args, work.queries, 0, turns, work.cells);
        if (segment + kFar < run.end) copy_bounds(args, records, places, 0, work.stages[free]);
        end_copies();
        if (segment + kWarps < run.end) load_turns(args, segment + kWarps, 0, turns);
        places = find_places(records, segment + kFar + kWarps);
        await_copies<kStages - 1>();
        float of[2];
        score_sectors(args, records, segment, work, work.stages[stage], of);
        store_keys(records, segment, of, keys);
        stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    await_copies<0>();
}

/* Where things are in a block's memory. */
struct Layout {
    uint32_t cells, queries, scales, total; /* bytes; stages are first */
};

__host__ __device__ Layout layout_of(uint32_t k_dim, uint32_t group)
{
    const uint32_t rows = (group + kTogether - 1) / kTogether * kTogether;
    Layout ret;
    ret.cells = kWarps * kStages * (uint32_t)sizeof(Stage);
    ret.queries = ret.cells + kWarps * kCells * (uint32_t)sizeof(uint4);
    ret.scales = ret.queries + rows * row_floats(k_dim) * (uint32_t)sizeof(float);
    ret.total = ret.scales + rows * (uint32_t)sizeof(float);
    return ret;
}

__device__ Work work_at(const SelectArgs &args, char *memory)
{
    const Layout at = layout_of(args.params.k_dim, args.params.n_heads / args.params.n_kv_heads);
    const uint32_t warp = threadIdx.x / kWarp;
    return {(float *)(memory + at.queries), (float *)(memory + at.scales), (uint4 *)(memory + at.cells) + warp * kCells,
            (Stage *)memory + warp * kStages};
}

} // namespace
