/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"

#include <string.h>

enum { GRAIN_VECTORS = 512 };

static void cap_range(void *arg, uint32_t worker, size_t first, size_t end)
{
    (void)worker;
    const SoftcapParams *params = arg;
    for (size_t i = first * LANES; i < end * LANES && i < params->n; i += LANES) {
        float lanes[LANES] = {0};
        size_t n = params->n - i < LANES ? params->n - i : LANES;
        memcpy(lanes, params->x + i, n * sizeof *lanes);
        f32x16_store(lanes, f32x16_softcap(f32x16_load(lanes), params->cap));
        memcpy(params->y + i, lanes, n * sizeof *lanes);
    }
}

bool ISA(softcap)(const SoftcapParams *params, Stream stream)
{
    SoftcapParams copy = *params;
    parallel_for(stream, (params->n + LANES - 1) / LANES, GRAIN_VECTORS, cap_range, &copy);
    return true;
}
