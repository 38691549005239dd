/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 17 to 64 rows of x times packed weights, on tensor cores as in gemv.cuh. Here x is what moves most: a block's warps
 * share the columns, take four tiles of 16 rows together, and read x from the second-level cache in the order of a
 * tensor core's operand (operand.h), each piece for four tiles, one step ahead. Then the warps' sums are added up, two
 * tiles at a time.
 */
#pragma once
#include "kernels/linear/gemv.cuh"

namespace lw
{

constexpr int kWideTiles = 4, kWideWarps = 8, kWideSumTiles = 2, kWideStep = 4; /* groups of 8 tokens of a step */
constexpr uint32_t kWideThreads = 32 * kWideWarps;

/* The operand's pieces in the order in which a warp multiplies with them: every kWideWarps-th unit, over and over. */
template <class F, int kN8> struct WideX {
    static constexpr uint32_t kUnitPieces = F::kGroups * 4 * kN8 * 32, kStepPieces = kWideStep * 32;
    const uint4 *first, *at; /* of this lane */
    uint32_t n_units, in_unit, unit;
    uint4 next[kWideStep];

    __device__ __forceinline__ WideX(const GemvArgs &args, uint32_t warp_units)
        : first(reinterpret_cast<const uint4 *>(args.x) + warp_index() * kUnitPieces + threadIdx.x % 32), at(first),
          n_units(warp_units), in_unit(0), unit(0)
    {
        if (n_units > 0) fetch();
    }

    __device__ __forceinline__ void fetch()
    {
#pragma unroll
        for (int n = 0; n < kWideStep; n++) next[n] = __ldcg(at + n * 32);
        at += kStepPieces;
        in_unit += kStepPieces;
        if (in_unit < kUnitPieces) return;
        in_unit = 0;
        at += (kWideWarps - 1) * kUnitPieces;
        if (++unit < n_units) return;
        unit = 0;
        at = first;
    }
};

/* Walks ahead: the units of this warp, four tiles together. */
template <class F> struct WideWalk {
    const char *from[kWideTiles];
    uint32_t left, n_units, tile, n; /* n: tiles of the pass */

    __device__ __forceinline__ void find(const GemvArgs &args, const Tiles &mine)
    {
        left = tile < mine.end ? n_units : 0;
        n = min((uint32_t)kWideTiles, mine.end - tile);
#pragma unroll
        for (int r = 0; r < kWideTiles; r++)
            if (left > 0 && r < n)
                from[r] =
                    tile_start(args, place_of(args, tile + r)) + DEVICE_TILE_HEAD_BYTES + warp_index() * F::kUnitBytes;
    }

    __device__ __forceinline__ WideWalk(const GemvArgs &args, const Tiles &mine, uint32_t warp_units)
        : n_units(warp_units), tile(mine.begin)
    {
        find(args, mine);
    }

    __device__ __forceinline__ void load(const GemvArgs &args, const Tiles &mine, Ring<F, kWideTiles> &ring)
    {
        if (left > 0) {
            ring.copy(from, n, 0);
#pragma unroll
            for (int r = 0; r < kWideTiles; r++) from[r] += kWideWarps * F::kUnitBytes;
            if (--left == 0) {
                tile += kWideTiles;
                find(args, mine);
            }
        }
        ring.advance();
    }
};

/* Eight columns of 32 of each lane, as two operands. */
template <class F, int kChunk>
__device__ __forceinline__ void read_operand(const char *unit, uint32_t lane, int h, uint32_t (*a)[4])
{
    constexpr int kLowWords = F::kLow == 8 ? 2 : 1, kLowAt = F::kLow == 2 ? kChunk / 2 : kChunk * kLowWords;
    constexpr int kHighAt = F::kHigh == 2 ? kChunk / 2 : 0;
    const char *high_plane = unit + 32 * F::kLowBytes, *scale_plane = high_plane + 32 * F::kHighBytes;
    uint32_t scale[F::kScaleBytes / 4], head[F::kHeadBytes / 4 + 1] = {}, pairs[2][4];
    Scale scales[F::kGroups][2][F::kParts];
    read_words<F::kScaleBytes, F::kScaleBytes / 4>(scale_plane, lane, 0, scale);
    if constexpr (F::kIsK)
        read_words<F::kHeadBytes, F::kHeadBytes / 4>(scale_plane + 32 * F::kScaleBytes, lane / 4, 0, head);
    scales_of<F>(scale, head, scales);
#pragma unroll
    for (int second = 0; second < 2; second++) {
        alignas(8) uint32_t low[F::kLow], high[F::kHigh + 1];
        const int at = second * F::kGroups + h;
        read_words<F::kLowBytes, kLowWords>(unit, lane, at * F::kLow + kLowAt, low + kLowAt);
        if constexpr (F::kHigh > 0)
            read_words<F::kHighBytes, 1>(high_plane, lane, at * F::kHigh + kHighAt, high + kHighAt);
        weights_of<F, kChunk>(low, high, scales[h][second], pairs[second]);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        a[i][0] = pairs[0][2 * i];
        a[i][1] = pairs[1][2 * i];
        a[i][2] = pairs[0][2 * i + 1];
        a[i][3] = pairs[1][2 * i + 1];
    }
}

template <class F, int kN8, int kChunk>
__device__ __forceinline__ void multiply_wide(const char *stage, uint32_t lane, int h, uint32_t n_tiles,
                                              WideX<F, kN8> &x, float (*acc)[kN8][4])
{
    uint32_t a[kWideTiles][2][4];
#pragma unroll
    for (int r = 0; r < kWideTiles; r++)
        if (r < n_tiles) read_operand<F, kChunk>(stage + r * F::kUnitBytes, lane, h, a[r]);
#pragma unroll
    for (int first = 0; first < kN8; first += kWideStep) {
        uint4 now[kWideStep];
#pragma unroll
        for (int n = 0; n < kWideStep; n++) now[n] = x.next[n];
        x.fetch();
#pragma unroll
        for (int r = 0; r < kWideTiles; r++) {
            if (r >= n_tiles) continue;
#pragma unroll
            for (int n = 0; n < kWideStep; n++) {
                multiply_tile<false>(acc[r][first + n], a[r][0], now[n].x, now[n].y);
                multiply_tile<false>(acc[r][first + n], a[r][1], now[n].z, now[n].w);
            }
        }
    }
}

/* Where a warp's sum lies: [warps, tokens, 2 tiles, 16 rows], rows swapped against bank conflicts. */
template <int kN8>
__device__ __forceinline__ uint32_t wide_place(uint32_t warp, uint32_t token, uint32_t slot, uint32_t row)
{
    return ((warp * 8 * kN8 + token) * kWideSumTiles + slot) * DEVICE_TILE_ROWS + (row ^ (token & 2) * 4);
}

template <int kN8> __device__ __forceinline__ void put_wide(const float (*acc)[4], float *sums, uint32_t slot)
{
    const uint32_t lane = threadIdx.x % 32, warp = warp_index();
#pragma unroll
    for (int n = 0; n < kN8; n++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            sums[wide_place<kN8>(warp, 8 * n + lane % 4 * 2 + i % 2, slot, lane / 4 + i / 2 * 8)] = acc[n][i];
}

/* Results of two tiles, by all threads. */
template <class F, int kN8>
__device__ __forceinline__ void finish_wide(const GemvArgs &args, const float *sums, uint32_t tile, uint32_t tile_end)
{
    for (uint32_t i = threadIdx.x; i < 8 * kN8 * kWideSumTiles * DEVICE_TILE_ROWS; i += kWideThreads) {
        const Which<kWideSumTiles> which(i);
        const Result result = begin_result<F>(args, which, tile, tile_end, true);
        float sum = 0;
#pragma unroll
        for (uint32_t w = 0; w < kWideWarps; w++) sum += sums[wide_place<kN8>(w, which.token, which.slot, which.row)];
        const float scale = which.token < args.n_tokens ? args.x_scale[which.token] : 0;
        float value = sum * (result.factor * scale) + result.addend;
        if (args.is_glu)
            value = glu_value(args.activation, value) * __shfl_xor_sync(0xFFFFFFFFu, value, DEVICE_TILE_ROWS);
        if (result.y) *result.y = value;
    }
}

template <class F, int kN8>
__global__ void __launch_bounds__(kWideThreads, 1) gemv_wide(const __grid_constant__ GemvArgs args)
{
    __shared__ uint64_t of_rings[kWideWarps][GEMV_MAX_STAGES];
    const uint32_t warp = warp_index(), lane = threadIdx.x % 32;
    const uint32_t ring_bytes = args.n_stages * Ring<F, kWideTiles>::kBytes;
    const uint32_t warp_units = warp < args.n_units ? (args.n_units - warp - 1) / kWideWarps + 1 : 0;
    const Tiles mine = tiles_of_block(args);
    float *sums = reinterpret_cast<float *>(dynamic_shared() + kWideWarps * ring_bytes);
    Ring<F, kWideTiles> ring(warp * ring_bytes, args.n_stages, of_rings[warp]);
    WideWalk<F> walk(args, mine, warp_units);
    for (uint32_t s = 0; s < args.n_stages; s++) walk.load(args, mine, ring);
    grid_release();
    grid_wait();
    WideX<F, kN8> x(args, warp_units);
    for (uint32_t tile = mine.begin; tile < mine.end; tile += kWideTiles) {
        const uint32_t n_tiles = min((uint32_t)kWideTiles, mine.end - tile);
        float acc[kWideTiles][kN8][4] = {};
        for (uint32_t k = 0; k < warp_units; k++) {
            ring.wait();
#pragma unroll
            for (int h = 0; h < F::kGroups; h++) {
                multiply_wide<F, kN8, 0>(ring.oldest(), lane, h, n_tiles, x, acc);
                multiply_wide<F, kN8, 1>(ring.oldest(), lane, h, n_tiles, x, acc);
                multiply_wide<F, kN8, 2>(ring.oldest(), lane, h, n_tiles, x, acc);
                multiply_wide<F, kN8, 3>(ring.oldest(), lane, h, n_tiles, x, acc);
            }
            __syncwarp(); /* the stage has been read */
            walk.load(args, mine, ring);
        }
#pragma unroll
        for (int first = 0; first < kWideTiles; first += kWideSumTiles) {
            if (first >= n_tiles) break;
            __syncthreads(); /* what was there has been read */
            put_wide<kN8>(acc[first], sums, 0);
            put_wide<kN8>(acc[first + 1], sums, 1);
            __syncthreads();
            finish_wide<F, kN8>(args, sums, tile + first, mine.end);
        }
    }
}

/* Shared memory besides the rings. */
template <int kN8>
constexpr uint32_t wide_sum_bytes = kWideWarps * 8 * kN8 *kWideSumTiles *DEVICE_TILE_ROWS * sizeof(float);

template <class F> GemvWideRow gemv_wide_row(DType type)
{
    return {type,
            {{gemv_wide<F, 4>, 32, wide_sum_bytes<4>}, {gemv_wide<F, 8>, 64, wide_sum_bytes<8>}},
            kWideThreads,
            kWideWarps * Ring<F, kWideTiles>::kBytes,
            F::kUnitCols};
}

} // namespace lw
