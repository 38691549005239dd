/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling from a digest. Masses are whole numbers, so a part of a row and what the rest weighs decide as the row does;
 * each cut knows when it cannot tell, since one of the ids beyond the list might be left by it.
 */
#include "engine/sample/sampler_impl.h"
#include "kernels/sample/token_weight.h"

#include <math.h>

enum { NUCLEUS_BEST = 256, TOP_K_MORE = 16 }; /* who holds the mass of a nucleus; beside the k best */

/* The cuts that are due: none, such that a list may do, or one that must see the row. */
static StageKind kind_of_cuts(const Sampler *sampler)
{
    StageKind kind = STAGE_FILLS;
    for (size_t i = 0; i < sampler_n_cuts; i++) {
        const Stage *stage = &sampler_cuts[i];
        if (stage->kind == STAGE_FILLS || !stage->applies(sampler)) continue;
        if (stage->kind == STAGE_CUTS_WHOLE) return STAGE_CUTS_WHOLE;
        kind = STAGE_CUTS;
    }
    return kind;
}

static uint32_t least_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* A few more than are left of a row as rows are; the digest of others is not enough. */
static uint32_t best_to_list(const SamplingParams *params)
{
    uint32_t k = params->top_k;
    if (k == 0 || k > DIGEST_MOST_BEST) return NUCLEUS_BEST;
    return least_u32(k + k / 4 + TOP_K_MORE, DIGEST_MOST_BEST);
}

bool sampler_ask(Sampler *sampler, bool want_logprob, uint32_t n_top, DigestAsk *ret_ask)
{
    Error ignored;
    const SamplingParams *p = &sampler->params;
    DigestAsk ask = {.is_wanted = true, .temperature = p->temperature, .wants_plain_mass = want_logprob};
    if (!edits_find(sampler, &ignored)) return false;
    if (want_logprob && (sampler->n_edits || sampler->allowed)) return false;
    ask.edits = sampler->edits;
    ask.n_edits = sampler->n_edits;
    ask.mask = sampler->allowed;
    StageKind kind = p->temperature > 0 ? kind_of_cuts(sampler) : STAGE_FILLS;
    if (kind == STAGE_CUTS_WHOLE) return false;
    if (kind == STAGE_CUTS) ask.n_best = best_to_list(p);
    ask.wants_draw = kind == STAGE_FILLS && p->temperature > 0;
    ask.draw = sampler_uniform(sampler, STREAM_TOKEN);
    if (want_logprob && n_top > ask.n_best) ask.n_best = least_u32(n_top, SAMPLE_MAX_TOP);
    *ret_ask = ask;
    return true;
}

/* The list's logits, in a space's scratch; who has to weigh nothing is not among the others. */
static Row row_of_list(const Sampler *sampler, const RowDigest *digest, const DigestItem *items)
{
    Row row = {.logits = sampler->space->raw, .n = digest->n_listed, .max = digest->max};
    uint64_t mass = 0;
    for (uint32_t i = 0; i < row.n; i++) {
        row.logits[i] = items[i].logit;
        mass += token_mass(token_weight(items[i].logit, row.max, sampler->params.temperature));
    }
    if (digest->least > -INFINITY)
        row.others = token_weight(digest->least, row.max, sampler->params.temperature) * (1 + TOKEN_WEIGHT_SLACK);
    row.others_mass = digest->mass - mass;
    return row;
}

/* Index in the list of the token that the cuts and a draw leave; false: the list is not enough. */
static bool draw_listed(Sampler *sampler, Row *row, uint32_t *ret_index)
{
    run_cuts(sampler, row);
    if (row->is_undecided || row->others > 0) return false;
    *ret_index = weights_draw(sampler->space->weights, row->n, sampler_uniform(sampler, STREAM_TOKEN));
    return true;
}

static void fill_logprobs(const Sampler *sampler, const RowDigest *digest, const DigestItem *items, float logit,
                          uint32_t n_top, SampleResult *result)
{
    double log_sum = mass_log_sum_exp(digest->plain_mass, digest->max);
    float *logits = sampler->space->raw;
    result->logprob = (float)((double)logit - log_sum);
    if (!n_top) return;
    for (uint32_t i = 0; i < digest->n_listed; i++) logits[i] = items[i].logit;
    result->n_top = best_of(logits, digest->n_listed, n_top, log_sum, result->top);
    for (uint32_t i = 0; i < result->n_top; i++) result->top[i].id = items[result->top[i].id].id;
}

bool sampler_pick_digest(Sampler *sampler, const RowDigest *digest, const DigestItem *items, bool want_logprob,
                         uint32_t n_top, SampleResult *ret_result, bool *ret_is_enough, Error *error)
{
    *ret_is_enough = true;
    if (!row_check(digest->is_bad, digest->max, error)) return false;
    const bool is_greedy = sampler->params.temperature == 0, cuts = !is_greedy && kind_of_cuts(sampler) == STAGE_CUTS;
    const uint32_t most_top = least_u32(n_top, least_u32(SAMPLE_MAX_TOP, sampler->space->n_vocab));
    SampleResult result = {.id = is_greedy ? digest->best : digest->drawn};
    float logit = is_greedy ? digest->max : digest->drawn_logit;
    *ret_is_enough = digest->n_listed <= DIGEST_LIST && !(want_logprob && digest->n_listed < most_top);
    if (*ret_is_enough && cuts) {
        Row row = row_of_list(sampler, digest, items);
        uint32_t index = 0;
        *ret_is_enough = draw_listed(sampler, &row, &index);
        result.id = items[index].id;
        logit = items[index].logit;
    }
    if (!*ret_is_enough) return true;
    if (want_logprob) fill_logprobs(sampler, digest, items, logit, n_top, &result);
    if (!sampler_force(sampler, result.id, error)) return false;
    *ret_result = result;
    return true;
}
