/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/paged_world.h"
#include "tests/support/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BYTES = 32 << 20 };

void world_check(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess) return;
    printf("FAILED: %s: %s\n0 passed, 1 failed\n", what, cudaGetErrorString(rc));
    exit(1);
}

void *world_must(void *p)
{
    if (p) return p;
    printf("FAILED: out of memory\n0 passed, 1 failed\n");
    exit(1);
}

static void *device_new(size_t bytes)
{
    void *p = NULL;
    world_check(cudaMalloc(&p, bytes), "allocating");
    return p;
}

static void *on_device(World *world, const void *x, size_t bytes)
{
    char *to = world->arena + world->arena_used;
    if (world->arena_used + bytes + 64 > ARENA_BYTES) world_must(NULL);
    world->arena_used += (bytes + 63) / 64 * 64;
    world_check(cudaMemcpy(to, x, bytes, cudaMemcpyHostToDevice), "copying descriptors");
    return to;
}

static uint32_t slots_of(const WorldShape *shape)
{
    return (shape->n_kv_heads + shape->n_classes - 1) / shape->n_classes + 1; /* one that nothing is written to */
}

static void new_pool(World *world, uint32_t class, bool is_image, uint32_t n_pages)
{
    const WorldShape *shape = &world->shape;
    KvType type = is_image ? KV_BF16 : shape->types[class];
    KvPool pool = {.layout = kv_layout(type, shape->dim, shape->dim)};
    pool.page_bytes = slots_of(shape) * pool.layout.slot_bytes;
    if (shape->has_bounds && !is_image) {
        pool.bounds_offset = pool.page_bytes;
        pool.page_bytes += slots_of(shape) * kv_bounds_bytes(shape->dim);
    }
    size_t bytes = pool.page_bytes * n_pages;
    pool.base = world_must(malloc(bytes + 1));
    memset(pool.base, 0xFF, bytes);
    world->pools[class][is_image] = pool;
    world->pool_bytes[class][is_image] = bytes;
    char *memory = device_new(bytes + 1);
    world_check(cudaMemset(memory, 0xFF, bytes), "clearing pages");
    world->device_memory[class][is_image] = memory;
    pool.base = (char *)((uintptr_t)memory - (uintptr_t)shape->page_offset * pool.page_bytes);
    world->device_pools[class][is_image] = pool;
}

/* Page numbers of all sequences in one class come from one shuffled list. */
static void new_pages(World *world, uint32_t class, uint64_t *seed)
{
    uint32_t n_pages = 0;
    bool is_quantised = kv_type_info(world->shape.types[class])->is_quantised;
    for (uint32_t s = 0; s < world->shape.n_seqs; s++)
        n_pages += (world->seqs[s].first_pos + world->seqs[s].n_rows) / KV_PAGE_TOKENS + 1;
    new_pool(world, class, false, n_pages + 2);
    if (is_quantised) new_pool(world, class, true, n_pages + 2);
    uint32_t *numbers = random_order(seed, n_pages + 2),
             *images = is_quantised ? random_order(seed, n_pages + 2) : NULL;
    for (uint32_t s = 0, at = 0; s < world->shape.n_seqs; s++) {
        world->pages[s][class] = (KvPages){.pool = &world->pools[class][0],
                                           .pages = numbers + at,
                                           .image_pool = is_quantised ? &world->pools[class][1] : NULL,
                                           .images = is_quantised ? images + at : NULL};
        at += (world->seqs[s].first_pos + world->seqs[s].n_rows) / KV_PAGE_TOKENS + 1;
    }
}

static float *floats(uint64_t *seed, size_t n, float scale)
{
    float *x = world_must(malloc((n + 1) * sizeof *x));
    random_floats(seed, x, n, scale);
    return x;
}

static float *floats_on_device(const float *x, size_t n)
{
    float *to = device_new((n + 1) * sizeof *to);
    world_check(cudaMemcpy(to, x, n * sizeof *x, cudaMemcpyHostToDevice), "copying");
    return to;
}

static void put_wild(float *x, size_t n, size_t every)
{
    static const float wild[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = every / 2, j = 0; i < n; i += every, j++) x[i] = wild[j % 3];
}

static void new_data(World *world, uint64_t *seed)
{
    const WorldShape *shape = &world->shape;
    uint32_t rows[2] = {world->n_context, world->n_rows};
    for (int pass = 0; pass < 2; pass++) {
        size_t n = (size_t)rows[pass] * shape->n_kv_heads * shape->dim;
        world->k[pass] = floats(seed, n, 1);
        world->v[pass] = floats(seed, n, 1);
        if (shape->is_wild) put_wild(world->k[pass], n, 130003);
        if (shape->is_wild) put_wild(world->v[pass], n, 20011);
        world->device_k[pass] = floats_on_device(world->k[pass], n);
        world->device_v[pass] = floats_on_device(world->v[pass], n);
    }
    size_t n = (size_t)world->n_rows * shape->n_heads * shape->dim;
    world->q = floats(seed, n, 4);
    world->device_q = floats_on_device(world->q, n);
    world->device_out = device_new((n + WORLD_GUARD) * sizeof(float));
}

World *world_new(const WorldShape *shape, uint64_t seed)
{
    World *world = world_must(calloc(1, sizeof *world));
    world->shape = *shape;
    world->arena = device_new(ARENA_BYTES);
    memcpy(world->seqs, shape->seqs, shape->n_seqs * sizeof *shape->seqs);
    for (uint32_t h = 0; h < shape->n_kv_heads; h++)
        world->heads[h] = (KvHead){h % shape->n_classes, slots_of(shape) - 1 - h / shape->n_classes};
    for (uint32_t s = 0; s < shape->n_seqs; s++) {
        for (uint32_t h = 0; h < shape->n_kv_heads; h++) world->plans[s][h].recent = PLAN_ALL;
        world->spans[0][s] = (KvSpan){.first_row = world->n_context, .n_rows = world->seqs[s].first_pos};
        world->spans[1][s] = (KvSpan){
            .first_row = world->n_rows, .n_rows = world->seqs[s].n_rows, .first_pos = world->seqs[s].first_pos};
        for (int pass = 0; pass < 2; pass++) {
            world->spans[pass][s].classes = world->pages[s];
            world->spans[pass][s].heads = world->heads;
            world->spans[pass][s].plans = world->plans[s];
        }
        world->n_context += world->seqs[s].first_pos;
        world->n_rows += world->seqs[s].n_rows;
    }
    for (uint32_t c = 0; c < shape->n_classes; c++) new_pages(world, c, &seed);
    new_data(world, &seed);
    world_update(world);
    return world;
}

void world_free(World *world)
{
    for (uint32_t c = 0; c < world->shape.n_classes; c++) {
        free((uint32_t *)world->pages[0][c].pages);
        free((uint32_t *)world->pages[0][c].images);
        for (int i = 0; i < 2; i++) {
            free(world->pools[c][i].base);
            cudaFree(world->device_memory[c][i]);
        }
    }
    for (int pass = 0; pass < 2; pass++) {
        free(world->k[pass]);
        free(world->v[pass]);
        cudaFree(world->device_k[pass]);
        cudaFree(world->device_v[pass]);
    }
    cudaFree(world->device_q);
    cudaFree(world->device_out);
    cudaFree(world->arena);
    free(world->q);
    free(world);
}

static const uint32_t *device_numbers(World *world, const uint32_t *numbers, uint32_t n)
{
    uint32_t *moved = world_must(malloc(n * sizeof *moved));
    for (uint32_t i = 0; i < n; i++) moved[i] = numbers[i] + world->shape.page_offset;
    const uint32_t *to = on_device(world, moved, n * sizeof *moved);
    free(moved);
    return to;
}

static const KvPages *device_pages(World *world, uint32_t s, KvPool *const pools[][2])
{
    KvPages pages[WORLD_MAX_CLASSES];
    uint32_t n = (world->seqs[s].first_pos + world->seqs[s].n_rows) / KV_PAGE_TOKENS + 1;
    for (uint32_t c = 0; c < world->shape.n_classes; c++) {
        pages[c] = world->pages[s][c];
        pages[c].pool = pools[c][0];
        pages[c].pages = device_numbers(world, pages[c].pages, n);
        if (!pages[c].images) continue;
        pages[c].image_pool = pools[c][1];
        pages[c].images = device_numbers(world, pages[c].images, n);
    }
    return on_device(world, pages, sizeof pages);
}

void world_update(World *world)
{
    const WorldShape *shape = &world->shape;
    KvPool *pools[WORLD_MAX_CLASSES][2];
    KvSpan spans[2][WORLD_MAX_SEQS];
    world->arena_used = 0;
    for (uint32_t c = 0; c < shape->n_classes; c++)
        for (int i = 0; i < 2; i++) pools[c][i] = on_device(world, &world->device_pools[c][i], sizeof(KvPool));
    const KvHead *heads = on_device(world, world->heads, sizeof world->heads);
    for (uint32_t s = 0; s < shape->n_seqs; s++) {
        AttnPlan plans[WORLD_MAX_HEADS];
        memcpy(plans, world->plans[s], sizeof plans);
        for (uint32_t h = 0; h < shape->n_kv_heads; h++)
            if (plans[h].n_list) plans[h].list = on_device(world, plans[h].list, plans[h].n_list * sizeof(uint32_t));
        for (uint32_t h = 0; h < shape->n_kv_heads; h++)
            if (plans[h].n_bands)
                plans[h].bands = on_device(world, plans[h].bands, plans[h].n_bands * sizeof(AttnBand));
        const KvPages *pages = device_pages(world, s, pools);
        const AttnPlan *device_plans = on_device(world, plans, sizeof plans);
        for (int pass = 0; pass < 2; pass++) {
            spans[pass][s] = world->spans[pass][s];
            spans[pass][s].classes = pages;
            spans[pass][s].heads = heads;
            spans[pass][s].plans = device_plans;
            spans[pass][s].is_split = pass == 1 && world->seqs[s].is_split;
        }
    }
    for (int pass = 0; pass < 2; pass++)
        world->device_spans[pass] = on_device(world, spans[pass], shape->n_seqs * sizeof **spans);
}

static KvLaunch launch_of(const World *world, uint32_t first, uint32_t end)
{
    KvLaunch launch = {.is_early = world->shape.n_seqs % 3 == 0};
    for (uint32_t c = 0; c < world->shape.n_classes; c++) launch.types |= 1u << world->shape.types[c];
    for (uint32_t s = first; s < end; s++) {
        const WorldSeq *seq = &world->seqs[s];
        for (uint32_t h = 0; h < world->shape.n_kv_heads; h++)
            launch.has_bands |= world->plans[s][h].n_bands > 0;
        if (!seq->is_split)
            launch.tiled_rows += seq->n_rows;
        else if (seq->n_rows > launch.split_rows)
            launch.split_rows = seq->n_rows;
    }
    return launch;
}

void world_store(World *world, const KernelTable *table)
{
    const WorldShape *s = &world->shape;
    for (int pass = 0; pass < 2; pass++) {
        KvStoreParams params = {.k = world->k[pass],
                                .v = world->v[pass],
                                .spans = world->spans[pass],
                                .n_spans = s->n_seqs,
                                .n_kv_heads = s->n_kv_heads,
                                .k_dim = s->dim,
                                .v_dim = s->dim};
        if (!kv_store_ref(&params)) world_must(NULL);
        params.k = world->device_k[pass];
        params.v = world->device_v[pass];
        params.spans = world->device_spans[pass];
        params.launch = launch_of(world, 0, s->n_seqs);
        if (pass == 0) params.launch = (KvLaunch){.types = params.launch.types, .tiled_rows = world->n_context};
        if (!table->kv_store(&params, (Stream){0})) world_check(cudaErrorUnknown, "launching kv_store");
        world_check(cudaDeviceSynchronize(), "kv_store");
    }
}

void world_copy(World *world)
{
    for (uint32_t c = 0; c < world->shape.n_classes; c++)
        for (int i = 0; i < 2; i++)
            world_check(cudaMemcpy(world->device_memory[c][i], world->pools[c][i].base, world->pool_bytes[c][i],
                                   cudaMemcpyHostToDevice),
                        "copying pages");
}

bool world_same_pages(const World *world, char *text, size_t text_size)
{
    bool is_same = true;
    for (uint32_t c = 0; c < world->shape.n_classes; c++)
        for (int i = 0; i < 2; i++) {
            size_t n = world->pool_bytes[c][i], at = 0, bad = 0;
            const char *want = world->pools[c][i].base;
            char *got = world_must(malloc(n + 1));
            world_check(cudaMemcpy(got, world->device_memory[c][i], n, cudaMemcpyDeviceToHost), "copying pages");
            for (size_t b = n; b-- > 0;)
                if (got[b] != want[b]) {
                    at = b;
                    bad++;
                }
            if (bad) {
                snprintf(text, text_size, "class %u, images %d: %zu of %zu bytes differ, first %zu: %02x for %02x", c,
                         i, bad, n, at, got[at] & 0xFF, want[at] & 0xFF);
                is_same = false;
            }
            free(got);
        }
    return is_same;
}

AttendParams world_params(const World *world)
{
    const WorldShape *s = &world->shape;
    return (AttendParams){.q = world->q,
                          .spans = world->spans[1],
                          .n_spans = s->n_seqs,
                          .n_heads = s->n_heads,
                          .n_kv_heads = s->n_kv_heads,
                          .k_dim = s->dim,
                          .v_dim = s->dim,
                          .scale = 0.25f};
}

bool world_attend(World *world, const KernelTable *table, uint32_t first, uint32_t end, float softcap,
                  bool is_deterministic, float *out)
{
    static void *scratch;
    static size_t scratch_bytes;
    const WorldShape *s = &world->shape;
    size_t n = (size_t)world->n_rows * s->n_heads * s->dim;
    uint32_t split_rows = 0;
    for (uint32_t i = first; i < end; i++) split_rows += world->seqs[i].is_split ? world->seqs[i].n_rows : 0;
    size_t need = attend_cuda_scratch_bytes(split_rows, s->n_heads, s->n_kv_heads, s->dim, is_deterministic);
    if (need > scratch_bytes) {
        cudaFree(scratch);
        scratch = device_new(scratch_bytes = need);
        world_check(cudaMemset(scratch, 0, need), "clearing scratch");
    }
    AttendParams params = world_params(world);
    params.q = world->device_q;
    params.out = world->device_out;
    params.spans = world->device_spans[1] + first;
    params.n_spans = end - first;
    params.softcap = softcap;
    params.scratch = scratch;
    params.launch = launch_of(world, first, end);
    params.launch.is_deterministic = is_deterministic;
    world_check(cudaMemset(world->device_out, 0x7F, (n + WORLD_GUARD) * sizeof(float)), "clearing out");
    if (!table->attend(&params, (Stream){0})) return false;
    world_check(cudaDeviceSynchronize(), "attend");
    world_check(cudaMemcpy(out, world->device_out, (n + WORLD_GUARD) * sizeof(float), cudaMemcpyDeviceToHost),
                "copying out");
    for (size_t i = n; i < n + WORLD_GUARD; i++)
        if (((unsigned char *)out)[i * sizeof(float)] != 0x7F) return false;
    return true;
}
