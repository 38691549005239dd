/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/isa.h"
#include "kernels/linear/blocks.h"
#include "kernels/simd.h"

#include <math.h>

static float quantise_block(const float *x, uint32_t n, int8_t *q, int16_t *sums)
{
    I32x16 highest = i32x16_set1(0);
    for (uint32_t i = 0; i < n; i += LANES) highest = i32x16_max(highest, i32x16_magnitude(f32x16_load(x + i)));
    uint32_t max_bits = (uint32_t)i32x16_highest(highest);
    float max = float_from_bits(max_bits);
    bool finite = max_bits < 0x7F800000u, usable = finite && max >= 0x1p-100f;
    F32x16 inverse = f32x16_set1(usable ? 127.0f / max : 0.0f);
    for (uint32_t i = 0; i < n; i += LANES) {
        I32x16 rounded = usable ? i32x16_round(f32x16_mul(f32x16_load(x + i), inverse)) : i32x16_set1(0);
        i32x16_store_i8(q + i, rounded);
        sums[i / LANES] = (int16_t)i32x16_sum(rounded);
    }
    return usable ? max / 127.0f : finite ? 0.0f : NAN;
}

void ISA(activations_quantise)(const Activations *a, uint32_t t, const float *x)
{
    int8_t *q = a->q + (size_t)t * a->n_cols;
    uint32_t n_blocks = a->n_cols / a->block;
    size_t at = (size_t)t * n_blocks;
    for (uint32_t b = 0; b < n_blocks; b++, at++, x += a->block, q += a->block) {
        if (a->block == BLOCK_K) {
            a->d[at] = quantise_block(x, BLOCK_K, q, a->sums_16 + at * (BLOCK_K / 16));
            continue;
        }
        int16_t halves[2];
        float scale = quantise_block(x, BLOCK_32, q, halves);
        a->sums[at] = halves[0] + halves[1];
        a->s[at] = activations_round_scale(scale * (float)a->sums[at]);
        a->d[at] = activations_round_scale(scale);
    }
}
