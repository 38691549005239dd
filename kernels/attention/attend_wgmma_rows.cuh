/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two warp groups of attend_wgmma.cuh that attend. A step asks for the scores of the next tile of keys, then for
 * the values of the last one by its weights, hands the tensor cores to the other group, and makes weights of the
 * scores.
 */
#pragma once
#include "kernels/attention/attend_wgmma_feed.cuh"

namespace
{

/* Lane 4 g + t of warp w of a group holds rows 16 w + g (i = 0) and 16 w + g + 8 (i = 1) of its 64. */
template <int dim> struct Rows {
    uint32_t q[dim / 16][4];
    float out[dim / 2];     /* [dim / 8][4]: channels 2 t and 2 t + 1, of either row */
    float scores[2][32];    /* [half of its sector][sector][4]: tokens 2 t and 2 t + 1, of either row */
    uint32_t weights[8][4]; /* [sector]: as A of a product */
    float max[2], sum[2];   /* max: of scores times factor, or a little less; -infinity: none yet */
    float factor[2];        /* of scores: into powers of 2, or what is to be capped */
};

/* Weights may exceed 1 by a power of 2 before the maximum follows: mostly it does so in the first tiles only. */
constexpr float kSlackPowers = 8;

/* Where the two queries of this lane are, clamped to the last. */
__device__ __forceinline__ uint32_t query_of(const QueryWork &work, int i)
{
    unsigned in_group = threadIdx.x % lw::kGroupThreads, group = threadIdx.x / lw::kGroupThreads - 1;
    return work.first_query + group * 64 + in_group / kWarp * 16 + in_group % kWarp / 4 + 8 * i;
}

/* Queries are divided by a power of 2 that keeps them inside f16; a negative scale goes into their sign. */
template <int dim, bool bf16>
__device__ __forceinline__ void load_queries(Rows<dim> &rows, const AttendParams &p, const QueryWork &work)
{
    uint32_t group = p.n_heads / p.n_kv_heads;
    unsigned t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t query = min(query_of(work, i), work.n_queries - 1), row = query / group;
        const float *from =
            p.q + ((size_t)(work.first_row + row) * p.n_heads + work.kv_head * group + query % group) * dim + 2 * t;
        float2 x[dim / 8];
        float largest = 0;
#pragma unroll
        for (int m = 0; m < dim / 8; m++) {
            x[m] = *(const float2 *)(from + m * 8);
            largest = fmaxf(largest, fmaxf(fabsf(x[m].x), fabsf(x[m].y)));
        }
        for (int step = 1; step < 4; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
        uint32_t exponent = min(max(__float_as_uint(largest) >> 23, 1u), 253u); /* 2^(exponent - 127) <= largest */
        float up = __uint_as_float(exponent << 23), down = __uint_as_float((254 - exponent) << 23);
        if (p.scale < 0) down = -down;
#pragma unroll
        for (int m = 0; m < dim / 8; m++) rows.q[m / 2][m % 2 * 2 + i] = pack<bf16>(x[m].x * down, x[m].y * down);
        rows.factor[i] = up * fabsf(p.scale) * (p.softcap > 0 ? 1 / p.softcap : kLog2e);
        rows.max[i] = -INFINITY;
        rows.sum[i] = 0;
    }
#pragma unroll
    for (int i = 0; i < dim / 2; i++) rows.out[i] = 0;
}

/* Scores of the keys of a tile, which are at `keys`: tokens 0..7 of all sectors, then 8..15. */
template <class Tile, bool has_bands, int dim>
__device__ __forceinline__ void ask_scores(Rows<dim> &rows, const char *keys, const KeyTile &tile)
{
    const uint32_t n_steps = has_bands ? tile.bits >> kStepsAt : dim / 16;
    uint64_t b = lw::matrix_b(keys, 256, Tile::kSectorBytes, false);
#pragma unroll
    for (int half = 0; half < 2; half++, b += 128 / 16) {
        lw::matrix_multiply<Tile::kBf16, false, false>(rows.scores[half], rows.q[0], b);
#pragma unroll
        for (int step = 1; step < dim / 16; step++)
            if constexpr (has_bands)
                lw::matrix_multiply_if<Tile::kBf16>(step < (int)n_steps, rows.scores[half], rows.q[step],
                                                    b + step * Tile::kStepBytes / 16);
            else
                lw::matrix_multiply<Tile::kBf16, false, true>(rows.scores[half], rows.q[step],
                                                              b + step * Tile::kStepBytes / 16);
    }
    lw::matrix_commit();
}

template <class Tile, int dim> __device__ __forceinline__ void ask_values(Rows<dim> &rows, const char *values)
{
    uint64_t b = lw::matrix_b(values, Tile::kHalfBytes, 1024, true);
#pragma unroll
    for (int sector = 0; sector < (int)kTileSectors; sector++)
        lw::matrix_multiply<Tile::kBf16, true, true>(rows.out, rows.weights[sector], b + sector * 2048 / 16);
    lw::matrix_commit();
}

/* A lane's keys of a tile, in order, are the bits of a word: two of each 8. Those below the tile's token `end`. */
__device__ __forceinline__ uint32_t bits_below(int end)
{
    int from = end - (int)(threadIdx.x % 4 * 2);
    if (from <= 0) return 0;
    unsigned n = (unsigned)from / 8 * 2 + min((unsigned)from % 8, 2u);
    return n < 32 ? (1u << n) - 1 : 0xFFFFFFFFu;
}

/* Each of 8 bits four times. */
__device__ __forceinline__ uint32_t spread_bits(uint32_t x)
{
    x = (x | x << 12) & 0x000F000Fu;
    x = (x | x << 6) & 0x03030303u;
    return ((x | x << 3) & 0x11111111u) * 15;
}

__device__ __forceinline__ uint32_t position_of(const QueryWork &work, uint32_t group, int i)
{
    uint32_t query = min(query_of(work, i), work.n_queries - 1);
    return work.visits.first_pos + query / group - work.first_query / group;
}

/* What the row at a position sees of a tile (visits_sees). */
__device__ __forceinline__ uint32_t seen_bits(const AttnPlan &plan, const KeyTile &tile, uint32_t position)
{
    uint32_t seen = 0;
    if (tile.bits & kListed) {
#pragma unroll 1
        for (unsigned i = 0; i < kTileSectors; i++) {
            int end = (int)(position + 1) - (int)(tile.sectors[i] * KV_SECTOR_TOKENS);
            seen |= bits_below(min(end, KV_SECTOR_TOKENS)) << 4 * i;
        }
    } else {
        int64_t first = (int64_t)tile.sectors[0] * KV_SECTOR_TOKENS;
        auto below = [&](int64_t end) {
            return bits_below((int)min(max(end - first, (int64_t)0), (int64_t)kTileKeys));
        };
        seen = below((int64_t)position + 1) & (below(plan.sink) | ~below((int64_t)position + 1 - plan.recent));
    }
    return seen & spread_bits(tile.bits & kAllSectors);
}

/* Scores that are not finite become NaN. */
template <int dim> __device__ __forceinline__ void cap_scores(Rows<dim> &rows, float softcap)
{
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int k = 0; k < 32; k++) {
            float x = rows.scores[h][k];
            rows.scores[h][k] = capped(fmaf(x, 0.0f, x) * rows.factor[k / 2 % 2], softcap);
        }
}

/* What a row does not see becomes -infinity; what it sees and is not finite, NaN. */
template <int dim>
__device__ __forceinline__ void hide_scores(Rows<dim> &rows, const QueryWork &work, const KeyTile &tile, uint32_t group)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t seen = seen_bits(work.visits.plan, tile, position_of(work, group, i));
#pragma unroll
        for (int k = 0; k < 32; k++) {
            float &x = rows.scores[k / 2 % 2][k / 4 * 4 + 2 * i + k % 2];
            asm("{\n" /* in place: registers are short */
                ".reg .pred p;\n"
                "setp.ne.u32 p, %1, 0;\n"
                "@p fma.rn.f32 %0, %0, 0f00000000, %0;\n"
                "@!p mov.f32 %0, 0fFF800000;\n"
                "}"
                : "+f"(x)
                : "r"(seen & 1u << k));
        }
    }
}

/* The largest score that this lane has of either row: chains of their own, since each step waits for the last. */
template <int dim> __device__ __forceinline__ void find_largest(const Rows<dim> &rows, float (&ret)[2])
{
    float chain[4][2];
#pragma unroll
    for (int k = 0; k < 32; k++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float &largest = chain[h * 2 + k % 2][k / 2 % 2], x = rows.scores[h][k];
            largest = k < 4 ? x : fmaxf(largest, x);
        }
#pragma unroll
    for (int i = 0; i < 2; i++) ret[i] = fmaxf(fmaxf(chain[0][i], chain[1][i]), fmaxf(chain[2][i], chain[3][i]));
}

/* The maximum follows a row's largest score if that exceeds it by much; by how much sums and outputs shrink then. */
template <int dim>
__device__ __forceinline__ bool raise_max(Rows<dim> &rows, const float (&factor)[2], float (&shrink)[2])
{
    float largest[2];
    bool rises = false;
    find_largest(rows, largest);
    for (int i = 0; i < 2; i++) {
        largest[i] *= factor[i];
        rises = rises || largest[i] > rows.max[i] + kSlackPowers;
        shrink[i] = 1;
    }
    if (!__any_sync(kAllLanes, rises)) return false;
    for (int i = 0; i < 2; i++) {
        for (int step = 1; step < 4; step *= 2)
            largest[i] = fmaxf(largest[i], __shfl_xor_sync(kAllLanes, largest[i], step));
        if (!(largest[i] > rows.max[i] + kSlackPowers)) continue;
        shrink[i] = exp2_of(rows.max[i] - largest[i]);
        rows.max[i] = largest[i];
    }
    return true;
}

/*
 * Scores become weights, and sums grow. A score of -infinity that is seen would count for nothing: the sum becomes NaN,
 * as other wild scores make it. Returns whether earlier outputs shrink.
 */
template <int dim>
__device__ __forceinline__ bool weigh_scores(Rows<dim> &rows, float softcap, bool is_hidden, float (&shrink)[2])
{
    float factor[2], from[2], sum[2][2] = {}, broken[2][2] = {};
    for (int i = 0; i < 2; i++) factor[i] = softcap > 0 ? 1 : rows.factor[i];
    bool shrinks = raise_max(rows, factor, shrink);
    for (int i = 0; i < 2; i++) from[i] = rows.max[i] == -INFINITY ? 0 : -rows.max[i];
#pragma unroll
    for (int k = 0; k < 32; k++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int i = k / 2 % 2;
            float x = rows.scores[h][k], weight = exp2_of(fmaf(x, factor[i], from[i]));
            broken[i][h] = fmaf(x, 0.0f, broken[i][h]);
            rows.scores[h][k] = weight;
            sum[i][h] += weight;
        }
    for (int i = 0; i < 2; i++) {
        float wild = broken[i][0] + broken[i][1];
        asm volatile("" : "+f"(wild)); /* here, not where it is used: the scores are gone by then */
        rows.sum[i] = fmaf(rows.sum[i], shrink[i], sum[i][0] + sum[i][1]);
        if (!is_hidden) rows.sum[i] += wild; /* else hide_scores has looked */
    }
    uint32_t opaque = shrinks; /* one path for both: the compiler cannot follow products along two */
    asm volatile("" : "+r"(opaque));
    return opaque;
}

template <int dim, bool bf16> __device__ __forceinline__ void pack_weights(Rows<dim> &rows)
{
#pragma unroll
    for (int sector = 0; sector < (int)kTileSectors; sector++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float *from = &rows.scores[k / 2][sector * 4 + k % 2 * 2];
            rows.weights[sector][k] = pack<bf16>(from[0], from[1]);
        }
}

template <int dim> __device__ __forceinline__ void shrink_rows(Rows<dim> &rows, const float (&shrink)[2])
{
#pragma unroll
    for (int k = 0; k < dim / 2; k++) rows.out[k] *= shrink[k / 2 % 2];
}

/* The channels of a lane that are not finite in any value that a row sees, as bits. */
template <int dim> __device__ __noinline__ uint64_t wild_channels(const uint8_t *wild, uint32_t seen)
{
    unsigned t = threadIdx.x % 4;
    uint64_t ret = 0;
    for (unsigned token = 0; token < kTileKeys; token++) {
        uint32_t bits = __shfl_sync(kAllLanes, seen, token % 8 / 2, 4); /* from the row's lane whose bit it is */
        if (!(bits >> (token / 8 * 2 + token % 2) & 1)) continue;
        for (int m = 0; m < dim / 8; m++) ret |= (uint64_t)(wild[token * (dim / 8) + m] >> 2 * t & 3) << 2 * m;
    }
    return ret;
}

/* Values that are not finite were taken for 0: rows that see them are NaN there. */
template <class Tile, int dim>
__device__ __forceinline__ void spoil_rows(Rows<dim> &rows, const QueryWork &work, const KeyTile &tile, uint32_t group,
                                           const uint8_t *wild)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t seen = seen_bits(work.visits.plan, tile, position_of(work, group, i));
        uint64_t bits = wild_channels<dim>(wild, seen);
#pragma unroll
        for (int k = 0; k < dim / 4; k++)
            if (bits >> k & 1) rows.out[k / 2 * 4 + 2 * i + k % 2] = NAN;
    }
}

/* Of scores that have come. */
template <int dim>
__device__ __forceinline__ bool soften(Rows<dim> &rows, const QueryWork &work, const KeyTile &tile, uint32_t group,
                                       float softcap, float (&shrink)[2])
{
    bool is_masked = tile.bits & kMasked;
    if (softcap > 0) cap_scores(rows, softcap);
    if (is_masked) hide_scores(rows, work, tile, group);
    return weigh_scores(rows, softcap, is_masked, shrink);
}

template <class Tile> struct AttendRings {
    Ring<Tile::kStages> k, v;
};

/* A warp is done with a stage. */
__device__ __forceinline__ void leave(uint64_t *barrier)
{
    __syncwarp();
    if (threadIdx.x % kWarp == 0) lw::barrier_arrive(barrier);
}

/* The oldest tile's values have been added. */
template <class Tile, int dim>
__device__ __forceinline__ void end_values(Rows<dim> &rows, WgmmaShared &shared, const WgmmaMemory &memory,
                                           const QueryWork &work, uint32_t group, Ring<Tile::kStages> &ring)
{
    if (shared.is_wild[ring.at()])
        spoil_rows<Tile>(rows, work, shared.tiles[ring.slot], group, memory.wild + ring.at() * Tile::kWildBytes);
    leave(&shared.v_empty[ring.at()]);
    ring.next();
}

template <class Tile, bool has_bands, int dim>
__device__ __forceinline__ void attend_work(Rows<dim> &rows, WgmmaShared &shared, const WgmmaMemory &memory,
                                            AttendRings<Tile> &rings, const QueryWork &work, uint32_t group,
                                            float softcap)
{
    unsigned own_turn = NAMED_TURN + threadIdx.x / lw::kGroupThreads - 1, other_turn = 2 * NAMED_TURN + 1 - own_turn;
    float shrink[2];
    lw::barrier_wait(&shared.k_full[rings.k.at()], rings.k.parity());
    lw::matrix_begin();
    ask_scores<Tile, has_bands>(rows, memory.keys + rings.k.at() * Tile::kBytes, shared.tiles[rings.k.slot]);
    lw::matrix_wait<0>(rows.scores[0]);
    lw::matrix_wait<0>(rows.scores[1]);
    leave(&shared.k_empty[rings.k.at()]);
    soften(rows, work, shared.tiles[rings.k.slot], group, softcap, shrink);
    pack_weights<dim, Tile::kBf16>(rows);
    while (!(shared.tiles[rings.k.slot].bits & kLast)) {
        rings.k.next();
        lw::barrier_wait(&shared.k_full[rings.k.at()], rings.k.parity());
        lw::named_wait(own_turn, 2 * lw::kGroupThreads);
        lw::matrix_begin();
        ask_scores<Tile, has_bands>(rows, memory.keys + rings.k.at() * Tile::kBytes, shared.tiles[rings.k.slot]);
        lw::barrier_wait(&shared.v_full[rings.v.at()], rings.v.parity());
        lw::matrix_begin();
        ask_values<Tile>(rows, memory.values + rings.v.at() * Tile::kBytes);
        lw::named_arrive(other_turn, 2 * lw::kGroupThreads);
        lw::matrix_wait<1>(rows.scores[0]);
        lw::matrix_wait<1>(rows.scores[1]);
        leave(&shared.k_empty[rings.k.at()]);
        if (soften(rows, work, shared.tiles[rings.k.slot], group, softcap, shrink)) {
            lw::matrix_wait<0>(rows.out);
            shrink_rows(rows, shrink);
        } else {
            lw::matrix_wait<0>(rows.out); /* in a block of its own: else it would come before the softmax */
        }
        end_values<Tile>(rows, shared, memory, work, group, rings.v);
        pack_weights<dim, Tile::kBf16>(rows);
    }
    rings.k.next();
    lw::barrier_wait(&shared.v_full[rings.v.at()], rings.v.parity());
    lw::matrix_begin();
    ask_values<Tile>(rows, memory.values + rings.v.at() * Tile::kBytes);
    lw::matrix_wait<0>(rows.out);
    end_values<Tile>(rows, shared, memory, work, group, rings.v);
}

template <int dim>
__device__ __forceinline__ void put_rows(const AttendParams &p, const QueryWork &work, const Rows<dim> &rows)
{
    uint32_t group = p.n_heads / p.n_kv_heads;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = rows.sum[i];
        for (int step = 1; step < 4; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
        uint32_t query = query_of(work, i);
        if (query >= work.n_queries) continue;
        float f = sum != 0 ? 1 / sum : 0;
        float *to =
            p.out +
            ((size_t)(work.first_row + query / group) * p.n_heads + work.kv_head * group + query % group) * dim +
            threadIdx.x % 4 * 2;
#pragma unroll
        for (int m = 0; m < dim / 8; m++)
            *(float2 *)(to + m * 8) = make_float2(rows.out[m * 4 + 2 * i] * f, rows.out[m * 4 + 2 * i + 1] * f);
    }
}

template <KvType type, int dim, bool has_bands>
__device__ __forceinline__ void attend_all(const AttendParams &p, WgmmaShared &shared, const WgmmaMemory &memory)
{
    using Tile = WgmmaTile<type, dim>;
    AttendRings<Tile> rings = {};
    Ring<kWorks> works = {};
    if (threadIdx.x / lw::kGroupThreads == 2)
        lw::named_arrive(NAMED_TURN, 2 * lw::kGroupThreads); /* the first begins */
    for (;; works.next()) {
        lw::barrier_wait(&shared.work_full[works.at()], works.parity());
        const QueryWork &work = shared.work[works.at()];
        if (work.is_end) break;
        Rows<dim> rows;
        load_queries<dim, Tile::kBf16>(rows, p, work);
        if (!work.is_empty)
            attend_work<Tile, has_bands>(rows, shared, memory, rings, work, p.n_heads / p.n_kv_heads, p.softcap);
        put_rows(p, work, rows);
        leave(&shared.work_empty[works.at()]);
    }
}

template <KvType type, int dim, bool has_bands>
__global__ void __launch_bounds__(kAttendThreads, 1) attend_wgmma(const __grid_constant__ AttendParams p)
{
    using Tile = WgmmaTile<type, dim>;
    extern __shared__ char dynamic[];
    __shared__ WgmmaShared shared;
    char *aligned = dynamic + (1024 - lw::shared_at(dynamic) % 1024) % 1024;
    WgmmaMemory memory = {aligned, aligned + Tile::kStages * Tile::kBytes,
                          (uint8_t *)aligned + 2 * Tile::kStages * Tile::kBytes};
    if (threadIdx.x == 0) {
        for (unsigned i = 0; i < Tile::kStages; i++) {
            lw::barrier_init(&shared.k_full[i], 1);
            lw::barrier_init(&shared.v_full[i], lw::kGroupThreads);
            lw::barrier_init(&shared.k_empty[i], kAttendWarps);
            lw::barrier_init(&shared.v_empty[i], kAttendWarps);
        }
        for (unsigned i = 0; i < kWorks; i++) {
            lw::barrier_init(&shared.work_full[i], 1);
            lw::barrier_init(&shared.work_empty[i], kAttendWarps);
        }
        lw::barrier_init_done();
    }
    __syncthreads();
    lw::grid_wait();
    lw::grid_release();
    if (threadIdx.x < lw::kGroupThreads) {
        lw::registers_give<kFeedRegisters>();
        feed<type, dim, has_bands>(p, shared, memory);
    } else {
        lw::registers_take<kAttendRegisters>();
        attend_all<type, dim, has_bands>(p, shared, memory);
    }
}

template <KvType type, int dim> bool launch_wgmma(const AttendParams &p, Stream stream)
{
    using Tile = WgmmaTile<type, dim>;
    const DeviceFacts *facts = device_facts();
    auto kernel = p.launch.has_bands ? attend_wgmma<type, dim, true> : attend_wgmma<type, dim, false>;
    if (!facts ||
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)Tile::kShared) != cudaSuccess)
        return false;
    uint64_t queries = (uint64_t)p.launch.tiled_rows * (p.n_heads / p.n_kv_heads);
    uint64_t tiles = (queries / kTileQueries + p.n_spans) * p.n_kv_heads, blocks = facts->n_multiprocessors;
    return lw::launch(kernel, (unsigned)(tiles < blocks ? tiles : blocks), kAttendThreads, Tile::kShared, stream, p);
}

} // namespace
