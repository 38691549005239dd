/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pointwise/rope_turns.h"

#include <math.h>

static void fill(const RopeTurns *turns, uint32_t n, uint32_t step, float *ret)
{
    const double two_pi = 6.283185307179586477;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < turns->n_pairs; j++, ret += 2) {
            double angle = remainder((double)i * step * turns->theta[j], two_pi);
            ret[0] = (float)cos(angle);
            ret[1] = (float)sin(angle);
        }
}

void rope_turns_fill(const RopeTurns *turns, float *ret_fine, float *ret_coarse)
{
    fill(turns, ROPE_TURNS_FINE, 1, ret_fine);
    fill(turns, turns->n_coarse, ROPE_TURNS_FINE, ret_coarse);
}
