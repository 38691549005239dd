/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/attend_split_kernel.cuh"

bool attend_split_int8(const SplitArgs &args, uint32_t tile_queries, Stream stream)
{
    return launch_split_type<KV_INT8>(args, tile_queries, stream);
}
