/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/attend_wgmma_rows.cuh"

bool attend_wgmma_f16(const AttendParams &params, Stream stream)
{
    return params.k_dim == 64 ? launch_wgmma<KV_F16, 64>(params, stream) : launch_wgmma<KV_F16, 128>(params, stream);
}

bool attend_wgmma_bf16(const AttendParams &params, Stream stream)
{
    return params.k_dim == 64 ? launch_wgmma<KV_BF16, 64>(params, stream) : launch_wgmma<KV_BF16, 128>(params, stream);
}
