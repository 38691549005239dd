/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/attend_tiled.cuh"

bool attend_tiled_int8(const AttendParams &params, Stream stream)
{
    return launch_tiled_type<KV_INT8>(params, stream);
}
