/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotations by any number of tokens, to move stored keys (and queries) to other positions: the rotation by n tokens is
 * that by 256 * (n / 256) after that by n % 256, both read from tables whose angles were formed in fp64
 * (sparse-attention.md, decision 2). Channel order as in kernels/pointwise/rope.h. Immutable after rope_turns_fill.
 */
#pragma once
#include "base/host_device.h"
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { ROPE_TURNS_FINE = 256 };

typedef struct RopeTurns {
    const double *theta; /* [n_pairs] radians a token, ascending */
    uint32_t n_pairs;
    uint32_t n_coarse;   /* rotations reach ROPE_TURNS_FINE * n_coarse - 1 tokens */
    const float *fine;   /* [ROPE_TURNS_FINE, n_pairs, 2] cos, sin of i tokens */
    const float *coarse; /* [n_coarse, n_pairs, 2] of ROPE_TURNS_FINE * i tokens */
} RopeTurns;

/* Fills the tables that turns points to, ret_fine and ret_coarse being those. */
void rope_turns_fill(const RopeTurns *turns, float *ret_fine, float *ret_coarse);

#ifdef __cplusplus
}
#endif

/* cos, sin of n tokens for each pair: [n_pairs, 2]; negative n turns back; exactly 1, 0 for n = 0. */
LW_INLINE void rope_turns_get(const RopeTurns *turns, int64_t n, float *__restrict__ ret_cos_sin)
{
    uint64_t magnitude = (uint64_t)(n < 0 ? -n : n);
    const uint32_t n_pairs = turns->n_pairs;
    const float *__restrict__ fine = turns->fine + magnitude % ROPE_TURNS_FINE * n_pairs * 2;
    const float *__restrict__ coarse = turns->coarse + magnitude / ROPE_TURNS_FINE * n_pairs * 2;
    const float sign = n < 0 ? -1.0f : 1.0f;
    for (size_t j = 0; j < n_pairs; j++) {
        float fine_cos = fine[2 * j], fine_sin = fine[2 * j + 1], c = coarse[2 * j], s = coarse[2 * j + 1];
        ret_cos_sin[2 * j] = fine_cos * c - fine_sin * s;
        ret_cos_sin[2 * j + 1] = sign * (fine_sin * c + fine_cos * s);
    }
}

/* Turns one head of dim channels in place; x may be the keys of a token or a query. */
LW_INLINE void rope_turns_apply(const RopeTurns *turns, const float *__restrict__ cos_sin, uint32_t dim, float *x)
{
    const uint32_t n_pairs = turns->n_pairs;
    float *__restrict__ pairs = x + dim - 2 * (size_t)n_pairs;
    for (size_t j = 0; j < n_pairs; j++) {
        float c = cos_sin[2 * j], s = cos_sin[2 * j + 1], x0 = pairs[2 * j], x1 = pairs[2 * j + 1];
        pairs[2 * j] = x0 * c - x1 * s;
        pairs[2 * j + 1] = x0 * s + x1 * c;
    }
}
