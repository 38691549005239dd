/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How weights come to a warp of gemv_dot.cuh: through a ring of stages in shared memory that it alone fills and reads,
 * link after link of the chain. Only a few of them are on their way at a time: what more there were would keep nothing
 * busier, and everything small that is asked for would come behind them. So the ring fills while a warp waits for
 * something else, if it pumps meanwhile.
 */
#pragma once
#include "kernels/linear/gemv.cuh"

namespace lw
{

template <class F> constexpr uint32_t dot_warps = is_plain<F> ? 8 : 16;

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

template <class F> struct Feed {
    const GemvLink *links;
    const char *from;                                 /* the next unit */
    uint32_t n_links, link, left, left_of_tile, tile; /* left: units of the link; tile: of all outputs */
    uint64_t *barriers;                               /* [n_stages] */
    uint32_t start, n_stages, most, stage, parity;    /* most: on their way; stage: the oldest one */
    uint32_t n_held, n_landed; /* stages that units have been asked for into; of them, from the oldest on, there */

    __device__ __forceinline__ void find(const GemvArgs &args, uint32_t unit)
    {
        constexpr uint32_t kHead = is_plain<F> ? 0 : DEVICE_TILE_HEAD_BYTES;
        from = tile_start(args, place_of(args, tile)) + kHead + (size_t)unit * unit_step<F>();
        left_of_tile = args.n_units - unit;
    }

    /* Of link, or of the first one behind it that has units for this warp. */
    __device__ __forceinline__ void begin()
    {
        for (; link < n_links; link++) {
            const GemvArgs &args = links[link].product;
            const Work<dot_warps<F>> work(args, warp_index());
            left = work.end - work.first;
            if (left == 0) continue;
            tile = work.mine.begin + work.first / args.n_units;
            return find(args, work.first_unit);
        }
    }

    __device__ __forceinline__ Feed(const GemvChain &chain, const GemvLink *all_links, uint64_t *ring_barriers)
        : links(all_links), from(nullptr), n_links(chain.n_links), link(0), left(0), left_of_tile(0), tile(0),
          barriers(ring_barriers), start(warp_index() * chain.n_stages * F::kUnitBytes), n_stages(chain.n_stages),
          most(chain.n_on_their_way), stage(0), parity(0), n_held(0), n_landed(0)
    {
        if (threadIdx.x % 32 == 0) {
            for (uint32_t i = 0; i < n_stages; i++) barrier_init(barriers + i, is_bulk<F> ? 1 : 32);
#if LW_HAS_BULK_COPY
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
        }
        __syncwarp();
        begin();
    }

    __device__ __forceinline__ char *oldest() const
    {
        return dynamic_shared() + start + stage * F::kUnitBytes;
    }

    __device__ __forceinline__ void copy(char *to, uint64_t *barrier, size_t row_bytes) const
    {
        const uint32_t lane = threadIdx.x % 32;
        if constexpr (is_bulk<F>) {
            if (lane > 0) return;
            expect_bytes(barrier, F::kUnitBytes);
            copy_bulk(to, from, F::kUnitBytes, barrier);
            return;
        }
        if constexpr (is_plain<F>) {
            const char *row = from + lane / 4 * row_bytes + lane % 4 * 16;
#pragma unroll
            for (int i = 0; i < 4; i++) /* v = 0, 1 of row g, then of row g + 8 */
                copy_async_16(to + (i * 32 + lane) * 16, row + i / 2 * 8 * row_bytes + i % 2 * 64);
        } else {
            static_assert(F::kUnitBytes % 16 == 0, "units are copied in pieces of 16 bytes");
#pragma unroll
            for (uint32_t at = 0; at < F::kUnitBytes; at += 512)
                if (at + lane * 16 < F::kUnitBytes) copy_async_16(to + at + lane * 16, from + at + lane * 16);
        }
        arrive_with_copies(barrier);
    }

    __device__ __forceinline__ void ask()
    {
        const GemvArgs &args = links[link].product;
        const uint32_t at = stage + n_held < n_stages ? stage + n_held : stage + n_held - n_stages;
        copy(dynamic_shared() + start + at * F::kUnitBytes, barriers + at, args.tile_bytes / DEVICE_TILE_ROWS);
        n_held++;
        from += unit_step<F>();
        if (--left == 0) {
            link++;
            begin();
        } else if (--left_of_tile == 0) {
            tile++;
            find(args, 0);
        }
    }

    /* Asks for what there is room for. By all lanes, as everything here. */
    __device__ __forceinline__ void pump()
    {
        if (n_landed < n_held) {
            const bool is_next_turn = stage + n_landed >= n_stages;
            const uint32_t at = is_next_turn ? stage + n_landed - n_stages : stage + n_landed;
            n_landed += __all_sync(0xFFFFFFFFu, barrier_is_past(barriers + at, parity ^ is_next_turn));
        }
        while (left > 0 && n_held < n_stages && n_held - n_landed < most) ask();
    }

    __device__ __forceinline__ void wait()
    {
        if (n_landed > 0) return;
        barrier_wait(barriers + stage, parity);
        n_landed = 1;
    }

    /* The oldest stage, which all lanes are done with. */
    __device__ __forceinline__ void give_back()
    {
        n_held--;
        n_landed--;
        if (++stage == n_stages) stage = 0, parity ^= 1;
    }
};

} // namespace lw
