/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One or two rows of x times packed weights, by integer dot products: what unpacking costs on the way to tensor cores
 * (gemv.cuh) is more than the products of so few rows. x is 16 bits wide, with a scale for every 32 columns, and lies
 * in shared memory as two planes of bytes, in the order in which a unit's quants come out of their words. So the sums
 * of a block are exact, and scales are applied to sums. F16 and BF16 are multiplied with x in fp32.
 *
 * Products that follow one another go as one kernel, a chain, of layers even: blocks hand each other results through
 * gemv_exchange.cuh, and attention lies between the products (gemv_attend.cuh). Weights keep coming all the while into
 * nearly all of shared memory, so memory is busy while results are added up, waited for and made an x again. A block's
 * tiles are one row of units, of which every warp takes an equal stretch; what it has of a tile is a part.
 */
#pragma once
#include "kernels/linear/gemv_dot_x.cuh"

namespace lw
{

/* ---- weights ---- */

/* The upper bits of chunk kChunk; where they lie: unpack.cuh, pairs_of(). */
template <class F, int kChunk> __device__ __forceinline__ void add_high(const uint32_t *high, uint32_t *words)
{
    using At = HighBits<F, kChunk>;
    const uint32_t word = high[At::kWord];
    const uint32_t first = shifted<At::kBit0, F::kLow>(word), second = shifted<At::kBit1, F::kLow>(word);
    if constexpr (F::kLow == 2) {
        uint32_t *pair = words + kChunk / 2 * 4;
        constexpr int kUp = 8 * (kChunk % 2);
        pair[0] |= (first & At::kMask) << kUp;
        pair[1] |= (second & At::kMask) << kUp;
        pair[2] |= (first >> 4 & At::kMask) << kUp;
        pair[3] |= (second >> 4 & At::kMask) << kUp;
    } else {
        words[2 * kChunk] |= (first & At::kMask) | (second & At::kMask) << 8;
        words[2 * kChunk + 1] |= (first >> 4 & At::kMask) | (second & At::kMask << 4) << 4;
    }
}

/* The eight words of bytes of 32 columns of one row. */
template <class F> __device__ __forceinline__ void words_of(const uint32_t *low, const uint32_t *high, uint32_t *ret)
{
    if constexpr (F::kLow == 8) {
#pragma unroll
        for (int i = 0; i < 8; i++) ret[i] = low[i];
    } else if constexpr (F::kTable != Table::kNone) {
#pragma unroll
        for (int i = 0; i < 4; i++) look_up<F>(low[i], &ret[2 * i], &ret[2 * i + 1]);
    } else if constexpr (F::kLow == 4) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            ret[2 * i] = low[i] & 0x0F0F0F0Fu;
            ret[2 * i + 1] = low[i] >> 4 & 0x0F0F0F0Fu;
        }
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) ret[i] = low[i / 4] >> 2 * (i % 4) & 0x03030303u;
    }
    if constexpr (F::kHigh > 0) {
        add_high<F, 0>(high, ret);
        add_high<F, 1>(high, ret);
        add_high<F, 2>(high, ret);
        add_high<F, 3>(high, ret);
    }
}

/* What a part's sums are multiplied with: scale * dot + min * (sum of x). */
struct DotScale {
    float scale, min;
};

__device__ __forceinline__ float half_float(uint32_t bits)
{
    return __half2float(half_of_bits(bits & 0xFFFF));
}

__device__ __forceinline__ float byte_float(uint32_t word, int byte)
{
    return (float)(word >> 8 * byte & 0xFF);
}

/* Of row g (second 0) or g + 8, group h, part `part` of its 32 columns; scale, head: the lane's words. */
template <class F>
__device__ __forceinline__ DotScale dot_scale(const uint32_t *scale, const uint32_t *head, int second, int h, int part)
{
    if constexpr (!F::kIsK) {
        constexpr float kUp = 1 << DEVICE_ROW_EXPONENT;
        return {half_float(scale[0] >> 16 * second), F::kHasMin ? half_float(scale[1] >> 16 * second) * kUp : 0};
    } else if constexpr (F::kHasMin) {
        const float d = half_float(head[second]), d_min = half_float(head[second] >> 16);
        const uint32_t word = scale[second];
        if constexpr (F::kParts == 1)
            return {d * byte_float(word, 2 * h), -d_min * byte_float(word, 2 * h + 1)};
        else
            return {d * byte_float(word & 0x0F0F0F0Fu, 2 * h + part),
                    -d_min * byte_float(word >> 4 & 0x0F0F0F0Fu, 2 * h + part)};
    } else {
        const float d = half_float(head[0] >> 16 * second);
        const uint32_t word = F::kParts == 1 ? scale[0] >> 16 * second : scale[second];
        return {d * (byte_float(word, F::kParts * h + part) - 128), 0};
    }
}

/* Four unsigned bytes times four signed ones. */
__device__ __forceinline__ int dot_4(uint32_t w, uint32_t x, int sum)
{
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(w), "r"(x));
    return sum;
}

/* One row, group and token: the sum of 32 columns in units of its row's factor. */
template <class F>
__device__ __forceinline__ float dot_block(const uint32_t *words, const uint32_t *upper, const uint32_t *lower,
                                           const DotBlock &block, const DotScale *scales)
{
    float value = 0;
#pragma unroll
    for (int part = 0; part < F::kParts; part++) {
        constexpr int kWords = 8 / F::kParts;
        const int sum_x = F::kParts == 1 ? block.sum : block.half[part];
        int up = 0, down = F::kHasMin ? 0 : -F::kBias * sum_x;
#pragma unroll
        for (int i = part * kWords; i < (part + 1) * kWords; i++) {
            up = dot_4(words[i], upper[i], up);
            down = dot_4(words[i], lower[i], down);
        }
        value += scales[part].scale * (float)(up * 256 + down);
        if constexpr (F::kHasMin) value += scales[part].min * (float)sum_x;
    }
    return value * block.scale;
}

template <class F, int kTokens>
__device__ __forceinline__ void dot_quantised(const char *stage, const DotRow<F> *x, uint32_t lane, uint32_t unit,
                                              float (*acc)[2])
{
    const char *high_plane = stage + 32 * F::kLowBytes, *scale_plane = high_plane + 32 * F::kHighBytes;
    uint32_t scale[F::kScaleBytes / 4], head[F::kHeadBytes / 4 + 1] = {};
    read_words<F::kScaleBytes, F::kScaleBytes / 4>(scale_plane, lane, 0, scale);
    if constexpr (F::kIsK)
        read_words<F::kHeadBytes, F::kHeadBytes / 4>(scale_plane + 32 * F::kScaleBytes, lane / 4, 0, head);
#pragma unroll
    for (int h = 0; h < F::kGroups; h++) {
        const uint32_t block = (unit * F::kGroups + h) * 4 + lane % 4;
        alignas(16) uint32_t upper[kTokens][8], lower[kTokens][8];
        DotBlock blocks[kTokens];
#pragma unroll
        for (int n = 0; n < kTokens; n++) {
#pragma unroll
            for (int i = 0; i < 8; i += 4) {
                const uint32_t at = block * 32 + 4 * i;
                *reinterpret_cast<uint4 *>(upper[n] + i) = *reinterpret_cast<const uint4 *>(x[n].upper() + at);
                *reinterpret_cast<uint4 *>(lower[n] + i) = *reinterpret_cast<const uint4 *>(x[n].lower() + at);
            }
            blocks[n] = x[n].blocks()[block];
        }
#pragma unroll
        for (int second = 0; second < 2; second++) {
            alignas(16) uint32_t low[F::kLow], high[F::kHigh + 1], words[8];
            const int at = second * F::kGroups + h;
            read_words<F::kLowBytes, F::kLow>(stage, lane, at * F::kLow, low);
            if constexpr (F::kHigh > 0) read_words<F::kHighBytes, F::kHigh>(high_plane, lane, at * F::kHigh, high);
            words_of<F>(low, high, words);
            DotScale scales[F::kParts];
#pragma unroll
            for (int part = 0; part < F::kParts; part++) scales[part] = dot_scale<F>(scale, head, second, h, part);
#pragma unroll
            for (int n = 0; n < kTokens; n++)
                acc[n][second] += dot_block<F>(words, upper[n], lower[n], blocks[n], scales);
        }
    }
}

template <bool kIsBf16> __device__ __forceinline__ float2 two_floats(uint32_t word)
{
    if constexpr (kIsBf16)
        return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000u));
    else
        return __half22float2(half2_of_bits(word));
}

/* Sums of a lane: rows g and g + 8 of its four columns' lanes, or all rows of its own columns. */
template <class F> constexpr int dot_sums = is_plain<F> ? DEVICE_TILE_ROWS : 2;

/* A lane has 8 columns of all rows; those behind the last one are not there. */
template <class F, int kTokens>
__device__ __forceinline__ void dot_plain(const char *stage, const DotRow<F> *x, uint32_t lane, uint32_t unit,
                                          uint32_t n_cols, float (*acc)[DEVICE_TILE_ROWS])
{
    const uint32_t col = unit * dot_unit_cols<F> + 8 * lane;
    float4 a[kTokens], b[kTokens];
    if (col >= n_cols) return;
#pragma unroll
    for (int n = 0; n < kTokens; n++) {
        a[n] = *reinterpret_cast<const float4 *>(x[n].floats() + col);
        b[n] = *reinterpret_cast<const float4 *>(x[n].floats() + col + 4);
    }
#pragma unroll
    for (int row = 0; row < DEVICE_TILE_ROWS; row++) {
        const uint4 w = *reinterpret_cast<const uint4 *>(stage + row * dot_unit_step<F> + lane * 16);
        const float2 p[4] = {two_floats<F::kIsBf16>(w.x), two_floats<F::kIsBf16>(w.y), two_floats<F::kIsBf16>(w.z),
                             two_floats<F::kIsBf16>(w.w)};
#pragma unroll
        for (int n = 0; n < kTokens; n++) {
            float &sum = acc[n][row];
            sum += p[0].x * a[n].x + p[0].y * a[n].y + p[1].x * a[n].z + p[1].y * a[n].w;
            sum += p[2].x * b[n].x + p[2].y * b[n].y + p[3].x * b[n].z + p[3].y * b[n].w;
        }
    }
}

/* ---- what a warp makes of its stretch ---- */

/* Of 2 kHalf rows those of this lane's half, summed with the lane that takes the others. */
template <int kHalf> __device__ __forceinline__ float sum_rows(const float *sums)
{
    const bool is_upper = threadIdx.x & 2 * kHalf;
    float kept[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; i++) {
        const float other = is_upper ? sums[i] : sums[kHalf + i];
        kept[i] = (is_upper ? sums[kHalf + i] : sums[i]) + __shfl_xor_sync(0xFFFFFFFFu, other, 2 * kHalf);
    }
    if constexpr (kHalf > 1)
        return sum_rows<kHalf / 2>(kept);
    else
        return kept[0] + __shfl_xor_sync(0xFFFFFFFFu, kept[0], 1);
}

/*
 * A warp's part of a tile goes to place tile + warp, which no other part has, since stretches follow one another.
 * parts: [tiles + warps, kTokens, 16].
 */
template <class F, int kTokens>
__device__ __forceinline__ void put_part(float *parts, uint32_t place, float (*acc)[dot_sums<F>])
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < kTokens; n++) {
        float *to = parts + (place * kTokens + n) * DEVICE_TILE_ROWS;
        if constexpr (is_plain<F>) {
            const float sum = sum_rows<DEVICE_TILE_ROWS / 2>(acc[n]); /* of row lane / 2 */
            if (lane % 2 == 0) to[lane / 2] = sum;
        } else {
#pragma unroll
            for (int second = 0; second < 2; second++) {
                float sum = acc[n][second];
                sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
                sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
                if (lane % 4 == 0) to[8 * second + lane / 4] = sum;
            }
        }
#pragma unroll
        for (int i = 0; i < dot_sums<F>; i++) acc[n][i] = 0;
    }
}

template <class F, int kTokens>
__device__ __forceinline__ void multiply_stretch(const GemvArgs &args, const DotRow<F> *x,
                                                 const Work<dot_warps<F>> &work, Feed<F> &feed, float *parts)
{
    const uint32_t lane = threadIdx.x % 32, n_units = args.n_units;
    const uint32_t n_cols = (uint32_t)(args.tile_bytes / DEVICE_TILE_ROWS / 2); /* of F16 and BF16 */
    uint32_t unit = work.first_unit, place = work.place;
    float acc[kTokens][dot_sums<F>] = {};
    for (uint32_t n = work.end - work.first; n > 0; n--) {
        feed.wait();
        if constexpr (is_plain<F>)
            dot_plain<F, kTokens>(feed.oldest(), x, lane, unit, n_cols, acc);
        else
            dot_quantised<F, kTokens>(feed.oldest(), x, lane, unit, acc);
        __syncwarp(); /* the stage has been read */
        feed.give_back();
        if (++unit < n_units && n > 1) continue;
        put_part<F, kTokens>(parts, place++, acc);
        unit = 0;
    }
}

/* ---- results ---- */

/* The parts of a tile of this block in order; unused places between them hold zeros. */
template <uint32_t kWarps>
__device__ __forceinline__ float sum_parts(const float *parts, uint32_t n_units, uint32_t all_units, uint32_t tile,
                                           uint32_t n_tokens, uint32_t at)
{
    const uint32_t first = tile * n_units, end = warp_of_unit<kWarps>(all_units, first + n_units - 1);
    float sum = 0;
#pragma unroll 4
    for (uint32_t w = warp_of_unit<kWarps>(all_units, first); w <= end; w++)
        sum += parts[(tile + w) * n_tokens * DEVICE_TILE_ROWS + at];
    return sum;
}

/* Result i of a block: 16 rows of a tile, or of a gate and what it gates, the tokens of a tile after another. */
template <int kTokens> struct DotResult {
    uint32_t tile, at; /* of the block's; of a place of parts */
    Result of[2];      /* all but the sum; the second one only behind a gate */
    float *handed;     /* to whoever waits for it; NULL: nobody does */
};

/* Loads only; they are under way while sums are formed. */
template <class F, int kTokens>
__device__ __forceinline__ DotResult<kTokens> begin_dot(const GemvLink &link, const Tiles &mine, float *set, uint32_t i)
{
    const GemvArgs &args = link.product;
    DotResult<kTokens> ret = {};
    const uint32_t together = args.is_glu ? 2 : 1;
    ret.tile = i / DEVICE_TILE_ROWS / kTokens * together;
    ret.at = i % (kTokens * DEVICE_TILE_ROWS);
    if (mine.begin + ret.tile >= mine.end) return ret;
    const Which<1> which(ret.at);
    ret.of[0] = begin_result<F>(args, which, mine.begin + ret.tile, mine.end, true);
    if (args.is_glu) ret.of[1] = begin_result<F>(args, which, mine.begin + ret.tile + 1, mine.end, true);
    if (link.y_at != GEMV_NO_PLACE)
        ret.handed = set + link.y_at + which.row +
                     (which.token * args.n_tiles + mine.begin + ret.tile) / together * DEVICE_TILE_ROWS;
    return ret;
}

template <class F, int kTokens>
__device__ __forceinline__ void finish_dot(const GemvArgs &args, const float *parts, uint32_t all_units,
                                           const DotResult<kTokens> &result, const float *norms)
{
    float value[2];
    if (!result.of[0].y) return;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        if (i > 0 && !args.is_glu) break;
        const float sum = sum_parts<dot_warps<F>>(parts, args.n_units, all_units, result.tile + i, kTokens, result.at);
        value[i] = sum * (result.of[i].factor * norms[result.at / DEVICE_TILE_ROWS]) + result.of[i].addend;
    }
    if (args.is_glu) value[0] = glu_value(args.activation, value[0]) * value[1];
    if (result.handed) hand_over(result.handed, value[0]);
    *result.of[0].y = value[0];
}

/* first: this thread's first result. */
template <class F, int kTokens>
__device__ __forceinline__ void finish_block(const GemvLink &link, const float *parts, const Tiles &mine, float *set,
                                             const DotResult<kTokens> &first, const float *norms)
{
    const GemvArgs &args = link.product;
    constexpr uint32_t kThreads = 32 * dot_warps<F>;
    const uint32_t all = (mine.end - mine.begin) * args.n_units;
    const uint32_t n = (mine.end - mine.begin) / (args.is_glu ? 2 : 1) * kTokens * DEVICE_TILE_ROWS;
    finish_dot<F, kTokens>(args, parts, all, first, norms);
    for (uint32_t i = threadIdx.x + kThreads; i < n; i += kThreads)
        finish_dot<F, kTokens>(args, parts, all, begin_dot<F, kTokens>(link, mine, set, i), norms);
}

/* ---- the kernel ---- */

struct DotFixed {
    FeedBarriers barriers;
    float squares[GEMV_DOT_TOKENS][GEMV_MAX_WARPS], norms[GEMV_DOT_TOKENS];
    GemvAttend attends[GEMV_CHAIN_ATTENDS];
    Visits visits[GEMV_CHAIN_ATTENDS];
    AttendReady ready;
};
static_assert(sizeof(DotFixed) <= GEMV_DOT_STATIC_BYTES, "the plan of shared memory counts on less");

/* By the first warp, behind a barrier: what results are multiplied with. */
template <class F, int kTokens> __device__ __forceinline__ void make_norms(const GemvArgs &args, DotFixed *fixed)
{
    if (threadIdx.x >= 32) return;
#pragma unroll
    for (int n = 0; n < kTokens; n++) {
        float sum = threadIdx.x < dot_warps<F> ? fixed->squares[n][threadIdx.x] : 0;
        sum = combine_warp({sum, 0}).squares;
        const float norm = args.raw.weight ? 1.0f / sqrtf(sum / (float)args.raw.n_cols + args.raw.eps) : 1;
        if (threadIdx.x == 0) fixed->norms[n] = is_plain<F> ? norm : norm / kDotLower / (1 << DEVICE_ROW_EXPONENT);
    }
}

/* x of all tokens, by all threads; with the first barrier behind it. */
template <class F, int kTokens>
__device__ __forceinline__ void make_x(const GemvLink &link, const float *set, const DotRow<F> *x, DotFixed *fixed)
{
#pragma unroll
    for (int n = 0; n < kTokens; n++) {
        const float squares = combine_warp({make_dot_row<F>(fixed->attends, link, set, n, x[n]), 0}).squares;
        if (threadIdx.x % 32 == 0) fixed->squares[n][threadIdx.x / 32] = squares;
    }
    sync_workers();
    make_norms<F, kTokens>(link.product, fixed);
}

/* By all threads. As constants, which come slowly if they are not used again and again, links would be waited for. */
template <class T> __device__ __forceinline__ void copy_constants(const T *from, uint32_t n, T *to)
{
    static_assert(sizeof(T) % sizeof(uint2) == 0, "whole words");
    const uint2 *words = reinterpret_cast<const uint2 *>(from);
    asm volatile("" : "+l"(words)); /* as memory */
    for (uint32_t i = threadIdx.x; i < n * (sizeof(T) / sizeof(uint2)); i += blockDim.x)
        reinterpret_cast<uint2 *>(to)[i] = words[i];
}

template <class F, int kTokens>
__global__ void __launch_bounds__(32 * (dot_warps<F> + GEMV_DOT_FEED_WARPS), 1)
    gemv_dot(const __grid_constant__ GemvChain chain)
{
    constexpr uint32_t kWarps = dot_warps<F>;
    __shared__ DotFixed fixed;
    const uint32_t warp = warp_index();
    float *all_parts = reinterpret_cast<float *>(dynamic_shared() + kWarps * chain.n_stages * dot_unit_bytes<F>);
    float *set = nullptr;
    GemvLink *links = reinterpret_cast<GemvLink *>(dynamic_shared() + chain.links_at);
    uint32_t turn = 0;

    copy_constants(chain.link, chain.n_links, links);
    copy_constants(chain.attend, chain.n_attends, fixed.attends);
    if (warp == kWarps) feed_init<F>(chain.n_stages, &fixed.barriers);
    __syncthreads();
    if (warp >= kWarps) {
        leave_registers<F>();
        return Feeder<F>(chain, links, &fixed.barriers).run();
    }
    take_registers<F>();
    Feed<F> feed(chain, &fixed.barriers);
    attend_find(fixed.attends, chain.n_attends, fixed.visits);
    prefetch_weights(links[0].product.raw);
    sync_workers();
#pragma unroll 1
    for (uint32_t i = 0; i < chain.n_links; i++) {
        const GemvLink &link = links[i];
        const GemvArgs &args = link.product;
        const Work<kWarps> work(args, warp);
        const uint32_t n_parts = (work.mine.end - work.mine.begin + kWarps) * kTokens * DEVICE_TILE_ROWS;
        float *parts = all_parts + i % 2 * chain.part_floats;
        DotRow<F> x[kTokens];
#pragma unroll
        for (int n = 0; n < kTokens; n++) x[n] = {chain.x_at + n * args.x_bytes, args.n_units * dot_unit_cols<F>};
        if (link.attend)
            attend_in_chain(fixed.attends[link.attend - 1], fixed.visits[link.attend - 1], fixed.ready, set,
                            reinterpret_cast<float *>(dynamic_shared() + chain.x_at));
        for (uint32_t k = threadIdx.x; k < n_parts; k += 32 * kWarps) parts[k] = 0;
        if (i == 0) {
            grid_wait();
            if (chain.n_links > 1) { /* else there may be nothing to exchange through */
                turn = exchange_turn(chain);
                set = chain.sets + (size_t)turn * GEMV_SET_FLOATS;
            }
        }
        if (i + 1 < chain.n_links && links[i + 1].attend)
            attend_prepare(fixed.attends[links[i + 1].attend - 1], fixed.visits[links[i + 1].attend - 1], &fixed.ready);
        if (work.all > 0) make_x<F, kTokens>(link, set, x, &fixed);
        if (i == 0) {
            grid_release();
            if (chain.n_links > 1) exchange_clear(chain, turn);
        }
        const DotResult<kTokens> result = begin_dot<F, kTokens>(link, work.mine, set, threadIdx.x);
        multiply_stretch<F, kTokens>(args, x, work, feed, parts);
        sync_workers();
        finish_block<F, kTokens>(link, parts, work.mine, set, result, fixed.norms);
    }
    if (chain.n_links > 1) exchange_leave(chain, turn);
}

template <class F> GemvDot gemv_dot_of()
{
    constexpr uint32_t kBlockBytes = is_plain<F> ? 32 * sizeof(float) : 2 * 32 + sizeof(DotBlock);
    static_assert(GEMV_DOT_TOKENS == 2, "a kernel for each number of tokens");
    return {{gemv_dot<F, 1>, gemv_dot<F, 2>}, dot_warps<F>, dot_unit_cols<F>, dot_unit_bytes<F>, kBlockBytes};
}

template <class F> GemvRow gemv_row(DType type)
{
    constexpr int kWarps = is_plain<F> ? 8 : 16;
    return {type,
            {gemv<F, 1, kWarps>, kWarps, pass_tiles<1>},
            {gemv<F, 2, 16>, 16, pass_tiles<2>},
            gemv_dot_of<F>(),
            F::kUnitCols,
            F::kUnitBytes,
            is_plain<F>};
}

} // namespace lw
