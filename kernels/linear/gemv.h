/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decode kernels of matmul: packed weights times 1 to 16 rows of x, for several outputs of one type in one launch.
 * Internal to kernels/linear; a row of gemv_kernels() for each type.
 */
#pragma once
#include "base/tensor.h"
#include "kernels/linear/operand.h"

namespace lw
{

enum {
    GEMV_MAX_TOKENS = 16,
    GEMV_MAX_RAW_TOKENS = 2,
    GEMV_MAX_STAGES = 4,
    GEMV_MAX_BUFFERS = 2,
    GEMV_WARPS = 8, /* of a block for up to 8 tokens */
    GEMV_WIDE_WARPS = 16,
    GEMV_BLOCKS = 2, /* a multiprocessor, for up to 8 tokens */
};
enum { GEMV_STATIC_BYTES = 1024 };                    /* of shared memory at most, besides what is asked for */
enum { GEMV_RED_STRIDE = 20, GEMV_X_PAD_BYTES = 64 }; /* both against bank conflicts */

struct GemvOut {
    const char *w; /* packed as device_layout.h says */
    float *y;
    const float *bias;
    size_t y_stride;
    uint32_t n_rows, first_tile;
    bool accumulate;
};

struct GemvArgs {
    GemvOut out[MATMUL_MAX_OUT];
    uint32_t n_out, n_tiles, n_units, n_tokens;
    uint32_t chunk_units;         /* columns of x that shared memory holds at a time, in units */
    uint32_t n_stages, n_buffers; /* units that a warp has in flight; buffers of sums */
    size_t tile_bytes;
    bool is_raw; /* x is still to be made from raw; then all of it fits and x, x_low and x_scale are not read */
    RowSource raw;
    const uint16_t *x, *x_low; /* [n_tokens, x_stride] binary16 or bfloat16; what rounding x left over, or NULL */
    const float *x_scale;      /* [n_tokens] or NULL */
    uint32_t x_stride;
};

using GemvKernel = void (*)(GemvArgs);

struct GemvRow {
    DType type;
    GemvKernel by_8, by_16; /* up to 8 tokens, up to 16; sums are formed in another order */
    uint32_t unit_cols, lane_bytes;
    bool is_split; /* wants x_low too */
};

/* The rows of one source file; n is set. */
const GemvRow *gemv_rows_32(uint32_t *n);
const GemvRow *gemv_rows_k(uint32_t *n);
const GemvRow *gemv_rows_float(uint32_t *n);

} // namespace lw
