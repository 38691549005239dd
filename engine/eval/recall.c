/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/recall.h"

#include "engine/eval/npy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATH_BYTES = 4096, PLAN_WORDS = 8, MASS_WORDS = 4 };

/* Growable words: uint32_t or float. */
typedef struct Words {
    void *data;
    size_t n, capacity;
} Words;

struct Recall {
    RecallParams params;
    RecallCell *layers; /* [n_layers] sums */
    float *scores;      /* [group, n_keys] of one KV head */
    float *best;        /* [n_keys] the highest over the group */
    float *sorted;      /* [n_keys] */
    size_t capacity;    /* keys */
    char *slot;         /* [slot_bytes] a page of a KV head, as its class keeps it */
    size_t slot_bytes;
    uint32_t *list; /* [n_list] */
    size_t n_list;
    float *q; /* [group, head_dim] */
    /* For the files: see recall_end. */
    Words plans, lists, sectors, masses;
    bool failed; /* memory ran out in the middle of a pass, or the device failed */
};

bool recall_new(const RecallParams *params, Recall **ret_recall, Error *error)
{
    Recall *recall = calloc(1, sizeof *recall);
    if (recall) {
        const ModelShape *shape = params->shape;
        recall->layers = calloc(shape->n_layers, sizeof *recall->layers);
        recall->q = malloc((size_t)shape->n_heads / shape->n_kv_heads * shape->head_dim * sizeof *recall->q);
    }
    if (!recall || !recall->layers || !recall->q) {
        recall_free(recall);
        return error_set(error, ERR_NO_MEMORY, "no memory to look at lists");
    }
    recall->params = *params;
    *ret_recall = recall;
    return true;
}

void recall_free(Recall *recall)
{
    if (!recall) return;
    free(recall->layers);
    free(recall->scores);
    free(recall->best);
    free(recall->sorted);
    free(recall->slot);
    free(recall->list);
    free(recall->q);
    free(recall->plans.data);
    free(recall->lists.data);
    free(recall->sectors.data);
    free(recall->masses.data);
    free(recall);
}

static bool words_add(Words *words, const void *data, size_t n)
{
    if (words->n + n > words->capacity) {
        size_t wanted = 2 * (words->n + n);
        void *more = realloc(words->data, wanted * sizeof(uint32_t));
        if (!more) return false;
        words->data = more;
        words->capacity = wanted;
    }
    if (n) memcpy((uint32_t *)words->data + words->n, data, n * sizeof(uint32_t));
    words->n += n;
    return true;
}

static bool reserve(Recall *recall, size_t n_keys, uint32_t group)
{
    if (n_keys <= recall->capacity) return true;
    size_t wanted = 2 * n_keys;
    free(recall->scores);
    free(recall->best);
    free(recall->sorted);
    recall->scores = malloc(wanted * group * sizeof(float));
    recall->best = malloc(wanted * sizeof(float));
    recall->sorted = malloc(wanted * sizeof(float));
    recall->capacity = recall->scores && recall->best && recall->sorted ? wanted : 0;
    return recall->capacity;
}

/* One row at one KV head. */
typedef struct Look {
    const ModelShape *shape;
    const LayerTrace *trace;
    const KvSpan *span;
    const AttnPlan *plan; /* with a list of the host's */
    uint32_t layer, kv_head, position, group;
} Look;

static float scaled(const ModelShape *shape, float dot)
{
    float score = dot * shape->attention_scale, cap = shape->attention_softcap;
    return cap > 0 ? cap * tanhf(score / cap) : score;
}

/* As stored, in recall->slot. */
static bool read_page(Recall *recall, const Look *look, uint32_t page, const KvLayout **ret_layout)
{
    const KvHead *head = &look->span->heads[look->kv_head];
    const char *slot = kv_pages_slot(&look->span->classes[head->class_index], page, look->position / KV_PAGE_TOKENS,
                                     head->slot, ret_layout);
    size_t n = (*ret_layout)->slot_bytes;
    if (n > recall->slot_bytes) {
        free(recall->slot);
        recall->slot = malloc(n);
        recall->slot_bytes = recall->slot ? n : 0;
    }
    return recall->slot && layer_trace_read(look->trace, recall->slot, slot, n);
}

/* Scores of all keys up to the row's own: [group, n_keys]. */
static bool score_keys(Recall *recall, const Look *look)
{
    uint32_t n_keys = look->position + 1, dim = look->shape->head_dim;
    const KvLayout *layout = NULL;
    float k[KV_MAX_DIM];
    for (uint32_t j = 0; j < n_keys; j++) {
        if (j % KV_PAGE_TOKENS == 0 && !read_page(recall, look, j / KV_PAGE_TOKENS, &layout)) return false;
        kv_slot_get_key(layout, recall->slot, j % KV_PAGE_TOKENS, k);
        recall->best[j] = -INFINITY;
        for (uint32_t g = 0; g < look->group; g++) {
            float dot = 0;
            for (uint32_t c = 0; c < dim; c++) dot += recall->q[g * dim + c] * k[c];
            float score = scaled(look->shape, dot);
            recall->scores[(size_t)g * n_keys + j] = score;
            if (score > recall->best[j]) recall->best[j] = score;
        }
    }
    return true;
}

static int compare_falling(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The score that the k-th best of the keys between the ranges has; -infinity: there are fewer. */
static float threshold(Recall *recall, const Look *look, uint32_t k)
{
    uint32_t n = 0;
    for (uint32_t j = 0; j <= look->position; j++)
        if (!plan_sees_range(look->plan, look->position, j)) recall->sorted[n++] = recall->best[j];
    if (k > n) return -INFINITY;
    qsort(recall->sorted, n, sizeof *recall->sorted, compare_falling);
    return recall->sorted[k - 1];
}

/* Shares of the softmax over all keys, mean over the group: of what is seen, of the ranges, of ranges and best keys. */
static void add_masses(const Recall *recall, const Look *look, float least, RecallCell *cell)
{
    uint32_t n_keys = look->position + 1;
    for (uint32_t g = 0; g < look->group; g++) {
        const float *scores = recall->scores + (size_t)g * n_keys;
        float top = -INFINITY;
        double all = 0, seen = 0, range = 0, best = 0;
        for (uint32_t j = 0; j < n_keys; j++) top = fmaxf(top, scores[j]);
        for (uint32_t j = 0; j < n_keys; j++) {
            double weight = expf(scores[j] - top);
            bool in_range = plan_sees_range(look->plan, look->position, j);
            all += weight;
            if (in_range) range += weight;
            if (in_range || recall->best[j] >= least) best += weight;
            if (in_range || plan_lists(look->plan, j / KV_SECTOR_TOKENS)) seen += weight;
        }
        cell->mass += seen / all / look->group;
        cell->range_mass += range / all / look->group;
        cell->best_mass += best / all / look->group;
    }
}

static RecallCell measure(Recall *recall, const Look *look)
{
    uint32_t k = look->plan->n_list * KV_SECTOR_TOKENS, found = 0;
    RecallCell one = {.n = 1};
    float least = threshold(recall, look, k);
    for (uint32_t i = 0; i < look->plan->n_list; i++)
        for (uint32_t t = 0; t < KV_SECTOR_TOKENS; t++)
            found += recall->best[look->plan->list[i] * KV_SECTOR_TOKENS + t] >= least;
    one.recall = (double)found / k;
    add_masses(recall, look, least, &one);
    return one;
}

static bool keep_for_files(Recall *recall, const Look *look, const RecallCell *one)
{
    const AttnPlan *plan = look->plan;
    uint32_t n_sectors = (look->position + KV_SECTOR_TOKENS) / KV_SECTOR_TOKENS;
    const uint32_t words[PLAN_WORDS] = {look->position,
                                        look->layer,
                                        look->kv_head,
                                        plan->sink,
                                        plan->recent_from,
                                        plan->n_list,
                                        (uint32_t)recall->lists.n,
                                        (uint32_t)recall->sectors.n};
    const float masses[MASS_WORDS] = {(float)one->recall, (float)one->mass, (float)one->best_mass,
                                      (float)one->range_mass};
    if (!words_add(&recall->plans, words, PLAN_WORDS) || !words_add(&recall->masses, masses, MASS_WORDS) ||
        !words_add(&recall->lists, plan->list, plan->n_list))
        return false;
    for (uint32_t s = 0; s < n_sectors; s++) {
        float best = -INFINITY;
        for (uint32_t j = s * KV_SECTOR_TOKENS; j <= look->position && j < (s + 1) * KV_SECTOR_TOKENS; j++)
            best = fmaxf(best, recall->best[j]);
        if (!words_add(&recall->sectors, &best, 1)) return false;
    }
    return true;
}

/* The row's queries and its list. */
static bool read_row(Recall *recall, const Look *look, uint32_t row)
{
    const ModelShape *shape = look->shape;
    size_t n = look->plan->n_list, head = (size_t)row * shape->n_heads + (size_t)look->kv_head * look->group;
    if (n > recall->n_list) {
        free(recall->list);
        recall->list = malloc(n * sizeof *recall->list);
        recall->n_list = recall->list ? n : 0;
    }
    return recall->list && layer_trace_read(look->trace, recall->list, look->plan->list, n * sizeof *recall->list) &&
           layer_trace_read(look->trace, recall->q, look->trace->q + head * shape->head_dim,
                            (size_t)look->group * shape->head_dim * sizeof *recall->q);
}

static void look_at(Recall *recall, Look *look, uint32_t row)
{
    AttnPlan plan = *look->plan;
    if (!plan.n_list || plan.positions != POSITIONS_TRUE || recall->failed) return;
    if (!read_row(recall, look, row) || !reserve(recall, look->position + 1, look->group)) {
        recall->failed = true;
        return;
    }
    plan.list = recall->list;
    look->plan = &plan;
    if (!score_keys(recall, look)) {
        recall->failed = true;
        return;
    }
    RecallCell one = measure(recall, look), *sum = &recall->layers[look->layer];
    sum->n++;
    sum->recall += one.recall;
    sum->mass += one.mass;
    sum->best_mass += one.best_mass;
    sum->range_mass += one.range_mass;
    if (recall->params.trace_dir && !keep_for_files(recall, look, &one)) recall->failed = true;
}

void recall_look(void *arg, const LayerTrace *trace)
{
    Recall *recall = arg;
    const ModelShape *shape = recall->params.shape;
    uint32_t group = shape->n_heads / shape->n_kv_heads;
    for (uint32_t i = 0; i < trace->n_spans; i++) {
        const KvSpan *span = &trace->spans[i];
        for (uint32_t r = 0; r < span->n_rows; r++) {
            uint32_t position = span->first_pos + r;
            if (position < recall->params.position || (position - recall->params.position) % recall->params.stride)
                continue;
            for (uint32_t h = 0; h < shape->n_kv_heads; h++) {
                Look look = {shape, trace, span, &span->plans[h], trace->layer, h, position, group};
                look_at(recall, &look, span->first_row + r);
            }
        }
    }
}

/* Names of policies hold characters that paths do not. */
static bool write_array(const Recall *recall, const char *what, NpyType type, const Words *words, size_t n_columns,
                        Error *error)
{
    char name[RESULTS_MAX_NAME], path[MAX_PATH_BYTES];
    snprintf(name, sizeof name, "%s", recall->params.policy);
    for (char *at = name; *at; at++)
        if (strchr("/:=,@ ", *at)) *at = '_';
    int n =
        snprintf(path, sizeof path, "%s/%s-%u-%s.npy", recall->params.trace_dir, name, recall->params.position, what);
    if (n < 0 || (size_t)n >= sizeof path) return error_set(error, ERR_INVALID, "--trace: the path is too long");
    return npy_write(path, type, words->data, n_columns ? words->n / n_columns : words->n, n_columns, error);
}

/*
 * plans [n, 8]: position, layer, KV head, sink, recent_from, sectors listed, where they begin in lists, where the row's
 * begin in scores. lists: sectors. scores: the highest score of each sector of the row's context. masses [n, 4]:
 * recall, mass, best mass, range mass.
 */
bool recall_end(Recall *recall, Results *results, Error *error)
{
    if (recall->failed) return error_set(error, ERR_NO_MEMORY, "no memory to look at lists");
    for (uint32_t layer = 0; results && layer < recall->params.shape->n_layers; layer++) {
        const RecallCell *sum = &recall->layers[layer];
        if (!sum->n) continue;
        const RecallCell mean = {.policy = recall->params.policy,
                                 .position = recall->params.position,
                                 .layer = layer,
                                 .n = sum->n,
                                 .recall = sum->recall / sum->n,
                                 .mass = sum->mass / sum->n,
                                 .best_mass = sum->best_mass / sum->n,
                                 .range_mass = sum->range_mass / sum->n};
        if (!results_add_recall(results, &mean, error)) return false;
    }
    return !recall->params.trace_dir || (write_array(recall, "plans", NPY_U32, &recall->plans, PLAN_WORDS, error) &&
                                         write_array(recall, "lists", NPY_U32, &recall->lists, 0, error) &&
                                         write_array(recall, "scores", NPY_F32, &recall->sectors, 0, error) &&
                                         write_array(recall, "masses", NPY_F32, &recall->masses, MASS_WORDS, error));
}
