/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pointwise/embed.h"

#include "kernels/launch.cuh"
#include "kernels/pointwise/elements.cuh"

namespace lw
{
namespace
{

constexpr unsigned kThreads = 256;

using EmbedKernel = void (*)(EmbedParams);

template <class Block>
__global__ void __launch_bounds__(kThreads) embed_rows(const __grid_constant__ EmbedParams params)
{
    grid_release();
    grid_wait();
    const uint32_t t = blockIdx.x;
    constexpr uint32_t kElements = Elements<Block>::kCount;
    const Block *row = (const Block *)params.table + (size_t)params.ids[t] * (params.n / kElements);
    float *y = params.y + (size_t)t * params.n;
    for (uint32_t i = threadIdx.x; i < params.n; i += kThreads)
        y[i] = Elements<Block>::at(row[i / kElements], i % kElements) * params.scale;
}

const struct {
    DType type;
    EmbedKernel kernel;
} rows[] = {
    {DTYPE_F32, embed_rows<float>},          {DTYPE_F16, embed_rows<__half>},
    {DTYPE_BF16, embed_rows<__nv_bfloat16>}, {DTYPE_Q4_0, embed_rows<BlockQ4_0>},
    {DTYPE_Q4_1, embed_rows<BlockQ4_1>},     {DTYPE_Q5_0, embed_rows<BlockQ5_0>},
    {DTYPE_Q5_1, embed_rows<BlockQ5_1>},     {DTYPE_Q8_0, embed_rows<BlockQ8_0>},
    {DTYPE_IQ4_NL, embed_rows<BlockIQ4_NL>}, {DTYPE_MXFP4, embed_rows<BlockMXFP4>},
    {DTYPE_Q2_K, embed_rows<BlockQ2_K>},     {DTYPE_Q3_K, embed_rows<BlockQ3_K>},
    {DTYPE_Q4_K, embed_rows<BlockQ4_K>},     {DTYPE_Q5_K, embed_rows<BlockQ5_K>},
    {DTYPE_Q6_K, embed_rows<BlockQ6_K>},     {DTYPE_IQ4_XS, embed_rows<BlockIQ4_XS>},
};

} // namespace
} // namespace lw

extern "C" bool embed_cuda(const EmbedParams *params, Stream stream)
{
    using namespace lw;
    for (const auto &row : rows) {
        if (row.type != params->type) continue;
        if (params->n_tokens == 0 || params->n == 0) return true;
        return launch(row.kernel, dim3(params->n_tokens), kThreads, 0, stream, *params);
    }
    return false;
}
