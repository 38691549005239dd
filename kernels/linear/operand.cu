/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/operand.h"

#include "kernels/launch.cuh"

namespace lw
{
namespace
{

struct FillArgs {
    Operand to;
    RowSource from;
};

__device__ __forceinline__ void put_16(uint16_t *to, uint16_t *to_low, size_t at, uint2 high, uint2 low)
{
    *reinterpret_cast<uint2 *>(to + at) = high;
    if (to_low) *reinterpret_cast<uint2 *>(to_low + at) = low;
}

template <class Shape, RowWay kWay>
__global__ void __launch_bounds__(Shape::kThreads) fill(const __grid_constant__ FillArgs args)
{
    __shared__ RowSums of_warps[Shape::kWarps];
    grid_release();
    prefetch_weights(args.from);
    grid_wait();
    const size_t token = blockIdx.x;
    const Operand &to = args.to;
    auto put = [&](uint32_t c, float4 v, float factor) {
        size_t at = token * to.cols + c;
        uint2 high, low;
        if (to.full) *reinterpret_cast<float4 *>(to.full + at) = v;
        if (to.half) {
            split_4<false>(times(v, factor), &high, &low);
            put_16(to.half, to.half_low, at, high, low);
        }
        if (to.pieces) {
            const uint32_t lane = (uint32_t)token % 8 * 4 + c % 128 / 32, step = c / 128 * 4 + c % 32 / 8;
            split_4<false>(times(v, factor), &high, &low);
            put_16(to.pieces, nullptr, (((size_t)step * to.n_groups + token / 8) * 32 + lane) * 8 + c % 8, high, low);
        }
        if (to.bfloat) {
            split_4<true>(v, &high, &low);
            put_16(to.bfloat, to.bfloat_low, at, high, low);
        }
    };
    const RowFactors factors = convert_row_by<Shape, kWay>(args.from, token, to.cols, of_warps, put);
    if (threadIdx.x == 0) to.scale[token] = factors.scale;
}

bool is_float4(const void *p)
{
    return (uintptr_t)p % sizeof(float4) == 0;
}

/* Whether a block of NormShape can make the row in its registers, without a gate. */
bool is_held(const RowSource &source)
{
    return source.is_aligned && !source.up && source.n_cols <= NormShape::kHeldCols;
}

} // namespace

RowSource operand_source(const MatmulParams *params)
{
    RowSource source = {params->x,      params->glu_up,   params->norm_weight,    params->x_stride,
                        params->n_cols, params->norm_eps, params->glu_activation, false};
    source.is_aligned = params->n_cols % 4 == 0 && params->x_stride % 4 == 0 && is_float4(params->x) &&
                        is_float4(params->glu_up) && is_float4(params->norm_weight);
    return source;
}

bool operand_fill(const MatmulParams *params, const Operand *operand, Stream stream)
{
    FillArgs args = {*operand, operand_source(params)};
    const dim3 grid(params->n_tokens);
    if (is_held(args.from)) return launch(fill<NormShape, RowWay::kHeld>, grid, NormShape::kThreads, 0, stream, args);
    if (args.from.up && args.from.is_aligned && operand->cols <= WideShape::kHeldCols)
        return launch(fill<WideShape, RowWay::kGate>, grid, WideShape::kThreads, 0, stream, args);
    return launch(fill<WideShape, RowWay::kAny>, grid, WideShape::kThreads, 0, stream, args);
}

} // namespace lw
