/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/turn_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 77 };

static float *upload(const float *x, size_t n)
{
    void *p = NULL;
    world_check(cudaMalloc(&p, n * sizeof *x), "allocating");
    world_check(cudaMemcpy(p, x, n * sizeof *x, cudaMemcpyHostToDevice), "copying");
    return p;
}

static float *make_angles(uint32_t n_rows, uint32_t n_pairs)
{
    float *x = world_must(malloc((size_t)n_rows * n_pairs * 2 * sizeof *x));
    for (size_t i = 0; i < (size_t)n_rows * n_pairs; i++) {
        x[2 * i] = cosf((float)(i % 1009));
        x[2 * i + 1] = sinf((float)(i % 1009));
    }
    float *device = upload(x, (size_t)n_rows * n_pairs * 2);
    free(x);
    return device;
}

static float *make_norm(uint32_t dim)
{
    float *x = world_must(malloc(dim * sizeof *x));
    for (uint32_t i = 0; i < dim; i++) x[i] = 0.5f + (float)(i % 7) / 8;
    float *device = upload(x, dim);
    free(x);
    return device;
}

static bool turn_apart(const KernelTable *table, const World *world, const KvTurn *turn, float *x, uint32_t n_heads,
                       const float *weight)
{
    const RmsNormParams norm = {x, weight, x, world->n_rows * n_heads, world->shape.dim, turn->norm_eps};
    const RopeParams rope = {x, turn->cos_sin, world->n_rows, n_heads, world->shape.dim, turn->n_pairs};
    return (!weight || table->rmsnorm(&norm, (Stream){0})) && table->rope(&rope, (Stream){0});
}

/* The batch's rows, whose context stays unwritten. */
static bool store_rows(const KernelTable *table, const World *world, const KvTurn *turn)
{
    const WorldShape *s = &world->shape;
    KvStoreParams params = {.k = world->device_k[1],
                            .v = world->device_v[1],
                            .spans = world->device_spans[1],
                            .n_spans = s->n_seqs,
                            .n_kv_heads = s->n_kv_heads,
                            .k_dim = s->dim,
                            .v_dim = s->dim,
                            .turn = *turn,
                            .launch = {.types = 1u << s->types[0], .tiled_rows = world->n_rows, .is_early = true}};
    return table->kv_store(&params, (Stream){0});
}

static bool same_memory(const void *a, const void *b, size_t n)
{
    char *x = world_must(malloc(n)), *y = world_must(malloc(n));
    world_check(cudaMemcpy(x, a, n, cudaMemcpyDeviceToHost), "copying");
    world_check(cudaMemcpy(y, b, n, cudaMemcpyDeviceToHost), "copying");
    bool is_same = !memcmp(x, y, n);
    free(x);
    free(y);
    return is_same;
}

bool turn_check(const KernelTable *table, const WorldShape *shape, uint32_t n_pairs, bool has_norms, char *text,
                size_t text_size)
{
    World *apart = world_new(shape, SEED), *fused = world_new(shape, SEED);
    KvTurn turn = {.q = fused->device_q,
                   .cos_sin = make_angles(fused->n_rows, n_pairs),
                   .q_norm = has_norms ? make_norm(shape->dim) : NULL,
                   .k_norm = has_norms ? make_norm(shape->dim) : NULL,
                   .norm_eps = 1e-5f,
                   .n_heads = shape->n_heads,
                   .n_pairs = n_pairs};
    bool good = turn_apart(table, apart, &turn, apart->device_q, shape->n_heads, turn.q_norm) &&
                turn_apart(table, apart, &turn, apart->device_k[1], shape->n_kv_heads, turn.k_norm) &&
                store_rows(table, apart, &(KvTurn){0}) && store_rows(table, fused, &turn);
    world_check(cudaDeviceSynchronize(), "kv_store");
    snprintf(text, text_size, "a launch failed");
    for (int i = 0; good && i < 2; i++) {
        snprintf(text, text_size, "pages differ, images %d", i);
        good = !apart->device_memory[0][i] ||
               same_memory(apart->device_memory[0][i], fused->device_memory[0][i], apart->pool_bytes[0][i]);
    }
    if (good) {
        snprintf(text, text_size, "queries differ");
        size_t n = (size_t)apart->n_rows * shape->n_heads * shape->dim;
        good = same_memory(apart->device_q, fused->device_q, n * sizeof(float));
    }
    cudaFree((void *)(uintptr_t)turn.cos_sin);
    cudaFree((void *)(uintptr_t)turn.q_norm);
    cudaFree((void *)(uintptr_t)turn.k_norm);
    world_free(apart);
    world_free(fused);
    return good;
}
