/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which heads stream, by one number for each: gates that DuoAttention trained (LServe 3.3), or what `calibrate`
 * measured. Heads are in order of layer and KV head. Any thread.
 */
#pragma once
#include "base/error.h"
#include <stdint.h>

enum { GATES_MAX_FILE_BYTES = 4 << 20, GATES_MAX_NUMBER = 64 };

/*
 * Text of n bytes: a line for each layer, in it n_kv_heads numbers between tabs, which are clipped to [0, 1].
 * ret_gates: [n_layers, n_kv_heads]. An error names gates, line and column (its bytes count, both from 1).
 */
LW_CHECK bool gates_parse(const char *text, size_t n, uint32_t n_layers, uint32_t n_kv_heads, double *ret_gates,
                          Error *error);

/*
 * The heads whose score is below the quantile of all scores at this sparsity in [0, 1]; of equal scores the first ones
 * are. scores: [n], NaN: a head that never streams, and does not count; ret_streams: [n] 0 or 1.
 */
LW_CHECK bool heads_choose(const double *scores, uint32_t n, double sparsity, uint8_t *ret_streams, Error *error);
/* The order by which they go: ret_order [n] has the numbers of the heads that count, *ret_n. */
LW_CHECK bool heads_order(const double *scores, uint32_t n, uint32_t **ret_order, uint32_t *ret_n, Error *error);
