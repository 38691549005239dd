/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one row of logits to one token. [Log-probabilities are taken from the raw row.] Changes of logits: bias, bans,
 * a grammar's mask, repetition, frequency and presence penalty, DRY. Then, unless greedy, cuts, each on what the one
 * before left: top_n_sigma, temperature (or dynatemp), min_p, top_k, typical_p, top_p, xtc; or with mirostat its own
 * cut in place of all cuts. At last one draw from a counter-based generator: token i of choice c depends on (seed, c,
 * i), its row and the tokens before it alone. Every use of chance has a stream of its own. Ties go to the lower id.
 * Each sampler and each space in one thread at a time, whichever that is.
 *
 * Why this order: temperature before min_p, top_k and top_p is vLLM's; the places of the others among them are
 * llama.cpp's (DRY after the penalties, top_n_sigma on logits, typical_p between top_k and top_p, xtc behind all cuts).
 */
#pragma once
#include "engine/text/tokenizer.h"
#include "kernels/sample/digest.h"

typedef struct LogitBias {
    uint32_t id;
    float bias; /* [-100, 100] */
} LogitBias;

enum {
    SAMPLE_MAX_WINDOW = 32768, /* tokens that penalties over a range and DRY look back at most */
    SAMPLE_MAX_BREAKERS = 64,
    SAMPLE_MAX_BREAKER_BYTES = 64,
};

/* Names and meanings are those of the API. Range-checked there, and by sampler_reset again. */
typedef struct SamplingParams {
    float temperature;  /* 0: greedy */
    float top_p, min_p; /* 1 and 0: off */
    uint32_t top_k;     /* 0: off */
    float typical_p;    /* 1: off; of the tokens nearest to the mean surprise, as many as hold this mass */
    float top_n_sigma;  /* 0 or less: off; drops logits more than so many standard deviations below the best */
    float presence_penalty, frequency_penalty; /* over generated tokens, OpenAI's definition */
    float repetition_penalty;                  /* > 0; 1: off; over prompt and generated tokens */
    int32_t repeat_last_n; /* the three penalties count the last n tokens of prompt and answer only; -1: all */
    float xtc_probability; /* 0: off; with this chance all tokens of p >= threshold but the least of them go */
    float xtc_threshold;   /* beyond 0.5: off, since no two tokens can reach it */
    float dynatemp_range;  /* 0: off; temperature -+ range as (entropy / its maximum) ^ exponent goes from 0 to 1 */
    float dynatemp_exponent;
    int32_t mirostat;                 /* 0: off; 1, 2: Basu et al., arXiv:2007.14966, algorithm 1, and version 2 */
    float mirostat_tau, mirostat_eta; /* wanted surprise in bits, of the token among those left; learning rate */
    float dry_multiplier; /* 0: off; what would make l repeated tokens l + 1 loses multiplier * base ^ (l - allowed) */
    float dry_base;       /* below 1: off */
    int32_t dry_allowed_length, dry_penalty_last_n; /* -1: the last SAMPLE_MAX_WINDOW tokens; 0: off */
    const char *const *dry_breakers; /* [n_dry_breakers] texts that no repetition extends over; borrowed like bias */
    uint32_t n_dry_breakers;
    uint64_t seed;
    const LogitBias *bias; /* [n_bias], in the request's arena */
    uint32_t n_bias;
} SamplingParams;

/* Plain sampling: temperature 1, everything else off, and what shapes it at llama.cpp's defaults. */
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

/* Appends the bytes of one token, control tokens too. */
typedef struct TokenText {
    bool (*append)(const void *arg, uint32_t id, Buffer *out, Error *error);
    const void *arg;
} TokenText;
TokenText sampler_text_of(const Tokenizer *tokenizer);

/* Scratch of the vocabulary's size, for all samplers of one thread; text: where DRY finds the texts of tokens. */
typedef struct SamplerSpace SamplerSpace;
LW_CHECK bool sampler_space_new(uint32_t n_vocab, TokenText text, SamplerSpace **ret_space, Error *error);
void sampler_space_free(SamplerSpace *space); /* NULL is fine; after its samplers */

/* One sequence's state. It is small, unless penalties or DRY look back far. */
typedef struct Sampler Sampler;
LW_CHECK bool sampler_new(SamplerSpace *space, Sampler **ret_sampler, Error *error);
void sampler_free(Sampler *sampler); /* NULL is fine */
/* From now on it works in another space, of the same vocabulary: that of the thread that picks. */
void sampler_use_space(Sampler *sampler, SamplerSpace *space);
/*
 * Starts a sequence: choice c of a request uses seed stream c. prompt is only read here; params->bias as long as the
 * sequence is sampled, and so its breakers. ERR_INVALID names a field with an id beyond the vocabulary, a parameter out
 * of its range, or breakers without texts of tokens; after any error only another reset will do.
 */
LW_CHECK bool sampler_reset(Sampler *sampler, const SamplingParams *params, uint32_t choice, const uint32_t *prompt,
                            uint32_t n_prompt, Error *error);
/* From now on these ids are never chosen (min_tokens); n = 0 lifts it. ids are borrowed; reset lifts it too. */
void sampler_ban(Sampler *sampler, const uint32_t *ids, uint32_t n);
/* From now on only ids whose bit is set (bit id % 64 of word id / 64) are chosen; NULL lifts it. Borrowed; so does
 * reset. */
void sampler_allow(Sampler *sampler, const uint64_t *words);
/* This id is the next token, whatever the row says; a draw is used up by it. */
LW_CHECK bool sampler_force(Sampler *sampler, uint32_t id, Error *error);
/*
 * logits [n_vocab] are changed in place. logprob and top stay 0 unless asked for. -INFINITY is a masked id; NaN,
 * +INFINITY or a row without any id left is ERR_NON_FINITE.
 */
LW_CHECK bool sampler_pick(Sampler *sampler, float *logits, bool want_logprob, uint32_t n_top, SampleResult *ret_result,
                           Error *error);

/*
 * The same from a digest of the row, with the same result: what must be asked of the next row for it, which borrows
 * what it points to until the sampler picks. False: only the row itself will do, since a sampler looks at all of it, or
 * probabilities are wanted of a row that is changed.
 */
bool sampler_edits(const Sampler *sampler); /* are logits of the next row changed, so that it takes a while? */
bool sampler_ask(Sampler *sampler, bool want_logprob, uint32_t n_top, DigestAsk *ret_ask);
/* items: the digest's list. *ret_is_enough false: it takes the row itself after all; nothing has changed. */
LW_CHECK bool sampler_pick_digest(Sampler *sampler, const RowDigest *digest, const DigestItem *items, bool want_logprob,
                                  uint32_t n_top, SampleResult *ret_result, bool *ret_is_enough, Error *error);
/* As sampler_pick, from a row that has the edits which were asked for, when a digest was not enough. */
LW_CHECK bool sampler_pick_asked(Sampler *sampler, float *logits, bool want_logprob, uint32_t n_top,
                                 SampleResult *ret_result, Error *error);

/* Log-probability of one id and the n_top best of a row, for prompt log-probabilities; logits unchanged. */
LW_CHECK bool sample_logprobs(const float *logits, uint32_t n_vocab, uint32_t id, uint32_t n_top,
                              SampleResult *ret_result, Error *error);
