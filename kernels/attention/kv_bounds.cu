/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/kv_bounds.h"
#include "kernels/attention/kv_find.cuh"
#include "kernels/attention/kv_store.h"

namespace
{

constexpr unsigned kThreads = 256, kMaxBlocks = 4096;
constexpr float kLargestBound = 448;

struct BoundsArgs {
    KvBoundsParams params;
    RopeTurns turns;
};

struct BoundsShared {
    uint64_t scratch[kMaxWarps];
    const KvSpan *span;
    uint32_t page;
    uint32_t largest[KV_PAGE_SECTORS]; /* bits of the largest magnitude of a sector */
    uint32_t is_open[KV_PAGE_SECTORS];
};

/* The index-th page that the spans fill; false past the last. All threads call. */
__device__ bool find_page(const KvSpan *spans, uint32_t n_spans, uint64_t index, BoundsShared &shared)
{
    auto count = [](const KvSpan &span) { return kv_bounds_end_page(&span) - kv_bounds_first_page(&span); };
    auto found = [&](const KvSpan &span, uint32_t number) {
        shared.span = &span;
        shared.page = kv_bounds_first_page(&span) + number;
    };
    if (threadIdx.x < KV_PAGE_SECTORS) shared.largest[threadIdx.x] = shared.is_open[threadIdx.x] = 0;
    return find_page_of(spans, n_spans, index, shared.scratch, count, found);
}

/* Two neighbouring channels of a token, as later queries read them. */
__device__ float2 load_pair(const KvLayout &layout, const char *sector, uint32_t token, uint32_t c)
{
    if (layout.type == KV_F16 || layout.type == KV_BF16) {
        uint32_t both = *(const uint32_t *)(sector + (c / 8 * KV_SECTOR_TOKENS + token) * 16 + c % 8 * 2);
        bool is_f16 = layout.type == KV_F16;
        uint16_t low = (uint16_t)both, high = (uint16_t)(both >> 16);
        return is_f16 ? make_float2(f32_from_f16(low), f32_from_f16(high))
                      : make_float2(f32_from_bf16(low), f32_from_bf16(high));
    }
    KvScale s = ((const KvScale *)(sector + layout.k_scale_offset))[token];
    float scale = f32_from_f16(s.scale), zero = f32_from_f16(s.zero);
    uint32_t per_row = layout.type == KV_INT4 ? 32 : 16;
    const uint8_t *row = (const uint8_t *)sector + (c / per_row * KV_SECTOR_TOKENS + token) * 16;
    uint32_t i = c % per_row;
    if (layout.type == KV_F8)
        return make_float2(__fmul_rn(scale, f32_from_f8(row[i])), __fmul_rn(scale, f32_from_f8(row[i + 1])));
    uint32_t low = layout.type == KV_INT4 ? row[i / 2] & 15 : row[i];
    uint32_t high = layout.type == KV_INT4 ? row[i / 2] >> 4 : row[i + 1];
    return make_float2(__fadd_rn(__fmul_rn(scale, (float)low), zero), __fadd_rn(__fmul_rn(scale, (float)high), zero));
}

/* Turned back by its position; rounded as on the CPU, whose products are not fused. */
__device__ float2 turn_back(const RopeTurns &turns, uint32_t position, uint32_t pair, float2 x)
{
    float2 fine = ((const float2 *)turns.fine)[position % ROPE_TURNS_FINE * turns.n_pairs + pair];
    float2 coarse = ((const float2 *)turns.coarse)[(size_t)(position / ROPE_TURNS_FINE) * turns.n_pairs + pair];
    float c = __fsub_rn(__fmul_rn(fine.x, coarse.x), __fmul_rn(fine.y, coarse.y));
    float s = -__fadd_rn(__fmul_rn(fine.y, coarse.x), __fmul_rn(fine.x, coarse.y));
    return make_float2(__fsub_rn(__fmul_rn(x.x, c), __fmul_rn(x.y, s)),
                       __fadd_rn(__fmul_rn(x.x, s), __fmul_rn(x.y, c)));
}

/* The largest and the smallest value of a channel; NaN once something is not finite. */
struct Extent {
    float max, min;
};

__device__ void widen(Extent &extent, float x)
{
    if (!isfinite(x)) x = NAN;
    extent.max = isnan(x) || extent.max < x ? x : extent.max;
    extent.min = isnan(x) || extent.min > x ? x : extent.min;
}

/* Channels c and c + 1 of a sector. */
__device__ void find_extents(const BoundsArgs &args, const KvLayout &layout, const char *sector, uint32_t position,
                             uint32_t c, Extent ret[2])
{
    const uint32_t first = layout.k_dim - 2 * args.turns.n_pairs;
    ret[0] = ret[1] = {-INFINITY, INFINITY};
#pragma unroll 4
    for (uint32_t t = 0; t < KV_SECTOR_TOKENS; t++) {
        float2 x = load_pair(layout, sector, t, c);
        if (c >= first) x = turn_back(args.turns, position + t, (c - first) / 2, x);
        widen(ret[0], x.x);
        widen(ret[1], x.y);
    }
}

__device__ void put_extent(uint8_t *record, uint32_t c, Extent extent, double unit)
{
    uint8_t *at = record + c / KV_BOUNDS_BLOCK * KV_BOUNDS_BLOCK_BYTES + c % KV_BOUNDS_BLOCK;
    bool is_open = isnan(extent.max);
    at[0] = is_open ? (uint8_t)KV_BOUND_OPEN : kv_bound_not_below(extent.max, unit);
    at[KV_BOUNDS_BLOCK] =
        is_open ? (uint8_t)KV_BOUND_OPEN : (uint8_t)(kv_bound_not_below(-(double)extent.min, unit) ^ 0x80);
}

__device__ int exponent_of(uint32_t largest_bits)
{
    int exponent = 0;
    while (__uint_as_float(largest_bits) > ldexp((double)kLargestBound, exponent)) exponent++;
    return exponent;
}

/* One KV head of a page: a thread has two channels of a sector, or of more than one where heads are wide. */
__device__ void bound_page(const BoundsArgs &args, const KvPages &pages, uint32_t slot, BoundsShared &shared)
{
    constexpr uint32_t kMost = KV_PAGE_SECTORS * KV_TURN_MAX_DIM / 2 / kThreads;
    const KvPool &pool = *pages.pool;
    const KvLayout &layout = pool.layout;
    const uint32_t page = pages.pages[shared.page], n_pairs = layout.k_dim / 2, n = KV_PAGE_SECTORS * n_pairs;
    const char *slots = kv_slot_at(&pool, page, slot);
    Extent extents[kMost][2];
#pragma unroll
    for (uint32_t j = 0; j < kMost; j++) {
        uint32_t i = threadIdx.x + j * kThreads, sector = i / n_pairs, c = i % n_pairs * 2;
        if (i >= n) continue;
        uint32_t position = shared.page * KV_PAGE_TOKENS + sector * KV_SECTOR_TOKENS;
        find_extents(args, layout, slots + (size_t)sector * layout.sector_bytes, position, c, extents[j]);
        for (const Extent &extent : extents[j]) {
            if (isnan(extent.max))
                shared.is_open[sector] = 1;
            else
                atomicMax(&shared.largest[sector], __float_as_uint(fmaxf(fabsf(extent.max), fabsf(extent.min))));
        }
    }
    __syncthreads();
#pragma unroll
    for (uint32_t j = 0; j < kMost; j++) {
        uint32_t i = threadIdx.x + j * kThreads, sector = i / n_pairs, c = i % n_pairs * 2;
        if (i >= n) continue;
        uint8_t *record = kv_bounds_at(&pool, page, slot, sector);
        double unit = ldexp(1.0, exponent_of(shared.largest[sector]));
        put_extent(record, c, extents[j][0], unit);
        put_extent(record, c + 1, extents[j][1], unit);
    }
    if (threadIdx.x >= KV_PAGE_SECTORS) return;
    uint32_t word = (uint32_t)exponent_of(shared.largest[threadIdx.x]) & 0xFF;
    uint8_t *record = kv_bounds_at(&pool, page, slot, threadIdx.x);
    *(uint4 *)(record + n_pairs / 8 * KV_BOUNDS_BLOCK_BYTES) =
        make_uint4(word | shared.is_open[threadIdx.x] << 8, 0, 0, 0);
}

__global__ void __launch_bounds__(kThreads) bound_pages(const __grid_constant__ BoundsArgs args)
{
    __shared__ BoundsShared shared;
    const KvSpan *spans = args.params.spans + (size_t)blockIdx.z * args.params.layer_stride;
    lw::grid_release();
    lw::grid_wait();
    for (uint64_t i = blockIdx.x; find_page(spans, args.params.n_spans, i, shared); i += gridDim.x) {
        const KvHead head = shared.span->heads[blockIdx.y];
        const KvPages &pages = shared.span->classes[head.class_index];
        if (pages.pool->bounds_offset) bound_page(args, pages, head.slot, shared); /* uniform in the block */
        __syncthreads();
    }
}

} // namespace

extern "C" bool kv_bounds_cuda(const KvBoundsParams *params, Stream stream)
{
    if (params->n_spans == 0 || params->max_pages == 0) return true;
    if (params->k_dim % KV_BOUNDS_BLOCK || params->k_dim > KV_TURN_MAX_DIM) return false;
    BoundsArgs args = {*params, *params->turns};
    dim3 grid(params->max_pages < kMaxBlocks ? params->max_pages : kMaxBlocks, params->n_kv_heads, params->n_layers);
    return lw::launch(bound_pages, grid, kThreads, 0, stream, args);
}
