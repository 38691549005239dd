/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/isa.h"
#include "kernels/linear/block_values.h"
#include "kernels/parallel.h"

typedef struct MatmulJob {
    const MatmulParams *params;
    Activations by_32, by_256;      /* q is NULL where no output wants them */
    uint32_t block[MATMUL_MAX_OUT]; /* of the activations; 0: fp32 */
    uint32_t n_groups[MATMUL_MAX_OUT];
    uint32_t all_groups;
} MatmulJob;

static bool plan(const MatmulParams *params, MatmulJob *job)
{
    char *scratch = params->scratch;
    if (params->norm_weight || params->glu_up || params->is_gated) return false;
    *job = (MatmulJob){.params = params};
    for (uint32_t i = 0; i < params->n_out; i++) {
        const BlockFormat *format = block_format(params->out[i].type);
        if (!dtype_info(params->out[i].type)) return false;
        job->block[i] = format ? format->block : 0;
        job->n_groups[i] = (params->out[i].n_rows + MATMUL_GROUP_ROWS - 1) / MATMUL_GROUP_ROWS;
        job->all_groups += job->n_groups[i];
        if (job->block[i] == BLOCK_32) job->by_32 = activations_at(scratch, BLOCK_32, params->n_tokens, params->n_cols);
        if (job->block[i] == BLOCK_K) {
            char *behind = scratch + activations_bytes(BLOCK_32, params->n_tokens, params->n_cols);
            job->by_256 = activations_at(behind, BLOCK_K, params->n_tokens, params->n_cols);
        }
    }
    return true;
}

static void quantise_tokens(void *arg, uint32_t worker, size_t first, size_t end)
{
    (void)worker;
    const MatmulJob *job = arg;
    for (size_t t = first; t < end; t++) {
        const float *x = job->params->x + t * job->params->x_stride;
        if (job->by_32.q) ISA(activations_quantise)(&job->by_32, (uint32_t)t, x);
        if (job->by_256.q) ISA(activations_quantise)(&job->by_256, (uint32_t)t, x);
    }
}

static void multiply_group(const MatmulJob *job, uint32_t group, uint32_t t0, uint32_t n_tokens)
{
    uint32_t i = 0;
    while (group >= job->n_groups[i]) group -= job->n_groups[i++];
    const MatmulOut *out = &job->params->out[i];
    if (job->block[i] == 0)
        ISA(matmul_float)(job->params, out, group, t0, n_tokens);
    else
        ISA(matmul_quant)(out, group, job->block[i] == BLOCK_32 ? &job->by_32 : &job->by_256, t0, n_tokens);
}

/* Items are groups of rows, all of them for the first tile of tokens, then for the next. */
static void multiply_items(void *arg, uint32_t worker, size_t first, size_t end)
{
    (void)worker;
    const MatmulJob *job = arg;
    ISA(matmul_enter)(job->params->n_tokens);
    for (size_t item = first; item < end; item++) {
        uint32_t t0 = (uint32_t)(item / job->all_groups) * MATMUL_TILE_TOKENS;
        uint32_t left = job->params->n_tokens - t0;
        multiply_group(job, (uint32_t)(item % job->all_groups), t0,
                       left < MATMUL_TILE_TOKENS ? left : MATMUL_TILE_TOKENS);
    }
    ISA(matmul_leave)(job->params->n_tokens);
}

bool ISA(matmul)(const MatmulParams *params, Stream stream)
{
    enum { QUANTISE_GRAIN_COLS = 8192, MULTIPLY_GRAIN_WEIGHTS = 65536 };
    MatmulJob job;
    if (!plan(params, &job)) return false;
    size_t cols = params->n_cols ? params->n_cols : 1;
    if (job.by_32.q || job.by_256.q)
        parallel_for(stream, params->n_tokens, 1 + QUANTISE_GRAIN_COLS / cols, quantise_tokens, &job);
    size_t tiles = ((size_t)params->n_tokens + MATMUL_TILE_TOKENS - 1) / MATMUL_TILE_TOKENS;
    size_t grain = 1 + MULTIPLY_GRAIN_WEIGHTS / (cols * MATMUL_GROUP_ROWS * (params->n_tokens < 16 ? 1 : 16));
    parallel_for(stream, tiles * job.all_groups, grain, multiply_items, &job);
    return true;
}
