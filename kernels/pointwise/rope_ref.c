/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pointwise/rope.h"

#include <math.h>
#include <stddef.h>

bool rope_table_ref(const RopeTableParams *params)
{
    const double two_pi = 6.283185307179586477;
    float *cos_sin = params->cos_sin;
    for (uint32_t t = 0; t < params->n_tokens; t++) {
        for (uint32_t j = 0; j < params->n_pairs; j++, cos_sin += 2) {
            double angle = remainder(params->positions[t] * params->theta[j], two_pi);
            cos_sin[0] = (float)cos(angle) * params->magnitude;
            cos_sin[1] = (float)sin(angle) * params->magnitude;
        }
    }
    return true;
}

bool rope_ref(const RopeParams *params)
{
    uint32_t first = params->head_dim - 2 * params->n_pairs;
    for (uint32_t t = 0; t < params->n_tokens; t++) {
        const float *cos_sin = params->cos_sin + (size_t)t * params->n_pairs * 2;
        for (uint32_t h = 0; h < params->n_heads; h++) {
            float *x = params->x + ((size_t)t * params->n_heads + h) * params->head_dim + first;
            for (uint32_t j = 0; j < params->n_pairs; j++) {
                float c = cos_sin[2 * j], s = cos_sin[2 * j + 1], x0 = x[2 * j], x1 = x[2 * j + 1];
                x[2 * j] = x0 * c - x1 * s;
                x[2 * j + 1] = x0 * s + x1 * c;
            }
        }
    }
    return true;
}
