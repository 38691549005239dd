/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/kv_find.cuh"
#include "kernels/attention/kv_store.h"
#include "kernels/attention/kv_turn.cuh"
#include "kernels/attention/kv_value.h"

namespace
{

constexpr unsigned kThreads = 256;
constexpr unsigned kMaxBlocks = 8192; /* the rest is done by striding */

/* One block's work: the rows of a span that fall into one logical page, for one KV head. */
struct PageRows {
    const KvSpan *span;
    uint32_t page, first, end; /* positions [first, end) */
};

__device__ uint32_t pages_touched(const KvSpan &span)
{
    if (span.n_rows == 0) return 0;
    return (span.first_pos + span.n_rows - 1) / KV_PAGE_TOKENS - span.first_pos / KV_PAGE_TOKENS + 1;
}

/* The index-th page that the spans touch; false past the last. */
__device__ bool find_page(const KvStoreParams &params, uint64_t index, PageRows *shared, uint64_t *scratch)
{
    auto found = [&](const KvSpan &span, uint32_t number) {
        shared->span = &span;
        shared->page = span.first_pos / KV_PAGE_TOKENS + number;
        shared->first = max(span.first_pos, shared->page * KV_PAGE_TOKENS);
        shared->end = min(span.first_pos + span.n_rows, (shared->page + 1) * KV_PAGE_TOKENS);
    };
    return find_page_of(params.spans, params.n_spans, index, scratch, pages_touched, found);
}

__device__ char *k_block(const KvLayout &layout, char *slot, uint32_t token, uint32_t block)
{
    return slot + (size_t)(token / KV_SECTOR_TOKENS) * layout.sector_bytes +
           (block * KV_SECTOR_TOKENS + token % KV_SECTOR_TOKENS) * 16;
}

__device__ char *v_row(const KvLayout &layout, char *slot, uint32_t token)
{
    return slot + (size_t)(token / KV_SECTOR_TOKENS) * layout.sector_bytes + layout.v_offset +
           token % KV_SECTOR_TOKENS * layout.v_row_bytes;
}

__device__ void put_plain(KvType type, char *at, uint32_t i, float x)
{
    if (type == KV_F16)
        ((uint16_t *)at)[i] = f16_from_f32(x);
    else
        ((uint16_t *)at)[i] = bf16_from_f32(x);
}

/* The same into its place in an unquantised page, padded with zeros. */
__device__ void put_turned_key(const float2 x[kSteps], uint32_t n, const KvLayout &layout, char *slot, uint32_t token)
{
    const uint32_t padded = (n + 7) / 8 * 8;
#pragma unroll
    for (uint32_t i = 0; i < kSteps; i++) {
        uint32_t c = 2 * (i * kWarp + threadIdx.x % kWarp);
        if (c >= padded) continue;
        char *at = k_block(layout, slot, token, c / 8);
        put_plain(layout.type, at, c % 8, x[i].x);
        put_plain(layout.type, at, c % 8 + 1, x[i].y);
    }
}

/* Rows into an unquantised page, and the queries of the KV head: a warp for each head and row. */
__device__ void turn_rows(const KvStoreParams &params, const PageRows &rows, uint32_t kv_head, const KvLayout &layout,
                          char *slot)
{
    const KvTurn &turn = params.turn;
    const uint32_t lane = threadIdx.x % kWarp, n = params.k_dim, group = turn.n_heads / params.n_kv_heads;
    for (uint32_t i = threadIdx.x / kWarp; i < (rows.end - rows.first) * (group + 1); i += blockDim.x / kWarp) {
        uint32_t p = rows.first + i / (group + 1), which = i % (group + 1), token = p % KV_PAGE_TOKENS;
        uint32_t row = rows.span->first_row + p - rows.span->first_pos;
        float2 x[kSteps];
        if (which < group) {
            float *q = turn.q + ((size_t)row * turn.n_heads + kv_head * group + which) * n;
            turn_head(turn, q, turn.q_norm, row, n, x);
#pragma unroll
            for (uint32_t s = 0; s < kSteps; s++)
                if (2 * (s * kWarp + lane) < n) *(float2 *)(q + 2 * (s * kWarp + lane)) = x[s];
            continue;
        }
        const size_t at = (size_t)row * params.n_kv_heads + kv_head;
        const float *v = params.v + at * params.v_dim;
        for (uint32_t c = lane; c < params.v_dim; c += kWarp)
            put_plain(layout.type, v_row(layout, slot, token), c, v[c]);
        turn_head(turn, params.k + at * n, turn.k_norm, row, n, x);
        put_turned_key(x, n, layout, slot, token);
    }
}

/* Rows into an unquantised page: a warp a row. The last K block is padded with zeros. */
__device__ void append_rows(const KvStoreParams &params, const PageRows &rows, uint32_t kv_head, const KvLayout &layout,
                            char *slot)
{
    uint32_t lane = threadIdx.x % kWarp, padded = (params.k_dim + 7) / 8 * 8;
    for (uint32_t p = rows.first + threadIdx.x / kWarp; p < rows.end; p += blockDim.x / kWarp) {
        size_t row = (size_t)(rows.span->first_row + p - rows.span->first_pos) * params.n_kv_heads + kv_head;
        const float *k = params.k + row * params.k_dim, *v = params.v + row * params.v_dim;
        uint32_t token = p % KV_PAGE_TOKENS;
        for (uint32_t c = lane; c < padded; c += kWarp)
            put_plain(layout.type, k_block(layout, slot, token, c / 8), c % 8, c < params.k_dim ? k[c] : 0);
        for (uint32_t c = lane; c < params.v_dim; c += kWarp)
            put_plain(layout.type, v_row(layout, slot, token), c, v[c]);
    }
}

__device__ KvScale scale_of_vector(KvType type, float min, float max, bool all_finite)
{
    for (unsigned step = kWarp / 2; step; step /= 2) {
        min = fminf(min, __shfl_xor_sync(kAllLanes, min, step));
        max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, step));
    }
    return kv_scale_of(type, min, max, __all_sync(kAllLanes, all_finite));
}

/* One vector of bf16 `n` at get(c) into bytes at put(byte), `per_block` of them a block: by one warp. */
template <class Get, class Put> __device__ void quantise(KvType type, uint32_t n, KvScale *ret, Get get, Put put)
{
    uint32_t lane = threadIdx.x % kWarp, per_byte = type == KV_INT4 ? 2 : 1;
    float min = INFINITY, max = -INFINITY;
    bool all_finite = true;
    for (uint32_t c = lane; c < n; c += kWarp) {
        float x = f32_from_bf16(get(c));
        min = fminf(min, x);
        max = fmaxf(max, x);
        all_finite = all_finite && isfinite(x);
    }
    KvScale s = scale_of_vector(type, min, max, all_finite);
    if (lane == 0) *ret = s;
    bool is_zero = !kv_scale_is_usable(s) || s.scale == 0;
    float scale = f32_from_f16(s.scale), zero = f32_from_f16(s.zero);
    for (uint32_t b = lane; b < (n + per_byte - 1) / per_byte; b += kWarp) {
        uint32_t c = b * per_byte, q = is_zero ? 0 : kv_quantise(type, f32_from_bf16(get(c)), scale, zero);
        if (per_byte == 2 && c + 1 < n && !is_zero)
            q |= (uint32_t)kv_quantise(type, f32_from_bf16(get(c + 1)), scale, zero) << 4;
        put(b, (uint8_t)q);
    }
}

/* The full image into the stored page. Bytes after the last K channel are zeros; a warp a token. */
__device__ void close_page(const KvPool &image, char *from, const KvPool &pool, char *to)
{
    const KvLayout &in = image.layout, &out = pool.layout;
    uint32_t bits = out.type == KV_INT4 ? 4 : 8, k_bytes = (out.k_dim * bits + 7) / 8;
    for (uint32_t t = threadIdx.x / kWarp; t < KV_PAGE_TOKENS; t += blockDim.x / kWarp) {
        char *sector = to + (size_t)(t / KV_SECTOR_TOKENS) * out.sector_bytes;
        KvScale *k_scale = (KvScale *)(sector + out.k_scale_offset) + t % KV_SECTOR_TOKENS;
        KvScale *v_scale = (KvScale *)(sector + out.v_scale_offset) + t % KV_SECTOR_TOKENS;
        quantise(
            out.type, out.k_dim, k_scale,
            [&](uint32_t c) { return ((const uint16_t *)k_block(in, from, t, c / 8))[c % 8]; },
            [&](uint32_t b, uint8_t q) { ((uint8_t *)k_block(out, to, t, b / 16))[b % 16] = q; });
        quantise(
            out.type, out.v_dim, v_scale, [&](uint32_t c) { return ((const uint16_t *)v_row(in, from, t))[c]; },
            [&](uint32_t b, uint8_t q) { ((uint8_t *)v_row(out, to, t))[b] = q; });
        for (uint32_t b = k_bytes + threadIdx.x % kWarp; b % 16 && b < (k_bytes + 15) / 16 * 16; b += kWarp)
            ((uint8_t *)k_block(out, to, t, b / 16))[b % 16] = 0;
    }
}

/* Where rows of a page go; `to`: where an image goes when its page is full, or NULL. */
struct OpenSlot {
    KvPool pool;
    char *slot, *to;
    const KvPool *to_pool;
};

__device__ OpenSlot find_slot(const PageRows &rows, uint32_t h)
{
    KvHead head = rows.span->heads[h];
    const KvPages &pages = rows.span->classes[head.class_index];
    bool has_image = pages.images != nullptr;
    OpenSlot open = {has_image ? *pages.image_pool : *pages.pool, nullptr, nullptr, pages.pool};
    uint32_t number = has_image ? pages.images[rows.page - pages.first_image] : pages.pages[rows.page];
    open.slot = kv_slot_at(&open.pool, number, head.slot);
    if (has_image && rows.end % KV_PAGE_TOKENS == 0)
        open.to = kv_slot_at(pages.pool, pages.pages[rows.page], head.slot);
    return open;
}

/* The first slot is found while the kernel in front still runs: each step to it waits for memory. */
__global__ void __launch_bounds__(kThreads) store_rows(const __grid_constant__ KvStoreParams params)
{
    __shared__ uint64_t scratch[kMaxWarps];
    __shared__ PageRows shared;
    OpenSlot open;
    lw::grid_release();
    if (!params.launch.is_early) lw::grid_wait();
    bool has_page = find_page(params, blockIdx.x, &shared, scratch);
    if (has_page) open = find_slot(shared, blockIdx.y);
    if (params.launch.is_early) lw::grid_wait();
    for (uint64_t i = blockIdx.x; has_page; has_page = find_page(params, i += gridDim.x, &shared, scratch)) {
        PageRows rows = shared;
        for (uint32_t h = blockIdx.y; h < params.n_kv_heads; h += gridDim.y) {
            if (i != blockIdx.x || h != blockIdx.y) open = find_slot(rows, h);
            if (params.turn.q)
                turn_rows(params, rows, h, open.pool.layout, open.slot);
            else
                append_rows(params, rows, h, open.pool.layout, open.slot);
            if (open.to) { /* uniform in the block */
                __syncthreads();
                close_page(open.pool, open.slot, *open.to_pool, open.to);
            }
        }
        __syncthreads();
    }
}

} // namespace

extern "C" bool kv_store_cuda(const KvStoreParams *params, Stream stream)
{
    const KvLaunch &launch = params->launch;
    if (params->k_dim > KV_MAX_DIM || params->v_dim > KV_MAX_DIM || launch.types & 1u << KV_F32) return false;
    const KvTurn &turn = params->turn;
    if (turn.q && (params->k_dim > KV_TURN_MAX_DIM || params->k_dim % 2 || turn.n_heads % params->n_kv_heads))
        return false;
    if (params->n_spans == 0 || launch.split_rows + launch.tiled_rows == 0) return true;
    /* At most one page more than the rows fill, and one more where a span starts inside one. */
    uint64_t pages =
        launch.tiled_rows / KV_PAGE_TOKENS + (uint64_t)params->n_spans * (launch.split_rows / KV_PAGE_TOKENS + 2);
    dim3 grid((unsigned)(pages < kMaxBlocks ? pages : kMaxBlocks), params->n_kv_heads);
    return lw::launch(store_rows, grid, kThreads, 0, stream, *params);
}
