/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How weights come to the warps of gemv_dot.cuh: each reads a ring of stages in shared memory of its own, link after
 * link of the chain. Some more warps fill all rings, whatever the others wait for meanwhile. Only a few stages are on
 * their way at a time: what more there were would keep nothing busier, and everything small that is asked for would
 * come behind them.
 */
#pragma once
#include "kernels/linear/gemv.cuh"

namespace lw
{

template <class F> constexpr uint32_t dot_warps = is_plain<F> ? 8 : 16;

/* A stage: a unit as it is packed, or so many columns of the 16 rows of F16 and BF16, row after row. */
template <class F> constexpr uint32_t dot_unit_cols = is_plain<F> ? 256 : F::kUnitCols;
template <class F> constexpr uint32_t dot_unit_bytes = is_plain<F> ? DEVICE_TILE_ROWS * 256 * 2 : F::kUnitBytes;
template <class F> constexpr uint32_t dot_unit_step = is_plain<F> ? 256 * 2 : F::kUnitBytes;

/* The threads that multiply: all but the last warp. */
__device__ __forceinline__ uint32_t worker_threads()
{
    return blockDim.x - GEMV_DOT_FEED_WARPS * 32;
}

__device__ __forceinline__ void sync_workers()
{
    asm volatile("bar.sync 1, %0;" ::"r"(worker_threads()) : "memory");
}

/* The first unit of a warp, and the warp of a unit. */
template <uint32_t kWarps> __device__ __forceinline__ uint32_t first_of_warp(uint32_t n_units, uint32_t warp)
{
    return n_units * warp / kWarps;
}

template <uint32_t kWarps> __device__ __forceinline__ uint32_t warp_of_unit(uint32_t n_units, uint32_t unit)
{
    return ((unit + 1) * kWarps - 1) / n_units;
}

/* What a block, and a warp of it, has of a product. */
template <uint32_t kWarps> struct Work {
    Tiles mine;
    uint32_t all, first, end;   /* units: of the block; of the warp */
    uint32_t first_unit, place; /* the first unit within its tile; where its part goes */

    __device__ __forceinline__ Work(const GemvArgs &args, uint32_t warp) : mine(tiles_of_block(args))
    {
        all = (mine.end - mine.begin) * args.n_units;
        first = first_of_warp<kWarps>(all, warp);
        end = first_of_warp<kWarps>(all, warp + 1);
        first_unit = first % args.n_units;
        place = first / args.n_units + warp;
    }
};

/* Arrives at `barrier` when this lane's copies so far are there; the arrival has been counted. */
__device__ __forceinline__ void arrive_with_copies(uint64_t *barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_at(barrier)) : "memory");
}

__device__ __forceinline__ bool barrier_is_past(const uint64_t *barrier, uint32_t parity)
{
    uint32_t done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(shared_at(barrier)), "r"(parity)
                 : "memory");
    return done;
}

/*
 * Registers go from the warps that feed to those that multiply: of the 96 that each of 20 warps has, what they leave is
 * enough for 112. Elsewhere some are kept in memory.
 */
template <class F> __device__ __forceinline__ void take_registers()
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    if constexpr (dot_warps<F> == 16) asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
#endif
}

template <class F> __device__ __forceinline__ void leave_registers()
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    if constexpr (dot_warps<F> == 16) asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
#endif
}

struct FeedBarriers {
    uint64_t full[GEMV_MAX_WARPS][GEMV_DOT_STAGES], empty[GEMV_MAX_WARPS][GEMV_DOT_STAGES];
};

/* A stage of a ring, and the parity of its turn. */
struct RingAt {
    uint32_t stage, parity;

    __device__ __forceinline__ void advance(uint32_t n_stages)
    {
        if (++stage == n_stages) stage = 0, parity ^= 1;
    }
};

/* What a warp reads. */
template <class F> struct Feed {
    uint64_t *full, *empty;
    uint32_t start, n_stages;
    RingAt at;

    __device__ __forceinline__ Feed(const GemvChain &chain, FeedBarriers *barriers)
        : full(barriers->full[warp_index()]), empty(barriers->empty[warp_index()]),
          start(warp_index() * chain.n_stages * dot_unit_bytes<F>), n_stages(chain.n_stages), at({0, 0})
    {
    }

    __device__ __forceinline__ const char *oldest() const
    {
        return dynamic_shared() + start + at.stage * dot_unit_bytes<F>;
    }

    __device__ __forceinline__ void wait() const
    {
        barrier_wait(full + at.stage, at.parity);
    }

    /* The oldest stage, which all lanes are done with. */
    __device__ __forceinline__ void give_back()
    {
        if (threadIdx.x % 32 == 0) barrier_arrive(empty + at.stage);
        at.advance(n_stages);
    }
};

__device__ __forceinline__ void prefetch_bulk(const char *from, uint32_t bytes)
{
#if LW_HAS_BULK_COPY
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

/* What fills the rings: a lane for each, of several warps, since a warp's lanes ask for units one after the other. */
template <class F> struct Feeder {
    const GemvLink *links;
    const char *from;                                 /* the next unit */
    uint32_t n_links, link, left, left_of_tile, tile; /* left: units of the link; tile: of all outputs */
    uint64_t *full, *empty;
    uint32_t warp, start, n_stages;
    RingAt asked, landed;               /* the next stage to ask for; to land */
    uint32_t n_under_way, most, n_deep; /* deep: units behind the ring */

    __device__ __forceinline__ void find(const GemvArgs &args, uint32_t unit)
    {
        constexpr uint32_t kHead = is_plain<F> ? 0 : DEVICE_TILE_HEAD_BYTES;
        from = tile_start(args, place_of(args, tile)) + kHead + (size_t)unit * dot_unit_step<F>;
        left_of_tile = args.n_units - unit;
        n_deep = 0;
    }

    /* Of link, or of the first one behind it that has units for this ring. */
    __device__ __forceinline__ void begin()
    {
        for (; link < n_links; link++) {
            const GemvArgs &args = links[link].product;
            const Work<dot_warps<F>> work(args, warp);
            left = work.end - work.first;
            if (left == 0) continue;
            tile = work.mine.begin + work.first / args.n_units;
            return find(args, work.first_unit);
        }
    }

    __device__ __forceinline__ Feeder(const GemvChain &chain, const GemvLink *all_links, FeedBarriers *barriers)
        : links(all_links), from(nullptr), n_links(chain.n_links), link(0), left(0), left_of_tile(0), tile(0),
          warp(threadIdx.x % 32 * GEMV_DOT_FEED_WARPS + warp_index() - dot_warps<F>), n_stages(chain.n_stages),
          asked({0, 1}), landed({0, 0}), n_under_way(0), most(chain.n_on_their_way), n_deep(0)
    {
        if (warp >= dot_warps<F>) warp = 0, link = n_links; /* none for this lane */
        full = barriers->full[warp];
        empty = barriers->empty[warp];
        start = warp * n_stages * dot_unit_bytes<F>;
        begin();
    }

    /* By all lanes, for one ring. */
    __device__ __forceinline__ void copy_together(char *to, const char *its_from, uint64_t *barrier, uint32_t row_bytes,
                                                  uint32_t bytes) const
    {
        const uint32_t lane = threadIdx.x % 32;
        if constexpr (is_plain<F>) {
#pragma unroll
            for (uint32_t row = 0; row < DEVICE_TILE_ROWS; row++)
                if (lane * 16 < bytes)
                    copy_async_16(to + row * dot_unit_step<F> + lane * 16,
                                  its_from + (size_t)row * row_bytes + lane * 16);
            arrive_with_copies(barrier);
        } else {
            static_assert(dot_unit_bytes<F> % 16 == 0, "units are copied in pieces of 16 bytes");
#pragma unroll
            for (uint32_t at = 0; at < dot_unit_bytes<F>; at += 512)
                if (at + lane * 16 < dot_unit_bytes<F>) copy_async_16(to + at + lane * 16, its_from + at + lane * 16);
            arrive_with_copies(barrier);
        }
    }

    /* The next unit into the next stage, of each lane that may. */
    __device__ __forceinline__ void ask(bool may)
    {
        const uint32_t to = start + asked.stage * dot_unit_bytes<F>;
        uint64_t *barrier = full + asked.stage;
        if constexpr (is_bulk<F>) {
            if (may) {
                expect_bytes(barrier, F::kUnitBytes);
                copy_bulk(dynamic_shared() + to, from, F::kUnitBytes, barrier);
            }
        } else {
            uint32_t row_bytes = 0, bytes = 0;
            if (is_plain<F> && may) {
                const GemvArgs &args = links[link].product;
                row_bytes = (uint32_t)(args.tile_bytes / DEVICE_TILE_ROWS);
                bytes = min(dot_unit_step<F>, row_bytes - (args.n_units - left_of_tile) * dot_unit_step<F>);
            }
            for (uint32_t rings = __ballot_sync(0xFFFFFFFFu, may); rings; rings &= rings - 1) {
                const int of = __ffs(rings) - 1;
                const size_t its_from = __shfl_sync(0xFFFFFFFFu, (unsigned long long)from, of);
                const size_t its_barrier = __shfl_sync(0xFFFFFFFFu, (unsigned long long)barrier, of);
                copy_together(dynamic_shared() + __shfl_sync(0xFFFFFFFFu, to, of), (const char *)its_from,
                              (uint64_t *)its_barrier, __shfl_sync(0xFFFFFFFFu, row_bytes, of),
                              __shfl_sync(0xFFFFFFFFu, bytes, of));
            }
        }
        if (!may) return;
        n_under_way++;
        if (n_deep > 0) n_deep--;
        asked.advance(n_stages);
        from += dot_unit_step<F>;
        if (--left == 0) {
            link++;
            begin();
        } else if (--left_of_tile == 0) {
            tile++;
            find(links[link].product, 0);
        }
    }

    /* While the ring is full, what comes behind it goes to the second-level cache, if it lies in one piece. */
    __device__ __forceinline__ void look_ahead(uint32_t *last)
    {
        const uint32_t now = (uint32_t)clock();
        if (!is_bulk<F> || n_deep >= min((uint32_t)GEMV_DOT_DEEP, min(left, left_of_tile)) ||
            now - *last < GEMV_DOT_DEEP_CYCLES)
            return;
        *last = now;
        prefetch_bulk(from + n_deep * dot_unit_step<F>, dot_unit_bytes<F>);
        n_deep++;
    }

    __device__ __forceinline__ void run()
    {
        uint32_t last_deep = (uint32_t)clock();
#pragma unroll 1
        while (__any_sync(0xFFFFFFFFu, left > 0)) {
            bool may = false;
            if (left > 0) {
                if (n_under_way > 0 && barrier_is_past(full + landed.stage, landed.parity)) {
                    n_under_way--;
                    landed.advance(n_stages);
                }
                may = n_under_way < most && barrier_is_past(empty + asked.stage, asked.parity);
                if (!may && n_under_way == 0) look_ahead(&last_deep);
            }
            ask(may);
        }
    }
};

/* By one warp, before a barrier of the block. */
template <class F> __device__ __forceinline__ void feed_init(uint32_t n_stages, FeedBarriers *barriers)
{
    for (uint32_t i = threadIdx.x % 32; i < dot_warps<F> * n_stages; i += 32) {
        barrier_init(&barriers->full[i / n_stages][i % n_stages], is_bulk<F> ? 1 : 32);
        barrier_init(&barriers->empty[i / n_stages][i % n_stages], 1);
    }
#if LW_HAS_BULK_COPY
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

} // namespace lw
