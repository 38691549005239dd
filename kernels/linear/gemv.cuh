/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Up to 16 rows of x times packed weights, one block a multiprocessor. It takes its tiles of 16 rows in passes of two,
 * up to 8 tokens, and its warps share the columns, on tensor cores (m16n8k16: the weights are the 16 rows, the tokens
 * the 8 columns, so one token costs what eight do). A row's sum depends on neither the number of tokens nor the grid.
 */
#pragma once
#include "kernels/linear/gemv_ring.cuh"
#include "kernels/linear/gemv_x.cuh"

namespace lw
{

template <bool kIsBf16>
__device__ __forceinline__ void multiply_tile(float *acc, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    if constexpr (kIsBf16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ---- one unit ---- */

/* Words [first, first + n) of a lane in a plane of kBytes a lane. */
template <int kBytes, int kWords>
__device__ __forceinline__ void read_words(const char *plane, uint32_t lane, int first, uint32_t *ret)
{
    constexpr int kWidth = kBytes < 16 ? kBytes : 16, kStep = kWords < 4 ? kWords : 4;
#pragma unroll
    for (int i = 0; i < kWords; i += kStep) {
        int byte = (first + i) * 4;
        const char *at = plane + (byte / kWidth * 32 + lane) * kWidth + byte % kWidth;
        if constexpr (kStep == 4)
            *reinterpret_cast<uint4 *>(ret + i) = *reinterpret_cast<const uint4 *>(at);
        else if constexpr (kStep == 2)
            *reinterpret_cast<uint2 *>(ret + i) = *reinterpret_cast<const uint2 *>(at);
        else
            ret[i] = *reinterpret_cast<const uint32_t *>(at);
    }
}

template <class F, int kN8, int kChunk>
__device__ __forceinline__ void multiply_chunk(const uint32_t (*low)[F::kLow], const uint32_t (*high)[F::kHigh + 1],
                                               const Scale (*scales)[F::kParts], const XView<kN8> &x, uint32_t x_at,
                                               float (*acc)[8])
{
    uint32_t first[4], second[4];
    weights_of<F, kChunk>(low[0], high[0], scales[0], first);
    weights_of<F, kChunk>(low[1], high[1], scales[1], second);
    const uint32_t a[2][4] = {{first[0], second[0], first[1], second[1]}, {first[2], second[2], first[3], second[3]}};
#pragma unroll
    for (int n = 0; n < kN8; n++) {
        uint4 b = x.read(n, x_at + x.places[kChunk]);
        multiply_tile<false>(acc[n], a[0], b.x, b.y);
        multiply_tile<false>(acc[n] + 4, a[1], b.z, b.w);
    }
}

template <class F, int kN8>
__device__ __forceinline__ void multiply_quantised(const char *stage, const XView<kN8> &x, uint32_t lane, uint32_t unit,
                                                   float (*acc)[8])
{
    const char *high_plane = stage + 32 * F::kLowBytes, *scale_plane = high_plane + 32 * F::kHighBytes;
    uint32_t scale[F::kScaleBytes / 4], head[F::kHeadBytes / 4 + 1] = {};
    read_words<F::kScaleBytes, F::kScaleBytes / 4>(scale_plane, lane, 0, scale);
    if constexpr (F::kIsK)
        read_words<F::kHeadBytes, F::kHeadBytes / 4>(scale_plane + 32 * F::kScaleBytes, lane / 4, 0, head);
    Scale scales[F::kGroups][2][F::kParts];
    scales_of<F>(scale, head, scales);
#pragma unroll
    for (int h = 0; h < F::kGroups; h++) {
        alignas(16) uint32_t low[2][F::kLow], high[2][F::kHigh + 1];
#pragma unroll
        for (int second = 0; second < 2; second++) {
            int at = second * F::kGroups + h;
            read_words<F::kLowBytes, F::kLow>(stage, lane, at * F::kLow, low[second]);
            if constexpr (F::kHigh > 0)
                read_words<F::kHighBytes, F::kHigh>(high_plane, lane, at * F::kHigh, high[second]);
        }
        uint32_t x_at = unit * F::kUnitCols * 2 + h * 256;
        multiply_chunk<F, kN8, 0>(low, high, scales[h], x, x_at, acc);
        multiply_chunk<F, kN8, 1>(low, high, scales[h], x, x_at, acc);
        multiply_chunk<F, kN8, 2>(low, high, scales[h], x, x_at, acc);
        multiply_chunk<F, kN8, 3>(low, high, scales[h], x, x_at, acc);
    }
}

template <class F, int kN8>
__device__ __forceinline__ void multiply_plain(const char *stage, const XView<kN8> &x, uint32_t lane, uint32_t unit,
                                               float (*acc)[8])
{
#pragma unroll
    for (int v = 0; v < 2; v++) {
        uint4 r0 = *reinterpret_cast<const uint4 *>(stage + (v * 32 + lane) * 16);
        uint4 r8 = *reinterpret_cast<const uint4 *>(stage + ((2 + v) * 32 + lane) * 16);
        const uint32_t a[2][4] = {{r0.x, r8.x, r0.y, r8.y}, {r0.z, r8.z, r0.w, r8.w}};
        const uint32_t at = unit * 128 + 64 * v + 16 * (lane % 4 ^ (2 * unit + v) % 4);
#pragma unroll
        for (int n = 0; n < kN8; n++) {
#pragma unroll
            for (int part = 0; part < 2; part++) {
                uint4 b = x.read(n, at + (part ? x.low_at : 0));
                multiply_tile<F::kIsBf16>(acc[n], a[0], b.x, b.y);
                multiply_tile<F::kIsBf16>(acc[n] + 4, a[1], b.z, b.w);
            }
        }
    }
}

/* ---- from the sums of all warps to results ---- */

/*
 * A warp leaves its sums of a pass of one or two tiles in a buffer and goes on; the warps whose turn it is add them up.
 * Only those wait, and a warp that is a whole round of buffers ahead.
 */
struct Exchange {
    uint64_t full[GEMV_MAX_BUFFERS], empty[GEMV_MAX_BUFFERS]; /* mbarriers, at which every warp arrives */
};

__device__ __forceinline__ void arrive_by_warp(uint64_t *barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/* One of a pass's results a thread: what it is multiplied with and what is added. */
struct Result {
    float *y; /* NULL: none */
    float factor, addend;
};

template <int kN8> constexpr int pass_tiles = kN8 == 1 ? GEMV_PASS_TILES_8 : 1;

/* Result i of a pass: 16 rows of a tile after another, the tiles of a token after another. */
template <int kTiles> struct Which {
    uint32_t row, slot, token; /* slot: of the pass's tiles */

    __device__ __forceinline__ explicit Which(uint32_t i)
        : row(i % DEVICE_TILE_ROWS), slot(i / DEVICE_TILE_ROWS % kTiles), token(i / DEVICE_TILE_ROWS / kTiles)
    {
    }
};

template <class F, int kTiles>
__device__ __forceinline__ Result begin_result(const GemvArgs &args, const Which<kTiles> &which, uint32_t tile,
                                               uint32_t tile_end, bool is_first)
{
    Result result = {nullptr, 1, 0};
    if (which.token >= args.n_tokens || tile + which.slot >= tile_end) return result;
    const Place place = place_of(args, tile + which.slot);
    const GemvOut &out = args.out[place.index];
    const uint32_t row = place.tile * DEVICE_TILE_ROWS + which.row;
    if (row >= out.n_rows) return result;
    result.y = out.y + which.token * out.y_stride + row;
    if (!is_first || out.accumulate) result.addend = __ldcg(result.y); /* others may have written it: not from L1 */
    if (is_first && out.bias) result.addend += out.bias[row];
    if constexpr (!is_plain<F>) result.factor = reinterpret_cast<const float *>(tile_start(args, place))[which.row];
    if (args.is_glu && which.slot > 0) result.y = nullptr;
    return result;
}

/* A warp's sums of one tile to sums [n_tokens][RED_STRIDE]. */
template <int kN8> __device__ __forceinline__ void put_sums(const float (*acc)[8], float *sums, uint32_t n_tokens)
{
    const uint32_t lane = threadIdx.x % 32, token = lane % 4 * 2;
    sums += token * GEMV_RED_STRIDE + lane / 4;
#pragma unroll
    for (int n = 0; n < kN8; n++, sums += 8 * GEMV_RED_STRIDE) {
        if (8 * n + token < n_tokens) {
            sums[0] = acc[n][0] + acc[n][4];
            sums[8] = acc[n][2] + acc[n][6];
        }
        if (8 * n + token + 1 < n_tokens) {
            sums[GEMV_RED_STRIDE] = acc[n][1] + acc[n][5];
            sums[GEMV_RED_STRIDE + 8] = acc[n][3] + acc[n][7];
        }
    }
}

/* For the adders of the first pass: those of later ones have waited for these. */
template <int kWarps, int kTiles>
__device__ __forceinline__ void put_norm(const GemvArgs &args, const Which<kTiles> &which, XScales *scales)
{
    if (which.row == 0 && which.slot == 0 && which.token < args.n_tokens)
        scales->norm[which.token] = norm_of<kWarps>(args, scales, which.token);
    __syncwarp();
}

/* By whole warps. sums: [warps][tiles][n_tokens][RED_STRIDE]. */
template <int kWarps, int kTiles>
__device__ __forceinline__ void finish_result(const GemvArgs &args, const Which<kTiles> &which, const Result &result,
                                              const float *sums, const XScales &scales)
{
    const uint32_t slot_sums = args.n_tokens * GEMV_RED_STRIDE, warp_sums = kTiles * slot_sums;
    float sum = 0, norm = 0;
    if (which.token < args.n_tokens) {
        const float *at = sums + which.slot * slot_sums + which.token * GEMV_RED_STRIDE + which.row;
#pragma unroll
        for (int w = 0; w < kWarps; w++) sum += at[w * warp_sums] * scales.scale[w][which.token];
        norm = scales.norm[which.token];
    }
    float value = sum * (result.factor * norm) + result.addend;
    if (args.is_glu) value = glu_value(args.activation, value) * __shfl_xor_sync(0xFFFFFFFFu, value, DEVICE_TILE_ROWS);
    if (result.y) *result.y = value;
}

/* ---- the kernel ---- */

/* Where the parts of dynamic shared memory lie. */
struct Layout {
    uint32_t ring_bytes, row_bytes, warp_sums, all_sums, sums_at, x_at; /* *_sums: floats */
};

template <class F, int kWarps, int kTiles> __device__ __forceinline__ Layout layout_of(const GemvArgs &args)
{
    Layout at;
    at.ring_bytes = args.n_stages * Ring<F, kTiles>::kBytes;
    at.row_bytes = args.chunk_units * F::kUnitCols * 2 + GEMV_X_PAD_BYTES;
    at.warp_sums = kTiles * args.n_tokens * GEMV_RED_STRIDE;
    at.all_sums = at.warp_sums * kWarps;
    at.sums_at = kWarps * at.ring_bytes;
    at.x_at = at.sums_at + (uint32_t)sizeof(float) * args.n_buffers * at.all_sums;
    return at;
}

struct Fixed {
    uint64_t of_rings[GEMV_MAX_WARPS][GEMV_MAX_STAGES];
    Exchange exchange;
    XScales scales;
};
static_assert(sizeof(Fixed) <= GEMV_STATIC_BYTES, "the plan of shared memory counts on less");

template <class F, int kN8>
__device__ __forceinline__ void multiply_unit(const char *unit_bytes, const XView<kN8> &x, uint32_t unit,
                                              float (*acc)[8])
{
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (is_plain<F>)
        multiply_plain<F, kN8>(unit_bytes, x, lane, unit, acc);
    else
        multiply_quantised<F, kN8>(unit_bytes, x, lane, unit, acc);
}

/* The n tiles of a pass, of one warp. */
template <class F, int kN8, int kWarps, int kTiles>
__device__ __forceinline__ void multiply_pass(const GemvArgs &args, const Share<F, kWarps> &share, const XView<kN8> &x,
                                              uint32_t n, Walk<F, kWarps, kTiles> &walk, Ring<F, kTiles> &ring,
                                              float (*acc)[kN8][8])
{
    for (uint32_t k = 0, unit = share.first; k < share.count; k++, unit += share.kStep) {
        ring.wait();
        multiply_unit<F, kN8>(ring.oldest(), x, unit, acc[0]);
        if (kTiles > 1 && n > 1) multiply_unit<F, kN8>(ring.oldest() + F::kUnitBytes, x, unit, acc[kTiles - 1]);
        if constexpr (!is_plain<F>) __syncwarp(); /* the stage has been read */
        walk.load(args, ring);
    }
}

template <class F, int kN8, int kWarps>
__global__ void __launch_bounds__(32 * kWarps, 1) gemv(const __grid_constant__ GemvArgs args)
{
    constexpr int kTiles = pass_tiles<kN8>;
    char *shared = dynamic_shared();
    __shared__ Fixed fixed;
    const uint32_t warp = warp_index(), n_adders = (args.n_tokens * kTiles + 1) / 2;
    const Layout at = layout_of<F, kWarps, kTiles>(args);
    Exchange &exchange = fixed.exchange;

    Ring<F, kTiles> ring(warp * at.ring_bytes, args.n_stages, fixed.of_rings[warp]);
    Walk<F, kWarps, kTiles> walk(args, warp);
    for (uint32_t s = 0; s < args.n_first; s++) walk.load(args, ring);
    if (threadIdx.x < args.n_buffers) {
        barrier_init(&exchange.full[threadIdx.x], kWarps);
        barrier_init(&exchange.empty[threadIdx.x], n_adders);
    }
    if (args.is_raw) prefetch_weights(args.raw);
    __syncthreads();
    grid_wait();
    const Tiles mine = tiles_of_block(args);
    const XView<kN8> x(at.x_at, at.row_bytes, args.n_tokens, !is_plain<F>);
    uint32_t buffer = 0, parity = 1, turn = warp; /* turn: below n_adders when it is this warp's to add up */
    for (uint32_t chunk = 0; chunk * args.chunk_units < args.n_units; chunk++) {
        const Share<F, kWarps> share(warp, units_of_chunk(args, chunk));
        if (chunk > 0) __syncthreads(); /* results so far are read again, by other warps */
        prepare_x<F, kWarps, kN8 == 1>(args, warp, chunk, shared + at.x_at, at.row_bytes, &fixed.scales);
        for (uint32_t s = chunk ? args.n_stages : args.n_first; s < args.n_stages; s++) walk.load(args, ring);
        for (uint32_t tile = mine.begin; tile < mine.end; tile += kTiles) {
            const bool is_adder = turn < n_adders;
            float acc[kTiles][kN8][8] = {}; /* two chains of sums each */
            float *sums = reinterpret_cast<float *>(shared + at.sums_at) + buffer * at.all_sums;
            multiply_pass<F, kN8, kWarps, kTiles>(args, share, x, mine.end - tile, walk, ring, acc);
            barrier_wait(&exchange.empty[buffer], parity); /* at first it counts as empty */
#pragma unroll
            for (int slot = 0; slot < kTiles; slot++)
                put_sums<kN8>(acc[slot], sums + warp * at.warp_sums + slot * args.n_tokens * GEMV_RED_STRIDE,
                              args.n_tokens);
            arrive_by_warp(&exchange.full[buffer]);
            if (is_adder) {
                const Which<kTiles> which(32 * turn + threadIdx.x % 32);
                const Result result = begin_result<F>(args, which, tile, mine.end, chunk == 0);
                barrier_wait(&exchange.full[buffer], parity ^ 1);
                if (chunk == 0 && tile == mine.begin) put_norm<kWarps>(args, which, &fixed.scales);
                finish_result<kWarps>(args, which, result, sums, fixed.scales);
                arrive_by_warp(&exchange.empty[buffer]);
            }
            turn = (turn + kWarps - 1) % kWarps;
            if (++buffer == args.n_buffers) buffer = 0, parity ^= 1;
        }
    }
}

} // namespace lw
