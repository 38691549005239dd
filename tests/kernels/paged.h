/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequence whose keys and values lie in pages, for tests of the attention kernels: random numbers, stored by the
 * reference in one piece; page numbers in no order. What was never written reads as NaN.
 */
#pragma once
#include "kernels/attention/attend.h"
#include "kernels/attention/kv_store.h"
#include "kernels/table.h"

enum { PAGED_MAX_HEADS = 80 };

typedef struct PagedShape {
    KvType type;
    uint32_t n_heads, n_kv_heads, k_dim, v_dim;
} PagedShape;

typedef struct Paged {
    PagedShape shape;
    KvPool pool, image_pool;
    KvPages pages;
    KvHead heads[PAGED_MAX_HEADS];
    AttnPlan plans[PAGED_MAX_HEADS]; /* all dense at first */
    uint32_t n_tokens, n_pages;
    uint32_t *numbers, *images; /* what pages points to */
    float *k, *v;               /* [n_tokens, n_kv_heads, dim] */
    float *q;                   /* [n_tokens, n_heads, k_dim] */
} Paged;

Paged *paged_new(PagedShape shape, uint32_t n_tokens, uint64_t seed);
void paged_free(Paged *paged);
void paged_set_plan(Paged *paged, AttnPlan plan); /* of every KV head */
KvSpan paged_span(const Paged *paged, uint32_t first_row, uint32_t n_rows, uint32_t first_pos);
KvStoreParams paged_store_params(const Paged *paged, const KvSpan *spans, uint32_t n_spans);

/* Runs the rows at positions [first_pos, first_pos + n_rows) as one span; the caller frees out [n_rows, n_heads,
 * v_dim]. */
typedef bool (*AttendFn)(const AttendParams *, Stream);
float *paged_attend(const Paged *paged, AttendFn attend, Stream stream, uint32_t first_pos, uint32_t n_rows);
size_t paged_out_floats(const Paged *paged, uint32_t n_rows);
