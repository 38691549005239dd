/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/gemm.cuh"

namespace lw
{
namespace
{

constexpr uint32_t kFewTokens = 64, kManyTokens = 128; /* of a tile of results */
constexpr size_t kAlign = 256;

size_t aligned(size_t n)
{
    return (n + kAlign - 1) / kAlign * kAlign;
}

/* ---- x ---- */

struct GemmFill {
    GemmScratch to;
    RowSource from;
    uint32_t tile_tokens;
};

template <class Shape, RowWay kWay>
__global__ void __launch_bounds__(Shape::kThreads) gemm_fill_rows(const __grid_constant__ GemmFill args)
{
    __shared__ RowSums of_warps[Shape::kWarps];
    grid_release();
    prefetch_weights(args.from);
    grid_wait();
    const size_t token = blockIdx.x;
    const uint32_t cols = args.to.cols, tile_tokens = args.tile_tokens, in_tile = token % tile_tokens;
    const uint32_t stride = tile_tokens / 8 * GEMM_GROUP_BYTES; /* from 128 columns to the next */
    char *tile = args.to.x + (token - in_tile) * cols * sizeof(uint16_t);
    char *to = tile + in_tile / 8 * GEMM_GROUP_BYTES + in_tile % 8 * 16;
    auto put = [&](uint32_t c, float4 v, float factor) {
        uint2 pairs, rest;
        split_4<false>(times(v, factor), &pairs, &rest);
        char *at = to + c / GEMM_COLS * stride + c % 32 / 4 * 256 + c % GEMM_COLS / 32 * 4;
        *reinterpret_cast<uint32_t *>(at) = pairs.x;
        *reinterpret_cast<uint32_t *>(at + 128) = pairs.y;
    };
    const RowFactors factors = convert_row_by<Shape, kWay>(args.from, token, cols, of_warps, put);
    if (threadIdx.x == 0) args.to.scale[token] = factors.scale;
    if (token > 0) return;
    for (uint32_t i = threadIdx.x; i < MATMUL_MAX_OUT * GEMM_COUNTERS; i += Shape::kThreads) args.to.counters[i] = 0;
}

template <class Shape, RowWay kWay> bool run_fill(const GemmFill &args, uint32_t n_tokens, Stream stream)
{
    return launch(gemm_fill_rows<Shape, kWay>, dim3(n_tokens), Shape::kThreads, 0, stream, args);
}

/* ---- types ---- */

using GemmKernel = void (*)(GemmArgs);

struct GemmForm {
    GemmKernel kernel;
    uint32_t n_tokens, shared_bytes;
};

struct GemmTypeRow {
    DType type;
    GemmForm form[2]; /* the smaller one first; the larger one takes more than one tile's tokens */
};

template <class F, int kN> constexpr GemmForm gemm_form()
{
    return {gemm<F, kN>, kN, GemmStage<F, kN>::kStages * GemmStage<F, kN>::kBytes};
}

template <class F> constexpr GemmTypeRow gemm_row(DType type)
{
    return {type, {gemm_form<F, kFewTokens>(), gemm_form<F, kManyTokens>()}};
}

const GemmTypeRow rows[] = {
    gemm_row<Q8_0>(DTYPE_Q8_0),
    gemm_row<Q4_K>(DTYPE_Q4_K),
};

const GemmForm *form_of(DType type, uint32_t n_tokens)
{
    const DeviceFacts *facts = device_facts();
    if (!facts || !facts->has_group_products || 2 * facts->n_multiprocessors > GEMM_COUNTERS) return nullptr;
    for (const GemmTypeRow &row : rows)
        if (row.type == type) return &row.form[n_tokens > row.form[0].n_tokens];
    return nullptr;
}

} // namespace

bool gemm_takes(DType type, uint32_t n_tokens)
{
    return form_of(type, n_tokens) != nullptr;
}

size_t gemm_lay_out(char *start, size_t at, uint32_t n_tokens, uint32_t cols, GemmScratch *ret)
{
    const DeviceFacts *facts = device_facts();
    if (n_tokens > GEMM_MOST_TOKENS) n_tokens = GEMM_MOST_TOKENS;
    const size_t step = n_tokens > kFewTokens ? kManyTokens : kFewTokens, padded = (n_tokens + step - 1) / step * step;
    const size_t x = at, scale = x + aligned(padded * cols * sizeof(uint16_t));
    const size_t counters = scale + aligned(n_tokens * sizeof(float));
    const size_t parts = counters + aligned((size_t)MATMUL_MAX_OUT * GEMM_COUNTERS * sizeof(uint32_t));
    if (!facts || !facts->has_group_products || n_tokens <= GEMV_MAX_TOKENS) return at;
    if (ret)
        *ret = {start + x, (float *)(start + scale), (uint32_t *)(start + counters), (float *)(start + parts), cols};
    return parts + (size_t)facts->n_multiprocessors * 2 * GEMM_ROWS * step * sizeof(float);
}

bool gemm_fill(const MatmulParams *params, const GemmScratch &scratch, Stream stream)
{
    const GemmFill args = {scratch, operand_source(params), params->n_tokens > kFewTokens ? kManyTokens : kFewTokens};
    const bool is_held = args.from.is_aligned && scratch.cols <= WideShape::kHeldCols;
    if (is_held && !args.from.up && params->n_cols <= NormShape::kHeldCols)
        return run_fill<NormShape, RowWay::kHeld>(args, params->n_tokens, stream);
    if (is_held && args.from.up) return run_fill<WideShape, RowWay::kGate>(args, params->n_tokens, stream);
    if (is_held) return run_fill<WideShape, RowWay::kHeld>(args, params->n_tokens, stream);
    return run_fill<WideShape, RowWay::kAny>(args, params->n_tokens, stream);
}

namespace
{

/*
 * How many blocks share so many tiles of so many units: as many for each tile, or, where that leaves too many idle, all
 * of them without regard to where tiles end. Adding up takes about as long as some units do.
 */
uint32_t sharing_blocks(uint32_t n_tiles, uint32_t n_units, uint32_t n_blocks)
{
    constexpr uint32_t kAddUnits = 6, kAddTwiceUnits = 8;
    if (n_tiles == 0) return 1; /* of nothing */
    const uint32_t most = n_blocks / n_tiles, each = most < n_units ? most : n_units;
    const uint32_t even = (n_units + each - 1) / each + (each > 1 ? kAddUnits : 0);
    const uint64_t units = (uint64_t)n_tiles * n_units;
    if (even <= units / n_blocks + kAddTwiceUnits || units < n_blocks) return n_tiles * each;
    return n_blocks;
}

} // namespace

bool gemm_run(DType type, const GemvArgs &product, const GemmScratch &scratch, uint32_t index, Stream stream)
{
    const DeviceFacts *facts = device_facts();
    const GemmForm *form = form_of(type, product.n_tokens);
    if (!facts || !form) return false;
    if (product.n_tiles == 0) return true;
    GemmArgs args = {product, scratch, scratch.counters + index * GEMM_COUNTERS, 0, 0, 0, 0, 0};
    args.product.x_scale = scratch.scale;
    args.n_row_tiles = (product.n_tiles + kGemmTiles - 1) / kGemmTiles;
    args.n_token_tiles = (product.n_tokens + form->n_tokens - 1) / form->n_tokens;
    args.n_tiles = args.n_row_tiles * args.n_token_tiles;
    args.n_parted = args.n_tiles % facts->n_multiprocessors;
    args.n_sharing = sharing_blocks(args.n_parted, product.n_units, facts->n_multiprocessors);
    return launch(form->kernel, dim3(facts->n_multiprocessors), kGemmThreads, form->shared_bytes, stream, args);
}

bool gemm_prepare(Error *error)
{
    const DeviceFacts *facts = device_facts();
    if (!facts || !facts->has_group_products) return true;
    for (const GemmTypeRow &row : rows)
        for (const GemmForm &form : row.form) {
            cudaError_t rc = cudaFuncSetAttribute((const void *)form.kernel,
                                                  cudaFuncAttributeMaxDynamicSharedMemorySize, (int)form.shared_bytes);
            if (rc != cudaSuccess)
                return error_set_param(error, ERR_DEVICE, "device",
                                       "this build has no kernel for %s on this device: %s", dtype_name(row.type).text,
                                       cudaGetErrorString(rc));
        }
    return true;
}

} // namespace lw
