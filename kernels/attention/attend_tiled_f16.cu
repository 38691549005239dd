/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/attend_tiled.cuh"

bool attend_tiled_f16(const AttendParams &params, Stream stream)
{
    return launch_tiled_type<KV_F16>(params, stream);
}
