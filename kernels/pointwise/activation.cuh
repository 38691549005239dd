/* SPDX-License-Identifier: Apache-2.0 */
/* The activations of glu.h on the device. */
#pragma once
#include "kernels/pointwise/glu.h"

namespace lw
{

/* A few units in the last place; ends of the range as in glu_ref. */
__device__ __forceinline__ float glu_value(GluActivation activation, float x)
{
    if (activation == GLU_SILU) return __fdividef(x, 1.0f + __expf(-x));
    const float root_2_over_pi = 0.797884560802865356f;
    float u = root_2_over_pi * (x + 0.044715f * x * x * x);
    return __fdividef(x, 1.0f + __expf(-2 * u)); /* 0.5 (1 + tanh u) = 1 / (1 + e^-2u) */
}

} // namespace lw
