/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pointwise/glu.h"

#include <math.h>

static float silu(float x)
{
    return x / (1.0f + expf(-x));
}

static float gelu_tanh(float x)
{
    const float root_2_over_pi = 0.797884560802865356f;
    return 0.5f * x * (1.0f + tanhf(root_2_over_pi * (x + 0.044715f * x * x * x)));
}

bool glu_ref(const GluParams *params)
{
    float (*act)(float) = params->activation == GLU_SILU ? silu : gelu_tanh;
    for (size_t i = 0; i < params->n; i++) params->y[i] = act(params->gate[i]) * params->up[i];
    return true;
}
