/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One choice's tokens on the way to its text: which tokens end it, streaming decode, reasoning and calls of tools
 * apart, stop strings (from behind min_tokens, in content and in reasoning, each by itself; not in calls), token
 * limits. The texts that answer_take gives, joined, are the decoding of all tokens that show, cut at the stop string,
 * without the marks of a plan. Engine thread.
 */
#pragma once
#include "engine/text/tokenizer.h"
#include "scheduler/messages.h"

typedef struct Answer {
    const Tokenizer *tokenizer;
    const Request *request;
    StopMatcher *stop;
    uint32_t *enders; /* [n_enders] ids that end this request's answers */
    uint32_t n_enders;
    TokStream stream;
    uint32_t n_tokens; /* taken in this choice */
    Buffer piece;      /* decoded text of one token, before the stop strings */
    Buffer text;       /* what the last token released */
    /* of a request that has a plan for its answers */
    AnswerParser *parser;
    AnswerParts found, parts; /* before the stop strings, and what the last token released */
    PartKind stop_kind;       /* what the stop strings look at */
    uint32_t n_reasoning;     /* tokens */
    uint32_t n_ended;         /* of the request's reasoning_end, taken because the budget was spent */
} Answer;

typedef enum AnswerState { ANSWER_OPEN, ANSWER_STOPPED, ANSWER_FULL } AnswerState;

/* end_ids [n_end_ids]: the model's end tokens. Tokenizer and request are borrowed. */
LW_CHECK bool answer_open(Answer *answer, const Tokenizer *tokenizer, const Request *request, const uint32_t *end_ids,
                          uint32_t n_end_ids, Error *error);
void answer_done(Answer *answer); /* {0} is fine */
/* Is the next token decided, because the budget of reasoning is spent? Then it is *ret_id. */
bool answer_ends_reasoning(const Answer *answer, uint32_t *ret_id);
/* May the next token end the answer, or is it too early for that (min_tokens)? */
bool answer_may_end(const Answer *answer);
/*
 * The next token; what it released is answer->text, until the next call. End tokens never show. is_whole: nothing may
 * follow it, whatever it is.
 */
LW_CHECK bool answer_take(Answer *answer, uint32_t id, bool is_whole, AnswerState *ret_state, Error *error);
