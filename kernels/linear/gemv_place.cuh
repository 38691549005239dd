/* SPDX-License-Identifier: Apache-2.0 */
/* Where a tile of 16 rows of a product's weights lies, counted over all its outputs. */
#pragma once
#include "kernels/linear/gemv.h"

namespace lw
{

/* Of out[index], in rows of 16. */
struct Place {
    uint32_t index, tile;
};

__device__ __forceinline__ Place place_of(const GemvArgs &args, uint32_t tile)
{
    if (args.is_glu) return {tile % 2, tile / 2};
    uint32_t i = 0;
    while (i + 1 < args.n_out && tile >= args.out[i + 1].first_tile) i++;
    return {i, tile - args.out[i].first_tile};
}

__device__ __forceinline__ const char *tile_start(const GemvArgs &args, Place place)
{
    return args.out[place.index].w + (size_t)place.tile * args.tile_bytes;
}

} // namespace lw
