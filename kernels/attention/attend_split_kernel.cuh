/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel that attend_split.cuh describes, and its launcher: templates, of which each .cu makes some. */
#pragma once
#include "kernels/attention/attend_merge.cuh"
#include "kernels/attention/attend_own.cuh"

namespace
{

/* All of a block's shared memory but the rings, which follow it. */
template <KvType type, int dim, int tiles, bool has_bands> struct alignas(128) SplitShared {
    uint4 queries[2][tiles * QueryPlaces<type, dim, has_bands>::kTile]; /* of this part and the next */
    Merge<dim, tiles> merge;
    Part parts[kMaxParts];
    Stage stages[kSplitMaxWorkers][kMaxStages];
};

__device__ inline void wait_for_oldest(unsigned n_stages)
{
    switch (n_stages) {
    case 1:
        return copies_wait<0>();
    case 2:
        return copies_wait<1>();
    case 3:
        return copies_wait<2>();
    case 4:
        return copies_wait<3>();
    case 5:
        return copies_wait<4>();
    case 6:
        return copies_wait<5>();
    case 7:
        return copies_wait<6>();
    default:
        return copies_wait<7>();
    }
}

/*
 * A warp's way through the stored sectors of a part: every n_workers-th visit. Lane i knows where the i-th of the next
 * 32 lies, so that looking up lists and page tables is no part of each step.
 */
struct Way {
    uint32_t visit, end; /* the next to load */
    unsigned in_batch, stage;
    uint64_t address; /* of this lane's visit; 0: no row sees it */
    uint32_t sector, n_steps;
    bool is_listed;
};

template <int dim, bool has_bands> __device__ inline void look_ahead(const Part &part, Way &way, unsigned n_workers)
{
    uint32_t visit = way.visit + threadIdx.x % kWarp * n_workers;
    way.in_batch = 0;
    way.address = 0;
    way.n_steps = dim / 16;
    if (has_bands && part.visits.plan.n_bands) /* by all lanes, which load a band each */
        way.n_steps = band_steps(part.visits, visits_at(part.visits, min(visit, way.end - 1)).sector, dim);
    if (visit >= way.end) return;
    Visit at = visits_at(part.visits, visit);
    way.sector = at.sector;
    way.is_listed = at.is_listed;
    way.address = (uint64_t)visits_sector(part.visits, at.sector, false);
}

/* Starts the copy of the next sector; past the end it is an empty one. */
template <KvType type, int dim, bool has_bands>
__device__ void load_next(const SplitArgs &args, const Part &part, Way &way, char *ring, Stage *stages, const Lane &l,
                          unsigned n_workers)
{
    if (way.visit < way.end) {
        if (way.in_batch == kWarp) look_ahead<dim, has_bands>(part, way, n_workers);
        const char *from = (const char *)__shfl_sync(kAllLanes, way.address, way.in_batch);
        const unsigned n_steps = has_bands ? __shfl_sync(kAllLanes, way.n_steps, way.in_batch) : dim / 16;
        if (from) copy_sector<type, dim>(ring + way.stage * Sector<type, dim>::kBytes, from, l.lane, n_steps);
        if (l.lane == way.in_batch) stages[way.stage] = {way.sector, way.is_listed, from == nullptr, (uint8_t)n_steps};
        way.in_batch++;
        way.visit += n_workers;
    }
    way.stage = way.stage + 1 == args.n_stages ? 0 : way.stage + 1;
    copies_commit();
}

template <int dim, bool has_bands> __device__ inline Way find_way(const Part &part, const Lane &l, unsigned n_workers)
{
    Way way = {part.first_visit + l.warp, min(part.end_visit, part.visits.n_stored), 0, 0, 0, 0, 0, false};
    look_ahead<dim, has_bands>(part, way, n_workers);
    return way;
}

template <KvType type, int dim, bool has_bands>
__device__ void start_way(const SplitArgs &args, const Part &part, Way &way, char *ring, Stage *stages, const Lane &l,
                          unsigned n_workers)
{
    for (unsigned s = 0; s < args.n_stages; s++)
        load_next<type, dim, has_bands>(args, part, way, ring, stages, l, n_workers);
}

/* The part's stored sectors that are this warp's turn; the first n_stages of them are on their way. */
template <KvType type, int dim, int tiles, bool has_bands>
__device__ void take_stored(const SplitArgs &args, Softmax<dim, tiles> &soft, const Part &part, Way &way, Own<dim> &own,
                            const uint4 *queries, char *ring, Stage *stages, const Lane &l, unsigned n_workers)
{
    const float *cut = QueryPlaces<type, dim, has_bands>::sums((uint4 *)queries, tiles, 0);
    for (uint32_t visit = part.first_visit + l.warp; visit < way.end; visit += n_workers) {
        wait_for_oldest(args.n_stages);
        __syncwarp();
        Stage at = stages[way.stage];
        if (!Format<type>::kQuantised && visit == own.visit)
            put_own<type, dim>(args, part, own, ring + way.stage * Sector<type, dim>::kBytes, l);
        if (!at.is_missing)
            attend_sector<type, type, dim, tiles, has_bands>(
                soft, part, at, ring + way.stage * Sector<type, dim>::kBytes, queries, cut, args.params.softcap, l);
        __syncwarp();
        load_next<type, dim, has_bands>(args, part, way, ring, stages, l, n_workers);
    }
    copies_wait<0>();
}

/* Images are few: one at a time, through the whole ring. */
template <KvType type, int dim, int tiles>
__device__ void take_images(const SplitArgs &args, Softmax<dim, tiles> &soft, const Part &part, const uint4 *queries,
                            char *ring, const Lane &l, unsigned n_workers)
{
    uint32_t visit = part.first_visit + l.warp;
    if (visit < part.visits.n_stored) visit += (part.visits.n_stored - visit + n_workers - 1) / n_workers * n_workers;
    for (; visit < part.end_visit; visit += n_workers) {
        Visit v = visits_at(part.visits, visit);
        __syncwarp();
        copy_sector<KV_BF16, dim>(ring, visits_sector(part.visits, v.sector, true), l.lane, dim / 16);
        copies_commit();
        copies_wait<0>();
        __syncwarp();
        Stage at = {v.sector, v.is_listed, false, dim / 16}; /* of the rows' own page: no band cuts */
        attend_sector<KV_BF16, type, dim, tiles, false>(soft, part, at, ring,
                                                        QueryPlaces<type, dim, false>::images((uint4 *)queries, tiles),
                                                        nullptr, args.params.softcap, l);
    }
    __syncwarp();
}

template <bool quantised, int dim, int tiles> __device__ void clear(Softmax<dim, tiles> &soft)
{
    for (int n = 0; n < tiles; n++)
        for (int i = 0; i < 4; i++) {
            for (int m = 0; m < dim / 16; m++) soft.out[m][n][i] = 0;
            soft.max[n][i % 2] = -INFINITY;
            soft.sum[n][i % 2] = soft.zero[n][i % 2] = 0;
        }
    soft.unit = quantised ? 1.0f / (1 << 24) : 1;
}

/* Where the keys of the rows themselves come later, no kernel of the step writes any that are read: is_ahead. */
template <KvType type, int dim, int tiles, bool has_bands>
__global__ void __launch_bounds__((kSplitMaxWorkers + 1) * kWarp, dim > 128 ? 1 : 2)
    attend_split(const __grid_constant__ SplitArgs args)
{
    extern __shared__ __align__(128) char memory[];
    SplitShared<type, dim, tiles, has_bands> &shared = *(SplitShared<type, dim, tiles, has_bands> *)memory;
    unsigned n_workers = blockDim.x / kWarp - 1;
    Lane l = {threadIdx.x % kWarp, threadIdx.x % kWarp / 4, threadIdx.x % 4, threadIdx.x / kWarp};
    char *ring = memory + sizeof(shared) + l.warp * args.ring_bytes;
    Stage *stages = shared.stages[l.warp];
    lw::grid_release();
    if (l.warp == 1) fetch_tables(args.params);
    uint2 *prefix = (uint2 *)(shared.merge.out + 2 * kMaxWarps); /* behind the scratch */
    Cursor cursor = count_work<type>(args, 8 * tiles, (uint64_t *)shared.merge.out, prefix);
    bool is_worker = l.warp < n_workers, has_work = blockIdx.x < cursor.n_blocks;
    if (!is_worker && has_work) {
        find_share<type>(args, cursor, 8 * tiles, prefix);
        prepare_visits<type>(args, cursor, 8 * tiles, shared.parts[0]);
        clear_queries<type, dim, has_bands>(args, shared.parts[0], 8 * tiles, shared.queries[0]);
    }
    __syncthreads();
    Way way = {};
    const bool is_early = args.params.launch.is_early, stores = !Format<type>::kQuantised && args.params.k;
    const bool is_ahead = stores && is_early;
    if (is_worker && has_work && is_early) way = find_way<dim, has_bands>(shared.parts[0], l, n_workers);
    if (is_worker && has_work && is_ahead)
        start_way<type, dim, has_bands>(args, shared.parts[0], way, ring, stages, l, n_workers);
    lw::grid_wait();
    if (!has_work) return;
    if (is_worker && !is_early) way = find_way<dim, has_bands>(shared.parts[0], l, n_workers);
    Own<dim> own = is_worker && stores ? load_own<dim>(args, shared.parts[0], l, n_workers) : Own<dim>{};
    if (is_worker && !is_ahead) start_way<type, dim, has_bands>(args, shared.parts[0], way, ring, stages, l, n_workers);
    put_queries<type, dim, dim <= 128 ? 2 : 1, has_bands>(args, shared.parts[0], 8 * tiles, shared.queries[0],
                                                          n_workers - l.warp, n_workers + 1);
    __syncthreads();
    for (unsigned i = 0; shared.parts[i % kMaxParts].is_valid; i++) {
        const Part &part = shared.parts[i % kMaxParts];
        Part &next = shared.parts[(i + 1) % kMaxParts];
        if (!is_worker) {
            prepare<type, dim, has_bands>(args, cursor, 8 * tiles, next, shared.queries[(i + 1) % 2]);
            __syncthreads();
            continue;
        }
        Softmax<dim, tiles> soft;
        clear<Format<type>::kQuantised>(soft);
        const uint4 *queries = shared.queries[i % 2];
        take_stored<type, dim, tiles, has_bands>(args, soft, part, way, own, queries, ring, stages, l, n_workers);
        if (Format<type>::kQuantised) take_images<type, dim, tiles>(args, soft, part, queries, ring, l, n_workers);
        __syncthreads();
        if (next.is_valid) {
            way = find_way<dim, has_bands>(next, l, n_workers);
            start_way<type, dim, has_bands>(args, next, way, ring, stages, l, n_workers);
            if (stores) own = load_own<dim>(args, next, l, n_workers);
        }
        merge_workers<dim, tiles, Format<type>::kQuantised>(shared.merge, soft, l, n_workers);
        finish_part<dim, tiles>(args, shared.merge, part, l, n_workers);
        workers_wait(n_workers * kWarp);
    }
}

struct SplitShape {
    uint32_t n_workers, n_stages, ring_bytes, n_blocks;
    size_t shared_bytes;
};

/* Two blocks a multiprocessor where two stages fit, else one; fewer workers where two do not fit even then. */
template <KvType type, int dim, int tiles, bool has_bands> bool split_shape(SplitShape *ret)
{
    const DeviceFacts *facts = device_facts();
    if (!facts) return false;
    constexpr uint32_t kReserved = 1024,
                       kFixed = sizeof(SplitShared<type, dim, tiles, has_bands>); /* reserved: by the driver */
    constexpr uint32_t kStage = Sector<type, dim>::kBytes;
    constexpr uint32_t kLeast = Format<type>::kQuantised ? Sector<KV_BF16, dim>::kBytes : kStage;
    for (uint32_t per_processor = 2, workers = kSplitMaxWorkers; workers;) {
        uint32_t room = (uint32_t)facts->processor_shared_bytes / per_processor - kReserved;
        if (room > (uint32_t)facts->block_shared_bytes) room = (uint32_t)facts->block_shared_bytes;
        uint32_t ring = room > kFixed ? (room - kFixed) / workers / 128 * 128 : 0, stages = ring / kStage;
        if (ring >= kLeast && (stages >= 2 || (per_processor == 1 && workers == 1 && stages))) {
            if (stages > kMaxStages) stages = kMaxStages;
            ring = stages * kStage > kLeast ? stages * kStage : kLeast;
            *ret = {workers, stages, ring, per_processor * facts->n_multiprocessors, kFixed + (size_t)workers * ring};
            return true;
        }
        if (per_processor == 2)
            per_processor = 1;
        else
            workers /= 2;
    }
    return false;
}

template <KvType type, int dim, int tiles, bool has_bands> bool launch_split(SplitArgs args, Stream stream)
{
    SplitShape shape;
    if (!split_shape<type, dim, tiles, has_bands>(&shape)) return false;
    args.n_stages = shape.n_stages;
    args.ring_bytes = shape.ring_bytes;
    auto kernel = attend_split<type, dim, tiles, has_bands>;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shape.shared_bytes) !=
        cudaSuccess)
        return false;
    if (shape.n_blocks > ATTEND_SPLIT_MAX_BLOCKS) shape.n_blocks = ATTEND_SPLIT_MAX_BLOCKS;
    return lw::launch(kernel, shape.n_blocks, (shape.n_workers + 1) * kWarp, shape.shared_bytes, stream, args);
}

template <KvType type, int tiles, bool has_bands> bool launch_split_dim(const SplitArgs &args, Stream stream)
{
    switch (args.params.k_dim) {
    case 64:
        return launch_split<type, 64, tiles, has_bands>(args, stream);
    case 96:
        return launch_split<type, 96, tiles, has_bands>(args, stream);
    case 128:
        return launch_split<type, 128, tiles, has_bands>(args, stream);
    case 256:
        return launch_split<type, 256, tiles, has_bands>(args, stream);
    default:
        return false;
    }
}

template <KvType type> bool launch_split_type(const SplitArgs &args, uint32_t tile_queries, Stream stream)
{
    if (args.params.launch.has_bands) return tile_queries == 8 && launch_split_dim<type, 1, true>(args, stream);
    return tile_queries == 8 ? launch_split_dim<type, 1, false>(args, stream)
                             : launch_split_dim<type, 2, false>(args, stream);
}

} // namespace
