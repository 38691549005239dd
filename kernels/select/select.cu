/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of all heads that select are cut into tasks of 8 segments (256 tokens), which a fixed grid shares out
 * evenly; a warp scores a segment, two lanes a sector. The block that ends the last task of a head chooses from the
 * head's scores, so that one launch does it all.
 */
#include "kernels/attention/kv_bounds.h"
#include "kernels/attention/kv_turn.cuh"
#include "kernels/select/kth_key.cuh"
#include "kernels/select/select.h"

#include <cuda_fp16.h>

namespace
{

constexpr unsigned kThreads = 256, kWarps = kThreads / kWarp, kBlocksEach = 2;
constexpr uint32_t kSegmentPages = 4, kSegmentTokens = kSegmentPages * KV_PAGE_TOKENS;
constexpr uint32_t kTogether = 4; /* heads of a group in one product: two columns each */
constexpr uint32_t kAhead = 3;    /* 16 bytes of a record that a lane loads at once */
constexpr uint32_t kMostKept = 1 << 14; /* keys: 64 KiB */

/* Of one query in shared memory: rows begin in other banks. */
__host__ __device__ constexpr uint32_t row_floats(uint32_t k_dim)
{
    return k_dim + 4;
}

struct SelectArgs {
    SelectParams params;
    RopeTurns turns;
    uint32_t n_blocks; /* of 16 channels, those that are scored */
    bool keeps_keys;   /* a head's keys fit into shared memory when it is chosen from them */
};

struct SelectShared {
    KthShared kth;                 /* of the choice */
    uint32_t first_task[kThreads]; /* before the pairs of each thread */
    bool is_last;
};

/* One head of one span. */
struct Pair {
    const KvSpan *span;
    uint32_t kv_head, first_page, n_pages, n_keep;
    uint32_t first_segment, n_tasks; /* 0 tasks: nothing is due */
};

__device__ Pair pair_at(const SelectParams &p, uint32_t pair)
{
    const SelectJob job = p.jobs[pair / p.n_kv_heads];
    Pair ret = {&p.spans[pair / p.n_kv_heads], pair % p.n_kv_heads, job.first_page, job.n_pages, job.n_keep, 0, 0};
    if (!job.n_keep || !ret.span->n_rows || !ret.span->plans[ret.kv_head].list) return ret;
    ret.first_segment = job.first_page / kSegmentPages;
    uint32_t end = (job.first_page + job.n_pages + kSegmentPages - 1) / kSegmentPages;
    ret.n_tasks = (end - ret.first_segment + kWarps - 1) / kWarps;
    return ret;
}

__device__ uint32_t pairs_each(const SelectParams &p)
{
    return (p.n_spans * p.n_kv_heads + kThreads - 1) / kThreads;
}

/* By all threads. */
__device__ uint32_t count_tasks(const SelectParams &p, SelectShared &shared)
{
    uint32_t from = threadIdx.x * pairs_each(p), to = min(from + pairs_each(p), p.n_spans * p.n_kv_heads);
    uint64_t own = 0, total;
    for (uint32_t pair = from; pair < to; pair++) own += pair_at(p, pair).n_tasks;
    shared.first_task[threadIdx.x] = (uint32_t)block_prefix(own, shared.kth.scratch, &total);
    __syncthreads();
    return (uint32_t)total;
}

/* The pair that a task belongs to; *task becomes its number there. The same in all threads. */
__device__ uint32_t find_pair(const SelectParams &p, const SelectShared &shared, uint32_t *task)
{
    uint32_t low = 0, high = kThreads; /* the last thread whose pairs begin no later */
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        *(shared.first_task[middle] <= *task ? &low : &high) = middle;
    }
    uint32_t pair = low * pairs_each(p), n;
    *task -= shared.first_task[low];
    for (; *task >= (n = pair_at(p, pair).n_tasks); pair++) *task -= n;
    return pair;
}

/* ---- queries ---- */

/*
 * The queries of a pair's group, turned, what is scored of them, each times the power of 2 that brings its largest
 * value near 2^10, which leaves all that counts of them to two f16: [group, row_floats]; exponents [group]: of the way
 * back.
 */
__device__ void load_queries(const SelectParams &p, const Pair &pair, float *queries, int *exponents)
{
    const uint32_t lane = threadIdx.x % kWarp, group = p.n_heads / p.n_kv_heads, row = pair.span->first_row;
    for (uint32_t g = threadIdx.x / kWarp; g < group; g += kWarps) {
        const float *q = p.q + ((size_t)row * p.n_heads + pair.kv_head * group + g) * p.k_dim;
        float2 x[kSteps];
        float largest = 0;
        if (p.turn.q) turn_head(p.turn, q, p.turn.q_norm, row, p.k_dim, x);
#pragma unroll
        for (uint32_t i = 0; i < kSteps; i++) {
            uint32_t c = 2 * (i * kWarp + lane);
            if (!p.turn.q) x[i] = c < p.k_dim ? *(const float2 *)(q + c) : make_float2(0, 0);
            if (c >= p.n_channels) x[i] = make_float2(0, 0);
            largest = fmaxf(largest, fmaxf(fabsf(x[i].x), fabsf(x[i].y)));
        }
        for (unsigned step = kWarp / 2; step; step /= 2)
            largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
        int exponent = isfinite(largest) && largest > 0 ? ilogbf(largest) - 10 : 0;
        if (lane == 0) exponents[g] = exponent;
#pragma unroll
        for (uint32_t i = 0; i < kSteps; i++) {
            uint32_t c = 2 * (i * kWarp + lane);
            if (c < p.k_dim)
                *(float2 *)(queries + g * row_floats(p.k_dim) + c) =
                    make_float2(ldexpf(x[i].x, -exponent), ldexpf(x[i].y, -exponent));
        }
    }
    __syncthreads();
}

/* cos, sin for each pair of channels that is scored, so that queries meet the bounds of a segment. By a warp. */
__device__ void find_turns(const SelectArgs &args, uint32_t segment, float2 *ret)
{
    const SelectParams &p = args.params;
    const RopeTurns &turns = args.turns;
    const uint32_t first_turned = p.k_dim - 2 * turns.n_pairs;
    const float2 *fine = (const float2 *)turns.fine + kSegmentTokens / 2 * turns.n_pairs;
    const float2 *coarse = (const float2 *)turns.coarse + (size_t)segment * turns.n_pairs;
    static_assert(kSegmentTokens == ROPE_TURNS_FINE, "a segment's middle is half of a coarse step behind one");
    for (uint32_t pair = threadIdx.x % kWarp; pair < args.n_blocks * KV_BOUNDS_BLOCK / 2; pair += kWarp) {
        float2 turn = make_float2(1, 0);
        if (2 * pair >= first_turned && 2 * pair < p.n_channels) {
            float2 f = fine[pair - first_turned / 2], s = coarse[pair - first_turned / 2];
            turn = make_float2(f.x * s.x - f.y * s.y, -(f.y * s.x + f.x * s.y));
        }
        ret[pair] = turn;
    }
    __syncwarp();
}

/* Of two values what belongs to maxima or to minima, as f16, or what that leaves of them. NaN is in the minima. */
__device__ uint32_t pack_signed(float x, float y, bool is_min, bool is_rest)
{
    x = (x > 0) == is_min ? 0 : x;
    y = (y > 0) == is_min ? 0 : y;
    __half2 high = __floats2half2_rn(x, y);
    float2 near = __half22float2(high);
    __half2 rest = __floats2half2_rn(x - near.x, y - near.y);
    __half2 which = is_rest ? rest : high;
    return *(uint32_t *)&which;
}

/*
 * A lane's part of the queries for a product of 16 bounds of each sector: 4 channels from c on. Column lane / 4 of the
 * product is head (lane / 8) of kTogether, its f16 or the rest.
 */
__device__ uint2 query_part(const float *query, const float2 *turns, uint32_t c, bool is_min, bool is_rest)
{
    float4 q = *(const float4 *)(query + c), t = *(const float4 *)(turns + c / 2);
    return make_uint2(pack_signed(q.x * t.x - q.y * t.y, q.x * t.y + q.y * t.x, is_min, is_rest),
                      pack_signed(q.z * t.z - q.w * t.w, q.z * t.w + q.w * t.z, is_min, is_rest));
}

/* ---- scores ---- */

/* Two neighbouring e4m3 of a word, from byte 0 or 2 on, as f16 times 2^-8: their bits in other places. */
template <int first> __device__ uint32_t bound_pair(uint32_t word)
{
    uint32_t high = __byte_perm(word, 0, first ? 0x3424 : 0x1404);
    return (high & 0x80008000u) | (high & 0x7F007F00u) >> 1;
}

__device__ void multiply(float sums[4], const uint32_t a[4], uint2 b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}

/* Unsigned numbers in the order of the scores: both zeros are one, every NaN is the highest (top_k.h). */
__device__ uint32_t key_of(float score)
{
    if (!isfinite(score)) return UINT32_MAX;
    uint32_t bits = __float_as_uint(score + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The record of a sector of a segment; NULL: it is none of the job's. */
__device__ const uint4 *find_record(const Pair &pair, const KvPages &pages, uint32_t slot, uint32_t segment,
                                    uint32_t sector)
{
    uint32_t page = segment * kSegmentPages + sector / KV_PAGE_SECTORS;
    if (page < pair.first_page || page >= pair.first_page + pair.n_pages) return NULL;
    return (const uint4 *)kv_bounds_at(pages.pool, pages.pages[page], slot, sector % KV_PAGE_SECTORS);
}

/* Of two sectors, lane / 4 and 8 behind it: every fourth 16 bytes of their records, maxima and minima in turn. */
struct Bounds {
    uint4 of[2][kAhead];
};

__device__ void load_bounds(const uint4 *const records[2], uint32_t first, uint32_t n_parts, Bounds &ret)
{
#pragma unroll
    for (uint32_t i = 0; i < kAhead; i++) {
        uint32_t part = first + 4 * i + threadIdx.x % 4;
        for (int r = 0; r < 2; r++)
            ret.of[r][i] = records[r] && part < n_parts ? __ldg(records[r] + part) : make_uint4(0, 0, 0, 0);
    }
}

/* Adds the products with 16 bytes of either sector a lane. */
__device__ void add_products(const SelectArgs &args, const uint4 &low, const uint4 &high, const float *query,
                             const float2 *turns, uint32_t part, float sums[4])
{
    const uint32_t lows[] = {low.x, low.y, low.z, low.w}, highs[] = {high.x, high.y, high.z, high.w};
    const bool is_min = part & 1, is_rest = threadIdx.x % kWarp / 4 & 1, is_there = query && part < 2 * args.n_blocks;
#pragma unroll
    for (uint32_t w = 0; w < 4; w++) {
        uint2 b = make_uint2(0, 0);
        if (is_there) b = query_part(query, turns, part / 2 * KV_BOUNDS_BLOCK + 4 * w, is_min, is_rest);
        uint32_t a[4] = {bound_pair<0>(lows[w]), bound_pair<0>(highs[w]), bound_pair<2>(lows[w]),
                         bound_pair<2>(highs[w])};
        multiply(sums, a, b);
    }
}

/* The highest key of each of a lane's two sectors over the heads of the group, in all four lanes. By a warp. */
__device__ void score_sectors(const SelectArgs &args, const uint4 *const records[2], const float *queries,
                              const int *exponents, const float2 *turns, uint32_t ret_keys[2])
{
    const SelectParams &p = args.params;
    const uint32_t group = p.n_heads / p.n_kv_heads, lane = threadIdx.x % kWarp, n_parts = 2 * args.n_blocks;
    uint32_t about[2];
    for (int r = 0; r < 2; r++) {
        about[r] = records[r] ? *(const uint32_t *)(records[r] + p.k_dim / 8) : 0;
        ret_keys[r] = 0;
    }
    for (uint32_t first = 0; first < group; first += kTogether) {
        const uint32_t column = first + lane / 8, head = first + lane % 4;
        const float *query = column < group ? queries + column * row_floats(p.k_dim) : NULL;
        float sums[4] = {};
        for (uint32_t part = 0; part < n_parts; part += 4 * kAhead) {
            Bounds bounds;
            load_bounds(records, part, n_parts, bounds);
#pragma unroll
            for (uint32_t i = 0; i < kAhead; i++)
                if (part + 4 * i < n_parts)
                    add_products(args, bounds.of[0][i], bounds.of[1][i], query, turns, part + 4 * i + lane % 4, sums);
        }
        for (int r = 0; r < 2 && head < group; r++) {
            int exponent = 8 + exponents[head] + (int)(int8_t)(about[r] & 0xFF);
            uint32_t key = about[r] >> 8 & 1 ? UINT32_MAX : key_of(ldexpf(sums[2 * r] + sums[2 * r + 1], exponent));
            ret_keys[r] = max(ret_keys[r], key);
        }
    }
    for (int r = 0; r < 2; r++)
        for (uint32_t step = 1; step < 4; step *= 2)
            ret_keys[r] = max(ret_keys[r], __shfl_xor_sync(kAllLanes, ret_keys[r], step));
}

/* Keys of the pages of one segment. By a warp. */
__device__ void score_segment(const SelectArgs &args, const Pair &pair, uint32_t segment, const float *queries,
                              const int *exponents, float2 *turns, uint32_t *keys)
{
    const KvHead head = pair.span->heads[pair.kv_head];
    const KvPages &pages = pair.span->classes[head.class_index];
    const uint32_t lane = threadIdx.x % kWarp, sector = lane / 4;
    const uint4 *records[2] = {find_record(pair, pages, head.slot, segment, sector),
                               find_record(pair, pages, head.slot, segment, sector + 8)};
    uint32_t of[2];
    find_turns(args, segment, turns);
    score_sectors(args, records, queries, exponents, turns, of);
    for (int r = 0; r < 2; r++) {
        for (uint32_t step = 4; step < 4 * KV_PAGE_SECTORS; step *= 2)
            of[r] = max(of[r], __shfl_xor_sync(kAllLanes, of[r], step));
        uint32_t page = segment * kSegmentPages + (sector + 8 * r) / KV_PAGE_SECTORS;
        if (records[r] && lane % (4 * KV_PAGE_SECTORS) == 0) keys[page - pair.first_page] = of[r];
    }
    __syncwarp();
}

/* ---- the choice ---- */

/* The sectors of the chosen pages, ascending. By all threads, each for a run of pages. */
__device__ void list_best(const Pair &pair, const uint32_t *keys, SelectShared &shared)
{
    uint32_t *list = (uint32_t *)pair.span->plans[pair.kv_head].list;
    uint32_t threshold = find_kth_key<kThreads>(keys, pair.n_pages, pair.n_keep, shared.kth);
    uint32_t n_equal = shared.kth.n_left;
    uint32_t each = (pair.n_pages + kThreads - 1) / kThreads, from = threadIdx.x * each;
    uint32_t to = min(from + each, pair.n_pages);
    uint64_t own = 0, total; /* those above from bit 32 on, those that equal it below */
    for (uint32_t i = from; i < to; i++) {
        uint32_t key = key_at(keys, i);
        own += (uint64_t)(key > threshold) << 32 | (key == threshold);
    }
    uint64_t before = block_prefix(own, shared.kth.scratch, &total);
    uint32_t equal = (uint32_t)before, at = (uint32_t)(before >> 32) + min(equal, n_equal);
    for (uint32_t i = from; i < to; i++) {
        uint32_t key = key_at(keys, i), first = (pair.first_page + i) * KV_PAGE_SECTORS;
        bool is_chosen = key > threshold || (key == threshold && equal < n_equal);
        equal += key == threshold;
        if (is_chosen) *(uint4 *)(list + KV_PAGE_SECTORS * at++) = make_uint4(first, first + 1, first + 2, first + 3);
    }
}

/* Tasks [task, task + n) of a pair, and the choice if they were the last of it. */
__device__ void run_tasks(const SelectArgs &args, const Pair &pair, uint32_t task, uint32_t n, uint32_t *counter,
                          uint32_t *keys, SelectShared &shared, float *memory)
{
    const uint32_t warp = threadIdx.x / kWarp, group = args.params.n_heads / args.params.n_kv_heads;
    const uint32_t end = (pair.first_page + pair.n_pages + kSegmentPages - 1) / kSegmentPages;
    float2 *turns = (float2 *)(memory + group * row_floats(args.params.k_dim)) + warp * args.params.k_dim / 2;
    int *exponents = (int *)(memory + group * row_floats(args.params.k_dim) + kWarps * args.params.k_dim);
    load_queries(args.params, pair, memory, exponents);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t segment = pair.first_segment + (task + i) * kWarps + warp;
        if (segment < end) score_segment(args, pair, segment, memory, exponents, turns, keys);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        shared.is_last = atomicAdd(counter, n) + n == pair.n_tasks;
        if (shared.is_last) *counter = 0;
        __threadfence();
    }
    __syncthreads();
    if (shared.is_last) {
        uint32_t *copy = (uint32_t *)memory;
        for (uint32_t i = threadIdx.x; i < pair.n_pages && args.keeps_keys; i += kThreads) copy[i] = __ldcg(keys + i);
        __syncthreads();
        list_best(pair, args.keeps_keys ? copy : keys, shared);
    }
    __syncthreads();
}

__global__ void __launch_bounds__(kThreads, kBlocksEach) select_pages(const __grid_constant__ SelectArgs args)
{
    extern __shared__ __align__(16) float memory[];
    __shared__ SelectShared shared;
    const SelectParams &p = args.params;
    lw::grid_release();
    if (!p.launch.is_early) lw::grid_wait();
    uint32_t n_tasks = count_tasks(p, shared);
    if (p.launch.is_early) lw::grid_wait();
    uint32_t next = (uint32_t)((uint64_t)blockIdx.x * n_tasks / gridDim.x);
    uint32_t left = (uint32_t)((uint64_t)(blockIdx.x + 1) * n_tasks / gridDim.x) - next;
    if (left == 0) return;
    uint32_t *counters = (uint32_t *)p.scratch, *keys = counters + p.max_spans * p.n_kv_heads;
    for (uint32_t i = find_pair(p, shared, &next); left; i++) {
        const Pair pair = pair_at(p, i);
        uint32_t n = min(left, pair.n_tasks - next);
        if (n) run_tasks(args, pair, next, n, counters + i, keys + (size_t)i * p.max_pages, shared, memory);
        left -= n;
        next = 0;
    }
}

} // namespace

extern "C" bool select_cuda(const SelectParams *params, Stream stream)
{
    const SelectParams &p = *params;
    if (p.n_spans == 0) return true;
    const DeviceFacts *facts = device_facts();
    if (!facts || p.k_dim > KV_TURN_MAX_DIM || p.k_dim % KV_BOUNDS_BLOCK || p.n_heads % p.n_kv_heads || !p.scratch)
        return false;
    const uint32_t group = p.n_heads / p.n_kv_heads;
    SelectArgs args = {p, *p.turns, (p.n_channels + KV_BOUNDS_BLOCK - 1) / KV_BOUNDS_BLOCK, p.max_pages <= kMostKept};
    size_t bytes = (group * row_floats(p.k_dim) + kWarps * p.k_dim + group) * sizeof(float);
    if (args.keeps_keys && bytes < p.max_pages * sizeof(uint32_t)) bytes = p.max_pages * sizeof(uint32_t);
    if (cudaFuncSetAttribute(select_pages, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) != cudaSuccess)
        return false;
    return lw::launch(select_pages, kBlocksEach * facts->n_multiprocessors, kThreads, bytes, stream, args);
}
