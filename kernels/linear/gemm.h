/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of more than 16 tokens with packed weights by products of warp groups, on compute capability 9.0 (gemm.cuh).
 * Internal to kernels/linear; a row of gemm.cu for each type.
 */
#pragma once
#include "kernels/linear/gemv.h"
#include "kernels/stream.h"

namespace lw
{

enum {
    GEMM_ROWS = 256, /* of weights, in a tile of results */
    GEMM_BAND = 16,  /* so many tiles of rows share the tokens that are in the second-level cache */
    GEMM_COLS = 128, /* of x, together for all tokens of a tile */
    GEMM_GROUP_BYTES = 8 * GEMM_COLS * sizeof(uint16_t), /* of those of 8 tokens */
    GEMM_COUNTERS = 512,
    GEMM_MOST_TOKENS = 2048, /* cuBLAS on weights made of 16 bits once is faster at 8,192 */
};

/* What lies in the scratch of matmul besides the other kernels' arrays. */
struct GemmScratch {
    char *x;            /* binary16 as products of warp groups read it: gemm.cuh */
    float *scale;       /* [n_tokens] undoes what the row was scaled with */
    uint32_t *counters; /* [MATMUL_MAX_OUT, GEMM_COUNTERS]: warp groups that have left their parts; gemm_fill zeroes */
    float *parts;       /* [blocks, 2, tile of results] */
    uint32_t cols;      /* of x, with the padding */
};

/* Tiles of results. The first n_parted are shared by all blocks, each of which has a run of their units; of the others
 * a block has every gridDim.x-th. */
struct GemmArgs {
    GemvArgs product;
    GemmScratch scratch;
    uint32_t *counters;
    uint32_t n_row_tiles, n_token_tiles, n_tiles, n_parted, n_sharing; /* n_sharing: blocks with a run */
};

/* Whether there is a kernel for this. */
bool gemm_takes(DType type, uint32_t n_tokens);
/* Lays the scratch out from start + at on, and returns where it ends: `at` where no kernel wants it. ret: or NULL. Of
 * more tokens than are taken, as of the most. */
size_t gemm_lay_out(char *start, size_t at, uint32_t n_tokens, uint32_t cols, GemmScratch *ret);
/* x after its norm or gate. */
bool gemm_fill(const MatmulParams *params, const GemmScratch &scratch, Stream stream);
/* All outputs of the type in product, which are the index-th of this x. */
bool gemm_run(DType type, const GemvArgs &product, const GemmScratch &scratch, uint32_t index, Stream stream);
/* Once, on the current device. */
bool gemm_prepare(Error *error);

} // namespace lw
