/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/sampler.h"

#include "engine/sample/sampler_impl.h"
#include "kernels/sample/token_weight.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

void sampling_defaults(SamplingParams *params)
{
    static const char *const breakers[] = {"\n", ":", "\"", "*"};
    *params = (SamplingParams){
        .temperature = 1,
        .top_p = 1,
        .typical_p = 1,
        .repetition_penalty = 1,
        .repeat_last_n = -1,
        .xtc_threshold = 0.1f,
        .dynatemp_exponent = 1,
        .mirostat_tau = 5,
        .mirostat_eta = 0.1f,
        .dry_base = 1.75f,
        .dry_allowed_length = 2,
        .dry_penalty_last_n = 64,
        .dry_breakers = breakers,
        .n_dry_breakers = COUNT(breakers),
    };
}

bool sampler_space_new(uint32_t n_vocab, TokenText text, SamplerSpace **ret_space, Error *error)
{
    if (n_vocab == 0) return error_set(error, ERR_INVALID, "a sampler for an empty vocabulary");
    if (n_vocab > TOKEN_MAX_VOCAB)
        return error_set(error, ERR_UNSUPPORTED, "a vocabulary of %u tokens; samplers take up to %d", n_vocab,
                         TOKEN_MAX_VOCAB);
    SamplerSpace *space = calloc(1, sizeof *space);
    if (!space) goto no_memory;
    space->n_vocab = n_vocab;
    space->text = text;
    space->weights = calloc(n_vocab, sizeof *space->weights);
    space->keys = calloc(n_vocab, sizeof *space->keys);
    space->scratch = calloc(n_vocab, sizeof *space->scratch);
    space->matches = calloc(SAMPLE_MAX_WINDOW, sizeof *space->matches);
    space->raw = calloc(n_vocab, sizeof *space->raw);
    space->slots = calloc(n_vocab, sizeof *space->slots);
    if (!space->weights || !space->keys || !space->scratch || !space->matches || !space->raw || !space->slots)
        goto no_memory;
    *ret_space = space;
    return true;
no_memory:
    sampler_space_free(space);
    return error_set(error, ERR_NO_MEMORY, "no memory to sample from %u tokens", n_vocab);
}

void sampler_space_free(SamplerSpace *space)
{
    if (!space) return;
    free(space->weights);
    free(space->keys);
    free(space->scratch);
    free(space->matches);
    free(space->raw);
    free(space->slots);
    free(space);
}

bool sampler_new(SamplerSpace *space, Sampler **ret_sampler, Error *error)
{
    Sampler *sampler = calloc(1, sizeof *sampler);
    if (!sampler) return error_set(error, ERR_NO_MEMORY, "no memory for a sampler");
    sampler->space = space;
    sampling_defaults(&sampler->params);
    *ret_sampler = sampler;
    return true;
}

void sampler_use_space(Sampler *sampler, SamplerSpace *space)
{
    sampler->space = space;
}

void sampler_free(Sampler *sampler)
{
    if (!sampler) return;
    history_done(&sampler->history);
    free(sampler->edits);
    free(sampler);
}

/* ---- what may be asked for ---- */

#define AT(member) offsetof(SamplingParams, member)

static const struct {
    const char *name;
    size_t offset;
    float low, high;
} real_ranges[] = {
    {"temperature", AT(temperature), 0, FLT_MAX},
    {"top_p", AT(top_p), 0, 1},
    {"min_p", AT(min_p), 0, 1},
    {"typical_p", AT(typical_p), 0, 1},
    {"top_n_sigma", AT(top_n_sigma), -1, FLT_MAX},
    {"presence_penalty", AT(presence_penalty), -FLT_MAX, FLT_MAX},
    {"frequency_penalty", AT(frequency_penalty), -FLT_MAX, FLT_MAX},
    {"repetition_penalty", AT(repetition_penalty), FLT_MIN, FLT_MAX},
    {"xtc_probability", AT(xtc_probability), 0, 1},
    {"xtc_threshold", AT(xtc_threshold), 0, 1},
    {"dynatemp_range", AT(dynatemp_range), 0, FLT_MAX},
    {"dynatemp_exponent", AT(dynatemp_exponent), 0, FLT_MAX},
    {"mirostat_tau", AT(mirostat_tau), 0, 1000},
    {"mirostat_eta", AT(mirostat_eta), 0, 1},
    {"dry_multiplier", AT(dry_multiplier), 0, FLT_MAX},
    {"dry_base", AT(dry_base), 0, FLT_MAX},
};

static const struct {
    const char *name;
    size_t offset;
    int32_t low, high;
} whole_ranges[] = {
    {"repeat_last_n", AT(repeat_last_n), -1, SAMPLE_MAX_WINDOW},
    {"mirostat", AT(mirostat), 0, 2},
    {"dry_allowed_length", AT(dry_allowed_length), 0, SAMPLE_MAX_WINDOW},
    {"dry_penalty_last_n", AT(dry_penalty_last_n), -1, SAMPLE_MAX_WINDOW},
};

static bool check_numbers(const SamplingParams *params, Error *error)
{
    for (size_t i = 0; i < COUNT(real_ranges); i++) {
        float value, low = real_ranges[i].low, high = real_ranges[i].high;
        memcpy(&value, (const char *)params + real_ranges[i].offset, sizeof value);
        if (!(value >= low && value <= high))
            return error_set_param(error, ERR_INVALID, real_ranges[i].name, "%s is %g, not in %g to %g",
                                   real_ranges[i].name, (double)value, (double)low, (double)high);
    }
    for (size_t i = 0; i < COUNT(whole_ranges); i++) {
        int32_t value, low = whole_ranges[i].low, high = whole_ranges[i].high;
        memcpy(&value, (const char *)params + whole_ranges[i].offset, sizeof value);
        if (value < low || value > high)
            return error_set_param(error, ERR_INVALID, whole_ranges[i].name, "%s is %d, not in %d to %d",
                                   whole_ranges[i].name, value, low, high);
    }
    return true;
}

static bool check_breakers(const Sampler *sampler, const SamplingParams *params, Error *error)
{
    static const char name[] = "dry_sequence_breakers";
    if (params->n_dry_breakers > SAMPLE_MAX_BREAKERS)
        return error_set_param(error, ERR_INVALID, name, "%u sequence breakers, at most %d", params->n_dry_breakers,
                               SAMPLE_MAX_BREAKERS);
    for (uint32_t i = 0; i < params->n_dry_breakers; i++) {
        size_t n = strlen(params->dry_breakers[i]);
        if (n < 1 || n > SAMPLE_MAX_BREAKER_BYTES)
            return error_set_param(error, ERR_INVALID, name, "a sequence breaker of %zu bytes, not 1 to %d", n,
                                   SAMPLE_MAX_BREAKER_BYTES);
    }
    if (params->dry_multiplier > 0 && params->n_dry_breakers > 0 && !sampler->space->text.append)
        return error_set_param(error, ERR_INVALID, name, "sequence breakers, and no texts of tokens to find them in");
    return true;
}

static bool check_params(const Sampler *sampler, const SamplingParams *params, Error *error)
{
    if (!check_numbers(params, error) || !check_breakers(sampler, params, error)) return false;
    for (uint32_t i = 0; i < params->n_bias; i++)
        if (params->bias[i].id >= sampler->space->n_vocab)
            return error_set_param(error, ERR_INVALID, "logit_bias", "logit_bias has id %u, the vocabulary ends at %u",
                                   params->bias[i].id, sampler->space->n_vocab - 1);
    return true;
}

bool sampler_reset(Sampler *sampler, const SamplingParams *params, uint32_t choice, const uint32_t *prompt,
                   uint32_t n_prompt, Error *error)
{
    if (!check_params(sampler, params, error)) return false;
    for (uint32_t i = 0; i < n_prompt; i++)
        if (prompt[i] >= sampler->space->n_vocab)
            return error_set_param(error, ERR_INVALID, "prompt", "prompt token %u is id %u, the vocabulary ends at %u",
                                   i, prompt[i], sampler->space->n_vocab - 1);
    sampler->params = *params;
    sampler->choice = choice;
    sampler->n_drawn = 0;
    sampler->mirostat_mu = 2 * (double)params->mirostat_tau;
    sampler_ban(sampler, NULL, 0);
    sampler_allow(sampler, NULL);
    return history_reset(sampler, prompt, n_prompt, error);
}

void sampler_ban(Sampler *sampler, const uint32_t *ids, uint32_t n)
{
    sampler->banned = ids;
    sampler->n_banned = n;
}

void sampler_allow(Sampler *sampler, const uint64_t *words)
{
    sampler->allowed = words;
}

bool sampler_force(Sampler *sampler, uint32_t id, Error *error)
{
    if (!history_push(sampler, id, error)) return false;
    sampler->n_drawn++;
    return true;
}

static void apply_mask(const Sampler *sampler, float *logits)
{
    uint32_t n = sampler->space->n_vocab;
    for (uint32_t first = 0; sampler->allowed && first < n; first += 64) {
        uint64_t word = sampler->allowed[first / 64];
        uint32_t n_bits = n - first < 64 ? n - first : 64;
        if (word == UINT64_MAX) continue;
        for (uint32_t i = 0; i < n_bits; i++) logits[first + i] = word >> i & 1 ? logits[first + i] : -INFINITY;
    }
}

void run_cuts(Sampler *sampler, Row *row)
{
    for (size_t i = 0; i < sampler_n_cuts; i++)
        if (sampler_cuts[i].applies(sampler)) sampler_cuts[i].apply(sampler, row);
}

/* ---- chance ---- */

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

double sampler_uniform(const Sampler *sampler, DrawStream stream)
{
    return uniform_draw(sampler->params.seed, (uint64_t)stream << 32 | sampler->choice, sampler->n_drawn);
}

/* ---- one token ---- */

/* A block is looked through as a whole, which becomes vector code. */
static uint32_t first_index_of(const float *logits, uint32_t n, float value)
{
    enum { BLOCK = 256 };
    uint32_t i = 0;
    for (; n - i > BLOCK; i += BLOCK) {
        uint32_t n_equal = 0;
        for (uint32_t j = 0; j < BLOCK; j++) n_equal += logits[i + j] == value;
        if (n_equal) break;
    }
    while (i + 1 < n && logits[i] != value) i++;
    return i;
}

static uint32_t draw_token(Sampler *sampler, Row *row)
{
    run_cuts(sampler, row);
    return weights_draw(sampler->space->weights, sampler->space->n_vocab, sampler_uniform(sampler, STREAM_TOKEN));
}

uint32_t best_of(const float *logits, uint32_t n, uint32_t n_top, double log_sum, TokenLogprob *top)
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

/* From a row that has its edits; max: of it as it came. */
static bool pick_edited(Sampler *sampler, float *logits, float max, SampleResult *ret_result, Error *error)
{
    uint32_t n = sampler->space->n_vocab;
    Row row = {.logits = logits, .n = n, .max = max};
    apply_mask(sampler, logits);
    if ((sampler->n_edits || sampler->allowed) && !row_max(logits, n, &row.max, error)) return false;
    SampleResult result = {0};
    bool greedy = sampler->params.temperature == 0;
    result.id = greedy ? first_index_of(logits, n, row.max) : draw_token(sampler, &row);
    mirostat_learn(sampler, result.id);
    *ret_result = result;
    return true;
}

/* is_edited: the row has its edits. */
static bool pick(Sampler *sampler, float *logits, bool is_edited, bool want_logprob, uint32_t n_top,
                 SampleResult *ret_result, Error *error)
{
    uint32_t n = sampler->space->n_vocab;
    SampleResult result;
    float max;
    if (!row_max(logits, n, &max, error) || (!is_edited && !edits_find(sampler, error))) return false;
    if (want_logprob) memcpy(sampler->space->raw, logits, n * sizeof *logits);
    if (!is_edited) edits_apply(sampler, logits);
    if (!pick_edited(sampler, logits, max, &result, error)) return false;
    if (want_logprob) fill_logprobs(sampler->space->raw, n, max, n_top, &result);
    if (!sampler_force(sampler, result.id, error)) return false;
    *ret_result = result;
    return true;
}

bool sampler_pick(Sampler *sampler, float *logits, bool want_logprob, uint32_t n_top, SampleResult *ret_result,
                  Error *error)
{
    return pick(sampler, logits, false, want_logprob, n_top, ret_result, error);
}

bool sampler_pick_asked(Sampler *sampler, float *logits, bool want_logprob, uint32_t n_top, SampleResult *ret_result,
                        Error *error)
{
    return pick(sampler, logits, true, want_logprob, n_top, ret_result, error);
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
