/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decode kernels of matmul: packed weights times 1 to 16 rows of x, for several outputs of one type in one launch.
 * Internal to kernels/linear; a row of gemv_rows_*() for each type.
 */
#pragma once
#include "base/tensor.h"
#include "kernels/attention/attend.h"
#include "kernels/linear/device_layout.h"
#include "kernels/linear/operand.h"

namespace lw
{

enum {
    GEMV_MAX_TOKENS = 16,
    GEMV_MAX_RAW_TOKENS = 2,
    GEMV_MAX_RAW_COLS = 16384, /* half as many with a norm */
    GEMV_MAX_STAGES = 3,
    GEMV_DOT_TOKENS = 2, /* of gemv_dot.cuh */
    GEMV_DOT_STAGES = 12,
    GEMV_DOT_FEED_WARPS = 4,         /* of a block of gemv_dot.cuh, besides those that multiply */
    GEMV_DOT_BYTES_AHEAD = 72 << 10, /* of weights on their way to a block, about */
    GEMV_DOT_DEEP = 8,               /* units of a warp that come into the second-level cache while its ring is full, */
    GEMV_DOT_DEEP_CYCLES = 1500,     /* one in so many cycles */
    GEMV_CHAIN_LINKS = 20,
    GEMV_CHAIN_ATTENDS = 5,
    GEMV_ATTEND_PARTS = 4,      /* of a KV head's keys, each attended by a block */
    GEMV_ATTEND_ONE_KEYS = 256, /* up to so many are not parted */
    GEMV_ATTEND_KEYS = 2048,    /* up to so many are attended within a chain */
    GEMV_ATTEND_HEADS = 2,      /* queries of a warp at a time */
    GEMV_ATTEND_GROUP = 8,      /* queries of a KV head, at most */
    GEMV_MAX_BUFFERS = 2,
    GEMV_MAX_WARPS = 16,
    GEMV_PASS_TILES_8 = 2, /* of which a warp forms sums before it hands them over, up to 8 tokens; then 1 */
};
/* Of shared memory at most, besides what is asked for; of gemv_dot.cuh. */
enum { GEMV_STATIC_BYTES = 3072, GEMV_DOT_STATIC_BYTES = 6144 };
enum { GEMV_RED_STRIDE = 20, GEMV_X_PAD_BYTES = 64 }; /* both against bank conflicts */

struct GemvOut {
    const char *w; /* packed as device_layout.h says */
    float *y;
    const float *bias;
    size_t y_stride;
    uint32_t n_rows, first_tile;
    bool accumulate;
};

/*
 * Tiles are numbered over all outputs; with is_glu those of out[0] are the even ones and those of out[1] the odd ones.
 */
struct GemvArgs {
    GemvOut out[MATMUL_MAX_OUT];
    uint32_t n_out, n_tiles, n_units, n_tokens;
    uint32_t chunk_units;               /* columns of x that shared memory holds at a time, in units */
    uint32_t n_first;                   /* stages that are filled before x is asked for: more would delay it */
    uint32_t n_stages, n_buffers;       /* of a warp's ring; buffers of sums */
    uint32_t block_groups, more_blocks; /* tiles, or pairs with is_glu, of every block; so many have one more */
    size_t tile_bytes;
    size_t pass_step; /* from the tiles of a pass to those of the next */
    bool is_glu;      /* out[0].y takes activation(out[0]) * out[1]; up to 8 tokens */
    GluActivation activation;
    bool is_raw; /* x is still to be made from raw; then all of it fits and x, x_low and x_scale are not read */
    RowSource raw;
    const uint16_t *x, *x_low; /* [n_tokens, x_stride] binary16 or bfloat16; what rounding x left over, or NULL */
    const float *x_scale;      /* [n_tokens] or NULL */
    uint32_t x_stride;
    uint32_t x_bytes; /* gemv_dot: of a row of x in shared memory */
};

/* What blocks have shares of: tiles, or pairs of them. */
inline uint32_t gemv_groups(const GemvArgs &args)
{
    return args.n_tiles / (args.is_glu ? 2 : 1);
}

inline void gemv_share(GemvArgs *args, uint32_t n_blocks)
{
    args->block_groups = gemv_groups(*args) / n_blocks;
    args->more_blocks = gemv_groups(*args) % n_blocks;
}

using GemvKernel = void (*)(GemvArgs);

struct GemvForm {
    GemvKernel kernel;
    uint32_t n_warps, n_tiles; /* of a block; of a pass */
};

/*
 * What blocks of a chain hand each other lies in one of two sets of floats, each used once a kernel. All of a set are
 * GEMV_NOT_THERE before that, and none of the values is; a kernel clears the set that the one before it has used.
 */
constexpr uint32_t GEMV_NOT_THERE = 0xFFFFFFFFu, GEMV_NO_PLACE = 0xFFFFFFFFu;
enum { GEMV_SET_FLOATS = 1 << 20 };

struct GemvShared {
    uint32_t turn;    /* which set is next */
    uint32_t n_left;  /* blocks that have left the kernel */
    uint32_t used[2]; /* floats of the sets */
};

/* A product of a chain. Places are floats of the set, of all tokens one after the other. */
struct GemvLink {
    GemvArgs product;
    uint32_t x_at;     /* x, handed over by the link in front, or parts of the attention; or it lies in memory */
    uint32_t y_at;     /* results by tiles, pairs with is_glu: DEVICE_TILE_ROWS each; no place: nobody waits for them */
    uint32_t x_stride; /* from token to token, of x_at */
    uint32_t attend;   /* 1 + the attention between the link in front and this one; 0: there is none */
};

/* Attention of q, k, v in the results of the link in front. */
struct GemvAttend {
    AttendParams params;
    uint32_t n_parts; /* 1: results, [n_heads, dim]; else [n_parts, n_heads, dim] and [n_parts, n_heads, (max, sum)] */
    uint32_t qkv_at, qkv_stride, k_from, v_from; /* places of k and v behind q */
    uint32_t out_at, out_stride;
};

/* Parts that the keys of a KV head come in. */
inline uint32_t gemv_attend_parts(const AttendParams &params)
{
    return params.launch.most_keys <= GEMV_ATTEND_ONE_KEYS ? 1 : GEMV_ATTEND_PARTS;
}

/* Of shared memory: shares of warps, queries, the row's own key and value. */
inline size_t gemv_attend_bytes(const AttendParams &params)
{
    const size_t shares = (size_t)GEMV_MAX_WARPS * GEMV_ATTEND_HEADS * (params.k_dim + 2);
    return (shares + (GEMV_ATTEND_GROUP + 1) * params.k_dim) * sizeof(float);
}

/* Products of one type that follow one another, each of the one in front of it. */
struct GemvChain {
    GemvLink link[GEMV_CHAIN_LINKS];
    GemvAttend attend[GEMV_CHAIN_ATTENDS];
    uint32_t n_links, n_attends, n_floats; /* n_floats: of the set */
    uint32_t n_stages, n_on_their_way;     /* of each warp's ring; of them, while units come into them */
    uint32_t part_floats;                  /* of each of two buffers of parts */
    uint32_t links_at, x_at;               /* where links, and rows of x, are in shared memory */
    GemvShared *shared;
    float *sets; /* [2, GEMV_SET_FLOATS] */
};

using GemvChainKernel = void (*)(GemvChain);

/* The kernels for 1 and 2 tokens that come as RowSource. */
struct GemvDot {
    GemvChainKernel kernel[GEMV_DOT_TOKENS];
    uint32_t n_warps;               /* that multiply */
    uint32_t unit_cols, unit_bytes; /* of a stage of a warp's ring */
    uint32_t block_bytes;           /* of 32 columns of x in shared memory */
};

struct GemvRow {
    DType type;
    GemvForm by_8, by_16; /* up to 8 tokens, up to 16; sums are formed in another order */
    GemvDot dot;
    uint32_t unit_cols, unit_bytes;
    bool is_split; /* wants x_low too */
};

/* The kernels for 17 to 64 tokens, of gemv_wide.cuh. */
struct GemvWideRow {
    DType type;
    struct {
        GemvKernel kernel;
        uint32_t n_tokens, sum_bytes; /* at most; of shared memory, besides n_stages of stage_bytes */
    } form[2];                        /* the smaller one first */
    uint32_t n_threads, stage_bytes, unit_cols;
};

/* May a kernel take it? Then it goes behind those that wait, or to the stream. False: the launch failed. */
bool gemv_chain_fits(const GemvRow *row, const GemvArgs &args);
bool gemv_chain_add(const GemvRow *row, const GemvArgs &args, Stream stream);
/* False: a chain is not where this attention can be, and nothing has happened. */
bool gemv_chain_attend(const AttendParams &params, Stream stream);

/* The rows of one source file; n is set. */
const GemvRow *gemv_rows_32(uint32_t *n);
const GemvRow *gemv_rows_k(uint32_t *n);
const GemvRow *gemv_rows_float(uint32_t *n);
const GemvWideRow *gemv_wide_rows_32(uint32_t *n);
const GemvWideRow *gemv_wide_rows_k(uint32_t *n);

} // namespace lw
