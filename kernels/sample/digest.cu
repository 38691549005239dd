/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row is cut into parts of 4096 ids, a block each; a warp has a span of 512, a lane every 32nd of it. The first
 * launch finds the best id of a row and the maxima of its groups, from which the block that ends the row finds the
 * least logit to list. The second launch weighs, lists and, in the block that ends the row, draws.
 */
#include "kernels/sample/digest.h"
#include "kernels/sample/token_weight.h"
#include "kernels/select/kth_key.cuh"

namespace
{

constexpr uint32_t kThreads = 256, kWarps = kThreads / kWarp, kEach = DIGEST_SPAN / kWarp;
constexpr uint32_t kPart = kWarps * DIGEST_SPAN, kPartGroups = kWarps * DIGEST_STEP;
constexpr uint32_t kMostKept = 1 << 13; /* keys of groups in shared memory: 32 KiB */
static_assert(TOKEN_MAX_VOCAB / kPart <= kThreads, "a thread for each part of a row");
static_assert(2 * DIGEST_STEP == kWarp, "two lanes have a group");

/* One row's, zeros between two calls. */
struct RowState {
    unsigned long long best; /* key of the largest logit, then how far its id is from the highest number */
    uint32_t is_bad, n_seen, n_weighed, n_listed;
};

/* What a part has found. */
struct PartFound {
    uint64_t mass, plain_mass;
    uint32_t first_item, n_items; /* of the row's list, in whose order parts came */
};

/* Where a call's scratch has them. */
struct Places {
    RowState *states;  /* [n_rows] */
    uint32_t *least;   /* [n_rows] keys */
    PartFound *parts;  /* [n_rows, n_parts] */
    DigestItem *items; /* [n_rows, DIGEST_LIST] */
    uint32_t *keys;    /* [n_rows, n_groups] of the groups' maxima */
    uint32_t n_parts, n_groups;
};

struct DigestArgs {
    DigestParams params;
    Places places;
    bool keeps_keys; /* the keys of a row fit into shared memory */
};

struct DigestShared {
    KthShared kth;
    unsigned long long best[kWarps];
    uint64_t mass[kWarps], plain_mass[kWarps];
    uint32_t n_items[kWarps], first_item;
    RowDigest digest; /* of the row that this block ends */
    uint32_t part;    /* of the draw: where it falls, and how far into that */
    uint64_t left;
    bool is_last;
};

/* Unsigned numbers in the order of logits, both zeros one; only of rows without NaN does it mean anything. */
__device__ uint32_t key_of(float logit)
{
    uint32_t bits = __float_as_uint(logit + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ float logit_of(uint32_t key)
{
    return __uint_as_float(key >> 31 ? key & 0x7FFFFFFFu : ~key);
}

/* A thread's logits, which a row's end is padded with -INFINITY behind; id of the j-th: first_id + 32 j. */
__device__ uint32_t first_id(uint32_t part)
{
    return part * kPart + threadIdx.x / kWarp * DIGEST_SPAN + threadIdx.x % kWarp;
}

__device__ void load_logits(const DigestParams &p, uint32_t row, uint32_t part, float ret[kEach])
{
    const float *logits = p.logits + (size_t)row * p.n_vocab;
    const uint32_t id = first_id(part);
#pragma unroll
    for (uint32_t j = 0; j < kEach; j++) ret[j] = id + j * kWarp < p.n_vocab ? logits[id + j * kWarp] : -INFINITY;
}

/* Those that the mask leaves. */
__device__ void apply_mask(const uint64_t *mask, uint32_t part, uint32_t n_vocab, float logits[kEach])
{
    const uint32_t id = first_id(part);
    if (!mask) return;
#pragma unroll
    for (uint32_t j = 0; j < kEach; j++) {
        uint32_t bits = id + j * kWarp < n_vocab ? __ldg((const uint32_t *)mask + id / kWarp + j) : 0;
        if (!(bits >> threadIdx.x % kWarp & 1)) logits[j] = -INFINITY;
    }
}

/* Has every other block of the row done as much? By all threads, behind what they have written. */
__device__ bool ends_row(uint32_t *counter, uint32_t n_parts, DigestShared &shared)
{
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        shared.is_last = atomicAdd(counter, 1) + 1 == n_parts;
        if (shared.is_last) *counter = 0;
        __threadfence();
    }
    __syncthreads();
    return shared.is_last;
}

/* ---- the best, and the least to list ---- */

__global__ void __launch_bounds__(kThreads) edit_rows(const __grid_constant__ DigestArgs args)
{
    const DigestParams &p = args.params;
    const uint32_t row = blockIdx.x;
    bool is_bad = false;
    lw::grid_release();
    lw::grid_wait();
    if (!p.asks[row].is_wanted) return;
    const DigestEdit *edits = p.asks[row].edits;
    float *logits = p.logits + (size_t)row * p.n_vocab;
    for (uint32_t i = threadIdx.x; i < p.asks[row].n_edits; i += kThreads) {
        float *l = &logits[edits[i].id];
        is_bad |= !(*l < INFINITY);
        *l = digest_edited(*l, &edits[i]);
    }
    if (is_bad) atomicOr(&args.places.states[row].is_bad, 1);
}

__device__ bool has_bad(const float logits[kEach])
{
    bool is_bad = false;
#pragma unroll
    for (uint32_t j = 0; j < kEach; j++) is_bad |= !(logits[j] < INFINITY);
    return is_bad;
}

__device__ void find_best(const float logits[kEach], uint32_t id, bool is_bad, RowState *state, DigestShared &shared)
{
    unsigned long long best = 0;
#pragma unroll
    for (uint32_t j = 0; j < kEach; j++) {
        best = max(best, (unsigned long long)key_of(logits[j]) << 32 | (UINT32_MAX - (id + j * kWarp)));
    }
    for (unsigned step = kWarp / 2; step; step /= 2) best = max(best, __shfl_xor_sync(kAllLanes, best, step));
    if (threadIdx.x % kWarp == 0) shared.best[threadIdx.x / kWarp] = best;
    is_bad = __syncthreads_or(is_bad);
    if (threadIdx.x) return;
    for (uint32_t w = 1; w < kWarps; w++) best = max(best, shared.best[w]);
    atomicMax(&state->best, best);
    if (is_bad) atomicOr(&state->is_bad, 1);
}

__device__ void store_maxima(const float logits[kEach], uint32_t *keys)
{
    float most = logits[0];
#pragma unroll
    for (uint32_t j = 1; j < kEach; j++) most = fmaxf(most, logits[j]);
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, DIGEST_STEP));
    const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    if (lane < DIGEST_STEP) keys[warp * DIGEST_STEP + lane] = key_of(most);
}

__global__ void __launch_bounds__(kThreads) look_at_rows(const __grid_constant__ DigestArgs args)
{
    extern __shared__ uint32_t copy[];
    __shared__ DigestShared shared;
    const DigestParams &p = args.params;
    const Places &at = args.places;
    const uint32_t part = blockIdx.x, row = blockIdx.y;
    float logits[kEach];
    lw::grid_release();
    lw::grid_wait();
    const uint32_t n_best = p.asks[row].n_best;
    if (!p.asks[row].is_wanted) return;
    uint32_t *keys = at.keys + (size_t)row * at.n_parts * kPartGroups;
    load_logits(p, row, part, logits);
    const bool is_bad = has_bad(logits);
    apply_mask(p.asks[row].mask, part, p.n_vocab, logits);
    find_best(logits, first_id(part), is_bad, &at.states[row], shared);
    if (!n_best) return;
    store_maxima(logits, keys + part * kPartGroups);
    if (!ends_row(&at.states[row].n_seen, at.n_parts, shared)) return;
    uint32_t least = key_of(-INFINITY);
    if (n_best <= at.n_groups) {
        for (uint32_t i = threadIdx.x; i < at.n_groups && args.keeps_keys; i += kThreads) copy[i] = __ldcg(keys + i);
        __syncthreads();
        least = find_kth_key<kThreads>(args.keeps_keys ? copy : keys, at.n_groups, n_best, shared.kth);
    }
    if (threadIdx.x == 0) at.least[row] = least;
}

/* ---- weights, list, draw ---- */

__device__ uint64_t sum_of_warp(uint64_t x)
{
    for (unsigned step = kWarp / 2; step; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
    return x;
}

__device__ uint64_t mass_of(const float logits[kEach], float max, float temperature)
{
    uint64_t mass = 0;
#pragma unroll
    for (uint32_t j = 0; j < kEach; j++) mass += token_mass(token_weight(logits[j], max, temperature));
    return sum_of_warp(mass);
}

/* The masses of each warp's logits, to shared memory. */
__device__ void weigh(const float logits[kEach], const DigestAsk &ask, float max, DigestShared &shared)
{
    uint64_t mass = ask.temperature > 0 ? mass_of(logits, max, ask.temperature) : 0, plain = 0;
    if (ask.wants_plain_mass) plain = ask.temperature == 1 ? mass : mass_of(logits, max, 1);
    if (threadIdx.x % kWarp) return;
    shared.mass[threadIdx.x / kWarp] = mass;
    shared.plain_mass[threadIdx.x / kWarp] = plain;
}

/* Bit j: the j-th logit of the thread is listed. */
__device__ uint32_t find_listed(const float logits[kEach], const DigestAsk &ask, float least, DigestShared &shared)
{
    uint32_t listed = 0;
#pragma unroll
    for (uint32_t j = 0; j < kEach; j++) listed |= (uint32_t)(logits[j] >= least && logits[j] > -INFINITY) << j;
    if (!ask.n_best) listed = 0;
    uint32_t n = __reduce_add_sync(kAllLanes, __popc(listed));
    if (threadIdx.x % kWarp == 0) shared.n_items[threadIdx.x / kWarp] = n;
    return listed;
}

/* Of a part, when all its warps are done. */
__device__ void store_found(const DigestArgs &args, uint32_t row, uint32_t part, DigestShared &shared)
{
    PartFound found = {};
    for (uint32_t w = 0; w < kWarps; w++) {
        found.mass += shared.mass[w];
        found.plain_mass += shared.plain_mass[w];
        found.n_items += shared.n_items[w];
    }
    if (found.n_items) found.first_item = atomicAdd(&args.places.states[row].n_listed, found.n_items);
    args.places.parts[(size_t)row * args.places.n_parts + part] = found;
    shared.first_item = found.first_item;
}

/* In the order of ids: those of a warp lie together, 32 neighbours after the other. */
__device__ void store_listed(const float logits[kEach], uint32_t id, uint32_t listed, DigestItem *items,
                             const DigestShared &shared)
{
    const uint32_t before = (1u << threadIdx.x % kWarp) - 1;
    uint32_t first = shared.first_item;
    for (uint32_t w = 0; w < threadIdx.x / kWarp; w++) first += shared.n_items[w];
#pragma unroll
    for (uint32_t j = 0; j < kEach; j++) {
        bool is_listed = listed >> j & 1;
        uint32_t lanes = __ballot_sync(kAllLanes, is_listed), at = first + __popc(lanes & before);
        if (is_listed && at < DIGEST_LIST) items[at] = {id + j * kWarp, logits[j]};
        first += __popc(lanes);
    }
}

/* Of this thread's part of the row. */
__device__ PartFound load_found(const Places &at, uint32_t row)
{
    PartFound found = {};
    if (threadIdx.x >= at.n_parts) return found;
    const PartFound *from = at.parts + (size_t)row * at.n_parts + threadIdx.x;
    found.mass = __ldcg((const unsigned long long *)&from->mass);
    found.plain_mass = __ldcg((const unsigned long long *)&from->plain_mass);
    found.first_item = __ldcg(&from->first_item);
    found.n_items = __ldcg(&from->n_items);
    return found;
}

/* The items of the row's parts, in the order of parts. */
__device__ void put_list(const PartFound &found, const DigestItem *from, DigestItem *to, uint32_t n_parts,
                         DigestShared &shared)
{
    uint64_t total, before = block_prefix(found.n_items, shared.kth.scratch, &total);
    uint32_t *firsts = shared.kth.bins, *ends = firsts + kThreads, *sources = ends + kThreads;
    if (threadIdx.x == 0) shared.digest.n_listed = (uint32_t)total;
    if (total > DIGEST_LIST) return;
    firsts[threadIdx.x] = (uint32_t)before;
    ends[threadIdx.x] = (uint32_t)before + found.n_items;
    sources[threadIdx.x] = found.first_item;
    __syncthreads();
    for (uint32_t part = threadIdx.x / kWarp; part < n_parts; part += kWarps)
        for (uint32_t i = firsts[part] + threadIdx.x % kWarp; i < ends[part]; i += kWarp)
            ((int2 *)to)[i] = __ldcg((const int2 *)from + sources[part] + i - firsts[part]);
}

/* The token on which 'left' falls, counted from where its warp's logits begin. By that warp. */
__device__ void draw_in_span(const float logits[kEach], uint32_t id, const DigestAsk &ask, uint64_t left,
                             DigestShared &shared)
{
    const float max = shared.digest.max;
#pragma unroll
    for (uint32_t j = 0; j < kEach; j++) {
        uint64_t mass = token_mass(token_weight(logits[j], max, ask.temperature)), sum = mass;
        for (unsigned step = 1; step < kWarp; step *= 2) {
            uint64_t lower = __shfl_up_sync(kAllLanes, sum, step);
            if (threadIdx.x % kWarp >= step) sum += lower;
        }
        if (left < sum && left >= sum - mass) {
            shared.digest.drawn = id + j * kWarp;
            shared.digest.drawn_logit = logits[j];
        }
        uint64_t all = __shfl_sync(kAllLanes, sum, kWarp - 1);
        if (left < all) return;
        left -= all;
    }
}

__device__ void draw(const DigestParams &p, uint32_t row, const DigestAsk &ask, const PartFound &found,
                     DigestShared &shared)
{
    uint64_t total, before = block_prefix(found.mass, shared.kth.scratch, &total);
    const uint64_t share = token_mass_share(total, ask.draw);
    if (before <= share && share - before < found.mass) {
        shared.part = threadIdx.x;
        shared.left = share - before;
    }
    __syncthreads();
    float logits[kEach];
    const uint32_t part = shared.part;
    load_logits(p, row, part, logits);
    apply_mask(ask.mask, part, p.n_vocab, logits);
    weigh(logits, ask, shared.digest.max, shared);
    __syncthreads();
    uint64_t left = shared.left;
    uint32_t warp = 0;
    while (left >= shared.mass[warp]) left -= shared.mass[warp++];
    if (warp == threadIdx.x / kWarp) draw_in_span(logits, first_id(part), ask, left, shared);
}

/* By the block that ends the row: shared.digest is complete but for what comes of all parts. */
__device__ void end_row(const DigestArgs &args, uint32_t row, const DigestAsk &ask, bool is_empty, DigestShared &shared)
{
    const DigestParams &p = args.params;
    const Places &at = args.places;
    if (!is_empty) {
        const PartFound found = load_found(at, row);
        uint64_t mass, plain_mass;
        (void)block_prefix(found.mass, shared.kth.scratch, &mass);
        (void)block_prefix(found.plain_mass, shared.kth.scratch, &plain_mass);
        if (threadIdx.x == 0) {
            shared.digest.mass = mass;
            shared.digest.plain_mass = plain_mass;
            if (ask.n_best) shared.digest.least = logit_of(__ldcg(&at.least[row]));
        }
        if (ask.n_best)
            put_list(found, at.items + (size_t)row * DIGEST_LIST, p.items + (size_t)row * DIGEST_LIST, at.n_parts,
                     shared);
        if (ask.wants_draw && ask.temperature > 0) draw(p, row, ask, found, shared);
    }
    __syncthreads();
    if (threadIdx.x) return;
    p.digests[row] = shared.digest;
    at.states[row] = {};
}

__global__ void __launch_bounds__(kThreads) weigh_rows(const __grid_constant__ DigestArgs args)
{
    __shared__ DigestShared shared;
    const DigestParams &p = args.params;
    const Places &at = args.places;
    const uint32_t part = blockIdx.x, row = blockIdx.y;
    lw::grid_release();
    lw::grid_wait();
    const DigestAsk ask = p.asks[row];
    if (!ask.is_wanted) return;
    RowState *state = &at.states[row];
    const unsigned long long best = __ldcg(&state->best);
    const bool is_bad = __ldcg(&state->is_bad);
    const float max = logit_of((uint32_t)(best >> 32));
    const bool is_empty = is_bad || max == -INFINITY;
    if (threadIdx.x == 0) {
        shared.digest = {};
        shared.digest.max = max;
        shared.digest.best = UINT32_MAX - (uint32_t)best;
        shared.digest.is_bad = is_bad;
    }
    if (!is_empty && (ask.temperature > 0 || ask.wants_plain_mass || ask.n_best)) {
        float logits[kEach];
        load_logits(p, row, part, logits);
        apply_mask(ask.mask, part, p.n_vocab, logits);
        weigh(logits, ask, max, shared);
        const float least = ask.n_best ? logit_of(__ldcg(&at.least[row])) : 0;
        uint32_t listed = find_listed(logits, ask, least, shared);
        __syncthreads();
        if (threadIdx.x == 0) store_found(args, row, part, shared);
        __syncthreads();
        if (ask.n_best) store_listed(logits, first_id(part), listed, at.items + (size_t)row * DIGEST_LIST, shared);
    } else if (threadIdx.x == 0) {
        at.parts[(size_t)row * at.n_parts + part] = {};
    }
    if (ends_row(&state->n_weighed, at.n_parts, shared)) end_row(args, row, ask, is_empty, shared);
}

size_t aligned(size_t n)
{
    return (n + 255) / 256 * 256;
}

size_t place_parts(uint32_t max_rows, uint32_t n_vocab, char *base, Places *ret)
{
    Places at = {};
    size_t states = aligned(max_rows * sizeof *at.states), least = aligned(max_rows * sizeof *at.least);
    at.n_parts = (n_vocab + kPart - 1) / kPart;
    at.n_groups = digest_groups(n_vocab);
    size_t parts = aligned((size_t)max_rows * at.n_parts * sizeof *at.parts);
    size_t items = aligned((size_t)max_rows * DIGEST_LIST * sizeof *at.items);
    size_t keys = aligned((size_t)max_rows * at.n_parts * kPartGroups * sizeof *at.keys);
    at.states = (RowState *)base;
    at.least = (uint32_t *)(base + states);
    at.parts = (PartFound *)(base + states + least);
    at.items = (DigestItem *)(base + states + least + parts);
    at.keys = (uint32_t *)(base + states + least + parts + items);
    if (ret) *ret = at;
    return states + least + parts + items + keys;
}

} // namespace

extern "C" size_t digest_scratch_bytes(uint32_t max_rows, uint32_t n_vocab)
{
    return place_parts(max_rows, n_vocab, NULL, NULL);
}

extern "C" bool digest_cuda(const DigestParams *params, Stream stream)
{
    const DigestParams &p = *params;
    if (p.n_rows == 0 || p.n_rows > 65535 || p.n_vocab == 0 || p.n_vocab > TOKEN_MAX_VOCAB || !p.scratch) return false;
    DigestArgs args = {p, {}, false};
    (void)place_parts(p.max_rows, p.n_vocab, (char *)p.scratch, &args.places);
    args.keeps_keys = args.places.n_groups <= kMostKept;
    const dim3 grid(args.places.n_parts, p.n_rows);
    size_t bytes = args.keeps_keys ? args.places.n_groups * sizeof(uint32_t) : 0;
    return (!p.has_edits || lw::launch(edit_rows, p.n_rows, kThreads, 0, stream, args)) &&
           lw::launch(look_at_rows, grid, kThreads, bytes, stream, args) &&
           lw::launch(weigh_rows, grid, kThreads, 0, stream, args);
}
