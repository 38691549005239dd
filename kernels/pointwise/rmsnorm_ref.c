/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pointwise/rmsnorm.h"

#include <math.h>
#include <stddef.h>

bool rmsnorm_ref(const RmsNormParams *params)
{
    for (uint32_t r = 0; r < params->n_rows; r++) {
        const float *x = params->x + (size_t)r * params->n;
        float *y = params->y + (size_t)r * params->n;
        double sum = 0;
        for (uint32_t i = 0; i < params->n; i++) sum += (double)x[i] * x[i];
        float scale = (float)(1.0 / sqrt(sum / params->n + params->eps));
        for (uint32_t i = 0; i < params->n; i++) y[i] = x[i] * scale * params->weight[i];
    }
    return true;
}
