/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights stream through a ring in shared memory that each lane fills for itself with asynchronous copies, so no
 * barrier stands between loading and multiplying, and the ring is full before the kernel in front has ended. A block of
 * 8 warps computes 16 rows at a time, its warps sharing the columns, on tensor cores (m16n8k16: the weights are the 16
 * rows, the tokens the 8 columns, so one token costs what eight do). A row's sum depends on neither the number of
 * tokens nor the grid.
 */
#pragma once
#include "kernels/launch.cuh"
#include "kernels/linear/device_layout.h"
#include "kernels/linear/gemv.h"
#include "kernels/linear/unpack.cuh"

namespace lw
{

/* F16 and BF16 in rows: lane 4 g + t has 8 columns 32 v + 8 t .. of rows g and g + 8, v = 0, 1. */
template <bool kIsBf16Value> struct Plain {
    static constexpr bool kIsBf16 = kIsBf16Value;
    static constexpr int kUnitCols = DEVICE_FLOAT_UNIT_COLS, kLaneBytes = 64;
};

template <class F> constexpr bool is_plain = false;
template <bool kIsBf16> constexpr bool is_plain<Plain<kIsBf16>> = true;
template <class F> constexpr bool is_bf16 = false;
template <> constexpr bool is_bf16<Plain<true>> = true;

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

/* ---- copies into the ring ---- */

template <int kBytes> __device__ __forceinline__ void copy_async(char *to, const char *from)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    if constexpr (kBytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(kBytes) : "memory");
}

/* kBytes of a lane: vectors of 16 of all lanes after one another, or one narrower piece a lane. */
template <int kBytes> __device__ __forceinline__ void copy_plane(char *to, const char *from, uint32_t lane)
{
    constexpr int kWidth = kBytes < 16 ? kBytes : 16;
#pragma unroll
    for (int v = 0; v < kBytes / kWidth; v++)
        copy_async<kWidth>(to + (v * 32 + lane) * kWidth, from + (v * 32 + lane) * kWidth);
}

/* Bytes from one unit to the next; where a unit starts for a lane: F16 and BF16 at its own row. */
template <class F> __device__ __forceinline__ constexpr uint32_t unit_step()
{
    if constexpr (is_plain<F>)
        return F::kUnitCols * 2;
    else
        return F::kUnitBytes;
}

template <class F>
__device__ __forceinline__ const char *unit_start(const char *tile, size_t tile_bytes, uint32_t unit, uint32_t lane)
{
    tile += (size_t)unit * unit_step<F>();
    if constexpr (is_plain<F>)
        return tile + lane / 4 * (tile_bytes / DEVICE_TILE_ROWS) + lane % 4 * 16;
    else
        return tile + DEVICE_TILE_HEAD_BYTES;
}

template <class F>
__device__ __forceinline__ void copy_unit(char *stage, const char *from, size_t tile_bytes, uint32_t lane)
{
    if constexpr (is_plain<F>) {
#pragma unroll
        for (int i = 0; i < 4; i++) /* v = 0, 1 of row g, then of row g + 8 */
            copy_async<16>(stage + (i * 32 + lane) * 16, from + i / 2 * (tile_bytes / 2) + i % 2 * 64);
    } else {
        copy_plane<F::kLowBytes>(stage, from, lane);
        stage += 32 * F::kLowBytes, from += 32 * F::kLowBytes;
        if constexpr (F::kHighBytes > 0) copy_plane<F::kHighBytes>(stage, from, lane);
        stage += 32 * F::kHighBytes, from += 32 * F::kHighBytes;
        copy_plane<F::kScaleBytes>(stage, from, lane);
        stage += 32 * F::kScaleBytes, from += 32 * F::kScaleBytes;
        if constexpr (F::kHeadBytes > 0)
            copy_async<F::kHeadBytes>(stage + lane * F::kHeadBytes, from + lane / 4 * F::kHeadBytes);
    }
}

__device__ __forceinline__ void commit_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until the oldest of n_stages groups is there; some of GEMV_MAX_STAGES are never used. */
__device__ __forceinline__ void wait_oldest(uint32_t n_stages)
{
    if (n_stages >= 4)
        asm volatile("cp.async.wait_group 3;" ::: "memory");
    else if (n_stages == 3)
        asm volatile("cp.async.wait_group 2;" ::: "memory");
    else if (n_stages == 2)
        asm volatile("cp.async.wait_group 1;" ::: "memory");
    else
        asm volatile("cp.async.wait_group 0;" ::: "memory");
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

/* This lane's view of x in shared memory. Columns of the product past the last token are never used: they repeat it. */
template <int kN8> struct XView {
    const char *row[kN8]; /* of token 8 n + g */
    uint32_t low_at;      /* from x to x_low */
    uint32_t piece[4];    /* where 8 columns of this lane's 32 lie in 128 */

    __device__ __forceinline__ XView(const char *start, uint32_t row_bytes, uint32_t n_tokens, uint32_t g)
    {
        const uint32_t t = threadIdx.x % 4;
        low_at = row_bytes * n_tokens;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) piece[j] = 64 * t + 16 * (j ^ t);
#pragma unroll
        for (int n = 0; n < kN8; n++) {
            uint32_t token = 8 * n + g;
            row[n] = start + (token < n_tokens ? token : n_tokens - 1) * row_bytes;
        }
    }

    __device__ __forceinline__ uint4 read(int n, uint32_t at) const
    {
        return *reinterpret_cast<const uint4 *>(row[n] + at);
    }
};

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
        uint4 b = x.read(n, x_at + x.piece[kChunk]);
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
        read_words<F::kHeadBytes, F::kHeadBytes / 4>(scale_plane + 32 * F::kScaleBytes, lane, 0, head);
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
        uint32_t c = unit * 8 + 4 * v + lane % 4, at = 16 * (c ^ (c >> 2 & 3));
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

/* ---- the kernel ---- */

__device__ __forceinline__ uint32_t units_of_chunk(const GemvArgs &args, uint32_t chunk)
{
    uint32_t left = args.n_units - chunk * args.chunk_units;
    return left < args.chunk_units ? left : args.chunk_units;
}

__device__ __forceinline__ uint32_t out_of_tile(const GemvArgs &args, uint32_t tile)
{
    uint32_t i = 0;
    while (i + 1 < args.n_out && tile >= args.out[i + 1].first_tile) i++;
    return i;
}

__device__ __forceinline__ const char *tile_start(const GemvArgs &args, uint32_t tile)
{
    const GemvOut &out = args.out[out_of_tile(args, tile)];
    return out.w + (size_t)(tile - out.first_tile) * args.tile_bytes;
}

/* Runs ahead of the multiplication over the units of one warp: chunk by chunk, in it tile by tile. */
template <class F, int kWarps> struct Loader {
    uint32_t chunk, n_chunks, tile, tile_end, unit, n_units; /* n_units: of the chunk; tile_end: of the tile's output */
    const char *from;
    char *ring, *stage, *ring_end;

    __device__ __forceinline__ uint32_t lane() const
    {
        return threadIdx.x % 32;
    }
    __device__ __forceinline__ uint32_t first_unit() const
    {
        return threadIdx.x / 32;
    }

    /* Where the tile and unit lie, from nothing. */
    __device__ __forceinline__ void find(const GemvArgs &args)
    {
        uint32_t i = out_of_tile(args, tile);
        tile_end = i + 1 < args.n_out ? args.out[i + 1].first_tile : args.n_tiles;
        from = unit_start<F>(tile_start(args, tile), args.tile_bytes, chunk * args.chunk_units + unit, lane());
    }

    /* On to the next unit that exists; chunk == n_chunks past the last. */
    __device__ __forceinline__ void settle(const GemvArgs &args)
    {
        while (chunk < n_chunks && unit >= n_units) {
            unit = first_unit();
            tile += gridDim.x;
            if (tile < args.n_tiles) continue;
            tile = blockIdx.x;
            if (++chunk < n_chunks) n_units = units_of_chunk(args, chunk);
        }
        if (chunk < n_chunks) find(args);
    }

    __device__ __forceinline__ Loader(const GemvArgs &args, char *ring_start)
    {
        n_chunks = (args.n_units + args.chunk_units - 1) / args.chunk_units;
        tile = blockIdx.x;
        chunk = tile < args.n_tiles ? 0 : n_chunks;
        unit = first_unit();
        n_units = units_of_chunk(args, 0);
        ring = stage = ring_start;
        ring_end = ring + args.n_stages * (32 * F::kLaneBytes);
        if (chunk < n_chunks) find(args);
        settle(args);
    }

    /* Behind a tile's last unit; most often the next tile is of the same output. */
    __device__ __forceinline__ void next_tile(const GemvArgs &args)
    {
        uint32_t next = tile + gridDim.x, first = first_unit();
        if (next >= tile_end || first >= n_units) {
            settle(args);
            return;
        }
        from += (size_t)(next - tile) * args.tile_bytes - (size_t)(unit - first) * unit_step<F>();
        tile = next;
        unit = first;
    }

    /* Always commits, so that groups of copies can be counted. */
    __device__ __forceinline__ void load(const GemvArgs &args)
    {
        if (chunk < n_chunks) {
            copy_unit<F>(stage, from, args.tile_bytes, lane());
            unit += kWarps;
            from += kWarps * unit_step<F>();
            if (unit >= n_units) next_tile(args);
        }
        commit_copies();
        stage += 32 * F::kLaneBytes;
        if (stage == ring_end) stage = ring;
    }
};

/* Where column c of a row of x lies: pieces of 16 bytes are permuted so that four lanes read from different banks. */
__device__ __forceinline__ uint32_t x_place(uint32_t c)
{
    return 16 * (c / 8 ^ (c / 32 & 3)) + c % 8 * 2;
}

__device__ __forceinline__ void stage_x(const GemvArgs &args, uint32_t first_col, uint32_t n_cols, char *to,
                                        uint32_t row_bytes)
{
    uint32_t pieces = n_cols / 8, low_at = row_bytes * args.n_tokens;
    for (uint32_t i = threadIdx.x; i < pieces * args.n_tokens; i += blockDim.x) {
        uint32_t token = i / pieces, c = i % pieces * 8, at = token * row_bytes + x_place(c);
        size_t from = (size_t)token * args.x_stride + first_col + c;
        *reinterpret_cast<uint4 *>(to + at) = __ldcg(reinterpret_cast<const uint4 *>(args.x + from));
        if (args.x_low)
            *reinterpret_cast<uint4 *>(to + low_at + at) = __ldcg(reinterpret_cast<const uint4 *>(args.x_low + from));
    }
}

/* The same from fp32; the rows' scales to scales [n_tokens]. */
template <class F>
__device__ __forceinline__ void make_x(const GemvArgs &args, char *to, uint32_t row_bytes, float *scales)
{
    __shared__ RowSums of_warps[GEMV_MAX_RAW_TOKENS][NormShape::kWarps];
    const uint32_t low_at = row_bytes * args.n_tokens;
    for (uint32_t token = 0; token < args.n_tokens; token++) {
        auto put = [&](uint32_t c, float4 v, float factor) {
            uint32_t at = token * row_bytes + x_place(c);
            uint2 high, low;
            if constexpr (is_plain<F>) {
                split_4<F::kIsBf16>(F::kIsBf16 ? v : times(v, factor), &high, &low);
                *reinterpret_cast<uint2 *>(to + low_at + at) = low;
            } else {
                split_4<false>(times(v, factor), &high, &low);
            }
            *reinterpret_cast<uint2 *>(to + at) = high;
        };
        RowFactors factors =
            convert_row_held<NormShape, false>(args.raw, token, args.n_units * F::kUnitCols, of_warps[token], put);
        if (threadIdx.x == 0) scales[token] = is_bf16<F> ? 1 : factors.scale;
    }
}

/* ---- from the sums of 8 warps to results ---- */

/*
 * A warp leaves its sums of a tile in a buffer and goes on; the warps whose turn it is add them up. Only those wait,
 * and a warp that is a whole round of buffers ahead.
 */
struct Exchange {
    uint64_t full[GEMV_MAX_BUFFERS], empty[GEMV_MAX_BUFFERS]; /* mbarriers, at which every lane arrives */
};

__device__ __forceinline__ void barrier_init(uint64_t *barrier, uint32_t n_arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"((uint32_t)__cvta_generic_to_shared(barrier)),
                 "r"(n_arrivals)
                 : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(barrier))
                 : "memory");
}

__device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    uint32_t done = 0, at = (uint32_t)__cvta_generic_to_shared(barrier);
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(at), "r"(parity)
                     : "memory");
}

/* One of a tile's results a thread: what it is added to and what it is multiplied with, fetched ahead. */
struct Result {
    float *y; /* NULL: none */
    float before, bias, factor;
};

/* i: 16 * token + row of the tile. */
template <class F>
__device__ __forceinline__ Result begin_result(const GemvArgs &args, uint32_t tile, bool is_first, uint32_t i)
{
    Result result = {nullptr, 0, 0, 1};
    const GemvOut &out = args.out[out_of_tile(args, tile)];
    uint32_t token = i / DEVICE_TILE_ROWS, in_tile = i % DEVICE_TILE_ROWS;
    uint32_t row = (tile - out.first_tile) * DEVICE_TILE_ROWS + in_tile;
    if (token >= args.n_tokens || row >= out.n_rows) return result;
    result.y = out.y + token * out.y_stride + row;
    if (!is_first || out.accumulate) result.before = *result.y;
    if (is_first && out.bias) result.bias = out.bias[row];
    if constexpr (!is_plain<F>) result.factor = reinterpret_cast<const float *>(tile_start(args, tile))[in_tile];
    return result;
}

/* A warp's sums to sums [n_tokens][RED_STRIDE]. */
template <int kN8>
__device__ __forceinline__ void put_sums(const float (*acc)[8], float *sums, uint32_t n_tokens, uint32_t lane)
{
    uint32_t g = lane / 4;
#pragma unroll
    for (int n = 0; n < kN8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t token = 8 * n + lane % 4 * 2 + i % 2;
            if (token < n_tokens) sums[token * GEMV_RED_STRIDE + g + i / 2 * 8] = acc[n][i] + acc[n][4 + i];
        }
    }
}

template <int kWarps>
__device__ __forceinline__ void finish_result(const Result &result, const float *sums, const float *scales,
                                              uint32_t n_tokens, uint32_t i)
{
    if (!result.y) return;
    const float *at = sums + i / DEVICE_TILE_ROWS * GEMV_RED_STRIDE + i % DEVICE_TILE_ROWS;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; w++) sum += at[w * n_tokens * GEMV_RED_STRIDE];
    *result.y = sum * (result.factor * scales[i / DEVICE_TILE_ROWS]) + result.bias + result.before;
}

/* ---- the kernel ---- */

/* Where the parts of dynamic shared memory lie. */
struct Layout {
    uint32_t ring_bytes, row_bytes, warp_sums, all_sums, sums_at, x_at; /* *_sums: floats */
};

template <class F, int kWarps> __device__ __forceinline__ Layout layout_of(const GemvArgs &args)
{
    Layout at;
    at.ring_bytes = args.n_stages * 32 * F::kLaneBytes;
    at.row_bytes = args.chunk_units * F::kUnitCols * 2 + GEMV_X_PAD_BYTES;
    at.warp_sums = args.n_tokens * GEMV_RED_STRIDE;
    at.all_sums = at.warp_sums * kWarps;
    at.sums_at = kWarps * at.ring_bytes;
    at.x_at = at.sums_at + (uint32_t)sizeof(float) * args.n_buffers * at.all_sums;
    return at;
}

__device__ __forceinline__ void init_exchange(const GemvArgs &args, Exchange *exchange, uint32_t n_warps)
{
    if (threadIdx.x >= args.n_buffers) return;
    barrier_init(&exchange->full[threadIdx.x], 32 * n_warps);
    barrier_init(&exchange->empty[threadIdx.x], 32 * ((args.n_tokens + 1) / 2));
}

/* The whole of x, or a chunk of it, into shared memory. */
template <class F, bool kMayBeRaw>
__device__ __forceinline__ void prepare_x(const GemvArgs &args, uint32_t chunk, char *to, uint32_t row_bytes,
                                          float *scales)
{
    if (chunk > 0) __syncthreads(); /* everybody is done with the last chunk */
    if (kMayBeRaw && args.is_raw) {
        if constexpr (kMayBeRaw) make_x<F>(args, to, row_bytes, scales);
    } else {
        uint32_t n_cols = units_of_chunk(args, chunk) * F::kUnitCols;
        stage_x(args, chunk * args.chunk_units * F::kUnitCols, n_cols, to, row_bytes);
        if (threadIdx.x < args.n_tokens) scales[threadIdx.x] = args.x_scale ? args.x_scale[threadIdx.x] : 1;
    }
    __syncthreads();
}

template <class F, int kN8, int kWarps = kN8 == 1 ? GEMV_WARPS : GEMV_WIDE_WARPS>
__global__ void __launch_bounds__(32 * kWarps, kN8 == 1 ? GEMV_BLOCKS : 1) gemv(const __grid_constant__ GemvArgs args)
{
    extern __shared__ __align__(128) char shared[];
    __shared__ Exchange exchange;
    __shared__ float scales[GEMV_MAX_TOKENS];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_adders = (args.n_tokens + 1) / 2;
    const Layout at = layout_of<F, kWarps>(args);
    char *ring = shared + warp * at.ring_bytes;

    grid_release();
    Loader<F, kWarps> loader(args, ring);
    for (uint32_t s = 0; s < args.n_stages; s++) loader.load(args);
    init_exchange(args, &exchange, kWarps); /* seen by all behind the barrier of prepare_x */
    if (args.is_raw) prefetch_weights(args.raw);
    grid_wait();
    const XView<kN8> x(shared + at.x_at, at.row_bytes, args.n_tokens, lane / 4);
    const char *stage = ring;
    uint32_t buffer = 0, parity = 1, turn = warp; /* turn: 0 .. n_adders - 1 when it is this warp's to add up */
    for (uint32_t chunk = 0; chunk < loader.n_chunks; chunk++) {
        const uint32_t n_units = units_of_chunk(args, chunk);
        prepare_x<F, kN8 == 1>(args, chunk, shared + at.x_at, at.row_bytes, scales);
        for (uint32_t tile = blockIdx.x; tile < args.n_tiles; tile += gridDim.x) {
            const bool is_adder = turn < n_adders;
            Result result = {nullptr, 0, 0, 1};
            if (is_adder) result = begin_result<F>(args, tile, chunk == 0, 32 * turn + lane);
            float acc[kN8][8] = {}; /* two chains of sums */
            for (uint32_t unit = warp; unit < n_units; unit += kWarps) {
                wait_oldest(args.n_stages);
                if constexpr (is_plain<F>)
                    multiply_plain<F, kN8>(stage, x, lane, unit, acc);
                else
                    multiply_quantised<F, kN8>(stage, x, lane, unit, acc);
                loader.load(args);
                stage += 32 * F::kLaneBytes;
                if (stage == ring + at.ring_bytes) stage = ring;
            }
            float *sums = reinterpret_cast<float *>(shared + at.sums_at) + buffer * at.all_sums;
            barrier_wait(&exchange.empty[buffer], parity); /* at first it counts as empty */
            put_sums<kN8>(acc, sums + warp * at.warp_sums, args.n_tokens, lane);
            barrier_arrive(&exchange.full[buffer]);
            if (is_adder) {
                barrier_wait(&exchange.full[buffer], parity ^ 1);
                finish_result<kWarps>(result, sums, scales, args.n_tokens, 32 * turn + lane);
                barrier_arrive(&exchange.empty[buffer]);
            }
            turn = (turn + kWarps - 1) % kWarps;
            if (++buffer == args.n_buffers) buffer = 0, parity ^= 1;
        }
    }
}

template <class F> GemvRow gemv_row(DType type)
{
    return {type, gemv<F, 1>, gemv<F, 2>, F::kUnitCols, F::kLaneBytes, is_plain<F>};
}

} // namespace lw
