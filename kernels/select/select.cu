/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of all heads that select are cut into tasks of 8 segments (256 tokens), which a fixed grid shares out
 * evenly; a warp scores a segment, two lanes a sector. The block that ends the last task of a head chooses from the
 * head's scores, so that one launch does it all.
 */
#include "kernels/attention/kv_bounds.h"
#include "kernels/attention/kv_turn.cuh"
#include "kernels/select/select.h"

namespace
{

constexpr unsigned kThreads = 256, kWarps = kThreads / kWarp, kBlocksEach = 2;
constexpr uint32_t kSegmentPages = 4, kSegmentTokens = kSegmentPages * KV_PAGE_TOKENS;
constexpr uint32_t kTogether = 4;     /* heads of a group whose scores are summed side by side */
constexpr uint32_t kBlockFloats = 36; /* of 16 channels: what is positive of a query, what is negative; 4 unused, so
                                       * that the blocks that two lanes read lie in different banks */
constexpr uint32_t kAhead = 4;        /* blocks of 16 channels that a lane loads at once */
constexpr uint32_t kBins = 2048;
constexpr int kQueryExponent = 40; /* queries times 2^40: see bound_value */

struct SelectArgs {
    SelectParams params;
    RopeTurns turns;
    uint32_t n_blocks; /* of 16 channels, those that are scored */
};

struct SelectShared {
    uint64_t scratch[kMaxWarps];
    uint32_t first_task[kThreads]; /* before the pairs of each thread */
    uint32_t bins[kBins];
    uint32_t least, most, bin, n_left; /* of the choice */
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
    shared.first_task[threadIdx.x] = (uint32_t)block_prefix(own, shared.scratch, &total);
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

/* The queries of a pair's group, turned: [group, k_dim]. */
__device__ void load_queries(const SelectParams &p, const Pair &pair, float *queries)
{
    const uint32_t lane = threadIdx.x % kWarp, group = p.n_heads / p.n_kv_heads, row = pair.span->first_row;
    for (uint32_t g = threadIdx.x / kWarp; g < group; g += kWarps) {
        const float *q = p.q + ((size_t)row * p.n_heads + pair.kv_head * group + g) * p.k_dim;
        float2 x[kSteps];
        if (p.turn.q) turn_head(p.turn, q, p.turn.q_norm, row, p.k_dim, x);
#pragma unroll
        for (uint32_t i = 0; i < kSteps; i++) {
            uint32_t c = 2 * (i * kWarp + lane);
            if (c >= p.k_dim) continue;
            float2 own = p.turn.q ? x[i] : *(const float2 *)(q + c);
            *(float2 *)(queries + g * p.k_dim + c) = own;
        }
    }
    __syncthreads();
}

__device__ void put_signs(float *block, float x)
{
    x *= (float)(1ull << kQueryExponent);
    block[0] = x <= 0 ? 0 : x; /* NaN is in both */
    block[KV_BOUNDS_BLOCK] = x >= 0 ? 0 : x;
}

/* Heads [first, first + kTogether) of a group as they meet the bounds of a segment, those past the end as zeros. By a
 * warp. */
__device__ void turn_queries(const SelectArgs &args, const float *queries, uint32_t first, uint32_t segment, float *ret)
{
    const SelectParams &p = args.params;
    const RopeTurns &turns = args.turns;
    const uint32_t group = p.n_heads / p.n_kv_heads, first_turned = p.k_dim - 2 * turns.n_pairs;
    const float2 *fine = (const float2 *)turns.fine + kSegmentTokens / 2 * turns.n_pairs;
    const float2 *coarse = (const float2 *)turns.coarse + (size_t)segment * turns.n_pairs;
    static_assert(kSegmentTokens == ROPE_TURNS_FINE, "a segment's middle is half of a coarse step behind one");
    for (uint32_t c = 2 * (threadIdx.x % kWarp); c < args.n_blocks * KV_BOUNDS_BLOCK; c += 2 * kWarp) {
        float turn_cos = 1, turn_sin = 0;
        if (c >= first_turned && c < p.n_channels) {
            float2 f = fine[(c - first_turned) / 2], s = coarse[(c - first_turned) / 2];
            turn_cos = f.x * s.x - f.y * s.y;
            turn_sin = -(f.y * s.x + f.x * s.y);
        }
#pragma unroll
        for (uint32_t g = 0; g < kTogether; g++) {
            float2 x = make_float2(0, 0);
            if (first + g < group && c < p.n_channels) x = *(const float2 *)(queries + (first + g) * p.k_dim + c);
            float *to = ret + (g * args.n_blocks + c / KV_BOUNDS_BLOCK) * kBlockFloats + c % KV_BOUNDS_BLOCK;
            put_signs(to, x.x * turn_cos - x.y * turn_sin);
            put_signs(to + 1, x.x * turn_sin + x.y * turn_cos);
        }
    }
    __syncwarp();
}

/* ---- scores ---- */

/* The e4m3 in a byte of a word, times 2^-120: its bits in their places, no instruction more. */
template <int byte> __device__ float bound_value(uint32_t word)
{
    return __uint_as_float((uint32_t)((int32_t)(word << (24 - 8 * byte)) >> 4) & 0x87F00000u);
}

__device__ float4 bound_values(uint32_t word)
{
    return make_float4(bound_value<0>(word), bound_value<1>(word), bound_value<2>(word), bound_value<3>(word));
}

__device__ void add_products(const float *query, float4 max, float4 min, float &sum)
{
    float4 up = *(const float4 *)query, down = *(const float4 *)(query + KV_BOUNDS_BLOCK);
    sum = fmaf(up.x, max.x, fmaf(down.x, min.x, sum));
    sum = fmaf(up.y, max.y, fmaf(down.y, min.y, sum));
    sum = fmaf(up.z, max.z, fmaf(down.z, min.z, sum));
    sum = fmaf(up.w, max.w, fmaf(down.w, min.w, sum));
}

/* A block of 16 channels of a sector with that of kTogether queries. */
__device__ void add_block(const float *queries, uint32_t head_floats, const uint4 &max, const uint4 &min,
                          float sums[kTogether])
{
    const uint32_t maxs[] = {max.x, max.y, max.z, max.w}, mins[] = {min.x, min.y, min.z, min.w};
#pragma unroll
    for (uint32_t w = 0; w < 4; w++) {
        float4 high = bound_values(maxs[w]), low = bound_values(mins[w]);
#pragma unroll
        for (uint32_t g = 0; g < kTogether; g++) add_products(queries + g * head_floats + 4 * w, high, low, sums[g]);
    }
}

/* Unsigned numbers in the order of the scores: both zeros are one, every NaN is the highest (top_k.h). */
__device__ uint32_t key_of(float score)
{
    if (!isfinite(score)) return UINT32_MAX;
    uint32_t bits = __float_as_uint(score + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* A lane's part of a record: blocks half, half + 2, ... from `first` on. */
struct Bounds {
    uint4 max[kAhead], min[kAhead];
};

__device__ void load_bounds(const uint4 *record, uint32_t first, uint32_t n_blocks, uint32_t half, Bounds &ret)
{
#pragma unroll
    for (uint32_t i = 0; i < kAhead; i++) {
        uint32_t block = first + 2 * i + half;
        bool is_there = record && block < n_blocks;
        ret.max[i] = is_there ? __ldg(record + 2 * block) : make_uint4(0, 0, 0, 0);
        ret.min[i] = is_there ? __ldg(record + 2 * block + 1) : make_uint4(0, 0, 0, 0);
    }
}

/* The lane's sector of a segment; NULL: it is none of the job's. */
__device__ const uint4 *find_record(const Pair &pair, const KvPages &pages, uint32_t slot, uint32_t segment)
{
    uint32_t sector = threadIdx.x % kWarp / 2, page = segment * kSegmentPages + sector / KV_PAGE_SECTORS;
    if (page < pair.first_page || page >= pair.first_page + pair.n_pages) return NULL;
    return (const uint4 *)kv_bounds_at(pages.pool, pages.pages[page], slot, sector % KV_PAGE_SECTORS);
}

/* The highest key of the sector over the heads of the group, in both of its lanes. By a warp. */
__device__ uint32_t score_sectors(const SelectArgs &args, const uint4 *record, const float *queries, uint32_t segment,
                                  float *turned)
{
    const SelectParams &p = args.params;
    const uint32_t half = threadIdx.x % 2, group = p.n_heads / p.n_kv_heads;
    const uint32_t head_floats = args.n_blocks * kBlockFloats;
    uint32_t about = record ? *(const uint32_t *)(record + p.k_dim / 8) : 0, highest = 0;
    int exponent = 120 - kQueryExponent + (int)(int8_t)(about & 0xFF);
    bool is_open = about >> 8 & 1;
    for (uint32_t first = 0; first < group; first += kTogether) {
        float sums[kTogether] = {};
        for (uint32_t block = 0; block < args.n_blocks; block += 2 * kAhead) {
            Bounds bounds;
            load_bounds(record, block, args.n_blocks, half, bounds);
            if (block == 0) turn_queries(args, queries, first, segment, turned);
#pragma unroll
            for (uint32_t i = 0; i < kAhead; i++) {
                uint32_t at = block + 2 * i + half;
                if (at < args.n_blocks)
                    add_block(turned + at * kBlockFloats, head_floats, bounds.max[i], bounds.min[i], sums);
            }
        }
#pragma unroll
        for (uint32_t g = 0; g < kTogether; g++) {
            float sum = sums[g] + __shfl_xor_sync(kAllLanes, sums[g], 1);
            uint32_t key = is_open ? UINT32_MAX : key_of(ldexpf(sum, exponent));
            if (first + g < group) highest = max(highest, key);
        }
        __syncwarp();
    }
    return highest;
}

/* Keys of the pages of one segment. By a warp. */
__device__ void score_segment(const SelectArgs &args, const Pair &pair, uint32_t segment, const float *queries,
                              float *turned, uint32_t *keys)
{
    const KvHead head = pair.span->heads[pair.kv_head];
    const KvPages &pages = pair.span->classes[head.class_index];
    const uint4 *record = find_record(pair, pages, head.slot, segment);
    uint32_t key = score_sectors(args, record, queries, segment, turned), lane = threadIdx.x % kWarp;
    for (uint32_t step = 2; step < 2 * KV_PAGE_SECTORS; step *= 2)
        key = max(key, __shfl_xor_sync(kAllLanes, key, step));
    uint32_t page = segment * kSegmentPages + lane / (2 * KV_PAGE_SECTORS);
    if (record && lane % (2 * KV_PAGE_SECTORS) == 0) keys[page - pair.first_page] = key;
}

/* ---- the choice ---- */

/* What another block wrote. */
__device__ uint32_t key_at(const uint32_t *keys, uint32_t i)
{
    return __ldcg(keys + i);
}

/* Finds the bin with the k-th highest key; shared.n_left: how many of it are chosen. */
__device__ void find_bin(SelectShared &shared, uint32_t k)
{
    constexpr uint32_t kEach = kBins / kThreads;
    uint32_t from = kBins - (threadIdx.x + 1) * kEach;
    uint64_t own = 0, total;
    for (uint32_t i = 0; i < kEach; i++) own += shared.bins[from + i];
    uint32_t above = (uint32_t)block_prefix(own, shared.scratch, &total);
    if (above < k && k <= above + own) {
        uint32_t bin = from + kEach - 1;
        for (; above + shared.bins[bin] < k; bin--) above += shared.bins[bin];
        shared.bin = bin;
        shared.n_left = k - above;
    }
    __syncthreads();
}

/* The k-th highest key; shared.n_left: how many of those that equal it are chosen. Ranges of keys that hold it, each
 * cut into bins. */
__device__ uint32_t find_threshold(const uint32_t *keys, uint32_t n, uint32_t k, SelectShared &shared)
{
    uint32_t least = UINT32_MAX, most = 0;
    for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
        least = min(least, key_at(keys, i));
        most = max(most, key_at(keys, i));
    }
    least = __reduce_min_sync(kAllLanes, least);
    most = __reduce_max_sync(kAllLanes, most);
    if (threadIdx.x == 0) {
        shared.least = UINT32_MAX;
        shared.most = 0;
    }
    __syncthreads();
    if (threadIdx.x % kWarp == 0) {
        atomicMin(&shared.least, least);
        atomicMax(&shared.most, most);
    }
    __syncthreads();
    least = shared.least;
    most = shared.most;
    shared.n_left = k;
    while (least < most) {
        uint32_t shift = max(32 - __clz(most - least), 11) - 11;
        for (uint32_t i = threadIdx.x; i < kBins; i += kThreads) shared.bins[i] = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
            uint32_t key = key_at(keys, i);
            if (key >= least && key <= most) atomicAdd(&shared.bins[(key - least) >> shift], 1);
        }
        __syncthreads();
        find_bin(shared, shared.n_left);
        least += shared.bin << shift;
        most = least + min(most - least, (1u << shift) - 1);
        k = shared.n_left;
        __syncthreads();
    }
    return least;
}

/* The sectors of the chosen pages, ascending. By all threads, each for a run of pages. */
__device__ void list_best(const Pair &pair, const uint32_t *keys, SelectShared &shared)
{
    uint32_t *list = (uint32_t *)pair.span->plans[pair.kv_head].list;
    uint32_t threshold = find_threshold(keys, pair.n_pages, pair.n_keep, shared), n_equal = shared.n_left;
    uint32_t each = (pair.n_pages + kThreads - 1) / kThreads, from = threadIdx.x * each;
    uint32_t to = min(from + each, pair.n_pages);
    uint64_t own = 0, total; /* those above from bit 32 on, those that equal it below */
    for (uint32_t i = from; i < to; i++) {
        uint32_t key = key_at(keys, i);
        own += (uint64_t)(key > threshold) << 32 | (key == threshold);
    }
    uint64_t before = block_prefix(own, shared.scratch, &total);
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
    float *turned = memory + group * args.params.k_dim + warp * kTogether * args.n_blocks * kBlockFloats;
    load_queries(args.params, pair, memory);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t segment = pair.first_segment + (task + i) * kWarps + warp;
        if (segment < end) score_segment(args, pair, segment, memory, turned, keys);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        shared.is_last = atomicAdd(counter, n) + n == pair.n_tasks;
        if (shared.is_last) *counter = 0;
        __threadfence();
    }
    __syncthreads();
    if (shared.is_last) list_best(pair, keys, shared);
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
    SelectArgs args = {p, *p.turns, (p.n_channels + KV_BOUNDS_BLOCK - 1) / KV_BOUNDS_BLOCK};
    size_t floats = p.n_heads / p.n_kv_heads * p.k_dim + (size_t)kWarps * kTogether * args.n_blocks * kBlockFloats;
    size_t bytes = floats * sizeof(float);
    if (bytes > 48 * 1024 &&
        cudaFuncSetAttribute(select_pages, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) != cudaSuccess)
        return false;
    return lw::launch(select_pages, kBlocksEach * facts->n_multiprocessors, kThreads, bytes, stream, args);
}
