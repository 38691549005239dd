/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of all heads that select are cut into tasks of 8 segments (256 tokens), which a fixed grid shares out
 * evenly; a warp scores a segment. The block that ends the last task of a head chooses from the head's scores, so that
 * one launch does it all.
 */
#include "kernels/select/kth_key.cuh"
#include "kernels/select/select_score.cuh"

namespace
{

constexpr unsigned kBlocksEach = 2;
constexpr uint32_t kMostKept = 1 << 14; /* keys: 64 KiB */

struct SelectShared {
    uint64_t scratch[kMaxWarps];
    uint32_t first_task[kThreads]; /* before the pairs of each thread */
    bool is_last;
};

/* is_first: its records will be asked for. */
__device__ Pair pair_at(const SelectParams &p, uint32_t pair, bool is_first = false)
{
    const SelectJob job = p.jobs[pair / p.n_kv_heads];
    Pair ret = {&p.spans[pair / p.n_kv_heads], pair % p.n_kv_heads, job.first_page, job.n_pages, job.n_keep, 0, 0};
    if (!job.n_keep || !ret.span->n_rows) return ret;
    if (is_first) {
        asm volatile("prefetch.global.L1 [%0];" ::"l"(&ret.span->heads[ret.kv_head]));
        asm volatile("prefetch.global.L1 [%0];" ::"l"(ret.span->classes));
    }
    if (!ret.span->plans[ret.kv_head].list) return ret;
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
    for (uint32_t pair = from; pair < to; pair++) own += pair_at(p, pair, true).n_tasks;
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

/* ---- the choice ---- */

/* What a block chooses in; the keys follow, if they are kept. */
struct alignas(16) Choice {
    KthShared kth;
    alignas(16) uint64_t
        few[kThreads]; /* keys that may be chosen, in any order, each with how far behind its page others are */
    alignas(16) uint32_t pages[kThreads]; /* of those that are, where they are in few; else none */
    uint32_t n_few;
};

__device__ void put_page(const Pair &pair, uint32_t page, uint32_t at)
{
    uint32_t *list = (uint32_t *)pair.span->plans[pair.kv_head].list,
             first = (pair.first_page + page) * KV_PAGE_SECTORS;
    *(uint4 *)(list + KV_PAGE_SECTORS * at) = make_uint4(first, first + 1, first + 2, first + 3);
}

/* Of n numbers, padded to kThreads, how many are above (or below) one. */
__device__ uint32_t count_above(const uint64_t *numbers, uint32_t n, uint64_t one)
{
    uint32_t ret = 0;
#pragma unroll 8
    for (uint32_t i = 0; i < (n + 1) / 2; i++) {
        const ulonglong2 two = ((const ulonglong2 *)numbers)[i];
        ret += (two.x > one) + (two.y > one);
    }
    return ret;
}

__device__ uint32_t count_below(const uint32_t *numbers, uint32_t n, uint32_t one)
{
    uint32_t ret = 0;
#pragma unroll 8
    for (uint32_t i = 0; i < (n + 3) / 4; i++) {
        const uint4 four = ((const uint4 *)numbers)[i];
        ret += (four.x < one) + (four.y < one) + (four.z < one) + (four.w < one);
    }
    return ret;
}

/* The sectors of the best pages, ascending; few keys reach `least`. By all threads. */
template <bool is_kept> __device__ void list_few(const Pair &pair, const uint32_t *keys, uint32_t least, Choice &choice)
{
    constexpr uint32_t kNone = UINT32_MAX;
    choice.few[threadIdx.x] = 0;
    if (threadIdx.x == 0) choice.n_few = 0;
    __syncthreads();
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < pair.n_pages; i += kThreads) {
        uint32_t key = key_at<is_kept>(keys, i);
        if (key >= least) choice.few[atomicAdd(&choice.n_few, 1)] = (uint64_t)key << 32 | (kNone - i);
    }
    __syncthreads();
    const uint32_t n = choice.n_few;
    const uint64_t own = choice.few[threadIdx.x];
    const bool is_chosen = threadIdx.x < n && count_above(choice.few, n, own) < pair.n_keep;
    const uint32_t page = is_chosen ? kNone - (uint32_t)own : kNone;
    choice.pages[threadIdx.x] = page;
    __syncthreads();
    if (is_chosen) put_page(pair, page, count_below(choice.pages, n, page));
}

/* The same of those above a threshold, and of those that equal it the first n_equal. Each thread for a run of pages. */
template <bool is_kept>
__device__ void list_many(const Pair &pair, const uint32_t *keys, uint32_t threshold, uint32_t n_equal,
                          SelectShared &shared)
{
    uint32_t each = (pair.n_pages + kThreads - 1) / kThreads, from = threadIdx.x * each;
    uint32_t to = min(from + each, pair.n_pages);
    uint64_t own = 0, total; /* those above from bit 32 on, those that equal it below */
    for (uint32_t i = from; i < to; i++) {
        uint32_t key = key_at<is_kept>(keys, i);
        own += (uint64_t)(key > threshold) << 32 | (key == threshold);
    }
    uint64_t before = block_prefix(own, shared.scratch, &total);
    uint32_t equal = (uint32_t)before, at = (uint32_t)(before >> 32) + min(equal, n_equal);
    for (uint32_t i = from; i < to; i++) {
        uint32_t key = key_at<is_kept>(keys, i);
        bool is_chosen = key > threshold || (key == threshold && equal < n_equal);
        equal += key == threshold;
        if (is_chosen) put_page(pair, i, at++);
    }
}

/* By all threads. */
template <bool is_kept>
__device__ void choose_from(const Pair &pair, const uint32_t *keys, SelectShared &shared, Choice &choice)
{
    uint32_t least = 0, n_near = pair.n_pages;
    if (n_near > kThreads) {
        least = find_kth_range<kThreads, is_kept>(keys, pair.n_pages, pair.n_keep, kThreads, choice.kth);
        n_near = pair.n_keep - choice.kth.n_left + choice.kth.n_equal;
    }
    if (n_near <= kThreads)
        list_few<is_kept>(pair, keys, least, choice);
    else
        list_many<is_kept>(pair, keys, least, choice.kth.n_left, shared);
}

/* The list of a pair, all of whose keys [n_pages] other blocks or this one have written. By all threads. */
__device__ void choose(const SelectArgs &args, const Pair &pair, const uint32_t *keys, SelectShared &shared,
                       char *memory)
{
    Choice &choice = *(Choice *)memory;
    if (!args.keeps_keys) {
        choose_from<false>(pair, keys, shared, choice);
        return;
    }
    uint32_t *copy = (uint32_t *)(memory + sizeof(Choice));
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < (pair.n_pages + 3) / 4; i += kThreads)
        ((uint4 *)copy)[i] = __ldcg((const uint4 *)keys + i);
    __syncthreads();
    choose_from<true>(pair, copy, shared, choice);
}

/* Tasks of a pair, whose first bounds are on their way, and the choice if they were the last of it. */
__device__ void run_tasks(const SelectArgs &args, const Pair &pair, const Records &records, const Run &run,
                          uint32_t *counter, uint32_t *keys, SelectShared &shared, char *memory)
{
    const Work work = work_at(args, memory);
    Turns turns;
    if (run.next < run.end) load_turns(args, run.next, 0, turns);
    load_queries(args, pair, (float *)work.queries, (float *)work.scales);
    score_run(args, records, run, work, turns, keys);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        shared.is_last = atomicAdd(counter, run.n_tasks) + run.n_tasks == pair.n_tasks;
        if (shared.is_last) *counter = 0;
        __threadfence();
    }
    __syncthreads();
    if (shared.is_last) choose(args, pair, keys, shared, memory);
    __syncthreads();
}

__global__ void __launch_bounds__(kThreads, kBlocksEach) select_pages(const __grid_constant__ SelectArgs args)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ SelectShared shared;
    const SelectParams &p = args.params;
    lw::grid_release();
    if (!p.launch.is_early) lw::grid_wait();
    uint32_t n_tasks = count_tasks(p, shared);
    uint32_t next = (uint32_t)((uint64_t)blockIdx.x * n_tasks / gridDim.x);
    uint32_t left = (uint32_t)((uint64_t)(blockIdx.x + 1) * n_tasks / gridDim.x) - next;
    if (left == 0) {
        if (p.launch.is_early) lw::grid_wait();
        return;
    }
    uint32_t *counters = (uint32_t *)p.scratch, *keys = counters + select_padded(p.max_spans * p.n_kv_heads);
    bool has_waited = !p.launch.is_early;
    for (uint32_t i = find_pair(p, shared, &next); left; i++) {
        const Pair pair = pair_at(p, i);
        uint32_t n = min(left, pair.n_tasks - next);
        if (n) {
            const Records records = records_of(pair);
            const Run run = run_of(pair, next, n);
            fetch_queries(args, pair, min(run.next, run.end));
            begin_copies(args, records, run, work_at(args, memory).stages);
            if (!has_waited) lw::grid_wait();
            has_waited = true;
            run_tasks(args, pair, records, run, counters + i, keys + (size_t)i * select_padded(p.max_pages), shared,
                      memory);
        }
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
    SelectArgs args = {p, *p.turns, (p.n_channels + KV_BOUNDS_BLOCK - 1) / KV_BOUNDS_BLOCK,
                       p.k_dim / 2 - p.turns->n_pairs, p.max_pages <= kMostKept};
    size_t bytes = layout_of(p.k_dim, group).total;
    size_t choice = sizeof(Choice) + (args.keeps_keys ? select_padded(p.max_pages) * sizeof(uint32_t) : 0);
    if (bytes < choice) bytes = choice;
    if (cudaFuncSetAttribute(select_pages, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) != cudaSuccess)
        return false;
    return lw::launch(select_pages, kBlocksEach * facts->n_multiprocessors, kThreads, bytes, stream, args);
}
