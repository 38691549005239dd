/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one row of logits to one token, in vLLM's order: [log-probabilities are taken from the raw row] logit bias, bans,
 * repetition, frequency and presence penalty, temperature, min_p, top_k, top_p (each on what the one before left), then
 * one draw from a counter-based generator: token i of choice c depends on (seed, c, i) and its row alone, so the same
 * seed and prompt give the same text whatever else runs. Ties go to the lower id. Engine thread.
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
    float repetition_penalty; /* > 0; 1: off; over prompt and generated tokens */
    uint64_t seed;
    const LogitBias *bias; /* [n_bias], in the request's arena */
    uint32_t n_bias;
} SamplingParams;

/* Plain sampling: temperature 1, everything else off. */
void sampling_defaults(SamplingParams *params);

typedef struct TokenLogprob {
    uint32_t id;
    float logprob; /* natural log; -INFINITY possible, the API writes null or -9999 */
} TokenLogprob;

enum { SAMPLE_MAX_TOP = 20 };

/* The chosen token, and the n_top best of the raw row in falling order. */
typedef struct SampleResult {
    uint32_t id;
    float logprob;
    uint32_t n_top;
    TokenLogprob top[SAMPLE_MAX_TOP];
} SampleResult;

typedef struct Sampler Sampler;

/* Workspace for one sequence at a time; n_vocab fixed. */
LW_CHECK bool sampler_new(uint32_t n_vocab, Sampler **ret_sampler, Error *error);
void sampler_free(Sampler *sampler); /* NULL is fine */
/*
 * Starts a sequence: choice c of a request uses seed stream c. prompt is only read here; params->bias as long as the
 * sequence is sampled. ERR_INVALID names a field with an id beyond the vocabulary or a parameter out of its range.
 */
LW_CHECK bool sampler_reset(Sampler *sampler, const SamplingParams *params, uint32_t choice, const uint32_t *prompt,
                            uint32_t n_prompt, Error *error);
/* From now on these ids are never chosen (min_tokens); n = 0 lifts it. ids are borrowed; reset lifts it too. */
void sampler_ban(Sampler *sampler, const uint32_t *ids, uint32_t n);
/*
 * logits [n_vocab] are changed in place. logprob and top stay 0 unless asked for. -INFINITY is a masked id; NaN,
 * +INFINITY or a row without any id left is ERR_NON_FINITE.
 */
LW_CHECK bool sampler_pick(Sampler *sampler, float *logits, bool want_logprob, uint32_t n_top, SampleResult *ret_result,
                           Error *error);

/* Log-probability of one id and the n_top best of a row, for prompt log-probabilities; logits unchanged. */
LW_CHECK bool sample_logprobs(const float *logits, uint32_t n_vocab, uint32_t id, uint32_t n_top, SampleResult *ret_result,
                              Error *error);
