/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/sample/digest.h"
#include "kernels/sample/token_weight.h"

#include <math.h>
#include <stdlib.h>

static bool has_bad(const float *logits, uint32_t n)
{
    bool is_bad = false;
    for (uint32_t i = 0; i < n; i++) is_bad |= !(logits[i] < INFINITY);
    return is_bad;
}

static void find_best(const float *logits, uint32_t n, RowDigest *digest)
{
    digest->max = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (!(logits[i] > digest->max)) continue;
        digest->max = logits[i];
        digest->best = i;
    }
}

static int compare_falling(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* maxima [digest_groups(n)] */
static float find_least(const float *logits, uint32_t n, uint32_t n_best, float *maxima)
{
    uint32_t n_groups = digest_groups(n);
    if (n_best > n_groups) return -INFINITY;
    for (uint32_t i = 0; i < n_groups; i++) maxima[i] = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        float *max = &maxima[i / DIGEST_SPAN * DIGEST_STEP + i % DIGEST_STEP];
        *max = logits[i] > *max ? logits[i] : *max;
    }
    qsort(maxima, n_groups, sizeof *maxima, compare_falling);
    return maxima[n_best - 1];
}

static uint64_t mass_of(const float *logits, uint32_t n, float max, float temperature)
{
    uint64_t mass = 0;
    for (uint32_t i = 0; i < n; i++) mass += token_mass(token_weight(logits[i], max, temperature));
    return mass;
}

static uint32_t draw(const float *logits, float temperature, const RowDigest *digest, double u)
{
    uint64_t left = token_mass_share(digest->mass, u);
    for (uint32_t i = 0;; i++) {
        uint64_t mass = token_mass(token_weight(logits[i], digest->max, temperature));
        if (left < mass) return i;
        left -= mass;
    }
}

static void digest_row(const float *logits, uint32_t n, const DigestAsk *ask, float *maxima, RowDigest *digest,
                       DigestItem *items)
{
    find_best(logits, n, digest);
    if (digest->is_bad || digest->max == -INFINITY) return;
    if (ask->temperature > 0) digest->mass = mass_of(logits, n, digest->max, ask->temperature);
    if (ask->wants_plain_mass) digest->plain_mass = mass_of(logits, n, digest->max, 1);
    if (ask->temperature > 0 && ask->wants_draw) {
        digest->drawn = draw(logits, ask->temperature, digest, ask->draw);
        digest->drawn_logit = logits[digest->drawn];
    }
    if (!ask->n_best) return;
    digest->least = find_least(logits, n, ask->n_best, maxima);
    for (uint32_t i = 0; i < n; i++) {
        if (!(logits[i] >= digest->least && logits[i] > -INFINITY)) continue;
        if (digest->n_listed < DIGEST_LIST) items[digest->n_listed] = (DigestItem){i, logits[i]};
        digest->n_listed++;
    }
}

/* The row as it is left, in 'changed' [n]; the edits stay. */
static void change(float *logits, uint32_t n, const DigestAsk *ask, float *changed)
{
    for (uint32_t i = 0; i < ask->n_edits; i++) {
        float *l = &logits[ask->edits[i].id];
        *l = digest_edited(*l, &ask->edits[i]);
    }
    for (uint32_t i = 0; i < n; i++) changed[i] = !ask->mask || ask->mask[i / 64] >> i % 64 & 1 ? logits[i] : -INFINITY;
}

bool digest_ref(const DigestParams *params)
{
    const uint32_t n = params->n_vocab;
    if (params->n_rows == 0 || n == 0 || n > TOKEN_MAX_VOCAB) return false;
    for (uint32_t row = 0; row < params->n_rows; row++)
        if (params->asks[row].n_best > DIGEST_MOST_BEST) return false;
    float *maxima = malloc((digest_groups(n) + (size_t)n) * sizeof *maxima);
    if (!maxima) return false;
    float *changed = maxima + digest_groups(n);
    for (uint32_t row = 0; row < params->n_rows; row++) {
        if (!params->asks[row].is_wanted) continue;
        float *logits = params->logits + (size_t)row * n;
        RowDigest *digest = &params->digests[row];
        *digest = (RowDigest){.is_bad = has_bad(logits, n)};
        change(logits, n, &params->asks[row], changed);
        digest->is_bad |= has_bad(logits, n);
        digest_row(changed, n, &params->asks[row], maxima, digest, params->items + (size_t)row * DIGEST_LIST);
    }
    free(maxima);
    return true;
}
