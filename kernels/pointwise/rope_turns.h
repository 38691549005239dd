/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotations by any number of tokens, to move stored keys (and queries) to other positions: the rotation by n tokens is
 * that by 256 * (n / 256) after that by n % 256, both read from tables whose angles were formed in fp64
 * (sparse-attention.md, decision 2). Channel order as in kernels/pointwise/rope.h. Immutable after rope_turns_fill.
 */
#pragma once
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
/* cos, sin of n tokens for each pair: [n_pairs, 2]; negative n turns back. */
void rope_turns_get(const RopeTurns *turns, int64_t n, float *ret_cos_sin);

#ifdef __cplusplus
}
#endif
