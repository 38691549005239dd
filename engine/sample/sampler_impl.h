/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the sampler share: its workspace, the tokens of the sequence, the stages that a row of logits goes
 * through. Private to engine/sample. Engine thread.
 */
#pragma once
#include "engine/sample/sampler.h"
#include "engine/sample/weights.h"

/* Every use of chance has its own numbers, so that one more of them leaves the others as they were. */
typedef enum DrawStream { STREAM_TOKEN, STREAM_XTC } DrawStream;

typedef enum TokenBreaks {
    BREAKS_NOT = 0,
    BREAKS_BEHIND = 1, /* a breaker is complete when this token has come */
    BREAKS_ALONE = 2,  /* this token's text holds a whole breaker */
} TokenBreaks;

/* The sequence so far, as far as penalties look back. Position p lies at p % SAMPLE_MAX_WINDOW of the rings. */
typedef struct History {
    uint32_t *ids;         /* [SAMPLE_MAX_WINDOW] */
    uint8_t *breaks;       /* [SAMPLE_MAX_WINDOW] bits of TokenBreaks; set when DRY is on */
    uint64_t n, n_prompt;  /* tokens pushed; how many of them were the prompt's */
    uint32_t *n_generated; /* [n_vocab] times in the penalties' range, in the answer */
    uint32_t *n_seen;      /* [n_vocab] in prompt and answer */
    bool *listed;          /* [n_vocab] is among listed_ids */
    uint32_t *listed_ids;  /* [n_listed], of n_vocab: all with n_seen > 0, and some more */
    uint32_t n_listed;
    Buffer tail; /* text that the next token may complete to a breaker */
    uint8_t breaker_bytes[SAMPLE_MAX_BREAKERS];
} History;

struct Sampler {
    uint32_t n_vocab;
    SamplingParams params;
    TokenText text;
    uint32_t choice;
    uint64_t n_drawn; /* tokens picked since the reset: the counter of the generator */
    const uint32_t *banned;
    uint32_t n_banned;
    double mirostat_mu; /* bits */
    History history;
    float *weights;    /* [n_vocab] */
    float *keys;       /* [n_vocab] */
    uint32_t *scratch; /* [n_vocab] */
    uint32_t *matches; /* [SAMPLE_MAX_WINDOW] */
    float *raw;        /* [n_vocab] the row before any change, for log-probabilities */
};

/* One row on its way. */
typedef struct Row {
    float *logits;     /* [n_vocab] */
    float max;         /* of the changed logits; known when cuts begin */
    float temperature; /* what the weights were filled with */
} Row;

typedef struct Stage {
    const char *name;
    bool (*applies)(const Sampler *sampler);
    void (*apply)(Sampler *sampler, Row *row);
} Stage;

/* In [0, 1), a function of the seed, the choice, the number of tokens drawn and the stream alone. */
double sampler_uniform(const Sampler *sampler, DrawStream stream);

LW_CHECK bool history_init(History *history, uint32_t n_vocab);
void history_done(History *history);
/* Begins with the prompt, as much of it as the parameters need. */
LW_CHECK bool history_reset(Sampler *sampler, const uint32_t *prompt, uint32_t n_prompt, Error *error);
LW_CHECK bool history_push(Sampler *sampler, uint32_t id, Error *error);

bool penalties_apply_to(const Sampler *sampler);
void penalties_apply(Sampler *sampler, Row *row);
bool dry_applies_to(const Sampler *sampler);
void dry_apply(Sampler *sampler, Row *row);

/* From logits to weights, in order; what is left when they have run is drawn from. */
extern const Stage sampler_cuts[];
extern const size_t sampler_n_cuts;
/* After the draw: what mirostat learns from it. */
void mirostat_learn(Sampler *sampler, uint32_t id);
