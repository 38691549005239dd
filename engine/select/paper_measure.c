/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/paper.h"
#include "kernels/select/top_k.h"

#include <math.h>

enum { ARENA_BLOCK_BYTES = 1 << 20 };

typedef struct Measure {
    const PaperInput *input;
    const PaperList *list;
    float scale;
    uint32_t first, end;
    float *scores;  /* [end - first] of one row and head */
    float *highest; /* the same, of all so far */
    double mass;    /* the sum over rows and heads */
} Measure;

/* Scores of a row's head for the keys it may see; -infinity for others. */
static void score_keys(const Measure *measure, uint32_t row, uint32_t head)
{
    const PaperInput *input = measure->input;
    size_t kv_head = head / (input->n_heads / input->n_kv_heads);
    const float *q = input->q + ((size_t)row * input->n_heads + head) * input->dim;
    for (uint32_t token = measure->first; token < measure->end; token++) {
        const float *k = input->k + (kv_head * input->n_keys + token) * input->dim;
        float sum = 0, *highest = &measure->highest[token - measure->first];
        for (uint32_t c = 0; c < input->dim; c++) sum += q[c] * k[c];
        if (token > input->first_pos + row) sum = -INFINITY;
        measure->scores[token - measure->first] = sum;
        *highest = sum > *highest ? sum : *highest;
    }
}

static void add_mass(Measure *measure)
{
    float max = -INFINITY;
    double all = 0, held = 0;
    for (uint32_t i = 0; i < measure->end - measure->first; i++) max = fmaxf(max, measure->scores[i]);
    if (max == -INFINITY) return;
    for (uint32_t i = 0, at = 0; i < measure->end - measure->first; i++) {
        double weight = exp((double)measure->scale * ((double)measure->scores[i] - (double)max));
        while (at < measure->list->n && measure->list->tokens[at] < measure->first + i) at++;
        all += weight;
        if (at < measure->list->n && measure->list->tokens[at] == measure->first + i) held += weight;
    }
    measure->mass += held / all;
}

static double share_of_top(const Measure *measure, uint32_t k, uint32_t *scratch, uint32_t *top)
{
    uint32_t n = top_k(measure->highest, measure->end - measure->first, k, scratch, top), n_held = 0;
    for (uint32_t i = 0, at = 0; i < n; i++) {
        while (at < measure->list->n && measure->list->tokens[at] < measure->first + top[i]) at++;
        n_held += at < measure->list->n && measure->list->tokens[at] == measure->first + top[i];
    }
    return n ? (double)n_held / n : 1;
}

bool paper_measure(const PaperMethod *method, const PaperInput *input, const PaperQuestion *question,
                   PaperRecall *ret_recall, Error *error)
{
    const uint32_t first = question->first, end = question->end;
    if (first >= end || end > input->n_keys)
        return error_set(error, ERR_INVALID, "keys %u to %u of %u", first, end, input->n_keys);
    Arena arena;
    arena_init(&arena, ARENA_BLOCK_BYTES, SIZE_MAX);
    size_t n = end - first;
    Measure measure = {input, question->list, question->scale, first, end, NULL, NULL, 0};
    measure.scores = arena_array(&arena, n, sizeof *measure.scores);
    measure.highest = arena_array(&arena, n, sizeof *measure.highest);
    uint32_t *scratch = arena_array(&arena, n, sizeof *scratch), *top = arena_array(&arena, n, sizeof *top);
    bool ok = measure.scores && measure.highest && scratch && top;
    uint32_t n_runs = 0;
    for (size_t i = 0; ok && i < n; i++) measure.highest[i] = -INFINITY;
    for (uint32_t i = 0; ok && i < input->n_rows * input->n_heads; i++) {
        if (paper_list_of_head(method, input, i % input->n_heads) != question->number) continue;
        score_keys(&measure, i / input->n_heads, i % input->n_heads);
        add_mass(&measure);
        n_runs++;
    }
    if (ok)
        *ret_recall =
            (PaperRecall){share_of_top(&measure, question->k, scratch, top), n_runs ? measure.mass / n_runs : 0};
    arena_done(&arena);
    return ok || error_set(error, ERR_NO_MEMORY, "no memory to measure %zu keys", n);
}
