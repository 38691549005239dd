/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"

#include <math.h>

enum { GRAIN_ELEMENTS = 32768, PARTIAL_SUMS = 8 };

/* fp64 keeps squares of large outliers from swallowing the rest; eight chains hide the latency of the additions. */
static double sum_of_squares(const float *x, uint32_t n)
{
    double sum[PARTIAL_SUMS] = {0}, all = 0;
    uint32_t i = 0;
    for (; i + PARTIAL_SUMS <= n; i += PARTIAL_SUMS)
        for (int j = 0; j < PARTIAL_SUMS; j++) sum[j] += (double)x[i + (uint32_t)j] * x[i + (uint32_t)j];
    for (; i < n; i++) sum[0] += (double)x[i] * x[i];
    for (int j = 0; j < PARTIAL_SUMS; j++) all += sum[j];
    return all;
}

static void norm_rows(void *arg, uint32_t worker, size_t first, size_t end)
{
    (void)worker;
    const RmsNormParams *params = arg;
    uint32_t n = params->n;
    for (size_t r = first; r < end; r++) {
        const float *x = params->x + r * n;
        float *y = params->y + r * n;
        float scale = (float)(1.0 / sqrt(sum_of_squares(x, n) / n + params->eps));
        uint32_t i = 0;
        for (; i + LANES <= n; i += LANES) {
            F32x16 scaled = f32x16_mul(f32x16_load(x + i), f32x16_set1(scale));
            f32x16_store(y + i, f32x16_mul(scaled, f32x16_load(params->weight + i)));
        }
        for (; i < n; i++) y[i] = x[i] * scale * params->weight[i];
    }
}

bool ISA(rmsnorm)(const RmsNormParams *params, Stream stream)
{
    RmsNormParams copy = *params;
    parallel_for(stream, params->n_rows, 1 + GRAIN_ELEMENTS / (params->n + 1), norm_rows, &copy);
    return true;
}
