/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How weights come to the warps of gemv.cuh: every warp has a ring of stages in shared memory that it alone fills and
 * reads, so no barrier of the block stands between loading and multiplying. Packed units are copied as they lie, by one
 * bulk copy each where the device has them; rows of F16 and BF16 by 16-byte copies of every lane.
 */
#pragma once
#include "kernels/launch.cuh"
#include "kernels/linear/device_layout.h"
#include "kernels/linear/gemv_place.cuh"
#include "kernels/linear/unpack.cuh"

#if __CUDA_ARCH__ >= 900
#define LW_HAS_BULK_COPY 1
#else
#define LW_HAS_BULK_COPY 0
#endif

namespace lw
{

/* F16 and BF16 in rows: lane 4 g + t has 8 columns 32 v + 8 t .. of rows g and g + 8, v = 0, 1. */
template <bool kIsBf16Value> struct Plain {
    static constexpr bool kIsBf16 = kIsBf16Value;
    static constexpr int kUnitCols = DEVICE_FLOAT_UNIT_COLS, kUnitBytes = DEVICE_TILE_ROWS * kUnitCols * 2;
};

template <class F> constexpr bool is_plain = false;
template <bool kIsBf16> constexpr bool is_plain<Plain<kIsBf16>> = true;
template <class F> constexpr bool is_bf16 = false;
template <> constexpr bool is_bf16<Plain<true>> = true;

/* ---- barriers ---- */

__device__ __forceinline__ uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void barrier_init(uint64_t *barrier, uint32_t n_arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_at(barrier)), "r"(n_arrivals) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_at(barrier)) : "memory");
}

__device__ __forceinline__ void barrier_wait(const uint64_t *barrier, uint32_t parity)
{
    uint32_t done = 0, at = shared_at(barrier);
    while (!done)
#if __CUDA_ARCH__ >= 900
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#else
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#endif
                     : "=r"(done)
                     : "r"(at), "r"(parity)
                     : "memory");
}

/* ---- copies ---- */

__device__ __forceinline__ void copy_async_16(char *to, const char *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_at(to)), "l"(from) : "memory");
}

__device__ __forceinline__ void commit_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kLater> __device__ __forceinline__ void wait_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}

/* Until the oldest of n_stages groups is there. */
__device__ __forceinline__ void wait_oldest(uint32_t n_stages)
{
    static_assert(GEMV_MAX_STAGES <= 3, "one instruction for each");
    switch (n_stages) {
    case 3:
        return wait_copies<2>();
    case 2:
        return wait_copies<1>();
    default:
        return wait_copies<0>();
    }
}

/* By one lane, as are the copies: `barrier` then waits for so many bytes. */
__device__ __forceinline__ void expect_bytes(uint64_t *barrier, uint32_t bytes)
{
#if LW_HAS_BULK_COPY
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_at(barrier)), "r"(bytes) : "memory");
#endif
}

__device__ __forceinline__ void copy_bulk(char *to, const char *from, uint32_t bytes, uint64_t *barrier)
{
#if LW_HAS_BULK_COPY
    uint64_t policy; /* weights are read once a step: what lies in the second-level cache shall stay */
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(shared_at(to)),
                 "l"(from), "r"(bytes), "r"(shared_at(barrier)), "l"(policy)
                 : "memory");
#endif
}

template <class F> constexpr bool is_bulk = LW_HAS_BULK_COPY && !is_plain<F>;

/* Everything is told from here by offsets, which take a register each and not two. */
__device__ __forceinline__ char *dynamic_shared()
{
    extern __shared__ __align__(128) char shared[];
    return shared;
}

/* A warp's stages, at dynamic_shared() + start; each holds a unit of every tile of a pass. */
template <class F, int kTiles> struct Ring {
    static constexpr uint32_t kBytes = kTiles * F::kUnitBytes;
    uint64_t *barriers; /* [n_stages] of this warp */
    uint32_t start, n_stages;
    uint32_t stage, parity; /* the oldest, which is read and filled next; 1 until all have been filled once */

    __device__ __forceinline__ Ring(uint32_t ring_start, uint32_t ring_stages, uint64_t *ring_barriers)
        : barriers(ring_barriers), start(ring_start), n_stages(ring_stages), stage(0), parity(1)
    {
        if constexpr (is_bulk<F>) {
            if (threadIdx.x % 32 == 0) {
                for (uint32_t i = 0; i < n_stages; i++) barrier_init(barriers + i, 1);
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            }
            __syncwarp();
        }
    }

    __device__ __forceinline__ char *oldest() const
    {
        return dynamic_shared() + start + stage * kBytes;
    }

    __device__ __forceinline__ void wait() const
    {
        if constexpr (is_bulk<F>) {
            barrier_wait(barriers + stage, parity);
        } else {
            wait_oldest(n_stages);
            if constexpr (!is_plain<F>) __syncwarp(); /* lanes read what others copied */
        }
    }

    /* Starts the copy of a unit each of n tiles into the oldest stage; row_bytes: of the matrix, for F16 and BF16. */
    __device__ __forceinline__ void copy(const char *const *from, uint32_t n, size_t row_bytes) const
    {
        const uint32_t lane = threadIdx.x % 32;
        if (is_bulk<F> && lane == 0) expect_bytes(barriers + stage, n * F::kUnitBytes);
#pragma unroll
        for (uint32_t tile = 0; tile < kTiles; tile++)
            if (tile < n) copy_unit(oldest() + tile * F::kUnitBytes, from[tile], lane, row_bytes);
    }

    __device__ __forceinline__ void copy_unit(char *to, const char *from, uint32_t lane, size_t row_bytes) const
    {
        if constexpr (is_plain<F>) {
            const char *row = from + lane / 4 * row_bytes + lane % 4 * 16;
#pragma unroll
            for (int i = 0; i < 4; i++) /* v = 0, 1 of row g, then of row g + 8 */
                copy_async_16(to + (i * 32 + lane) * 16, row + i / 2 * 8 * row_bytes + i % 2 * 64);
        } else if constexpr (is_bulk<F>) {
            if (lane == 0) copy_bulk(to, from, F::kUnitBytes, barriers + stage);
        } else {
            static_assert(F::kUnitBytes % 16 == 0, "units are copied in pieces of 16 bytes");
#pragma unroll
            for (uint32_t at = 0; at < F::kUnitBytes; at += 512)
                if (at + lane * 16 < F::kUnitBytes) copy_async_16(to + at + lane * 16, from + at + lane * 16);
        }
    }

    /* Also where nothing was copied: groups of copies are counted. */
    __device__ __forceinline__ void advance()
    {
        if constexpr (!is_bulk<F>) commit_copies();
        if (++stage == n_stages) stage = 0, parity ^= 1;
    }
};

/* ---- which units are a warp's ---- */

/* In a form that shows the compiler that all lanes have the same: what follows from it takes no registers of theirs. */
__device__ __forceinline__ uint32_t warp_index()
{
    return __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0);
}

__device__ __forceinline__ uint32_t units_of_chunk(const GemvArgs &args, uint32_t chunk)
{
    uint32_t left = args.n_units - chunk * args.chunk_units;
    return left < args.chunk_units ? left : args.chunk_units;
}

/*
 * Units first, first + kStep, .. of a chunk. Packed units of all warps together are one stretch of memory at any time;
 * rows are read by every warp in a stretch of its own.
 */
template <class F, int kWarps> struct Share {
    static constexpr uint32_t kStep = is_plain<F> ? 1 : kWarps;
    uint32_t first, count;

    __device__ __forceinline__ Share(uint32_t warp, uint32_t n_units)
    {
        if constexpr (is_plain<F>) {
            first = warp * n_units / kWarps;
            count = (warp + 1) * n_units / kWarps - first;
        } else {
            first = warp;
            count = warp < n_units ? (n_units - warp - 1) / kWarps + 1 : 0;
        }
    }
};

/* The tiles of this block. */
struct Tiles {
    uint32_t begin, end;
};

__device__ __forceinline__ Tiles tiles_of_block(const GemvArgs &args)
{
    const uint32_t block = blockIdx.x, together = args.is_glu ? 2 : 1;
    const uint32_t begin = (block * args.block_groups + min(block, args.more_blocks)) * together;
    return {begin, begin + (args.block_groups + (block < args.more_blocks)) * together};
}

template <class F> __device__ __forceinline__ constexpr uint32_t unit_step()
{
    return is_plain<F> ? F::kUnitCols * 2 : F::kUnitBytes;
}

/* Runs ahead of the multiplication over the units of one warp: chunk by chunk, in it pass by pass. */
template <class F, int kWarps, int kTiles> struct Walk {
    const char *from[kTiles]; /* the next unit of each tile of the pass */
    uint32_t left, count;     /* units of each tile; left is 0 past the last pass */
    uint32_t tile, n, limit;  /* the pass's first tile, how many; tiles below `limit` follow one another evenly */
    uint32_t chunk, warp;

    /* Where the pass's units lie, from nothing; on to the next chunk that has some for this warp. */
    __device__ __forceinline__ void find(const GemvArgs &args)
    {
        const Tiles mine = tiles_of_block(args);
        Share<F, kWarps> share(warp, 0);
        left = 0;
        for (;; tile = mine.begin, chunk++) {
            if (mine.begin >= mine.end || chunk * args.chunk_units >= args.n_units) return;
            share = Share<F, kWarps>(warp, units_of_chunk(args, chunk));
            if (share.count > 0 && tile < mine.end) break;
        }
        const size_t skipped = (is_plain<F> ? 0 : DEVICE_TILE_HEAD_BYTES) +
                               (size_t)(chunk * args.chunk_units + share.first) * unit_step<F>();
        const Place place = place_of(args, tile);
        const uint32_t next = place.index + 1;
        limit = args.is_glu || next >= args.n_out ? mine.end : min(mine.end, args.out[next].first_tile);
        n = min((uint32_t)kTiles, mine.end - tile);
        left = count = share.count;
        from[0] = tile_start(args, place) + skipped;
        if (kTiles > 1 && n > 1) from[kTiles - 1] = tile_start(args, place_of(args, tile + 1)) + skipped;
    }

    __device__ __forceinline__ Walk(const GemvArgs &args, uint32_t its_warp)
        : tile(tiles_of_block(args).begin), chunk(0), warp(its_warp)
    {
        find(args);
        if (left == 0) grid_release();
    }

    /* The next unit of each tile into the ring's oldest stage, which every lane is done with. */
    __device__ __forceinline__ void load(const GemvArgs &args, Ring<F, kTiles> &ring)
    {
        constexpr uint32_t kStep = Share<F, kWarps>::kStep * unit_step<F>();
        if (left > 0) {
            ring.copy(from, n, args.tile_bytes / DEVICE_TILE_ROWS);
            size_t step = kStep;
            if (--left == 0) {
                tile += kTiles;
                if (tile + kTiles <= limit) {
                    step = args.pass_step - (size_t)(count - 1) * kStep;
                    left = count;
                } else {
                    find(args);
                    step = 0;
                    if (left == 0) grid_release(); /* the next kernel fetches while this one still multiplies */
                }
            }
#pragma unroll
            for (int i = 0; i < kTiles; i++) from[i] += step;
        }
        ring.advance();
    }
};

} // namespace lw
