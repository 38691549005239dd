/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows whose own keys are not stored yet (AttendParams.k): queries are turned as they are read, and the warp that takes
 * a row's own sector puts the turned key and the value into its stage and into the page.
 */
#pragma once
#include "kernels/attention/attend_sector.cuh"

namespace
{

/* A row's key and value, two neighbouring channels a lane and step, and the angles that turn them. */
template <int dim> struct Own {
    static constexpr int kSteps = (dim + 63) / 64;
    float2 key[kSteps], value[kSteps], angle[kSteps];
    uint32_t visit = UINT32_MAX; /* of its sector; UINT32_MAX: another warp's */
};

/* Loads only: they are under way while other things are done. */
template <int dim>
__device__ Own<dim> load_own(const SplitArgs &args, const Part &part, const Lane &l, unsigned n_workers)
{
    const AttendParams &p = args.params;
    const KvTurn &turn = p.turn;
    Own<dim> own = {};
    uint32_t last = part.visits.n_stored - 1, first = dim - 2 * turn.n_pairs;
    bool is_mine = part.end_visit == last + 1 && (last - part.first_visit) % n_workers == l.warp;
    own.visit = is_mine ? last : UINT32_MAX;
    if (!is_mine) return own;
    size_t at = ((size_t)part.first_row * p.n_kv_heads + part.first_head / (p.n_heads / p.n_kv_heads)) * dim;
    const float2 *angles = (const float2 *)turn.cos_sin + (size_t)part.first_row * turn.n_pairs;
    for (int i = 0; i < own.kSteps; i++) {
        uint32_t c = 2 * (i * kWarp + l.lane);
        if (c >= dim) continue;
        own.key[i] = *(const float2 *)(p.k + at + c);
        own.value[i] = *(const float2 *)(p.v + at + c);
        own.angle[i] = c < first ? make_float2(1, 0) : angles[(c - first) / 2];
    }
    return own;
}

template <int dim> __device__ void turn_own(const KvTurn &turn, Own<dim> &own, const Lane &l)
{
    float sum = 0, scale = 1;
    for (int i = 0; i < own.kSteps; i++) sum += own.key[i].x * own.key[i].x + own.key[i].y * own.key[i].y;
    if (turn.k_norm) {
        for (unsigned step = kWarp / 2; step; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
        scale = 1 / sqrtf(sum / dim + turn.norm_eps);
    }
    for (int i = 0; i < own.kSteps; i++) {
        uint32_t c = 2 * (i * kWarp + l.lane);
        float2 x = own.key[i], a = own.angle[i];
        if (c >= dim) continue;
        if (turn.k_norm) x = make_float2(x.x * scale * turn.k_norm[c], x.y * scale * turn.k_norm[c + 1]);
        own.key[i] = make_float2(x.x * a.x - x.y * a.y, x.x * a.y + x.y * a.x);
    }
}

/* Into the stage that holds the sector, and into the page. */
template <KvType type, int dim>
__device__ void put_own(const SplitArgs &args, const Part &part, Own<dim> &own, char *stage, const Lane &l)
{
    using S = Sector<type, dim>;
    uint32_t token = part.last_pos % KV_SECTOR_TOKENS;
    char *sector = (char *)visits_sector(part.visits, part.last_pos / KV_SECTOR_TOKENS, false);
    turn_own(args.params.turn, own, l);
    for (int i = 0; i < own.kSteps; i++) {
        uint32_t c = 2 * (i * kWarp + l.lane), key_at = (c / 8 * KV_SECTOR_TOKENS + token) * 16 + c % 8 * 2;
        uint32_t key = pack<Format<type>::kBf16>(own.key[i].x, own.key[i].y);
        uint32_t value = pack<Format<type>::kBf16>(own.value[i].x, own.value[i].y);
        if (c >= dim) continue;
        *(uint32_t *)(stage + key_at) = *(uint32_t *)(sector + key_at) = key;
        *(uint32_t *)(stage + S::kKBytes + value_offset<S::kVRowBytes>(token, 2 * c)) = value;
        *(uint32_t *)(sector + S::kKBytes + token * S::kVRowBytes + 2 * c) = value;
    }
    __syncwarp();
}

} // namespace
