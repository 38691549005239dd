/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary position embedding in longwave's channel order (ARCHITECTURE.md, KV fact 1): inside a head, channels without
 * rotation come first, then the pairs from the longest wavelength to the shortest, the two members adjacent. Pair j of
 * a head turns by position * theta[j]; theta is *effective* (llama3, YaRN or linear scaling applied). Angles are formed
 * in fp64 and reduced before cos and sin, since fp32 is off by 0.06 rad at a million tokens (sparse-attention decision
 * 1).
 *
 *   (x0, x1) -> (x0 cos - x1 sin, x0 sin + x1 cos)
 *
 * rope_table is run once a step, rope once a layer for q and k.
 */
#pragma once
#include "kernels/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct RopeTableParams {
    const double *theta;       /* [n_pairs] radians a token, ascending (longest wavelength first) */
    const uint32_t *positions; /* [n_tokens] */
    float *cos_sin;            /* [n_tokens, n_pairs, 2] */
    uint32_t n_tokens, n_pairs;
    float magnitude; /* YaRN attention factor multiplied into cos and sin; 1 otherwise */
} RopeTableParams;

typedef struct RopeParams {
    float *x;                                      /* [n_tokens, n_heads, head_dim], turned in place */
    const float *cos_sin;                          /* [n_tokens, n_pairs, 2] */
    uint32_t n_tokens, n_heads, head_dim, n_pairs; /* 2 * n_pairs <= head_dim */
} RopeParams;

bool rope_table_ref(const RopeTableParams *params);
bool rope_ref(const RopeParams *params);
bool rope_table_cuda(const RopeTableParams *params, Stream stream);
bool rope_cuda(const RopeParams *params, Stream stream);

#ifdef __cplusplus
}
#endif
