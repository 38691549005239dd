/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/isa.h"
#include "kernels/parallel.h"

enum { TABLE_GRAIN_ANGLES = 256, ROPE_GRAIN_PAIRS = 8192 };

static void table_rows(void *arg, uint32_t worker, size_t first, size_t end)
{
    (void)worker;
    RopeTableParams part = *(const RopeTableParams *)arg;
    part.positions += first;
    part.cos_sin += first * part.n_pairs * 2;
    part.n_tokens = (uint32_t)(end - first);
    (void)rope_table_ref(&part);
}

/* Once a step, so the exact angles of the reference cost nothing; only tokens are shared out. */
bool ISA(rope_table)(const RopeTableParams *params, Stream stream)
{
    RopeTableParams copy = *params;
    parallel_for(stream, params->n_tokens, 1 + TABLE_GRAIN_ANGLES / (params->n_pairs + 1), table_rows, &copy);
    return true;
}

static void turn_head(float *restrict x, const float *restrict cos_sin, uint32_t n_pairs)
{
    for (uint32_t j = 0; j < n_pairs; j++) {
        float c = cos_sin[2 * j], s = cos_sin[2 * j + 1], x0 = x[2 * j], x1 = x[2 * j + 1];
        x[2 * j] = x0 * c - x1 * s;
        x[2 * j + 1] = x0 * s + x1 * c;
    }
}

static void turn_rows(void *arg, uint32_t worker, size_t first, size_t end)
{
    (void)worker;
    const RopeParams *params = arg;
    uint32_t start = params->head_dim - 2 * params->n_pairs;
    for (size_t t = first; t < end; t++) {
        const float *cos_sin = params->cos_sin + t * params->n_pairs * 2;
        float *x = params->x + t * params->n_heads * params->head_dim + start;
        for (uint32_t h = 0; h < params->n_heads; h++, x += params->head_dim) turn_head(x, cos_sin, params->n_pairs);
    }
}

bool ISA(rope)(const RopeParams *params, Stream stream)
{
    RopeParams copy = *params;
    size_t pairs = (size_t)params->n_heads * params->n_pairs;
    parallel_for(stream, params->n_tokens, 1 + ROPE_GRAIN_PAIRS / (pairs + 1), turn_rows, &copy);
    return true;
}
