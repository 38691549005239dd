/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the sampler share: the workspace, the tokens of a sequence, the stages that a row of logits goes
 * through. Private to engine/sample. One thread at a time, as sampler.h has it.
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

/* How often a token came in the penalties' range. */
typedef struct TokenCount {
    uint32_t id_plus_1; /* 0: the slot is free */
    uint32_t n_seen;    /* in prompt and answer */
    uint32_t n_generated;
} TokenCount;

/*
 * The sequence so far, as far as its parameters look back: nothing of it when they do not. Position p lies at p %
 * n_ring of the rings.
 */
typedef struct History {
    uint32_t *ids;        /* [n_ring] */
    uint8_t *breaks;      /* [n_ring] bits of TokenBreaks */
    uint32_t n_ring;      /* what a range of penalties and DRY need at most */
    uint64_t n, n_prompt; /* tokens pushed; how many of them were the prompt's */
    TokenCount *counts;   /* [n_counts] hashed by id, open addressing; NULL without penalties */
    uint32_t n_counts;    /* a power of two */
    uint32_t n_counted;   /* slots taken; at most half of them */
    Buffer tail;          /* text that the next token may complete to a breaker */
    uint8_t breaker_bytes[SAMPLE_MAX_BREAKERS];
} History;

struct SamplerSpace {
    uint32_t n_vocab;
    TokenText text;
    float *weights;    /* [n_vocab] */
    float *keys;       /* [n_vocab] */
    uint32_t *scratch; /* [n_vocab] */
    uint32_t *matches; /* [SAMPLE_MAX_WINDOW] */
    float *raw;        /* [n_vocab] the row before any change, for log-probabilities */
    uint32_t *slots;   /* [n_vocab] while edits are found: which of them is the id's, counted from 1; else zeros */
};

struct Sampler {
    SamplerSpace *space;
    SamplingParams params;
    uint32_t choice;
    uint64_t n_drawn; /* tokens picked since the reset: the counter of the generator */
    const uint32_t *banned;
    uint32_t n_banned;
    const uint64_t *allowed; /* NULL: all */
    double mirostat_mu;      /* bits */
    DigestEdit *edits;       /* [n_edits] of max_edits: how the next row is changed */
    uint32_t n_edits;
    size_t max_edits;
    History history;
};

/* One row on its way: all of it, or those that a digest lists (digest.h). */
typedef struct Row {
    float *logits;        /* [n] */
    uint32_t n;           /* n_vocab, or fewer of a list */
    float max;            /* of the changed logits; known when cuts begin */
    float temperature;    /* what the weights were filled with */
    float others;         /* of a list: what each id beyond it weighs at most; 0: none is left */
    uint64_t others_mass; /* they together; MASS_UNKNOWN behind a cut that may have taken some of them */
    bool is_undecided;    /* who is left does not follow from the list */
} Row;

#define MASS_UNKNOWN UINT64_MAX

typedef enum StageKind {
    STAGE_CUTS,       /* works on a list too, or finds that it cannot */
    STAGE_CUTS_WHOLE, /* must see the row */
    STAGE_FILLS,      /* makes the weights, and takes no token away */
} StageKind;

typedef struct Stage {
    const char *name;
    bool (*applies)(const Sampler *sampler);
    void (*apply)(Sampler *sampler, Row *row);
    StageKind kind;
} Stage;

/* In [0, 1), a function of the seed, the choice, the number of tokens drawn and the stream alone. */
double sampler_uniform(const Sampler *sampler, DrawStream stream);

void history_done(History *history);
/* Begins with the prompt, as much of it as the parameters need. */
LW_CHECK bool history_reset(Sampler *sampler, const uint32_t *prompt, uint32_t n_prompt, Error *error);
LW_CHECK bool history_push(Sampler *sampler, uint32_t id, Error *error);

/* The edit of an id, which changes nothing at first; while they are found. */
DigestEdit *edit_of(Sampler *sampler, uint32_t id);
LW_CHECK bool edits_find(Sampler *sampler, Error *error);
void edits_apply(const Sampler *sampler, float *logits);

bool penalties_apply_to(const Sampler *sampler);
void penalties_edit(Sampler *sampler);
bool dry_applies_to(const Sampler *sampler);
void dry_edit(Sampler *sampler);

/* The n_top best of a row, falling; equal ones by rising index, which is told as the id. Returns how many. */
uint32_t best_of(const float *logits, uint32_t n, uint32_t n_top, double log_sum, TokenLogprob *top);
/* From logits to weights, in order; what is left when they have run is drawn from. */
extern const Stage sampler_cuts[];
extern const size_t sampler_n_cuts;
void run_cuts(Sampler *sampler, Row *row);
/* After the draw: what mirostat learns from it. */
void mirostat_learn(Sampler *sampler, uint32_t id);
