/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one row of logits to one token. Order: logit bias, penalties, (log-probabilities are taken here when asked for),
 * temperature and truncations as listed in the params, then one draw from a counter-based generator: the i-th token of
 * a request uses draw i of its seed, so the same seed and prompt give the same text whatever else runs. Engine thread.
 */
#pragma once
#include "base/arena.h"
#include "base/error.h"

typedef struct LogitBias {
    uint32_t id;
    float bias; /* [-100, 100] */
} LogitBias;

/* Range-checked by the API before it gets here. */
typedef struct SamplingParams {
    float temperature;        /* 0: greedy */
    float top_p, min_p;       /* 1 and 0: off */
    uint32_t top_k;           /* 0: off */
    float presence_penalty, frequency_penalty; /* over generated tokens, OpenAI's definition */
    float repetition_penalty; /* 1: off; over prompt and generated tokens */
    uint64_t seed;
    const LogitBias *bias; /* [n_bias], in the request's arena */
    uint32_t n_bias;
} SamplingParams;

void sampling_defaults(SamplingParams *params);

typedef struct TokenLogprob {
    uint32_t id;
    float logprob; /* natural log; -INFINITY possible, the API writes null or -9999 */
} TokenLogprob;

/* Chosen token first, then the n_top best in falling order. */
typedef struct SampleResult {
    uint32_t id;
    float logprob;
    uint32_t n_top;
    TokenLogprob top[20];
} SampleResult;

typedef struct Sampler Sampler;

/* Workspace for one sequence at a time; n_vocab fixed. */
LW_CHECK bool sampler_new(uint32_t n_vocab, Sampler **ret_sampler, Error *error);
void sampler_free(Sampler *sampler);
/* Starts a sequence: choice c of a request uses seed stream c. prompt is only read here. */
LW_CHECK bool sampler_reset(Sampler *sampler, const SamplingParams *params, uint32_t choice, const uint32_t *prompt,
                            uint32_t n_prompt, Error *error);
/* logits [n_vocab] are changed in place. banned: ids that must not be chosen now (min_tokens). ERR_NON_FINITE on NaN. */
LW_CHECK bool sampler_pick(Sampler *sampler, float *logits, bool want_logprob, uint32_t n_top, SampleResult *ret_result,
                           Error *error);
/* Counts a token as generated (sampler_pick has done it for its own). */
void sampler_accept(Sampler *sampler, uint32_t id);

/* Log-probability of one id and the n_top best of a row, for prompt log-probabilities; logits unchanged. */
LW_CHECK bool sample_logprobs(const float *logits, uint32_t n_vocab, uint32_t id, uint32_t n_top, SampleResult *ret_result,
                              Error *error);
