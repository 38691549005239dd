/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"

enum { GRAIN = 16384 };

static void add_range(void *arg, uint32_t worker, size_t first, size_t end)
{
    (void)worker;
    const VectorAddParams *params = arg;
    size_t i = first;
    for (; i + LANES <= end; i += LANES)
        f32x16_store(params->z + i, f32x16_add(f32x16_load(params->x + i), f32x16_load(params->y + i)));
    for (; i < end; i++) params->z[i] = params->x[i] + params->y[i];
}

bool ISA(vector_add)(const VectorAddParams *params, Stream stream)
{
    VectorAddParams copy = *params;
    parallel_for(stream, params->n, GRAIN, add_range, &copy);
    return true;
}
