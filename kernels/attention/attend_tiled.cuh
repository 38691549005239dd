/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of many rows: a block takes a tile of queries of one KV head (rows times heads of the group, 16 a warp)
 * over the pages that they read, one page at a time in shared memory while the next is on its way. Stored integers are
 * unpacked once for all warps. The longest tiles come first. For any arch from sm_80; attend_wgmma.cuh takes its place
 * where it can.
 */
#pragma once
#include "kernels/attention/attend_launch.cuh"
#include "kernels/attention/attend_tile.cuh"

namespace
{

constexpr unsigned kTiledMaxWarps = 8;

struct QueryTile {
    const KvSpan *span;
    uint32_t kv_head, first_query; /* queries of the span, row by row; heads of the group */
};

template <KvType type, int dim> struct TiledShared {
    using S = Sector<type, dim>;
    static constexpr bool kQuantised = Format<type>::kQuantised;
    static constexpr unsigned kRawBytes = kQuantised ? KV_PAGE_SECTORS * S::kBytes : 0;
    static constexpr unsigned kPages = kQuantised ? PageTile<dim>::kBytes + 2 * kRawBytes : 2 * PageTile<dim>::kBytes;
    static constexpr unsigned kCutBytes = kQuantised ? 16 * (dim / 16) * sizeof(float) : 0; /* cut sums */
    static constexpr unsigned kWarpBytes = 16 * PageTile<dim>::kQueryPitch + kCutBytes;
};

/* The index-th tile of all split-less spans; false past the last. */
__device__ inline bool find_tile(const AttendParams &p, uint64_t index, uint32_t tile_queries, QueryTile *shared,
                                 uint64_t *scratch)
{
    uint32_t chunk = (p.n_spans + blockDim.x - 1) / blockDim.x, from = threadIdx.x * chunk;
    uint32_t to = min(from + chunk, p.n_spans), group = p.n_heads / p.n_kv_heads;
    auto tiles_of = [&](uint32_t s) {
        const KvSpan &span = p.spans[s];
        return span.is_split ? 0 : (uint64_t)(span.n_rows * group + tile_queries - 1) / tile_queries * p.n_kv_heads;
    };
    uint64_t own = 0, total;
    for (uint32_t s = from; s < to; s++) own += tiles_of(s);
    uint64_t before = block_prefix(own, scratch, &total);
    if (index >= before && index < before + own) {
        uint32_t s = from;
        uint64_t n;
        for (; index >= before + (n = tiles_of(s)); s++) before += n;
        uint64_t in_span = n - 1 - (index - before);
        *shared = {p.spans + s, (uint32_t)(in_span % p.n_kv_heads), (uint32_t)(in_span / p.n_kv_heads) * tile_queries};
    }
    __syncthreads();
    return index < total;
}

template <int dim> __device__ void clear_sector(char *tile, unsigned sector)
{
    using T = PageTile<dim>;
    for (unsigned i = threadIdx.x * 16; i < T::kSectorBytes; i += blockDim.x * 16)
        *(uint4 *)(tile + sector * T::kSectorBytes + i) = make_uint4(0, 0, 0, 0);
    for (unsigned i = threadIdx.x * 16; i < T::kSectorBytes; i += blockDim.x * 16)
        *(uint4 *)(tile + T::kVFrom + value_offset<T::kRowBytes>(sector * KV_SECTOR_TOKENS, i)) =
            make_uint4(0, 0, 0, 0);
}

/* By all threads; the sectors of a visit as they are stored. A quantised class's images go where its raw pages do not.
 */
template <KvType type, int dim>
__device__ void copy_page(char *to, unsigned sector_pitch, unsigned v_from, const Visits &v, const PageVisit &visit)
{
    using S = Sector<type, dim>;
    for (unsigned sector = 0; sector < KV_PAGE_SECTORS; sector++) {
        if (!(visit.sectors >> sector & 1)) {
            if (v_from) clear_sector<dim>(to, sector);
            continue;
        }
        const char *from = visits_sector(v, visit.page * KV_PAGE_SECTORS + sector, visit.phase == WALK_IMAGES);
        char *k = to + sector * sector_pitch, *values = v_from ? to + v_from : k + S::kKBytes;
        unsigned first_token = v_from ? sector * KV_SECTOR_TOKENS : 0;
        const unsigned k_bytes = key_bytes<type, dim>(visit.steps >> 8 * sector & 0xFF);
        for (unsigned at = threadIdx.x * 16; at < S::kBytes; at += blockDim.x * 16) {
            bool is_value = at >= S::kKBytes && at < S::kScaleFrom;
            if (at >= k_bytes && at < S::kKBytes) continue;
            copy_16(is_value ? values + value_offset<S::kVRowBytes>(first_token, at - S::kKBytes) : k + at, from + at);
        }
    }
}

/* The 4 (8 bits) or 8 (4 bits) numbers of a word as f16, in order. */
template <KvType type> __device__ inline void unpack_word(char *to, uint32_t x)
{
    if constexpr (Format<type>::kBits == 8) {
        uint32_t even = halves_from_bytes<type>(x), odd = halves_from_bytes<type>(x >> 8);
        *(uint2 *)to = make_uint2(__byte_perm(even, odd, 0x5410), __byte_perm(even, odd, 0x7632));
    } else {
        uint32_t h[4];
        for (int i = 0; i < 4; i++) h[i] = halves_from_nibbles(x, i);
        *(uint4 *)to = make_uint4(__byte_perm(h[0], h[1], 0x5410), __byte_perm(h[2], h[3], 0x5410),
                                  __byte_perm(h[0], h[1], 0x7632), __byte_perm(h[2], h[3], 0x7632));
    }
}

template <KvType type, int dim> __device__ void unpack_page(char *tile, const char *raw, uint32_t sectors)
{
    using S = Sector<type, dim>;
    constexpr unsigned kOut = 128 / Format<type>::kBits / 4 * 2; /* bytes that a word unpacks to */
    constexpr unsigned kWords = S::kKBytes / 4, kRowWords = S::kVRowBytes / 4;
    for (unsigned sector = 0; sector < KV_PAGE_SECTORS; sector++) {
        if (!(sectors >> sector & 1)) {
            clear_sector<dim>(tile, sector);
            continue;
        }
        const char *k = raw + sector * S::kBytes, *v = k + S::kKBytes;
        for (unsigned i = threadIdx.x; i < kWords; i += blockDim.x) {
            unsigned block = i / 64, token = i / 4 % 16, channel = (block * 4 + i % 4) * kOut / 2;
            unpack_word<type>(tile + sector * PageTile<dim>::kSectorBytes + (channel / 8 * 16 + token) * 16 +
                                  channel % 8 * 2,
                              *(const uint32_t *)(k + i * 4));
        }
        for (unsigned i = threadIdx.x; i < 16 * kRowWords; i += blockDim.x) {
            unsigned token = i / kRowWords, word = i % kRowWords;
            unpack_word<type>(tile + PageTile<dim>::kVFrom +
                                  value_offset<PageTile<dim>::kRowBytes>(sector * 16 + token, word * kOut),
                              *(const uint32_t *)(v + value_offset<S::kVRowBytes>(token, word * 4)));
        }
    }
}

/* A warp's 16 queries, each divided by a power of 2 that keeps it inside f16, and what goes with them. */
template <int dim, bool bf16>
__device__ void put_tile_queries(const AttendParams &p, const QueryTile &tile, RowSoftmax<dim> &soft, char *queries,
                                 bool has_cut_sums)
{
    float *cut = (float *)(queries + 16 * PageTile<dim>::kQueryPitch);
    unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    uint32_t group = p.n_heads / p.n_kv_heads, n = tile.span->n_rows * group;
    __syncwarp();
    for (unsigned r = 0; r < 16; r++) {
        uint32_t i = tile.first_query + warp * 16 + r, row = min(i, n - 1) / group;
        const float *from =
            p.q +
            ((size_t)(tile.span->first_row + row) * p.n_heads + tile.kv_head * group + min(i, n - 1) % group) * dim;
        float x[dim / 32], largest = 0, sum = 0;
        for (int k = 0; k < dim / 32; k++) largest = fmaxf(largest, fabsf(x[k] = from[k * 32 + lane]));
        for (int step = 1; step < 32; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
        uint32_t exponent = min(max(__float_as_uint(largest) >> 23, 1u), 253u); /* 2^(exponent - 127) <= largest */
        float up = __uint_as_float(exponent << 23), down = __uint_as_float((254 - exponent) << 23);
        for (int k = 0; k < dim / 32; k++) {
            uint32_t rounded = pack<bf16>(x[k] * down, 0);
            *(uint16_t *)(queries + r * PageTile<dim>::kQueryPitch + (k * 32 + lane) * 2) = (uint16_t)rounded;
            x[k] = unpack<bf16>(rounded).x;
            sum += x[k];
        }
        if (has_cut_sums) put_cut_sums<dim>(x, cut + r * (dim / 16));
        for (int step = 1; step < 32; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
        if (r % 8 != lane / 4) continue;
        for (unsigned half = 0; half < 2; half++) { /* no run-time index: registers have none */
            if (r / 8 != half) continue;
            soft.factor[half] = up * p.scale * (p.softcap > 0 ? 1 / p.softcap : kLog2e);
            soft.q_sum[half] = sum;
            soft.position[half] = tile.span->first_pos + row;
        }
    }
    __syncwarp();
}

template <int dim> __device__ void put_rows(const AttendParams &p, const QueryTile &tile, const RowSoftmax<dim> &soft)
{
    unsigned lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
    uint32_t group = p.n_heads / p.n_kv_heads, n = tile.span->n_rows * group;
    for (int i = 0; i < 2; i++) {
        float sum = soft.sum[i], zero = soft.zero[i];
        for (int step = 1; step < 4; step *= 2) {
            sum += __shfl_xor_sync(kAllLanes, sum, step);
            zero += __shfl_xor_sync(kAllLanes, zero, step);
        }
        uint32_t q = tile.first_query + threadIdx.x / kWarp * 16 + g + 8 * i;
        if (q >= n) continue;
        float f = sum != 0 ? 1 / sum : 0;
        float *to =
            p.out + ((size_t)(tile.span->first_row + q / group) * p.n_heads + tile.kv_head * group + q % group) * dim;
        for (int m = 0; m < dim / 8; m++)
            *(float2 *)(to + m * 8 + 2 * t) = make_float2((soft.out[m][2 * i] * soft.unit[i] + zero) * f,
                                                          (soft.out[m][2 * i + 1] * soft.unit[i] + zero) * f);
    }
}

template <KvType type, int dim>
__device__ void start_page(char *pages, unsigned which, const Visits &v, const PageVisit &visit)
{
    using Shared = TiledShared<type, dim>;
    if (visit.phase < WALK_IMAGES) {
        if (Shared::kQuantised)
            copy_page<type, dim>(pages + PageTile<dim>::kBytes + which * Shared::kRawBytes, Sector<type, dim>::kBytes,
                                 0, v, visit);
        else
            copy_page<type, dim>(pages + which * PageTile<dim>::kBytes, PageTile<dim>::kSectorBytes,
                                 PageTile<dim>::kVFrom, v, visit);
    }
    copies_commit();
}

/* All stored pages; returns at the first image. */
template <KvType type, int dim>
__device__ PageVisit take_pages(RowSoftmax<dim> &soft, PageInfo page, const Visits &v, PageWalk &walk, char *pages,
                                const char *queries, float softcap)
{
    using Shared = TiledShared<type, dim>;
    page.visit = walk_next<Shared::kQuantised, dim>(v, walk);
    __syncthreads(); /* the last tile's pages are done with */
    start_page<type, dim>(pages, 0, v, page.visit);
    for (unsigned which = 0; page.visit.phase < WALK_IMAGES; which ^= 1) {
        PageVisit next = walk_next<Shared::kQuantised, dim>(v, walk);
        copies_wait<0>();
        __syncthreads();
        start_page<type, dim>(pages, which ^ 1, v, next);
        page.tile = pages + (Shared::kQuantised ? 0 : which * PageTile<dim>::kBytes);
        if constexpr (Shared::kQuantised) {
            char *raw = pages + PageTile<dim>::kBytes + which * Shared::kRawBytes;
            page.scales = raw + Sector<type, dim>::kScaleFrom;
            page.scale_pitch = Sector<type, dim>::kBytes;
            unpack_page<type, dim>(pages, raw, page.visit.sectors);
            __syncthreads();
        }
        if (page.visit.page * KV_PAGE_TOKENS <= page.last_pos)
            attend_page<type, Shared::kQuantised, dim, Format<type>::kBf16>(soft, page, queries, v.plan, softcap);
        page.visit = next;
    }
    return page.visit;
}

template <KvType type, int dim>
__device__ void take_image_pages(RowSoftmax<dim> &soft, PageInfo page, const Visits &v, PageWalk &walk, char *pages,
                                 const char *queries, float softcap)
{
    page.tile = pages;
    while (page.visit.phase != WALK_END) {
        __syncthreads();
        copy_page<KV_BF16, dim>(pages, PageTile<dim>::kSectorBytes, PageTile<dim>::kVFrom, v, page.visit);
        copies_commit();
        copies_wait<0>();
        __syncthreads();
        attend_page<type, false, dim, true>(soft, page, queries, v.plan, softcap);
        page.visit = walk_next<true, dim>(v, walk);
    }
}

template <KvType type, int dim>
__device__ void attend_tile(const AttendParams &p, const QueryTile &tile, Visits &v, char *memory)
{
    using Shared = TiledShared<type, dim>;
    unsigned warp = threadIdx.x / kWarp, tile_queries = blockDim.x / kWarp * 16;
    uint32_t group = p.n_heads / p.n_kv_heads, n = tile.span->n_rows * group;
    uint32_t first = tile.span->first_pos, last_query = min(tile.first_query + tile_queries, n) - 1;
    if (threadIdx.x == 0) {
        v = visits_count(*tile.span, tile.kv_head, Shared::kQuantised, first + tile.first_query / group,
                         first + last_query / group);
        visits_find(v, *tile.span, tile.kv_head);
    }
    __syncthreads();
    char *queries = memory + Shared::kPages + warp * Shared::kWarpBytes;
    RowSoftmax<dim> soft = {};
    soft.max[0] = soft.max[1] = -INFINITY;
    soft.unit[0] = soft.unit[1] = Shared::kQuantised ? 1.0f / (1 << 24) : 1;
    put_tile_queries<dim, Format<type>::kBf16>(p, tile, soft, queries, Shared::kQuantised && v.plan.n_bands);
    PageInfo page = {};
    page.first_pos = first + min(tile.first_query + warp * 16, last_query) / group;
    page.last_pos = first + min(tile.first_query + warp * 16 + 15, last_query) / group;
    PageWalk walk = {WALK_SINK, 0};
    page.visit = take_pages<type, dim>(soft, page, v, walk, memory, queries, p.softcap);
    if constexpr (Shared::kQuantised) {
        put_tile_queries<dim, true>(p, tile, soft, queries, false);
        take_image_pages<type, dim>(soft, page, v, walk, memory, queries, p.softcap);
    }
    put_rows<dim>(p, tile, soft);
}

template <KvType type, int dim>
__global__ void __launch_bounds__(kTiledMaxWarps *kWarp) attend_tiled(const __grid_constant__ AttendParams p)
{
    extern __shared__ __align__(128) char memory[];
    __shared__ QueryTile shared;
    __shared__ Visits visits; /* of all threads alike: not in registers */
    __shared__ uint64_t scratch[kMaxWarps];
    lw::grid_wait();
    lw::grid_release();
    for (uint64_t i = blockIdx.x; find_tile(p, i, blockDim.x / kWarp * 16, &shared, scratch); i += gridDim.x) {
        QueryTile tile = shared;
        bool is_other = p.launch.types & (p.launch.types - 1) &&
                        tile.span->classes[tile.span->heads[tile.kv_head].class_index].pool->layout.type != type;
        if (!is_other) attend_tile<type, dim>(p, tile, visits, memory);
        __syncthreads();
    }
}

/* 8 warps, or 4 where the shared memory holds no more. */
template <KvType type, int dim> bool launch_tiled(const AttendParams &p, Stream stream)
{
    using Shared = TiledShared<type, dim>;
    const DeviceFacts *facts = device_facts();
    int per_processor;
    if (!facts) return false;
    unsigned n_warps = kTiledMaxWarps;
    constexpr unsigned kStatic = 1024;
    while (n_warps > 1 && Shared::kPages + n_warps * Shared::kWarpBytes + kStatic > facts->block_shared_bytes)
        n_warps /= 2;
    unsigned bytes = Shared::kPages + n_warps * Shared::kWarpBytes, tile_queries = n_warps * 16;
    auto kernel = attend_tiled<type, dim>;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) != cudaSuccess ||
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel, n_warps * kWarp, bytes) != cudaSuccess ||
        per_processor == 0)
        return false;
    uint64_t queries = (uint64_t)p.launch.tiled_rows * (p.n_heads / p.n_kv_heads);
    uint64_t tiles = (queries / tile_queries + p.n_spans) * p.n_kv_heads;
    uint64_t blocks = (uint64_t)per_processor * facts->n_multiprocessors;
    return lw::launch(kernel, (unsigned)(tiles < blocks ? tiles : blocks), n_warps * kWarp, bytes, stream, p);
}

template <KvType type> bool launch_tiled_type(const AttendParams &p, Stream stream)
{
    switch (p.k_dim) {
    case 64:
        return launch_tiled<type, 64>(p, stream);
    case 96:
        return launch_tiled<type, 96>(p, stream);
    case 128:
        return launch_tiled<type, 128>(p, stream);
    case 256:
        return launch_tiled<type, 256>(p, stream);
    default:
        return false;
    }
}

} // namespace
