/* SPDX-License-Identifier: Apache-2.0 */
/* Packed weights to rows of bfloat16, for cuBLAS. Internal to kernels/linear. */
#pragma once
#include "base/tensor.h"
#include "kernels/stream.h"

#include <cstdint>

namespace lw
{

struct WidenArgs {
    const char *w; /* the first of n_tiles packed tiles */
    size_t tile_bytes;
    uint32_t n_tiles, n_units;
    uint16_t *y;       /* [16 n_tiles, y_stride] */
    uint32_t y_stride; /* columns with their padding */
};

using WidenKernel = void (*)(WidenArgs);

/* NULL: no row for this type. */
WidenKernel widen_kernel(DType type);
bool widen(WidenKernel kernel, const WidenArgs *args, Stream stream);

} // namespace lw
