/* SPDX-License-Identifier: Apache-2.0 */
/* What a warp of attend_split.cuh does with one sector: scores, softmax, sums. */
#pragma once
#include "kernels/attention/attend_split.cuh"

#include <cfloat>

namespace
{

/* A warp's softmax over the keys that it met: lane 4 g + t holds queries 8 n + 2 t and the next one. */
template <int dim, int tiles> struct Softmax {
    float out[dim / 16][tiles][4];                      /* [channels][queries], in `unit` */
    float max[tiles][2], sum[tiles][2], zero[tiles][2]; /* sum, zero: of this lane's tokens alone */
    float unit; /* power of 2: weights times value scales are divided by it to fit f16 */
};

struct Lane {
    unsigned lane, g, t, warp;
};

/* Stage of a ring: what it holds. */
struct Stage {
    uint32_t sector;
    bool is_listed, is_missing;
    uint8_t n_steps; /* of 16 channels of its keys, which scores take */
};

/* n_steps: of keys, the first channels that are asked for; unrolled with a condition for each, not a loop of its own.
 */
template <KvType type, int dim>
__device__ void copy_sector(char *stage, const char *from, unsigned lane, unsigned n_steps)
{
    using S = Sector<type, dim>;
    const unsigned k_bytes = key_bytes<type, dim>(n_steps);
#pragma unroll
    for (unsigned at = lane * 16; at < S::kKBytes; at += 512)
        if (at < k_bytes) copy_16(stage + at, from + at);
    for (unsigned at = lane * 16; at < KV_SECTOR_TOKENS * S::kVRowBytes; at += 512)
        copy_16(stage + S::kKBytes + value_offset<S::kVRowBytes>(0, at), from + S::kKBytes + at);
    if (S::kScaleBytes && lane < S::kScaleBytes / 16)
        copy_16(stage + S::kScaleFrom + lane * 16, from + S::kScaleFrom + lane * 16);
}

/*
 * One step's products. With bands those of the first n_steps alone: keys behind are read from a stage that holds
 * something else and multiplied by nothing. Of 4 bits, 32 channels lie together in two steps, of which the last two may
 * have the first 16 alone.
 */
template <KvType type, int dim, int tiles, bool has_bands>
__device__ __forceinline__ void add_scores(float s[tiles][4], float rest[tiles][4], const char *stage, int step,
                                           unsigned n_steps, const uint4 *queries, const Lane &l)
{
    uint32_t a[4];
    keys_of<type>(a, stage, step);
    const int pair = Format<type>::kBits == 4 ? step / 2 * 2 : step;
    if (has_bands && Format<type>::kBits == 4 && pair + 1 == (int)n_steps && l.t >= 2) a[0] = a[1] = a[2] = a[3] = 0;
    for (int n = 0; n < tiles; n++) {
        uint4 b = queries[(n * (dim / 16) + step) * 32 + l.lane];
        if constexpr (has_bands) {
            multiply_if<Format<type>::kBf16>(pair < (int)n_steps, s[n], a, b.x, b.y);
            multiply_if<Format<type>::kBf16>(pair < (int)n_steps, rest[n], a, b.z, b.w);
        } else {
            multiply<Format<type>::kBf16>(s[n], a, b.x, b.y);
            multiply<Format<type>::kBf16>(rest[n], a, b.z, b.w);
        }
    }
}

/* Scores of 16 tokens, times log2 e. cut: the queries' cut sums, of quantised types (QueryPlaces). */
template <KvType type, int dim, int tiles, bool has_bands>
__device__ void scores_of(float s[tiles][4], const char *stage, unsigned n_steps, const uint4 *queries,
                          const float *cut, const Part &part, float softcap, const Lane &l)
{
    float chains[3][tiles][4] = {}; /* shorter chains of dependent products */
#pragma unroll 4
    for (int step = 0; step < dim / 16; step++)
        add_scores<type, dim, tiles, has_bands>(step % 2 ? chains[0] : s, chains[1 + step % 2], stage, step, n_steps,
                                                queries, l);
    for (int n = 0; n < tiles; n++)
        for (int i = 0; i < 4; i++) s[n][i] = (s[n][i] + chains[0][n][i]) + (chains[1][n][i] + chains[2][n][i]);
    float scale[2] = {1, 1}, zero[2] = {0, 0};
    if (Format<type>::kQuantised)
        for (int half = 0; half < 2; half++) {
            const uint32_t *scales = (const uint32_t *)(stage + Sector<type, dim>::kScaleFrom);
            float2 both = unpack<false>(scales[l.g + 8 * half]);
            scale[half] = both.x * Format<type>::kRawScale;
            zero[half] = both.y;
        }
    for (int n = 0; n < tiles; n++)
        for (int i = 0; i < 4; i++) {
            int q = 8 * n + 2 * l.t + i % 2;
            float x = s[n][i];
            if (Format<type>::kQuantised) {
                float sum = !has_bands || n_steps == dim / 16 ? part.q_sum[q] : cut[q * (dim / 16) + n_steps - 1];
                x = scale[i / 2] * x + zero[i / 2] * sum;
            }
            x = fmaf(x, 0.0f, x) * part.factor[q]; /* an infinity becomes NaN */
            s[n][i] = softcap > 0 ? capped(x, softcap) : x;
        }
}

/* Values of a stage times weights. */
template <KvType type, int dim, int tiles, bool quads>
__device__ void add_values(Softmax<dim, tiles> &soft, const char *stage, const uint32_t high[tiles][2],
                           const uint32_t rest[tiles][2])
{
    for (int j = 0; j < dim / 32; j++) {
        uint32_t a[2][4];
        values_of<type, dim, quads>(a, stage + Sector<type, dim>::kKBytes, j);
        for (int m = 0; m < 2; m++)
            for (int n = 0; n < tiles; n++) {
                multiply<Format<type>::kBf16>(soft.out[2 * j + m][n], a[m], high[n][0], high[n][1]);
                multiply<Format<type>::kBf16>(soft.out[2 * j + m][n], a[m], rest[n][0], rest[n][1]);
            }
    }
}

/* For the queries of one row, without the tokens that it does not see: 0 times a NaN there would be NaN. */
template <KvType type, int dim, int tiles, bool quads>
__device__ void add_row_values(Softmax<dim, tiles> &soft, const Part &part, const char *stage, uint32_t row,
                               const uint32_t keep[2], const uint32_t high[tiles][2], const uint32_t rest[tiles][2],
                               const Lane &l)
{
    for (int j = 0; j < dim / 32; j++) {
        uint32_t a[2][4];
        values_of<type, dim, quads>(a, stage + Sector<type, dim>::kKBytes, j);
        for (int m = 0; m < 2; m++) {
            for (int i = 0; i < 4; i++) a[m][i] &= keep[i / 2];
            for (int n = 0; n < tiles; n++) {
                float sum[4] = {};
                multiply<Format<type>::kBf16>(sum, a[m], high[n][0], high[n][1]);
                multiply<Format<type>::kBf16>(sum, a[m], rest[n][0], rest[n][1]);
                for (int i = 0; i < 4; i++)
                    if (part.position[8 * n + 2 * l.t + i % 2] == row) soft.out[2 * j + m][n][i] += sum[i];
            }
        }
    }
}

/* Row by row. keep: masks of tokens 2 t, 2 t + 1 and 2 t + 8, 2 t + 9. */
template <KvType type, bool quantised, int dim, int tiles, bool quads>
__device__ void add_seen_values(Softmax<dim, tiles> &soft, const Part &part, const Stage &at, bool is_image,
                                const char *stage, const uint32_t high[tiles][2], const uint32_t rest[tiles][2],
                                const Lane &l)
{
#pragma unroll 1
    for (uint32_t row = part.first_pos; row <= part.last_pos; row++) {
        uint32_t keep[2] = {0, 0};
        for (int i = 0; i < 4; i++) {
            uint32_t key = at.sector * KV_SECTOR_TOKENS + 2 * l.t + i % 2 + i / 2 * 8;
            if (visits_sees<quantised>(part.visits.plan, at.is_listed, is_image, row, key))
                keep[i / 2] |= 0xFFFFu << i % 2 * 16;
        }
        add_row_values<type, dim, tiles, quads>(soft, part, stage, row, keep, high, rest, l);
    }
}

__device__ inline float over_tokens_max(float x)
{
    for (int step = 4; step < 32; step *= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
    return x;
}

__device__ inline float over_tokens_sum(float x)
{
    for (int step = 4; step < 32; step *= 2) x += __shfl_xor_sync(kAllLanes, x, step);
    return x;
}

/* New maxima, and what was gathered so far brought to them. `shrink`: of the unit. */
template <int dim, int tiles>
__device__ void raise_max(Softmax<dim, tiles> &soft, const float s[tiles][4], float shrink)
{
    float factor[tiles][2];
    bool is_same = shrink == 1;
    for (int n = 0; n < tiles; n++)
        for (int i = 0; i < 2; i++) {
            float max = fmaxf(soft.max[n][i], over_tokens_max(fmaxf(s[n][i], s[n][i + 2])));
            factor[n][i] = max == soft.max[n][i] ? 1 : exp2_of(soft.max[n][i] - max);
            soft.max[n][i] = max;
            is_same = is_same && factor[n][i] == 1;
        }
    if (__all_sync(kAllLanes, is_same)) return;
    for (int n = 0; n < tiles; n++)
        for (int i = 0; i < 2; i++) {
            soft.sum[n][i] *= factor[n][i];
            soft.zero[n][i] *= factor[n][i];
            for (int m = 0; m < dim / 16; m++) {
                soft.out[m][n][i] *= factor[n][i] * shrink;
                soft.out[m][n][i + 2] *= factor[n][i] * shrink;
            }
        }
}

/* Scales of the values of tokens g and g + 8; the unit grows to fit them, and *ret_shrink tells by what. */
template <KvType type, int dim, int tiles>
__device__ void value_scales(Softmax<dim, tiles> &soft, const char *stage, float scale[2], float zero[2],
                             float *ret_shrink, const Lane &l)
{
    for (int half = 0; half < 2; half++) {
        const uint32_t *scales = (const uint32_t *)(stage + Sector<type, dim>::kScaleFrom) + KV_SECTOR_TOKENS;
        float2 both = unpack<false>(scales[l.g + 8 * half]);
        scale[half] = both.x * Format<type>::kRawScale;
        zero[half] = both.y;
    }
    float largest = over_tokens_max(fmaxf(scale[0], scale[1]));
    float unit = __uint_as_float(((__float_as_uint(largest) >> 23) + 1) << 23);
    *ret_shrink = 1;
    if (!(unit > soft.unit)) return;
    *ret_shrink = soft.unit * inverse_of(unit);
    soft.unit = unit;
}

/* One sector: type is its own, stored the class's. */
template <KvType type, KvType stored, int dim, int tiles, bool has_bands>
__device__ void attend_sector(Softmax<dim, tiles> &soft, const Part &part, const Stage &at, const char *stage,
                              const uint4 *queries, const float *cut, float softcap, const Lane &l)
{
    constexpr bool kQuantised = Format<stored>::kQuantised, kOwn = type == stored, kBf16 = Format<type>::kBf16;
    float s[tiles][4] = {}, scale[2] = {1, 1}, zero[2] = {0, 0}, shrink = 1;
    scores_of<type, dim, tiles, has_bands>(s, stage, at.n_steps, queries, cut, part, softcap, l);
    uint32_t first_key = at.sector * KV_SECTOR_TOKENS;
    bool all_seen = visits_all_seen<kQuantised>(part.visits.plan, at.is_listed, !kOwn, part.first_pos, part.last_pos,
                                                first_key, KV_SECTOR_TOKENS);
    unsigned seen[tiles];
    for (int n = 0; n < tiles; n++) {
        seen[n] = 15;
        if (all_seen) continue;
        for (int i = 0; i < 4; i++)
            if (!visits_sees<kQuantised>(part.visits.plan, at.is_listed, !kOwn, part.position[8 * n + 2 * l.t + i % 2],
                                         first_key + l.g + i / 2 * 8)) {
                s[n][i] = -INFINITY;
                seen[n] &= ~(1u << i);
            }
    }
    if (kQuantised && kOwn) value_scales<type>(soft, stage, scale, zero, &shrink, l);
    raise_max(soft, s, shrink);
    uint32_t high[tiles][2], rest[tiles][2];
    float per_unit = kQuantised ? inverse_of(soft.unit) : 1;
    for (int n = 0; n < tiles; n++)
        for (int half = 0; half < 2; half++) {
            float w[2];
            for (int i = 0; i < 2; i++) {
                bool is_seen = seen[n] >> (2 * half + i) & 1;
                float p = is_seen ? exp2_of(s[n][2 * half + i] - fmaxf(soft.max[n][i], -FLT_MAX)) : 0;
                soft.sum[n][i] += p;
                if (kQuantised && kOwn) soft.zero[n][i] += is_seen ? p * zero[half] : 0;
                w[i] = !kQuantised ? p : is_seen ? p * scale[half] * per_unit : 0;
            }
            high[n][half] = pack<kBf16>(w[0], w[1]);
            rest[n][half] = transpose_matrix(pack_rest<kBf16>(w[0], w[1], high[n][half]));
            high[n][half] = transpose_matrix(high[n][half]);
        }
    if (Format<type>::kQuantised || all_seen)
        add_values<type, dim, tiles, kQuantised>(soft, stage, high, rest);
    else
        add_seen_values<type, kQuantised, dim, tiles, kQuantised>(soft, part, at, !kOwn, stage, high, rest, l);
}

} // namespace
