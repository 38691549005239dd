/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/list_check.h"

#include "kernels/attention/kv_bounds.h"
#include "kernels/select/scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 3, MOST_SEQUENCES = 2, MOST_HEADS = 2, BOUNDS_AT = 64 };

/* What the last choice of a layer of a sequence was made from. */
typedef struct Sample {
    uint32_t seq, layer; /* an index; the layer's number */
    bool is_seen, failed;
    SelectJob job;
    uint32_t position;
    const KvPages *classes;
    const KvHead *heads;
    uint32_t n_list[MOST_HEADS], kv_heads[MOST_HEADS], n_heads; /* the first and the last that selects */
    float *q;                                                   /* [n_heads, head_dim] of the model */
} Sample;

struct ListCheck {
    Engine *engine;
    SeqId *seqs; /* [n_seqs] */
    uint32_t n_seqs;
    Sample samples[MOST_LAYERS * MOST_SEQUENCES];
    uint32_t n_samples;
    Device *device; /* of the samples; NULL: the host */
};

static bool has_sample(const ListCheck *check, uint32_t seq, uint32_t layer)
{
    for (uint32_t i = 0; i < check->n_samples; i++)
        if (check->samples[i].seq == seq && check->samples[i].layer == layer) return true;
    return false;
}

/* The first and the last of each, and a layer in between; those with windows select nothing. */
static bool choose_samples(ListCheck *check)
{
    const ModelShape *shape = engine_shape(check->engine);
    const uint32_t seqs[MOST_SEQUENCES] = {0, check->n_seqs - 1};
    uint32_t n_full = 0;
    for (uint32_t layer = 0; layer < shape->n_layers; layer++) n_full += !shape_layer_window(shape, layer);
    for (uint32_t layer = 0, i = 0; layer < shape->n_layers; layer++) {
        if (shape_layer_window(shape, layer)) continue;
        bool is_wanted = i == 0 || i == n_full / 2 || i == n_full - 1;
        i++;
        for (uint32_t s = 0; is_wanted && s < MOST_SEQUENCES; s++) {
            if (has_sample(check, seqs[s], layer)) continue;
            float *q = malloc((size_t)shape->n_heads * shape->head_dim * sizeof *q);
            if (!q) return false;
            check->samples[check->n_samples++] = (Sample){.seq = seqs[s], .layer = layer, .q = q};
        }
    }
    return true;
}

bool list_check_new(Engine *engine, const SeqId *seqs, uint32_t n_seqs, ListCheck **ret_check, Error *error)
{
    ListCheck *check = calloc(1, sizeof *check);
    bool ok = check != NULL;
    if (ok) {
        check->engine = engine;
        check->n_seqs = n_seqs;
        check->seqs = malloc(n_seqs * sizeof *check->seqs);
        ok = check->seqs && choose_samples(check);
    }
    if (!ok) {
        list_check_free(check);
        return error_set(error, ERR_NO_MEMORY, "no memory to compare lists");
    }
    memcpy(check->seqs, seqs, n_seqs * sizeof *seqs);
    *ret_check = check;
    return true;
}

void list_check_free(ListCheck *check)
{
    if (!check) return;
    for (uint32_t i = 0; i < check->n_samples; i++) free(check->samples[i].q);
    free(check->seqs);
    free(check);
}

/* ---- the run once more ---- */

static void take(ListCheck *check, Sample *sample, const LayerTrace *trace, uint32_t i)
{
    const ModelShape *shape = engine_shape(check->engine);
    const KvSpan *span = &trace->spans[i];
    const AttnPlan *plan = NULL;
    size_t row = (size_t)shape->n_heads * shape->head_dim;
    sample->n_heads = 0;
    for (uint32_t h = 0; h < shape->n_kv_heads; h++) {
        if (!span->plans[h].n_list) continue;
        plan = &span->plans[h];
        uint32_t at = sample->n_heads < MOST_HEADS ? sample->n_heads++ : MOST_HEADS - 1;
        sample->kv_heads[at] = h;
        sample->n_list[at] = plan->n_list;
    }
    if (!plan) return;
    sample->is_seen = true;
    sample->position = span->first_pos;
    sample->classes = span->classes;
    sample->heads = span->heads;
    sample->job = (SelectJob){plan->sink / KV_PAGE_TOKENS, (plan->recent_from - plan->sink) / KV_PAGE_TOKENS,
                              plan->n_list / KV_PAGE_SECTORS};
    if (!layer_trace_read(trace, sample->q, trace->q + span->first_row * row, row * sizeof *sample->q))
        sample->failed = true;
}

void list_check_look(void *arg, const LayerTrace *trace)
{
    ListCheck *check = arg;
    check->device = trace->device;
    for (uint32_t i = 0; i < trace->n_spans; i++) {
        if (trace->spans[i].n_rows != 1 || (trace->device && !(trace->jobs && trace->jobs[i].n_keep))) continue;
        for (uint32_t s = 0; s < check->n_samples; s++) {
            Sample *sample = &check->samples[s];
            if (sample->layer == trace->layer && check->seqs[sample->seq] == trace->seqs[i])
                take(check, sample, trace, i);
        }
    }
}

/* ---- the reference ---- */

/* One KV head's bounds in the host's memory, as pages of a class of that head alone. */
typedef struct Mirror {
    KvPool pool;
    KvPages pages;
    KvHead head;
    uint32_t *numbers; /* [first_page + n_pages] */
    char *memory;
} Mirror;

static void mirror_done(Mirror *mirror)
{
    free(mirror->numbers);
    free(mirror->memory);
}

static bool mirror_init(const ListCheck *check, const Sample *sample, uint32_t kv_head, Mirror *ret_mirror,
                        Error *error)
{
    const KvHead *head = &sample->heads[kv_head];
    const KvPages *pages = &sample->classes[head->class_index];
    const LayerTrace reader = {.device = check->device};
    size_t n_bounds = kv_bounds_bytes(pages->pool->layout.k_dim);
    uint32_t first = sample->job.first_page, end = first + sample->job.n_pages;
    Mirror mirror = {
        .pool = {.page_bytes = BOUNDS_AT + n_bounds, .layout = pages->pool->layout, .bounds_offset = BOUNDS_AT}};
    mirror.numbers = calloc(end, sizeof *mirror.numbers);
    mirror.memory = malloc((size_t)sample->job.n_pages * mirror.pool.page_bytes + BOUNDS_AT);
    mirror.pool.base = mirror.memory;
    *ret_mirror = mirror;
    if (!mirror.numbers || !mirror.memory) return error_set(error, ERR_NO_MEMORY, "no memory to compare lists");
    for (uint32_t page = first; page < end; page++) {
        mirror.numbers[page] = page - first;
        if (!layer_trace_read(&reader, kv_bounds_at(&mirror.pool, page - first, 0, 0),
                              kv_bounds_at(pages->pool, pages->pages[page], head->slot, 0), n_bounds))
            return error_set(error, ERR_DEVICE, "%s failed", engine_device_name(check->engine));
    }
    return true;
}

/* What one head's choice is made of, and what the reference makes of it. */
typedef struct Twin {
    Mirror mirror;
    uint32_t *list; /* [n_keep * KV_PAGE_SECTORS] */
    float *scores;  /* [n_pages] */
    void *scratch;
} Twin;

static void twin_done(Twin *twin)
{
    mirror_done(&twin->mirror);
    free(twin->list);
    free(twin->scores);
    free(twin->scratch);
}

static bool score_pages(const ListCheck *check, const Sample *sample, uint32_t kv_head, Twin *twin)
{
    const ModelShape *shape = engine_shape(check->engine);
    const SelectJob *job = &sample->job;
    uint32_t group = shape->n_heads / shape->n_kv_heads;
    uint32_t *units = malloc((job->n_pages + 1) * sizeof *units);
    void *scratch = malloc(scan_scratch_bytes(1, 1, group, shape->head_dim));
    for (uint32_t i = 0; units && i < job->n_pages; i++) units[i] = (job->first_page + i) * KV_PAGE_SECTORS;
    const ScanParams scan = {.q = sample->q + (size_t)kv_head * group * shape->head_dim,
                             .n_rows = 1,
                             .row_heads = group,
                             .group = group,
                             .k_dim = shape->head_dim,
                             .first_pos = sample->position,
                             .pages = &twin->mirror.pages,
                             .kind = SCAN_BOX,
                             .positions = SCAN_TRUE,
                             .row_stride = 1,
                             .units = units,
                             .n_units = job->n_pages,
                             .unit_sectors = KV_PAGE_SECTORS,
                             .turns = engine_rope_turns(check->engine),
                             .scores = twin->scores,
                             .scratch = scratch};
    bool ok = units && scratch && scan_ref(&scan);
    free(units);
    free(scratch);
    return ok;
}

static bool twin_select(const ListCheck *check, const Sample *sample, uint32_t kv_head, Twin *twin)
{
    const ModelShape *shape = engine_shape(check->engine);
    uint32_t group = shape->n_heads / shape->n_kv_heads, n_keep = sample->job.n_keep;
    const AttnPlan plan = {.list = twin->list, .n_list = n_keep * KV_PAGE_SECTORS};
    const KvSpan span = {.classes = &twin->mirror.pages,
                         .heads = &twin->mirror.head,
                         .plans = &plan,
                         .n_rows = 1,
                         .first_pos = sample->position};
    const SelectParams params = {.q = sample->q + (size_t)kv_head * group * shape->head_dim,
                                 .spans = &span,
                                 .jobs = &sample->job,
                                 .n_spans = 1,
                                 .n_heads = group,
                                 .n_kv_heads = 1,
                                 .k_dim = shape->head_dim,
                                 .max_spans = 1,
                                 .max_pages = sample->job.n_pages,
                                 .turns = engine_rope_turns(check->engine),
                                 .scratch = twin->scratch};
    return select_ref(&params) && score_pages(check, sample, kv_head, twin);
}

static bool twin_init(const ListCheck *check, const Sample *sample, uint32_t kv_head, Twin *twin, Error *error)
{
    const ModelShape *shape = engine_shape(check->engine);
    uint32_t group = shape->n_heads / shape->n_kv_heads, n_pages = sample->job.n_pages;
    *twin = (Twin){0};
    if (!mirror_init(check, sample, kv_head, &twin->mirror, error)) return false;
    twin->mirror.pages = (KvPages){.pool = &twin->mirror.pool, .pages = twin->mirror.numbers};
    twin->list = malloc((size_t)(sample->job.n_keep + 1) * KV_PAGE_SECTORS * sizeof *twin->list);
    twin->scores = malloc((n_pages + 1) * sizeof *twin->scores);
    twin->scratch = malloc(select_ref_scratch_bytes(group, shape->head_dim, n_pages));
    return (twin->list && twin->scores && twin->scratch && twin_select(check, sample, kv_head, twin)) ||
           error_set(error, ERR_NO_MEMORY, "no memory to compare lists");
}

/* ---- the comparison ---- */

/* Whole pages in order, of those to choose from. */
static bool is_well_formed(const SelectJob *job, const uint32_t *list, uint32_t n)
{
    uint32_t least = job->first_page;
    if (n != job->n_keep * KV_PAGE_SECTORS) return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t page = list[i] / KV_PAGE_SECTORS;
        if (list[i] % KV_PAGE_SECTORS != i % KV_PAGE_SECTORS || page < least ||
            page >= job->first_page + job->n_pages ||
            page != list[i / KV_PAGE_SECTORS * KV_PAGE_SECTORS] / KV_PAGE_SECTORS)
            return false;
        if (i % KV_PAGE_SECTORS == KV_PAGE_SECTORS - 1) least = page + 1;
    }
    return true;
}

static float cut_of(const SelectJob *job, const Twin *twin)
{
    float cut = INFINITY;
    for (uint32_t i = 0; i < job->n_keep; i++) {
        float score = twin->scores[twin->list[i * KV_PAGE_SECTORS] / KV_PAGE_SECTORS - job->first_page];
        if (score < cut) cut = score;
    }
    return cut;
}

static bool has_page(const uint32_t *list, uint32_t n_keep, uint32_t page)
{
    for (uint32_t i = 0; i < n_keep; i++)
        if (list[i * KV_PAGE_SECTORS] / KV_PAGE_SECTORS == page) return true;
    return false;
}

/* Pages in one list and not in the other; UINT32_MAX: of one of them the score, *ret_page, says that it is wrong. */
static uint32_t count_near(const SelectJob *job, const Twin *twin, const uint32_t *list, uint32_t *ret_page)
{
    float cut = cut_of(job, twin);
    uint32_t n_near = 0;
    for (uint32_t i = 0; i < job->n_pages; i++) {
        uint32_t page = job->first_page + i;
        if (has_page(list, job->n_keep, page) == has_page(twin->list, job->n_keep, page)) continue;
        *ret_page = page;
        if (!(fabs((double)twin->scores[i] - (double)cut) <= LIST_CHECK_NEAR * (1 + fabs((double)cut))))
            return UINT32_MAX;
        n_near++;
    }
    return n_near;
}

static bool compare(const Sample *sample, uint32_t kv_head, const Twin *twin, const uint32_t *list, uint32_t n,
                    ListCounts *counts, Error *error)
{
    const SelectJob *job = &sample->job;
    uint32_t page = 0;
    if (!is_well_formed(job, list, n))
        return error_set(
            error, ERR_DEVICE,
            "the list of sequence %u, layer %u, KV head %u is none of whole pages in order: no figure is told",
            sample->seq, sample->layer, kv_head);
    uint32_t n_near = count_near(job, twin, list, &page);
    if (n_near == UINT32_MAX)
        return error_set(error, ERR_DEVICE,
                         "the list of sequence %u, layer %u, KV head %u differs from the reference's at page %u, which "
                         "scores %g where the last chosen page scores %g: no figure is told",
                         sample->seq, sample->layer, kv_head, page, (double)twin->scores[page - job->first_page],
                         (double)cut_of(job, twin));
    counts->n_lists++;
    counts->n_equal += n_near == 0;
    counts->n_near += n_near;
    return true;
}

static bool check_one(const ListCheck *check, const Sample *sample, uint32_t kv_head, const uint32_t *list, uint32_t n,
                      ListCounts *counts, Error *error)
{
    Twin twin;
    bool ok =
        twin_init(check, sample, kv_head, &twin, error) && compare(sample, kv_head, &twin, list, n, counts, error);
    twin_done(&twin);
    return ok;
}

bool list_check_list(ListCheck *check, uint32_t i, uint32_t layer, uint32_t kv_head, const uint32_t *list, uint32_t n,
                     ListCounts *counts, Error *error)
{
    for (uint32_t s = 0; s < check->n_samples; s++) {
        const Sample *sample = &check->samples[s];
        if (sample->seq == i && sample->layer == layer && sample->is_seen)
            return check_one(check, sample, kv_head, list, n, counts, error);
    }
    return error_set(error, ERR_INTERNAL, "no list was made in layer %u of sequence %u", layer, i);
}

static bool check_sample(ListCheck *check, const Sample *sample, SeqId seq, ListCounts *counts, Error *error)
{
    if (sample->failed) return error_set(error, ERR_DEVICE, "%s failed", engine_device_name(check->engine));
    for (uint32_t h = 0; h < sample->n_heads; h++) {
        uint32_t n = engine_seq_list(check->engine, seq, sample->layer, sample->kv_heads[h], NULL, 0);
        uint32_t *list = malloc((n + 1) * sizeof *list);
        bool ok = list != NULL;
        if (!ok) return error_set(error, ERR_NO_MEMORY, "no memory to compare lists");
        engine_seq_list(check->engine, seq, sample->layer, sample->kv_heads[h], list, n);
        ok = engine_check_device(check->engine, error) &&
             check_one(check, sample, sample->kv_heads[h], list, n, counts, error);
        free(list);
        if (!ok) return false;
    }
    return true;
}

bool list_check_end(ListCheck *check, const SeqId *seqs, ListCounts *counts, Error *error)
{
    uint32_t before = counts->n_lists;
    for (uint32_t i = 0; i < check->n_samples; i++) {
        const Sample *sample = &check->samples[i];
        if (sample->is_seen && !check_sample(check, sample, seqs[sample->seq], counts, error)) return false;
    }
    return counts->n_lists > before || error_set(error, ERR_INTERNAL, "no list was made that could be compared");
}
