/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What guides one choice besides its own logits: the grammar of its request. It says which ids the next token may be,
 * and when the text is whole; text that the grammar alone decides is made into tokens ahead. An answer that it lets end
 * is a text of the grammar, but for one that is cut by max_tokens or a stop string. Engine thread.
 */
#pragma once
#include "engine/sample/grammar/matcher.h"
#include "scheduler/answer.h"

enum {
    GUIDE_MAX_AHEAD = 64,    /* tokens */
    GUIDE_AHEAD_BYTES = 256, /* of text that they stand for, at most */
    GUIDE_JUMP_TOKENS = 3,   /* so many at once are worth a pass of their own */
};

typedef struct Guide {
    GrammarMatcher *matcher; /* NULL: nothing guides it */
    const Tokenizer *tokenizer;
    const GrammarVocab *vocab;
    uint64_t *words;                 /* [n_vocab / 64, rounded up] the ids allowed, as they were asked for last */
    uint32_t ahead[GUIDE_MAX_AHEAD]; /* [n_ahead] what comes next, whatever the logits say */
    uint32_t n_ahead, at;            /* at: of those taken already */
    bool jumps;                      /* they are taken at once */
    TokenList scratch;
} Guide;

typedef enum GuideKind {
    GUIDE_FREE,   /* any id */
    GUIDE_MASKED, /* one of 'words' */
    GUIDE_FORCED, /* 'id' */
} GuideKind;

typedef struct GuideStep {
    GuideKind kind;
    uint32_t id;
} GuideStep;

/* grammar NULL: nothing guides it. */
LW_CHECK bool guide_open(Guide *guide, Grammar *grammar, const Tokenizer *tokenizer, Error *error);
void guide_done(Guide *guide); /* {0} is fine */
/* What may come next: the end token if nothing else can. ERR_SCHEMA: the grammar goes on, but no token can. */
LW_CHECK bool guide_next(Guide *guide, const Answer *answer, GuideStep *ret_step, Error *error);
/* This came. *ret_is_over: the text is whole, nothing may follow. */
LW_CHECK bool guide_take(Guide *guide, const Answer *answer, uint32_t id, bool *ret_is_over, Error *error);
/* The next token is known ahead, and it is worth while to take it at once. */
bool guide_is_ahead(const Guide *guide);
