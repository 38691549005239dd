/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/paged.h"
#include "tests/support/weights.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SPARE_SLOTS = 1, SPARE_PAGES = 2 };

static void *must(void *p)
{
    cr_assert_not_null(p);
    return p;
}

static KvPool new_pool(const PagedShape *shape, KvType type, uint32_t n_pages)
{
    KvPool pool = {.layout = kv_layout(type, shape->k_dim, shape->v_dim)};
    size_t n_slots = shape->n_kv_heads + SPARE_SLOTS;
    pool.bounds_offset = n_slots * pool.layout.slot_bytes;
    pool.page_bytes = pool.bounds_offset + n_slots * (kv_bounds_bytes(shape->k_dim) + 63) / 64 * 64;
    pool.base = must(malloc(pool.page_bytes * n_pages + 1));
    memset(pool.base, 0xFF, pool.page_bytes * n_pages + 1);
    return pool;
}

static float *floats(uint64_t *seed, size_t n, float scale)
{
    float *x = must(malloc((n + 1) * sizeof *x));
    random_floats(seed, x, n, scale);
    return x;
}

static void make_turns(Paged *paged)
{
    uint32_t n_pairs = paged->shape.k_dim / 2;
    paged->turns = (RopeTurns){.n_pairs = n_pairs, .n_coarse = PAGED_MAX_TURN / ROPE_TURNS_FINE};
    paged->turns.theta = paged->theta = must(malloc((n_pairs + 1) * sizeof(double)));
    paged->turns.fine = paged->fine = must(malloc(((size_t)ROPE_TURNS_FINE * n_pairs + 1) * 2 * sizeof(float)));
    paged->turns.coarse = paged->coarse =
        must(malloc(((size_t)paged->turns.n_coarse * n_pairs + 1) * 2 * sizeof(float)));
    for (uint32_t j = 0; j < n_pairs; j++) paged->theta[j] = pow(1e4, -(double)(n_pairs - 1 - j) / n_pairs);
    rope_turns_fill(&paged->turns, paged->fine, paged->coarse);
}

Paged *paged_new(PagedShape shape, uint32_t n_tokens, uint64_t seed)
{
    Paged *paged = must(calloc(1, sizeof *paged));
    paged->shape = shape;
    paged->n_tokens = n_tokens;
    paged->n_pages = n_tokens / KV_PAGE_TOKENS + 1;
    bool is_quantised = kv_type_info(shape.type)->is_quantised;
    paged->pool = new_pool(&shape, shape.type, paged->n_pages + SPARE_PAGES);
    paged->image_pool = new_pool(&shape, KV_BF16, is_quantised ? paged->n_pages + SPARE_PAGES : 0);
    paged->numbers = random_order(&seed, paged->n_pages + SPARE_PAGES);
    paged->images = random_order(&seed, paged->n_pages + SPARE_PAGES);
    paged->pages = (KvPages){.pool = &paged->pool,
                             .pages = paged->numbers,
                             .image_pool = is_quantised ? &paged->image_pool : NULL,
                             .images = is_quantised ? paged->images : NULL};
    paged->classes = &paged->pages;
    for (uint32_t h = 0; h < shape.n_kv_heads; h++) paged->heads[h].slot = shape.n_kv_heads - h;
    paged_set_plan(paged, (AttnPlan){.recent = PLAN_ALL});
    make_turns(paged);
    paged->k = floats(&seed, (size_t)n_tokens * shape.n_kv_heads * shape.k_dim, 1);
    paged->v = floats(&seed, (size_t)n_tokens * shape.n_kv_heads * shape.v_dim, 1);
    paged->q = floats(&seed, (size_t)n_tokens * shape.n_heads * shape.k_dim, 4);
    KvSpan all = paged_span(paged, 0, n_tokens, 0);
    KvStoreParams store = paged_store_params(paged, &all, 1);
    cr_assert(kv_store_ref(&store));
    return paged;
}

void paged_free(Paged *paged)
{
    free(paged->pool.base);
    free(paged->image_pool.base);
    free(paged->numbers);
    free(paged->images);
    free(paged->theta);
    free(paged->fine);
    free(paged->coarse);
    free(paged->k);
    free(paged->v);
    free(paged->q);
    free(paged);
}

void paged_set_plan(Paged *paged, AttnPlan plan)
{
    for (uint32_t h = 0; h < paged->shape.n_kv_heads; h++) paged->plans[h] = plan;
}

KvSpan paged_span(const Paged *paged, uint32_t first_row, uint32_t n_rows, uint32_t first_pos)
{
    return (KvSpan){.classes = paged->classes,
                    .heads = paged->heads,
                    .plans = paged->plans,
                    .first_row = first_row,
                    .n_rows = n_rows,
                    .first_pos = first_pos};
}

KvStoreParams paged_store_params(const Paged *paged, const KvSpan *spans, uint32_t n_spans)
{
    const PagedShape *s = &paged->shape;
    return (KvStoreParams){paged->k, paged->v, spans, n_spans, s->n_kv_heads, s->k_dim, s->v_dim};
}

size_t paged_out_floats(const Paged *paged, uint32_t n_rows)
{
    return (size_t)n_rows * paged->shape.n_heads * paged->shape.v_dim;
}

/* The queries of a batch, in its order. */
static float *gather_queries(const PagedRows *rows, uint32_t n, uint32_t n_rows)
{
    size_t row_floats = (size_t)rows->paged->shape.n_heads * rows->paged->shape.k_dim;
    float *q = must(malloc((n_rows * row_floats + 1) * sizeof *q)), *at = q;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(at, rows[i].paged->q + rows[i].first_pos * row_floats, rows[i].n_rows * row_floats * sizeof *q);
        at += rows[i].n_rows * row_floats;
    }
    return q;
}

float *paged_attend(const PagedRun *run, const PagedRows *rows, uint32_t n)
{
    const PagedShape *s = &rows->paged->shape;
    KvSpan *spans = must(calloc(n, sizeof *spans));
    uint32_t n_rows = 0, context = 0, dim = s->k_dim > s->v_dim ? s->k_dim : s->v_dim;
    for (uint32_t i = 0; i < n; i++) {
        spans[i] = paged_span(rows[i].paged, n_rows, rows[i].n_rows, rows[i].first_pos);
        n_rows += rows[i].n_rows;
        if (rows[i].first_pos + rows[i].n_rows > context) context = rows[i].first_pos + rows[i].n_rows;
    }
    uint32_t n_workers = run->stream.pool ? threads_count(run->stream.pool) : 1;
    float *q = gather_queries(rows, n, n_rows);
    AttendParams params = {.q = q,
                           .out = must(malloc((paged_out_floats(rows->paged, n_rows) + 1) * sizeof *q)),
                           .spans = spans,
                           .n_spans = n,
                           .n_heads = s->n_heads,
                           .n_kv_heads = s->n_kv_heads,
                           .k_dim = s->k_dim,
                           .v_dim = s->v_dim,
                           .scale = run->scale > 0 ? run->scale : 0.3f,
                           .softcap = run->softcap,
                           .lse = run->lse,
                           .turns = &rows->paged->turns,
                           .scratch = must(malloc(attend_scratch_bytes(n_workers, s->n_heads, dim, context)))};
    cr_assert(run->attend(&params, run->stream));
    free(params.scratch);
    free(q);
    free(spans);
    return params.out;
}
