/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequence whose keys and values lie in pages, for tests of the attention kernels: random numbers, stored by the
 * reference in one piece; page numbers in no order. What was never written reads as NaN. Pages have room for key
 * bounds, which nothing computes.
 */
#pragma once
#include "kernels/attention/attend.h"
#include "kernels/attention/kv_store.h"
#include "kernels/table.h"

enum { PAGED_MAX_HEADS = 80, PAGED_MAX_TURN = 1 << 17 };

typedef struct PagedShape {
    KvType type;
    uint32_t n_heads, n_kv_heads, k_dim, v_dim;
} PagedShape;

typedef struct Paged {
    PagedShape shape;
    KvPool pool, image_pool;
    KvPages pages;
    const KvPages *classes; /* what spans get: pages at first */
    KvHead heads[PAGED_MAX_HEADS];
    AttnPlan plans[PAGED_MAX_HEADS]; /* all dense at first */
    RopeTurns turns;                 /* of base 10000, to PAGED_MAX_TURN tokens */
    uint32_t n_tokens, n_pages;
    uint32_t *numbers, *images; /* what pages points to */
    float *k, *v;               /* [n_tokens, n_kv_heads, dim] */
    float *q;                   /* [n_tokens, n_heads, k_dim] */
    double *theta;              /* what turns points to */
    float *fine, *coarse;
} Paged;

Paged *paged_new(PagedShape shape, uint32_t n_tokens, uint64_t seed);
void paged_free(Paged *paged);
void paged_set_plan(Paged *paged, AttnPlan plan); /* of every KV head */
KvSpan paged_span(const Paged *paged, uint32_t first_row, uint32_t n_rows, uint32_t first_pos);
KvStoreParams paged_store_params(const Paged *paged, const KvSpan *spans, uint32_t n_spans);

/* The rows at positions [first_pos, first_pos + n_rows) of a sequence. */
typedef struct PagedRows {
    const Paged *paged;
    uint32_t first_pos, n_rows;
} PagedRows;

/* What a run varies. */
typedef struct PagedRun {
    bool (*attend)(const AttendParams *, Stream);
    Stream stream;
    float softcap;
    float scale; /* 0: 0.3 */
    float *lse;  /* [rows, n_heads] or NULL */
} PagedRun;

/* Runs a batch of sequences of one shape; the caller frees out [rows, n_heads, v_dim]. */
float *paged_attend(const PagedRun *run, const PagedRows *rows, uint32_t n);
size_t paged_out_floats(const Paged *paged, uint32_t n_rows);
