/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel order of a head (ARCHITECTURE.md, KV fact 1): channels without rotation first, then the rotary pairs from
 * the longest wavelength to the shortest, members adjacent. Computed once at load; any thread.
 */
#pragma once
#include "engine/model/family.h"

typedef struct RopeOrder {
    double *theta;    /* [rope_dim / 2] radians a token, ascending */
    uint32_t *source; /* [head_dim] row of the file's head that each channel comes from */
} RopeOrder;

/* Arrays come from the arena. gguf NULL: a named shape. */
LW_CHECK bool rope_order_make(const ModelShape *shape, const Gguf *gguf, Arena *arena, RopeOrder *ret_order,
                              Error *error);

/* Moves whole rows, head by head; row_bytes is that of a weight row, or sizeof(float) for a bias. */
void rope_order_apply(const RopeOrder *order, uint32_t head_dim, uint32_t n_heads, const void *src, size_t row_bytes,
                      void *dst);
