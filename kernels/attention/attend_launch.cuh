/* SPDX-License-Identifier: Apache-2.0 */
/* How attend.cu starts the kernels of one KV type, each compiled by itself. Rows of tables there. */
#pragma once
#include "kernels/attention/attend.h"

struct SplitArgs {
    AttendParams params;
    uint32_t *counters; /* [items]: finished parts; zeros between launches */
    float *parts;       /* [slots, part_queries, dim + ATTEND_SPLIT_STATS]: channels, maximum, sum */
    uint32_t part_queries, n_stages, ring_bytes;
};

enum {
    ATTEND_SPLIT_QUERIES = 16,
    ATTEND_SPLIT_DET_UNITS = 64,
    ATTEND_SPLIT_MAX_BLOCKS = 1024,
    ATTEND_SPLIT_STATS = 4, /* floats behind the channels of a part's query: 2, and 2 that keep pieces aligned */
};

/* tile_queries: 8 or 16. False: no variant for the shape, or a device error. */
bool attend_split_f16(const SplitArgs &args, uint32_t tile_queries, Stream stream);
bool attend_split_bf16(const SplitArgs &args, uint32_t tile_queries, Stream stream);
bool attend_split_f8(const SplitArgs &args, uint32_t tile_queries, Stream stream);
bool attend_split_int8(const SplitArgs &args, uint32_t tile_queries, Stream stream);
bool attend_split_int4(const SplitArgs &args, uint32_t tile_queries, Stream stream);

/* Compute capability 9.0, heads of 64 or 128 channels. */
bool attend_wgmma_f16(const AttendParams &params, Stream stream);
bool attend_wgmma_bf16(const AttendParams &params, Stream stream);

bool attend_tiled_f16(const AttendParams &params, Stream stream);
bool attend_tiled_bf16(const AttendParams &params, Stream stream);
bool attend_tiled_f8(const AttendParams &params, Stream stream);
bool attend_tiled_int8(const AttendParams &params, Stream stream);
bool attend_tiled_int4(const AttendParams &params, Stream stream);
