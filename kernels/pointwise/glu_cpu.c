/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"

#include <string.h>

enum { GRAIN_VECTORS = 512 };

SIMD_INLINE F32x16 silu(F32x16 x)
{
    const F32x16 one = f32x16_set1(1.0f);
    return f32x16_div(x, f32x16_add(one, f32x16_exp(f32x16_sub(f32x16_set1(0), x))));
}

/* 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)) */
SIMD_INLINE F32x16 gelu_tanh(F32x16 x)
{
    const F32x16 minus_2_root = f32x16_set1(-2 * 0.797884560802865356f);
    F32x16 cubic = f32x16_mul(f32x16_mul(x, x), f32x16_set1(0.044715f));
    F32x16 u = f32x16_madd(cubic, x, x);
    return f32x16_div(x, f32x16_add(f32x16_set1(1.0f), f32x16_exp(f32x16_mul(minus_2_root, u))));
}

SIMD_INLINE F32x16 gate_up(GluActivation activation, F32x16 gate, F32x16 up)
{
    return f32x16_mul(activation == GLU_SILU ? silu(gate) : gelu_tanh(gate), up);
}

static void run_range(void *arg, uint32_t worker, size_t first, size_t end)
{
    (void)worker;
    const GluParams *params = arg;
    size_t i = first * LANES, full = (params->n < end * LANES ? params->n : end * LANES) / LANES * LANES;
    for (; i < full; i += LANES)
        f32x16_store(params->y + i,
                     gate_up(params->activation, f32x16_load(params->gate + i), f32x16_load(params->up + i)));
    if (i < params->n && i < end * LANES) {
        float gate[LANES] = {0}, up[LANES] = {0}, y[LANES];
        size_t left = params->n - i;
        memcpy(gate, params->gate + i, left * sizeof *gate);
        memcpy(up, params->up + i, left * sizeof *up);
        f32x16_store(y, gate_up(params->activation, f32x16_load(gate), f32x16_load(up)));
        memcpy(params->y + i, y, left * sizeof *y);
    }
}

bool ISA(glu)(const GluParams *params, Stream stream)
{
    GluParams copy = *params;
    parallel_for(stream, (params->n + LANES - 1) / LANES, GRAIN_VECTORS, run_range, &copy);
    return true;
}
