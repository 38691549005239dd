/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences whose keys and values lie in shuffled pages, once in host memory for the reference and once on the device,
 * for tests of CUDA attention. Memory that was never written reads as NaN. One thread; ends the program on an error.
 */
#pragma once
#include "kernels/table.h"

#include <cuda_runtime_api.h>

enum { WORLD_MAX_SEQS = 72, WORLD_MAX_HEADS = 32, WORLD_MAX_CLASSES = 2, WORLD_GUARD = 16 };

typedef struct WorldSeq {
    uint32_t first_pos, n_rows; /* the batch's rows; every earlier position is context */
    bool is_split;
} WorldSeq;

typedef struct WorldShape {
    KvType types[WORLD_MAX_CLASSES]; /* of classes; KV head h is of class h % n_classes */
    uint32_t n_classes, n_heads, n_kv_heads, dim;
    const WorldSeq *seqs;
    uint32_t n_seqs;
    uint32_t page_offset; /* the device's page numbers are the host's plus this */
    bool is_wild;         /* a few NaN and infinities among keys and values */
    bool has_bounds;      /* pages have room for key bounds */
} WorldShape;

typedef struct World {
    WorldShape shape;
    WorldSeq seqs[WORLD_MAX_SEQS];
    uint32_t n_rows, n_context;                /* of all sequences */
    float *k[2], *v[2], *q;                    /* [0]: context, [1]: the batch's rows */
    KvPool pools[WORLD_MAX_CLASSES][2];        /* stored, images */
    KvPool device_pools[WORLD_MAX_CLASSES][2]; /* base: of page 0, which may lie before what is allocated */
    char *device_memory[WORLD_MAX_CLASSES][2];
    size_t pool_bytes[WORLD_MAX_CLASSES][2];
    KvPages pages[WORLD_MAX_SEQS][WORLD_MAX_CLASSES];
    KvHead heads[WORLD_MAX_HEADS];
    AttnPlan plans[WORLD_MAX_SEQS][WORLD_MAX_HEADS];
    KvSpan spans[2][WORLD_MAX_SEQS]; /* of either pass */
    char *arena;                     /* device memory for what follows */
    size_t arena_used;
    KvSpan *device_spans[2];
    float *device_k[2], *device_v[2], *device_q, *device_out;
} World;

/* Plans are dense at first. */
World *world_new(const WorldShape *shape, uint64_t seed);
void world_free(World *world);
/* After a change of plans or of seqs' is_split: tells the device. */
void world_update(World *world);

/* Stores context and rows by the reference on the host, by the table on the device. */
void world_store(World *world, const KernelTable *table);
/* Copies the host's pages to the device instead. */
void world_copy(World *world);
/* Whether all pages hold the same bytes; text names the first that does not. */
bool world_same_pages(const World *world, char *text, size_t text_size);

AttendParams world_params(const World *world);
/* The batch [n_rows, n_heads, dim] on the device into out, whose guard must stay; seqs [first, end) only. */
bool world_attend(World *world, const KernelTable *table, uint32_t first, uint32_t end, float softcap,
                  bool is_deterministic, float *out);

void world_check(cudaError_t rc, const char *what);
void *world_must(void *p);
