/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/bounds_check.h"
#include "tests/gpu/device_check.h"
#include "tests/gpu/paged_world.h"

#include <math.h>
#include <stdlib.h>

static const WorldSeq seqs[] = {{0, 64, 0},  {63, 1, 0},   {64, 1, 0},    {62, 5, 0},  {130, 16, 0},
                                {0, 129, 0}, {65, 64, 0},  {4000, 97, 0}, {127, 0, 0}, {15, 1, 0},
                                {511, 1, 0}, {128, 63, 0}, {127, 130, 0}};
enum { N_SEQS = sizeof seqs / sizeof *seqs, MAX_TOKENS = 1 << 13 };

/* The tables of a model's rotations, on the host or copied to the device. */
static RopeTurns new_turns(uint32_t n_pairs, RopeTurns *ret_device)
{
    uint32_t n_coarse = MAX_TOKENS / ROPE_TURNS_FINE + 2;
    double *theta = malloc(n_pairs * sizeof *theta);
    float *fine = malloc((size_t)ROPE_TURNS_FINE * n_pairs * 2 * sizeof *fine);
    float *coarse = malloc((size_t)n_coarse * n_pairs * 2 * sizeof *coarse);
    if (!theta || !fine || !coarse) exit(1);
    for (uint32_t j = 0; j < n_pairs; j++) theta[j] = pow(10000, -(double)(n_pairs - 1 - j) / n_pairs);
    RopeTurns turns = {theta, n_pairs, n_coarse, fine, coarse};
    rope_turns_fill(&turns, fine, coarse);
    *ret_device = turns;
    ret_device->fine = device_new(fine, (size_t)ROPE_TURNS_FINE * n_pairs * 2 * sizeof *fine);
    ret_device->coarse = device_new(coarse, (size_t)n_coarse * n_pairs * 2 * sizeof *coarse);
    return turns;
}

static void free_turns(RopeTurns turns, RopeTurns device)
{
    device_free((void *)(uintptr_t)device.fine);
    device_free((void *)(uintptr_t)device.coarse);
    free((void *)(uintptr_t)turns.theta);
    free((void *)(uintptr_t)turns.fine);
    free((void *)(uintptr_t)turns.coarse);
}

/* Of the context's pages, then of those that the rows fill. */
static bool bound_pass(World *world, const KernelTable *table, int pass, const RopeTurns *turns,
                       const RopeTurns *device)
{
    const WorldShape *s = &world->shape;
    KvBoundsParams params = {.spans = world->spans[pass],
                             .n_spans = s->n_seqs,
                             .n_kv_heads = s->n_kv_heads,
                             .k_dim = s->dim,
                             .turns = turns,
                             .n_layers = 1};
    for (uint32_t i = 0; i < s->n_seqs; i++)
        params.max_pages += kv_bounds_end_page(&params.spans[i]) - kv_bounds_first_page(&params.spans[i]);
    if (!kv_bounds_ref(&params)) return false;
    params.spans = world->device_spans[pass];
    params.turns = device;
    bool ran = table->kv_bounds(&params, (Stream){0});
    world_check(cudaDeviceSynchronize(), "kv_bounds");
    return ran;
}

static void check_shape(const KernelTable *table, KvType type, uint32_t dim, uint32_t n_pairs, bool is_wild)
{
    char text[300] = "the launch failed";
    const WorldShape shape = {.types = {type},
                              .n_classes = 1,
                              .n_heads = 3,
                              .n_kv_heads = 3,
                              .dim = dim,
                              .seqs = seqs,
                              .n_seqs = N_SEQS,
                              .is_wild = is_wild,
                              .has_bounds = true};
    World *world = world_new(&shape, dim + type);
    RopeTurns device, turns = new_turns(n_pairs, &device);
    world_store(world, table);
    bool good = bound_pass(world, table, 0, &turns, &device) && bound_pass(world, table, 1, &turns, &device) &&
                world_same_pages(world, text, sizeof text);
    device_report(good, "bounds of %s keys, %u channels, %u pairs%s: %s", kv_type_info(type)->name, dim, n_pairs,
                  is_wild ? ", wild" : "", text);
    free_turns(turns, device);
    world_free(world);
}

void check_bounds(const KernelTable *table)
{
    static const uint32_t dims[] = {64, 96, 128, 256};
    for (KvType type = KV_F16; type < KV_N_TYPES; type++)
        for (uint32_t d = 0; d < 4; d++) {
            check_shape(table, type, dims[d], dims[d] / 2, d % 2);
            check_shape(table, type, dims[d], dims[d] / 4, !(d % 2));
        }
}
