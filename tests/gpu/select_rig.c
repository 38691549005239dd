/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/select_rig.h"
#include "tests/support/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POOL_OFFSET = 64, MAX_DIM = 256 };

static void *must(void *p)
{
    if (p) return p;
    printf("FAILED: out of memory\n0 passed, 1 failed\n");
    exit(1);
}

static void *keep(Rig *rig, void *device)
{
    if (rig->n_owned == sizeof rig->owned / sizeof *rig->owned) must(NULL);
    return rig->owned[rig->n_owned++] = device;
}

static void *upload(Rig *rig, const void *x, size_t bytes)
{
    return keep(rig, device_new(x, bytes));
}

/* A record with bounds as of 16 keys of about 1, some wild. */
static void put_record(const Rig *rig, uint8_t *record, uint64_t *seed, uint32_t number)
{
    float max[MAX_DIM], min[MAX_DIM];
    const uint32_t dim = rig->shape.dim;
    float scale = rig->shape.is_wild && number % 7 == 3 ? 3000.0f : 1;
    for (uint32_t c = 0; c < dim; c++) {
        float middle = random_float(seed) * scale, half = fabsf(random_float(seed)) * scale;
        max[c] = middle + half;
        min[c] = middle - half;
    }
    if (rig->shape.is_wild && number % 1001 == 500) max[number % dim] = min[number % dim] = NAN;
    kv_bounds_put(record, dim, max, min);
}

static void fill_pool(Rig *rig, uint32_t n_pages, uint64_t *seed)
{
    const RigShape *s = &rig->shape;
    size_t slot = kv_bounds_bytes(s->dim), sector = kv_bounds_sector_bytes(s->dim);
    rig->pool = (KvPool){.layout = kv_layout(KV_BF16, s->dim, s->dim), .bounds_offset = POOL_OFFSET};
    rig->pool.page_bytes = POOL_OFFSET + s->n_kv_heads * slot;
    rig->pool.base = must(calloc(n_pages, rig->pool.page_bytes));
    uint8_t *first = (uint8_t *)rig->pool.base + POOL_OFFSET;
    size_t n_slots = (size_t)n_pages * s->n_kv_heads, n = 0;
    uint32_t n_records = s->n_records ? s->n_records : 4093; /* no multiple of anything that counts */
    uint8_t *records = must(malloc(n_records * sector));
    for (uint32_t i = 0; i < n_records; i++) put_record(rig, records + i * sector, seed, i);
    for (size_t i = 0; i < n_slots; i++) {
        uint8_t *to = first + i / s->n_kv_heads * rig->pool.page_bytes + i % s->n_kv_heads * slot;
        for (uint32_t k = 0; k < KV_PAGE_SECTORS; k++, n++) {
            size_t which = s->n_records ? (size_t)(fabsf(random_float(seed)) * (float)n_records) : n;
            memcpy(to + k * sector, records + which % n_records * sector, sector);
        }
    }
    free(records);
}

static void make_turns(Rig *rig)
{
    const uint32_t n_pairs = rig->shape.n_pairs, n_coarse = RIG_MAX_TOKENS / ROPE_TURNS_FINE + 2;
    double *theta = must(malloc((n_pairs + 1) * sizeof *theta));
    size_t n_fine = (size_t)ROPE_TURNS_FINE * n_pairs * 2, n_far = (size_t)n_coarse * n_pairs * 2;
    float *fine = must(malloc((n_fine + 1) * sizeof *fine)), *coarse = must(malloc((n_far + 1) * sizeof *coarse));
    for (uint32_t j = 0; j < n_pairs; j++)
        theta[j] = rig->shape.is_still ? 0 : pow(500000, -(double)(n_pairs - 1 - j) / n_pairs);
    rig->turns = (RopeTurns){theta, n_pairs, n_coarse, fine, coarse};
    rope_turns_fill(&rig->turns, fine, coarse);
    rig->device_turns = rig->turns;
    rig->device_turns.fine = upload(rig, fine, n_fine * sizeof *fine);
    rig->device_turns.coarse = upload(rig, coarse, n_far * sizeof *coarse);
}

/* As kv_store turns them, in fp64. */
static void turn_head(const Rig *rig, const float *raw, const float *norm, const float *angles, float *ret)
{
    const uint32_t dim = rig->shape.dim, first = dim - 2 * rig->shape.n_pairs;
    double sum = 0;
    for (uint32_t c = 0; c < dim; c++) sum += (double)raw[c] * raw[c];
    double scale = 1 / sqrt(sum / dim + 1e-5);
    for (uint32_t c = 0; c < dim; c++) ret[c] = (float)(raw[c] * scale * norm[c]);
    for (uint32_t c = first; c < dim; c += 2) {
        float cosine = angles[c - first], sine = angles[c - first + 1], x = ret[c], y = ret[c + 1];
        ret[c] = x * cosine - y * sine;
        ret[c + 1] = x * sine + y * cosine;
    }
}

static void make_queries(Rig *rig, uint64_t *seed)
{
    const RigShape *s = &rig->shape;
    const uint32_t n_heads = s->group * s->n_kv_heads;
    size_t n = (size_t)s->n_seqs * n_heads * s->dim;
    float *angles = must(malloc(((size_t)s->n_seqs * s->n_pairs * 2 + 1) * sizeof *angles)), norm[MAX_DIM];
    rig->raw = must(malloc(n * sizeof *rig->raw));
    rig->q = must(malloc(n * sizeof *rig->q));
    random_floats(seed, rig->raw, n, 2);
    for (uint32_t c = 0; c < s->dim; c++) norm[c] = 0.5f + (float)(c % 7) / 8;
    for (uint32_t i = 0; i < s->n_seqs; i++)
        for (uint32_t j = 0; j < s->n_pairs; j++) {
            double angle = remainder(rig->turns.theta[j] * s->seqs[i].n_tokens, 6.283185307179586477);
            angles[2 * ((size_t)i * s->n_pairs + j)] = (float)cos(angle);
            angles[2 * ((size_t)i * s->n_pairs + j) + 1] = (float)sin(angle);
        }
    if (s->is_wild) rig->raw[n / 2] = NAN;
    for (size_t i = 0; i < n / s->dim; i++)
        turn_head(rig, rig->raw + i * s->dim, norm, angles + i / n_heads * s->n_pairs * 2, rig->q + i * s->dim);
    rig->device_q = upload(rig, rig->q, n * sizeof *rig->q);
    rig->device_raw = upload(rig, rig->raw, n * sizeof *rig->raw);
    rig->turn = (KvTurn){.q = rig->device_raw,
                         .cos_sin = upload(rig, angles, (size_t)s->n_seqs * s->n_pairs * 2 * sizeof *angles),
                         .q_norm = upload(rig, norm, sizeof norm),
                         .norm_eps = 1e-5f,
                         .n_heads = n_heads,
                         .n_pairs = s->n_pairs};
    free(angles);
}

static uint32_t *list_at(const Rig *rig, uint32_t *lists, uint32_t s, uint32_t h)
{
    return lists + ((size_t)s * rig->shape.n_kv_heads + h) * rig->n_lists;
}

/* A span's descriptors with the addresses of either side. */
static void set_span(Rig *rig, uint32_t s, const KvPages *pages, const KvHead *heads, const AttnPlan *plans,
                     KvSpan *ret_span)
{
    *ret_span = (KvSpan){.classes = pages,
                         .heads = heads,
                         .plans = plans,
                         .first_row = s,
                         .n_rows = 1,
                         .first_pos = rig->shape.seqs[s].n_tokens,
                         .is_split = true};
}

static void make_plans(const Rig *rig, uint32_t s, uint32_t *lists, AttnPlan *ret)
{
    for (uint32_t h = 0; h < rig->shape.n_kv_heads; h++) {
        ret[h] = (AttnPlan){.sink = 64, .recent = 256};
        if (rig->shape.half_streams && h % 2) continue;
        ret[h].list = list_at(rig, lists, s, h);
        ret[h].n_list = rig->shape.seqs[s].job.n_keep * KV_PAGE_SECTORS;
    }
}

static void make_spans(Rig *rig, uint32_t n_pages, uint64_t *seed)
{
    const RigShape *s = &rig->shape;
    uint32_t *numbers = random_order(seed, n_pages), *device_numbers = upload(rig, numbers, n_pages * sizeof *numbers);
    KvPool device_pool = rig->pool;
    device_pool.base = upload(rig, rig->pool.base, rig->pool.page_bytes * n_pages);
    const KvPool *pool = upload(rig, &device_pool, sizeof device_pool);
    for (uint32_t h = 0; h < s->n_kv_heads; h++) rig->heads[h] = (KvHead){0, s->n_kv_heads - 1 - h};
    const KvHead *heads = upload(rig, rig->heads, sizeof rig->heads);
    static KvSpan spans[RIG_MAX_SEQS];
    static AttnPlan plans[RIG_MAX_SEQS][RIG_MAX_HEADS];
    static KvPages pages[RIG_MAX_SEQS];
    for (uint32_t i = 0, at = 0; i < s->n_seqs; i++) {
        rig->pages[i] = (KvPages){.pool = &rig->pool, .pages = numbers + at};
        pages[i] = (KvPages){.pool = pool, .pages = device_numbers + at};
        make_plans(rig, i, rig->lists, rig->plans[i]);
        make_plans(rig, i, rig->device_lists, plans[i]);
        at += s->seqs[i].n_tokens / KV_PAGE_TOKENS + 1;
    }
    const KvPages *device_pages = upload(rig, pages, sizeof pages);
    const AttnPlan *device_plans = upload(rig, plans, sizeof plans);
    SelectJob jobs[RIG_MAX_SEQS];
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        set_span(rig, i, &rig->pages[i], rig->heads, rig->plans[i], &rig->spans[i]);
        set_span(rig, i, device_pages + i, heads, device_plans + (size_t)i * RIG_MAX_HEADS, &spans[i]);
        jobs[i] = s->seqs[i].job;
    }
    rig->device_params.spans = upload(rig, spans, sizeof spans);
    rig->device_params.jobs = upload(rig, jobs, sizeof jobs);
}

Rig *rig_new(const RigShape *shape, uint64_t seed)
{
    Rig *rig = must(calloc(1, sizeof *rig));
    uint32_t n_pages = 0;
    rig->shape = *shape;
    rig->max_pages = 1;
    for (uint32_t i = 0; i < shape->n_seqs; i++) {
        n_pages += shape->seqs[i].n_tokens / KV_PAGE_TOKENS + 1;
        if (shape->seqs[i].job.n_pages > rig->max_pages) rig->max_pages = shape->seqs[i].job.n_pages;
    }
    rig->n_lists = 4 * rig->max_pages + 4;
    size_t n_words = (size_t)shape->n_seqs * shape->n_kv_heads * rig->n_lists;
    rig->lists = must(malloc(n_words * sizeof *rig->lists));
    for (size_t i = 0; i < n_words; i++) rig->lists[i] = RIG_GUARD;
    rig->device_lists = upload(rig, rig->lists, n_words * sizeof *rig->lists);
    fill_pool(rig, n_pages, &seed);
    make_turns(rig);
    make_queries(rig, &seed);
    make_spans(rig, n_pages, &seed);
    size_t bytes = select_scratch_bytes(shape->n_seqs + 1, shape->n_kv_heads, rig->max_pages);
    rig->device_scratch = keep(rig, device_new(NULL, bytes));
    device_check(cudaMemset(rig->device_scratch, 0, bytes), "clearing scratch");
    rig->scratch = must(malloc(select_ref_scratch_bytes(shape->group, shape->dim, rig->max_pages)));
    SelectParams params = rig_params(rig);
    params.q = rig->device_q;
    params.spans = rig->device_params.spans;
    params.jobs = rig->device_params.jobs;
    params.turns = &rig->device_turns;
    params.scratch = rig->device_scratch;
    rig->device_params = params;
    return rig;
}

SelectParams rig_params(const Rig *rig)
{
    static SelectJob jobs[RIG_MAX_SEQS];
    const RigShape *s = &rig->shape;
    for (uint32_t i = 0; i < s->n_seqs; i++) jobs[i] = s->seqs[i].job;
    return (SelectParams){.q = rig->q,
                          .spans = rig->spans,
                          .jobs = jobs,
                          .n_spans = s->n_seqs,
                          .n_heads = s->group * s->n_kv_heads,
                          .n_kv_heads = s->n_kv_heads,
                          .k_dim = s->dim,
                          .n_channels = scan_bounds_width(&rig->turns, s->dim),
                          .max_spans = s->n_seqs + 1,
                          .max_pages = rig->max_pages,
                          .turns = &rig->turns,
                          .scratch = rig->scratch,
                          .launch = {.is_early = s->n_seqs % 2 == 0}};
}

bool rig_run(Rig *rig, const KernelTable *table, bool is_raw, uint32_t *ret_lists)
{
    size_t bytes = (size_t)rig->shape.n_seqs * rig->shape.n_kv_heads * rig->n_lists * sizeof *ret_lists;
    memset(ret_lists, RIG_GUARD & 0xFF, bytes);
    device_check(cudaMemcpy(rig->device_lists, ret_lists, bytes, cudaMemcpyHostToDevice), "clearing lists");
    SelectParams params = rig->device_params;
    if (is_raw) {
        params.q = rig->device_raw;
        params.turn = rig->turn;
    }
    if (!table->select(&params, (Stream){0})) return false;
    device_check(cudaDeviceSynchronize(), "selecting");
    device_read(ret_lists, rig->device_lists, bytes);
    return true;
}

void rig_free(Rig *rig)
{
    for (uint32_t i = 0; i < rig->n_owned; i++) device_free(rig->owned[i]);
    free((void *)(uintptr_t)rig->pages[0].pages);
    free((void *)(uintptr_t)rig->turns.theta);
    free((void *)(uintptr_t)rig->turns.fine);
    free((void *)(uintptr_t)rig->turns.coarse);
    free(rig->pool.base);
    free(rig->lists);
    free(rig->scratch);
    free(rig->q);
    free(rig->raw);
    free(rig);
}
