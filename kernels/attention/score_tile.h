/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of a few queries with the keys of a group of sectors, for sources that Meson compiles once for each
 * instruction set (isa.h). A score is one sum over the channels in order, whatever shares the tile with it. Any thread.
 */
#pragma once
#include "kernels/attention/attend_work.h"
#include "kernels/simd.h"

enum {
    TILE_QUERIES = 6,                            /* that share what is in registers: */
    TILE_VECTORS = SIMD_TILE_TOKENS < 8 ? 1 : 4, /* of keys, or of channels of values */
};
_Static_assert((int)LANES == (int)KV_SECTOR_TOKENS, "a vector of scores is a sector");

typedef struct ScoreTile {
    const float *q[TILE_QUERIES];
    float *scores[TILE_QUERIES]; /* of the group's keys */
    int n_queries;
} ScoreTile;

/* keys: [channels, ATTEND_GROUP_KEYS] */
SIMD_INLINE void score_vectors(const ScoreTile *tile, const float *keys, uint32_t n_channels, uint32_t at,
                               const int n_queries, const int n_vectors)
{
    F32x16 score[TILE_QUERIES][TILE_VECTORS];
    SIMD_UNROLL
    for (int i = 0; i < n_queries; i++) SIMD_UNROLL
    for (int g = 0; g < n_vectors; g++) score[i][g] = f32x16_set1(0);
    for (uint32_t c = 0; c < n_channels; c++) {
        F32x16 key[TILE_VECTORS];
        SIMD_UNROLL
        for (int g = 0; g < n_vectors; g++)
            key[g] = f32x16_load(keys + c * ATTEND_GROUP_KEYS + at + (uint32_t)g * LANES);
        SIMD_UNROLL
        for (int i = 0; i < n_queries; i++) SIMD_UNROLL
        for (int g = 0; g < n_vectors; g++) score[i][g] = f32x16_madd(f32x16_set1(tile->q[i][c]), key[g], score[i][g]);
    }
    SIMD_UNROLL
    for (int i = 0; i < n_queries; i++) SIMD_UNROLL
    for (int g = 0; g < n_vectors; g++) f32x16_store(tile->scores[i] + at + (uint32_t)g * LANES, score[i][g]);
}

SIMD_INLINE void score_sectors(const ScoreTile *tile, const float *keys, uint32_t n_channels, uint32_t s, uint32_t end,
                               const int n_queries)
{
    for (; s + TILE_VECTORS <= end; s += TILE_VECTORS)
        score_vectors(tile, keys, n_channels, s * LANES, n_queries, TILE_VECTORS);
    if (TILE_VECTORS > 2 && s + 2 <= end) {
        score_vectors(tile, keys, n_channels, s * LANES, n_queries, TILE_VECTORS / 2);
        s += 2;
    }
    for (; s < end; s++) score_vectors(tile, keys, n_channels, s * LANES, n_queries, 1);
}

/*
 * Scores of the group's sectors [s, end) over the first n_channels; as many queries as there are, so that a small group
 * of heads pays for no more than it has.
 */
static inline void score_tile(const ScoreTile *tile, const float *keys, uint32_t n_channels, uint32_t s, uint32_t end)
{
    switch (tile->n_queries) {
    case 1:
        score_sectors(tile, keys, n_channels, s, end, 1);
        break;
    case 2:
        score_sectors(tile, keys, n_channels, s, end, 2);
        break;
    case 3:
        score_sectors(tile, keys, n_channels, s, end, 3);
        break;
    case 4:
        score_sectors(tile, keys, n_channels, s, end, 4);
        break;
    case 5:
        score_sectors(tile, keys, n_channels, s, end, 5);
        break;
    default:
        score_sectors(tile, keys, n_channels, s, end, TILE_QUERIES);
        break;
    }
}
