/* SPDX-License-Identifier: Apache-2.0 */
/* F32 weights times rows of x in fp32: rare as matrices, so plain. Internal to kernels/linear. */
#pragma once
#include "kernels/stream.h"

#include <cstddef>
#include <cstdint>

namespace lw
{

struct GemvF32Args {
    const float *w; /* [n_rows, n_cols] */
    const float *x; /* [n_tokens, x_stride] */
    float *y;       /* [n_tokens, y_stride] */
    const float *bias;
    size_t y_stride;
    uint32_t x_stride, n_rows, n_cols, n_tokens; /* columns with their padding */
    bool accumulate;
};

bool gemv_f32_launch(const GemvF32Args *args, Stream stream);

} // namespace lw
