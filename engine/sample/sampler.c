/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/sampler.h"

#include "engine/sample/weights.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct Sampler {
    uint32_t n_vocab;
    SamplingParams params;
    uint32_t choice;
    uint64_t n_drawn; /* tokens picked since the reset: the counter of the generator */
    const uint32_t *banned;
    uint32_t n_banned;
    uint32_t *n_generated; /* [n_vocab] */
    bool *seen;            /* [n_vocab] in the prompt (when it counts) or generated */
    uint32_t *seen_ids;    /* [n_seen], of n_vocab */
    uint32_t n_seen;
    float *weights;    /* [n_vocab] */
    uint32_t *scratch; /* [n_vocab] */
    float *raw;        /* [n_vocab] the row before any change, for log-probabilities */
};

void sampling_defaults(SamplingParams *params)
{
    *params = (SamplingParams){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

bool sampler_new(uint32_t n_vocab, Sampler **ret_sampler, Error *error)
{
    if (n_vocab == 0) return error_set(error, ERR_INVALID, "a sampler for an empty vocabulary");
    Sampler *sampler = calloc(1, sizeof *sampler);
    if (!sampler) goto no_memory;
    sampler->n_vocab = n_vocab;
    sampling_defaults(&sampler->params);
    sampler->n_generated = calloc(n_vocab, sizeof *sampler->n_generated);
    sampler->seen = calloc(n_vocab, sizeof *sampler->seen);
    sampler->seen_ids = calloc(n_vocab, sizeof *sampler->seen_ids);
    sampler->weights = calloc(n_vocab, sizeof *sampler->weights);
    sampler->scratch = calloc(n_vocab, sizeof *sampler->scratch);
    sampler->raw = calloc(n_vocab, sizeof *sampler->raw);
    if (!sampler->n_generated || !sampler->seen || !sampler->seen_ids || !sampler->weights || !sampler->scratch ||
        !sampler->raw)
        goto no_memory;
    *ret_sampler = sampler;
    return true;
no_memory:
    sampler_free(sampler);
    return error_set(error, ERR_NO_MEMORY, "no memory for a sampler of %u tokens", n_vocab);
}

void sampler_free(Sampler *sampler)
{
    if (!sampler) return;
    free(sampler->n_generated);
    free(sampler->seen);
    free(sampler->seen_ids);
    free(sampler->weights);
    free(sampler->scratch);
    free(sampler->raw);
    free(sampler);
}

static void mark_seen(Sampler *sampler, uint32_t id)
{
    if (sampler->seen[id]) return;
    sampler->seen[id] = true;
    sampler->seen_ids[sampler->n_seen++] = id;
}

typedef struct ParamRange {
    const char *name;
    size_t offset;
    float low, high;
} ParamRange;

static const ParamRange param_ranges[] = {
    {"temperature", offsetof(SamplingParams, temperature), 0, FLT_MAX},
    {"top_p", offsetof(SamplingParams, top_p), 0, 1},
    {"min_p", offsetof(SamplingParams, min_p), 0, 1},
    {"presence_penalty", offsetof(SamplingParams, presence_penalty), -FLT_MAX, FLT_MAX},
    {"frequency_penalty", offsetof(SamplingParams, frequency_penalty), -FLT_MAX, FLT_MAX},
    {"repetition_penalty", offsetof(SamplingParams, repetition_penalty), FLT_MIN, FLT_MAX},
};

static bool check_params(const SamplingParams *params, uint32_t n_vocab, Error *error)
{
    for (size_t i = 0; i < sizeof param_ranges / sizeof *param_ranges; i++) {
        const ParamRange *range = &param_ranges[i];
        float value;
        memcpy(&value, (const char *)params + range->offset, sizeof value);
        if (!(value >= range->low && value <= range->high))
            return error_set_param(error, ERR_INVALID, range->name, "%s is %g, not in %g to %g", range->name,
                                   (double)value, (double)range->low, (double)range->high);
    }
    for (uint32_t i = 0; i < params->n_bias; i++)
        if (params->bias[i].id >= n_vocab)
            return error_set_param(error, ERR_INVALID, "logit_bias", "logit_bias has id %u, the vocabulary ends at %u",
                                   params->bias[i].id, n_vocab - 1);
    return true;
}

bool sampler_reset(Sampler *sampler, const SamplingParams *params, uint32_t choice, const uint32_t *prompt,
                   uint32_t n_prompt, Error *error)
{
    if (!check_params(params, sampler->n_vocab, error)) return false;
    for (uint32_t i = 0; i < n_prompt; i++)
        if (prompt[i] >= sampler->n_vocab)
            return error_set_param(error, ERR_INVALID, "prompt", "prompt token %u is id %u, the vocabulary ends at %u", i,
                                   prompt[i], sampler->n_vocab - 1);
    for (uint32_t i = 0; i < sampler->n_seen; i++) {
        sampler->n_generated[sampler->seen_ids[i]] = 0;
        sampler->seen[sampler->seen_ids[i]] = false;
    }
    sampler->n_seen = 0;
    sampler->params = *params;
    sampler->choice = choice;
    sampler->n_drawn = 0;
    sampler_ban(sampler, NULL, 0);
    if (params->repetition_penalty != 1)
        for (uint32_t i = 0; i < n_prompt; i++) mark_seen(sampler, prompt[i]);
    return true;
}

void sampler_ban(Sampler *sampler, const uint32_t *ids, uint32_t n)
{
    sampler->banned = ids;
    sampler->n_banned = n;
}

static void adjust_logits(const Sampler *sampler, float *logits)
{
    const SamplingParams *p = &sampler->params;
    for (uint32_t i = 0; i < p->n_bias; i++) logits[p->bias[i].id] += p->bias[i].bias;
    for (uint32_t i = 0; i < sampler->n_banned; i++)
        if (sampler->banned[i] < sampler->n_vocab) logits[sampler->banned[i]] = -INFINITY;
    if (p->repetition_penalty == 1 && p->frequency_penalty == 0 && p->presence_penalty == 0) return;
    for (uint32_t i = 0; i < sampler->n_seen; i++) {
        uint32_t id = sampler->seen_ids[i];
        float l = logits[id];
        l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
        uint32_t count = sampler->n_generated[id];
        if (count) l -= p->frequency_penalty * (float)count + p->presence_penalty;
        logits[id] = l;
    }
}

/* The finaliser of splitmix64: every input bit changes every output bit with probability near one half. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* In [0, 1), 53 bits, a function of its arguments alone. */
static double uniform_draw(uint64_t seed, uint64_t stream, uint64_t counter)
{
    const uint64_t golden = 0x9E3779B97F4A7C15u;
    uint64_t key = mix(mix(seed + golden) + (stream + 1) * golden);
    return (double)(mix(key + (counter + 1) * golden) >> 11) * 0x1p-53;
}

static uint32_t first_index_of(const float *logits, uint32_t n, float value)
{
    uint32_t i = 0;
    while (i + 1 < n && logits[i] != value) i++;
    return i;
}

static uint32_t draw_token(Sampler *sampler, const float *logits, float max)
{
    const SamplingParams *p = &sampler->params;
    uint32_t n = sampler->n_vocab;
    weights_fill(logits, n, max, p->temperature, sampler->weights);
    if (p->min_p > 0) weights_cut_min_p(sampler->weights, n, p->min_p);
    if (p->top_k > 0) weights_cut_top_k(sampler->weights, n, p->top_k, sampler->scratch);
    if (p->top_p < 1) weights_cut_top_p(sampler->weights, n, (double)p->top_p, sampler->scratch);
    return weights_draw(sampler->weights, n, uniform_draw(p->seed, sampler->choice, sampler->n_drawn));
}

/* The n_top best of a row, falling; equal ones by rising id. */
static uint32_t best_of(const float *logits, uint32_t n, uint32_t n_top, double log_sum, TokenLogprob *top)
{
    if (n_top > SAMPLE_MAX_TOP) n_top = SAMPLE_MAX_TOP;
    if (n_top > n) n_top = n;
    if (n_top == 0) return 0;
    uint32_t have = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (have == n_top && !(logits[i] > top[have - 1].logprob)) continue;
        uint32_t at = have < n_top ? have++ : have - 1;
        for (; at > 0 && logits[i] > top[at - 1].logprob; at--) top[at] = top[at - 1];
        top[at] = (TokenLogprob){.id = i, .logprob = logits[i]};
    }
    for (uint32_t i = 0; i < have; i++) top[i].logprob = (float)((double)top[i].logprob - log_sum);
    return have;
}

static void fill_logprobs(const float *raw, uint32_t n, float max, uint32_t n_top, SampleResult *result)
{
    double log_sum = row_log_sum_exp(raw, n, max);
    result->logprob = (float)((double)raw[result->id] - log_sum);
    result->n_top = best_of(raw, n, n_top, log_sum, result->top);
}

bool sampler_pick(Sampler *sampler, float *logits, bool want_logprob, uint32_t n_top, SampleResult *ret_result,
                  Error *error)
{
    uint32_t n = sampler->n_vocab;
    float raw_max, max;
    if (!row_max(logits, n, &raw_max, error)) return false;
    if (want_logprob) memcpy(sampler->raw, logits, n * sizeof *logits);
    adjust_logits(sampler, logits);
    if (!row_max(logits, n, &max, error)) return false;
    SampleResult result = {0};
    result.id = sampler->params.temperature > 0 ? draw_token(sampler, logits, max) : first_index_of(logits, n, max);
    if (want_logprob) fill_logprobs(sampler->raw, n, raw_max, n_top, &result);
    mark_seen(sampler, result.id);
    sampler->n_generated[result.id]++;
    sampler->n_drawn++;
    *ret_result = result;
    return true;
}

bool sample_logprobs(const float *logits, uint32_t n_vocab, uint32_t id, uint32_t n_top, SampleResult *ret_result,
                     Error *error)
{
    if (id >= n_vocab) return error_set(error, ERR_INVALID, "token id %u, the vocabulary ends at %u", id, n_vocab - 1);
    float max;
    if (!row_max(logits, n_vocab, &max, error)) return false;
    SampleResult result = {.id = id};
    fill_logprobs(logits, n_vocab, max, n_top, &result);
    *ret_result = result;
    return true;
}
