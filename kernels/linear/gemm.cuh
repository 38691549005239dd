/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block makes tiles of results of 256 rows of weights and 64 or 128 tokens. Four warps bring units of weights as they
 * lie, a quarter each since asking for a copy takes long, and the tokens' part of x; two warp groups of 128 rows each
 * unpack weights into the registers that a product of warp groups takes its A from, one of two blocks of 64 rows while
 * the product of the other runs, from one unit to the next too.
 *
 * A warp has pairs of tiles of 16 rows; with is_glu one of a pair is the gate's and the other what it gates, so that
 * both meet in a thread.
 *
 * x: [tiles of 64 or 128 tokens][groups of 128 columns][groups of 8 tokens][16 columns in the order in which lanes hold
 * weights (device_layout.h)] two cores of 8 tokens by 16 bytes: of step s of a group of 128, words 0..3 of the first
 * are columns 32 t + 4 s and the next, t = 0..3, those of the second the two behind.
 *
 * Where tiles don't come to whole rounds of all blocks, blocks share some: each leaves its part of a sum, and all of
 * them add up, in the order of the columns, a share of the results when the parts are there. So all blocks must be on
 * the device at once.
 */
#pragma once
#include "kernels/hopper.cuh"
#include "kernels/launch.cuh"
#include "kernels/linear/gemm.h"
#include "kernels/linear/gemv_place.cuh"
#include "kernels/linear/unpack.cuh"
#include "kernels/pointwise/activation.cuh"

namespace lw
{

constexpr uint32_t kGemmThreads = 3 * kGroupThreads, kGemmTiles = GEMM_ROWS / DEVICE_TILE_ROWS, kGemmWarps = 8;
constexpr uint32_t kFeedWarps = kGroupThreads / 32, kFeedTiles = kGemmTiles / kFeedWarps; /* kFeedTiles: of a warp */
constexpr uint32_t kGemmShared = 225 << 10, kGemmMostStages = 6;
constexpr uint32_t kPartsAtOnce = 8; /* on their way to a thread */

/* With 64 tokens a block leaves registers for one that makes the next product's x: then this kernel's successor can
 * take its place, and fetch weights, while that still runs. */
template <int kN> struct GemmRegisters {
    static constexpr unsigned kLaunchThreads = kN == 64 ? 512 : kGemmThreads; /* for the bound alone: 128, 168 each */
    static constexpr unsigned kFeed = 40, kMultiply = kN == 64 ? 168 : 232;
};

template <class F, int kN> struct GemmStage {
    static constexpr uint32_t kWeightBytes = kGemmTiles * F::kUnitBytes;
    static constexpr uint32_t kTokenBytes = kN * GEMM_COLS * sizeof(uint16_t);
    static constexpr uint32_t kBytes = kWeightBytes + F::kGroups * kTokenBytes; /* kTokenBytes: of 128 columns */
    static constexpr uint32_t kFit = kGemmShared / kBytes;
    static constexpr uint32_t kStages = kFit < kGemmMostStages ? kFit : kGemmMostStages;
    static_assert(kStages >= 2, "one is read while the next comes");
};

struct GemmBarriers {
    uint64_t full[kGemmMostStages], empty[kGemmMostStages];
};

/* ---- who does what ---- */

struct GemmPiece {
    uint32_t tile, first, end; /* units */
};

__device__ __forceinline__ uint32_t first_shared_unit(const GemmArgs &args, uint32_t block)
{
    return (uint32_t)((uint64_t)args.n_parted * args.product.n_units * min(block, args.n_sharing) / args.n_sharing);
}

/* The pieces of this block: parts of up to two shared tiles, then whole ones. */
struct GemmWalk {
    uint32_t at, end, whole;

    __device__ __forceinline__ explicit GemmWalk(const GemmArgs &args)
        : at(first_shared_unit(args, blockIdx.x)), end(first_shared_unit(args, blockIdx.x + 1)),
          whole(args.n_parted + blockIdx.x)
    {
    }

    __device__ __forceinline__ bool next(const GemmArgs &args, GemmPiece &ret)
    {
        const uint32_t n_units = args.product.n_units;
        if (at < end) {
            ret.tile = at / n_units;
            ret.first = at % n_units;
            ret.end = min(n_units, ret.first + end - at);
            at += ret.end - ret.first;
            return true;
        }
        ret = {whole, 0, n_units};
        if (whole >= args.n_tiles) return false;
        whole += gridDim.x;
        return true;
    }
};

/* Where a tile of results is: its first tile of 16 rows and its first token. */
struct GemmPlace {
    uint32_t tile, token;
};

template <int kN> __device__ __forceinline__ GemmPlace gemm_place(const GemmArgs &args, uint32_t tile)
{
    const uint32_t band = tile / (GEMM_BAND * args.n_token_tiles), in_band = tile % (GEMM_BAND * args.n_token_tiles);
    const uint32_t n_rows = min((uint32_t)GEMM_BAND, args.n_row_tiles - band * GEMM_BAND);
    return {(band * GEMM_BAND + in_band % n_rows) * kGemmTiles, in_band / n_rows * kN};
}

/* Groups of 8 tokens that there are from `token` on. */
template <int kN> __device__ __forceinline__ uint32_t token_groups(const GemmArgs &args, uint32_t token)
{
    return min((args.product.n_tokens - token + 7) / 8, (uint32_t)kN / 8);
}

/* ---- feeding ---- */

/* Of one of the warps that feed: its first lanes bring weights, the next one x of a group of 128 columns. */
template <class F, int kN> struct GemmFeed {
    using Stage = GemmStage<F, kN>;
    static_assert(F::kGroups <= kFeedWarps, "each group of columns has its warp");
    GemmWalk walk;
    GemmPiece piece;
    const char *from;                       /* of this lane */
    uint32_t unit, slot, turn, token_bytes; /* token_bytes: of this warp and piece */
    bool more;

    __device__ __forceinline__ GemmFeed(const GemmArgs &args) : walk(args), unit(0), slot(0), turn(0), token_bytes(0)
    {
        begin(args);
    }

    __device__ __forceinline__ void begin(const GemmArgs &args)
    {
        const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        more = walk.next(args, piece);
        unit = piece.first;
        if (!more) return;
        const GemmPlace place = gemm_place<kN>(args, piece.tile);
        if (lane < kFeedTiles) {
            const uint32_t tile = min(place.tile + warp * kFeedTiles + lane, args.product.n_tiles - 1);
            from = tile_start(args.product, place_of(args.product, tile)) + DEVICE_TILE_HEAD_BYTES;
        } else {
            from = args.scratch.x + (size_t)place.token * args.scratch.cols * sizeof(uint16_t);
        }
        token_bytes = warp < F::kGroups ? token_groups<kN>(args, place.token) * GEMM_GROUP_BYTES : 0;
    }

    __device__ __forceinline__ void advance(const GemmArgs &args)
    {
        if (++slot == Stage::kStages) slot = 0, turn++;
        if (++unit == piece.end) begin(args);
    }

    __device__ __forceinline__ void expect(GemmBarriers &barriers) const
    {
        if (threadIdx.x % 32 == 0) {
            barrier_wait(&barriers.empty[slot], (turn & 1) ^ 1);
            barrier_expect(&barriers.full[slot], kFeedTiles * F::kUnitBytes + token_bytes);
        }
        __syncwarp();
    }

    __device__ __forceinline__ void weights(char *stages, GemmBarriers &barriers) const
    {
        const uint32_t lane = threadIdx.x % 32, tile = threadIdx.x / 32 * kFeedTiles + lane;
        if (lane < kFeedTiles)
            bulk_copy(stages + slot * Stage::kBytes + tile * F::kUnitBytes, from + (size_t)unit * F::kUnitBytes,
                      F::kUnitBytes, &barriers.full[slot]);
    }

    __device__ __forceinline__ void tokens(char *stages, GemmBarriers &barriers) const
    {
        const uint32_t warp = threadIdx.x / 32;
        if (threadIdx.x % 32 == kFeedTiles && token_bytes > 0)
            bulk_copy(stages + slot * Stage::kBytes + Stage::kWeightBytes + warp * Stage::kTokenBytes,
                      from + ((size_t)unit * F::kGroups + warp) * Stage::kTokenBytes, token_bytes,
                      &barriers.full[slot]);
    }
};

/* By each of the warps that feed. The first weights come while the kernel in front still makes x. */
template <class F, int kN>
__device__ __forceinline__ void gemm_feed(const GemmArgs &args, char *stages, GemmBarriers &barriers)
{
    using Feed = GemmFeed<F, kN>;
    Feed ahead(args);
    uint32_t n_ahead = 0;
    for (; n_ahead < Feed::Stage::kStages && ahead.more; n_ahead++, ahead.advance(args)) {
        ahead.expect(barriers);
        ahead.weights(stages, barriers);
    }
    grid_wait();
    Feed feed(args);
    for (uint32_t i = 0; i < n_ahead; i++, feed.advance(args)) feed.tokens(stages, barriers);
    for (; feed.more; feed.advance(args)) {
        feed.expect(barriers);
        feed.weights(stages, barriers);
        feed.tokens(stages, barriers);
    }
}

/* ---- multiplying ---- */

/* kWords words of a lane in a plane of kBytes a lane, from word `first` on. */
template <int kBytes, int kWords>
__device__ __forceinline__ void lane_words(const char *plane, uint32_t lane, int first, uint32_t (&ret)[kWords])
{
    constexpr int kWidth = kBytes < 16 ? kBytes : 16, kStep = kWords * 4 < kWidth ? kWords : kWidth / 4;
#pragma unroll
    for (int i = 0; i < kWords; i += kStep) {
        const int byte = (first + i) * 4;
        const char *at = plane + (byte / kWidth * 32 + lane) * kWidth + byte % kWidth;
        if constexpr (kStep == 4) {
            const uint4 x = *reinterpret_cast<const uint4 *>(at);
            ret[i] = x.x, ret[i + 1] = x.y, ret[i + 2] = x.z, ret[i + 3] = x.w;
        } else if constexpr (kStep == 2) {
            const uint2 x = *reinterpret_cast<const uint2 *>(at);
            ret[i] = x.x, ret[i + 1] = x.y;
        } else {
            ret[i] = *reinterpret_cast<const uint32_t *>(at);
        }
    }
}

template <class F> struct UnitScales {
    Scale of[F::kGroups][2][F::kParts];

    __device__ __forceinline__ void read(const char *unit, uint32_t lane)
    {
        const char *at = unit + 32 * (F::kLowBytes + F::kHighBytes);
        uint32_t scale[F::kScaleBytes / 4], head[F::kHeadBytes / 4 + 1] = {};
        lane_words<F::kScaleBytes>(at, lane, 0, scale);
        if constexpr (F::kIsK) {
            uint32_t words[F::kHeadBytes / 4];
            lane_words<F::kHeadBytes>(at + 32 * F::kScaleBytes, lane / 4, 0, words);
#pragma unroll
            for (int i = 0; i < F::kHeadBytes / 4; i++) head[i] = words[i];
        }
        scales_of<F>(scale, head, of);
    }
};

/* Columns 16 kHalf .. of each lane's 32 of group h: A of four products. */
template <class F, int kHalf>
__device__ __forceinline__ void unpack_half(const char *unit, uint32_t lane, int h, const UnitScales<F> &scales,
                                            uint32_t (&a)[4][4])
{
    constexpr int kLowWords = F::kLow == 8 ? 4 : F::kLow == 4 ? 2 : 1, kHighWords = F::kHigh == 2 ? 1 : F::kHigh;
    constexpr int kHighAt = F::kHigh == 2 ? kHalf : 0;
    uint32_t pairs[2][2][4];
#pragma unroll
    for (int second = 0; second < 2; second++) {
        const int at = second * F::kGroups + h;
        uint32_t low[F::kLow], high[F::kHigh + 1], words[kLowWords];
        lane_words<F::kLowBytes>(unit, lane, at * F::kLow + kHalf * kLowWords, words);
#pragma unroll
        for (int i = 0; i < kLowWords; i++) low[kHalf * kLowWords + i] = words[i];
        if constexpr (F::kHigh > 0) {
            uint32_t bits[kHighWords];
            lane_words<F::kHighBytes>(unit + 32 * F::kLowBytes, lane, at * F::kHigh + kHighAt, bits);
            high[kHighAt] = bits[0];
        }
        weights_of<F, 2 * kHalf>(low, high, scales.of[h][second], pairs[second][0]);
        weights_of<F, 2 * kHalf + 1>(low, high, scales.of[h][second], pairs[second][1]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i][0] = pairs[0][i / 2][i % 2 * 2];
        a[i][1] = pairs[1][i / 2][i % 2 * 2];
        a[i][2] = pairs[0][i / 2][i % 2 * 2 + 1];
        a[i][3] = pairs[1][i / 2][i % 2 * 2 + 1];
    }
}

template <int kN> using GemmSums = float[kN / 2];

/* One of four steps of a group of 128 columns: half of the columns of one block of 64 rows. */
template <class F, int kN, int kHalf>
__device__ __forceinline__ void multiply_half(const char *unit, uint32_t lane, int h, const UnitScales<F> &scales,
                                              uint32_t (&a)[4][4], uint64_t b, GemmSums<kN> &sums)
{
    matrix_wait<1>(sums); /* what has been asked for before the other block's products is done */
    unpack_half<F, kHalf>(unit, lane, h, scales, a);
    matrix_begin();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t step = h * GemmStage<F, kN>::kTokenBytes + (kHalf * 4 + i) * 256;
        matrix_multiply<false, false, true>(sums, a[i], b + step / 16);
    }
    matrix_commit();
}

/*
 * unit: the first of this warp's two. Products are on their way when it returns; release is called when all of the unit
 * before are done.
 */
template <class F, int kN, class Release>
__device__ __forceinline__ void multiply_unit(const char *unit, uint32_t lane, uint64_t b, GemmSums<kN> &sums_0,
                                              GemmSums<kN> &sums_1, Release release)
{
    UnitScales<F> scales_0, scales_1;
    uint32_t a_0[4][4], a_1[4][4];
    scales_0.read(unit, lane);
    scales_1.read(unit + F::kUnitBytes, lane);
#pragma unroll
    for (int h = 0; h < F::kGroups; h++) {
        multiply_half<F, kN, 0>(unit, lane, h, scales_0, a_0, b, sums_0);
        multiply_half<F, kN, 0>(unit + F::kUnitBytes, lane, h, scales_1, a_1, b, sums_1);
        if (h == 0) release();
        multiply_half<F, kN, 1>(unit, lane, h, scales_0, a_0, b, sums_0);
        multiply_half<F, kN, 1>(unit + F::kUnitBytes, lane, h, scales_1, a_1, b, sums_1);
    }
}

/* ---- from sums to results ---- */

/* The rows g and g + 8 of one of a warp's tiles of 16. */
struct GemmRows {
    float *y;      /* of row g and token 0; the other is 8 behind */
    size_t stride; /* from token to token */
    float factor[2], bias[2];
    bool is_there[2], accumulate;

    __device__ __forceinline__ GemmRows(const GemvArgs &product, uint32_t tile, uint32_t lane)
        : y(nullptr), stride(0), factor{0, 0}, bias{0, 0}, is_there{false, false}, accumulate(false)
    {
        if (tile >= product.n_tiles) return;
        const Place at = place_of(product, tile);
        const GemvOut &out = product.out[at.index];
        const float *factors = reinterpret_cast<const float *>(tile_start(product, at));
        y = out.y + at.tile * DEVICE_TILE_ROWS + lane / 4;
        stride = out.y_stride;
        accumulate = out.accumulate;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t in_tile = lane / 4 + 8 * i, row = at.tile * DEVICE_TILE_ROWS + in_tile;
            is_there[i] = row < out.n_rows;
            factor[i] = factors[in_tile];
            if (is_there[i] && out.bias) bias[i] = out.bias[row];
        }
    }

    __device__ __forceinline__ float value(float sum, uint32_t i, float scale) const
    {
        return sum * (factor[i] * scale) + bias[i];
    }

    /* One addition a place: the order cannot differ. */
    __device__ __forceinline__ void put(float x, uint32_t i, uint32_t token) const
    {
        float *to = y + token * stride + 8 * i;
        if (!is_there[i]) return;
        if (accumulate)
            asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
        else
            *to = x;
    }
};

/* Sums of both tiles for tokens 2 t and 2 t + 1 of 8, from `token` on; [row][token]. */
__device__ __forceinline__ void put_results(const GemvArgs &product, const GemmRows &rows_0, const GemmRows &rows_1,
                                            uint32_t token, float4 sums_0, float4 sums_1)
{
    const float of_0[4] = {sums_0.x, sums_0.y, sums_0.z, sums_0.w}, of_1[4] = {sums_1.x, sums_1.y, sums_1.z, sums_1.w};
#pragma unroll
    for (uint32_t j = 0; j < 2; j++, token++) {
        if (token >= product.n_tokens) return;
        const float scale = __ldcg(product.x_scale + token);
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const float value_0 = rows_0.value(of_0[2 * i + j], i, scale);
            const float value_1 = rows_1.value(of_1[2 * i + j], i, scale);
            rows_0.put(product.is_glu ? glu_value(product.activation, value_0) * value_1 : value_0, i, token);
            if (!product.is_glu) rows_1.put(value_1, i, token);
        }
    }
}

/* Of a warp group: [2 tiles of a pair][groups of 8 tokens][threads]. */
template <int kN> constexpr uint32_t part_vectors = 2 * kN / 8 * kGroupThreads;

template <int kN> __device__ __forceinline__ float4 *part_of(const GemmArgs &args, uint32_t block, uint32_t slot)
{
    const uint32_t group = threadIdx.x / kGroupThreads - 1;
    return reinterpret_cast<float4 *>(args.scratch.parts) + ((block * 2 + slot) * 2 + group) * part_vectors<kN> +
           threadIdx.x % kGroupThreads;
}

__device__ __forceinline__ uint32_t *counter_of(const GemmArgs &args, uint32_t tile)
{
    return args.counters + 2 * tile + threadIdx.x / kGroupThreads - 1;
}

__device__ __forceinline__ void group_wait()
{
    named_wait(threadIdx.x / kGroupThreads, kGroupThreads);
}

template <int kN>
__device__ __forceinline__ void leave_part(const GemmArgs &args, const GemmPiece &piece, const GemmSums<kN> &sums_0,
                                           const GemmSums<kN> &sums_1)
{
    const uint32_t slot = piece.tile != first_shared_unit(args, blockIdx.x) / args.product.n_units;
    const uint32_t n = token_groups<kN>(args, gemm_place<kN>(args, piece.tile).token);
    float4 *to = part_of<kN>(args, blockIdx.x, slot);
#pragma unroll
    for (int i = 0; i < kN / 8; i++) {
        if (i >= n) continue;
        const int s = 4 * i;
        __stcg(to + i * kGroupThreads, make_float4(sums_0[s], sums_0[s + 1], sums_0[s + 2], sums_0[s + 3]));
        __stcg(to + (kN / 8 + i) * kGroupThreads, make_float4(sums_1[s], sums_1[s + 1], sums_1[s + 2], sums_1[s + 3]));
    }
    __threadfence();
    group_wait();
    if (threadIdx.x % kGroupThreads == 0)
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter_of(args, piece.tile)) : "memory");
}

__device__ __forceinline__ float4 add_4(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* This block's share of a tile whose parts have been left. */
template <int kN> __device__ __forceinline__ void add_parts(const GemmArgs &args, uint32_t tile)
{
    const uint32_t n_units = args.product.n_units, lane = threadIdx.x % 32, all = args.n_parted * n_units;
    const uint32_t begin = tile * n_units, warp = threadIdx.x / 32 - kGroupThreads / 32;
    const uint32_t first = (uint32_t)(((uint64_t)(begin + 1) * args.n_sharing - 1) / all);
    const uint32_t last = (uint32_t)(((uint64_t)(begin + n_units) * args.n_sharing - 1) / all);
    const uint32_t n_parts = last - first + 1, first_slot = first_shared_unit(args, first) < begin;
    const GemmPlace place = gemm_place<kN>(args, tile);
    const uint32_t n = token_groups<kN>(args, place.token), tile_0 = place.tile + 2 * warp;
    const GemmRows rows_0(args.product, tile_0, lane), rows_1(args.product, tile_0 + 1, lane);
    if (threadIdx.x % kGroupThreads == 0) {
        uint32_t arrived;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(arrived)
                         : "l"(counter_of(args, tile))
                         : "memory");
        } while (arrived < n_parts);
    }
    group_wait();
    for (uint32_t i = blockIdx.x - first; i < n; i += n_parts) {
        const float4 none = make_float4(0, 0, 0, 0);
        float4 sums_0 = none, sums_1 = none;
        for (uint32_t part = 0; part < n_parts; part += kPartsAtOnce) {
            float4 of_0[kPartsAtOnce], of_1[kPartsAtOnce];
#pragma unroll
            for (uint32_t k = 0; k < kPartsAtOnce; k++) {
                const bool is_there = part + k < n_parts;
                const float4 *from =
                    part_of<kN>(args, first + part + k, part + k == 0 ? first_slot : 0) + i * kGroupThreads;
                of_0[k] = is_there ? __ldcg(from) : none;
                of_1[k] = is_there ? __ldcg(from + kN / 8 * kGroupThreads) : none;
            }
#pragma unroll
            for (uint32_t k = 0; k < kPartsAtOnce; k++) {
                sums_0 = add_4(sums_0, of_0[k]);
                sums_1 = add_4(sums_1, of_1[k]);
            }
        }
        put_results(args.product, rows_0, rows_1, place.token + 8 * i + lane % 4 * 2, sums_0, sums_1);
    }
}

template <int kN>
__device__ __forceinline__ void put_tile(const GemmArgs &args, const GemmPiece &piece, const GemmSums<kN> &sums_0,
                                         const GemmSums<kN> &sums_1)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 - kGroupThreads / 32;
    const GemmPlace place = gemm_place<kN>(args, piece.tile);
    const uint32_t n = token_groups<kN>(args, place.token), tile = place.tile + 2 * warp;
    const GemmRows rows_0(args.product, tile, lane), rows_1(args.product, tile + 1, lane);
#pragma unroll
    for (int i = 0; i < kN / 8; i++) {
        if (i >= n) continue;
        const int s = 4 * i;
        put_results(args.product, rows_0, rows_1, place.token + 8 * i + lane % 4 * 2,
                    make_float4(sums_0[s], sums_0[s + 1], sums_0[s + 2], sums_0[s + 3]),
                    make_float4(sums_1[s], sums_1[s + 1], sums_1[s + 2], sums_1[s + 3]));
    }
}

/* By both warp groups that multiply. */
template <class F, int kN>
__device__ __forceinline__ void gemm_multiply(const GemmArgs &args, const char *stages, GemmBarriers &barriers)
{
    using Stage = GemmStage<F, kN>;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 - kGroupThreads / 32;
    const uint32_t first = first_shared_unit(args, blockIdx.x), end = first_shared_unit(args, blockIdx.x + 1);
    uint32_t slot = 0, turn = 0;
    GemmWalk walk(args);
    GemmPiece piece;
    grid_wait();
    while (walk.next(args, piece)) {
        GemmSums<kN> sums_0, sums_1;
#pragma unroll
        for (int i = 0; i < kN / 2; i++) sums_0[i] = sums_1[i] = 0;
        uint64_t *held = nullptr; /* the stage that products may still read */
        auto release = [&] {
            __syncwarp();
            if (lane == 0 && held) barrier_arrive(held);
        };
        for (uint32_t unit = piece.first; unit < piece.end; unit++) {
            const char *stage = stages + slot * Stage::kBytes;
            barrier_wait(&barriers.full[slot], turn & 1);
            multiply_unit<F, kN>(stage + 2 * warp * F::kUnitBytes, lane,
                                 matrix_b(stage + Stage::kWeightBytes, 128, GEMM_GROUP_BYTES, false), sums_0, sums_1,
                                 release);
            held = &barriers.empty[slot];
            if (++slot == Stage::kStages) slot = 0, turn++;
        }
        matrix_wait<0>(sums_0);
        matrix_wait<0>(sums_1);
        release();
        if (piece.end - piece.first < args.product.n_units)
            leave_part<kN>(args, piece, sums_0, sums_1);
        else
            put_tile<kN>(args, piece, sums_0, sums_1);
    }
    for (uint32_t at = first; at < end;) {
        const uint32_t n_units = args.product.n_units, tile = at / n_units, tile_end = min(end, (tile + 1) * n_units);
        if (tile_end - at < n_units) add_parts<kN>(args, tile);
        at = tile_end;
    }
}

template <class F, int kN>
__global__ void __launch_bounds__(GemmRegisters<kN>::kLaunchThreads, 1) gemm(const __grid_constant__ GemmArgs args)
{
    using Stage = GemmStage<F, kN>;
    extern __shared__ __align__(128) char stages[];
    __shared__ GemmBarriers barriers;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < Stage::kStages; i++) {
            barrier_init(&barriers.full[i], kFeedWarps);
            barrier_init(&barriers.empty[i], kGemmWarps);
        }
        barrier_init_done();
    }
    __syncthreads();
    grid_release();
    if (threadIdx.x < kGroupThreads) {
        registers_give<GemmRegisters<kN>::kFeed>();
        gemm_feed<F, kN>(args, stages, barriers);
    } else {
        registers_take<GemmRegisters<kN>::kMultiply>();
        gemm_multiply<F, kN>(args, stages, barriers);
    }
}

} // namespace lw
