/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A long prompt of an exact number of tokens that holds needles at chosen depths, and questions about them: what the
 * tasks (tasks.h) are made of. Lines keep their own tokens, so that what a question asks for stands in the prompt as it
 * would anywhere. One thread.
 */
#pragma once
#include "engine/eval/prompt_frame.h"
#include "base/rng.h"

typedef struct EvalQuestion {
    uint32_t *tokens; /* [n_tokens] behind the haystack; the last n_answer of them are the right answer */
    uint32_t n_tokens, n_answer;
    uint32_t needle; /* position of the first token that it asks for */
} EvalQuestion;

typedef struct Haystack {
    TokenList tokens;
    EvalQuestion *questions; /* [n_questions] */
    uint32_t n_questions;
} Haystack;

void haystack_done(Haystack *haystack);

/* Lines on their way into a haystack. */
typedef struct HaystackDraft {
    const Tokenizer *tokenizer;
    const PromptFrame *frame;
    Rng rng;
    TokenList ids; /* of all lines, one after the other */
    struct DraftLine *lines;
    uint32_t n_lines, lines_capacity;
    Haystack made; /* its questions */
    uint32_t questions_capacity;
    Buffer text; /* of the line that is being written */
} HaystackDraft;

/* frame and tokenizer are kept by the caller. */
void draft_init(HaystackDraft *draft, const Tokenizer *tokenizer, const PromptFrame *frame, Rng rng);
void draft_done(HaystackDraft *draft);
/* A line at a depth in [0, 1]: those of equal depth stay in order. needle: which one it is part of. */
LW_CHECK bool draft_line(HaystackDraft *draft, double depth, uint32_t needle, Error *error, const char *fmt, ...)
    LW_PRINTF(5, 6);
#define DRAFT_NO_NEEDLE UINT32_MAX
/* The question, then what the answer begins with, then the right answer, which a needle tells. */
typedef struct DraftQuestion {
    const char *text, *lead, *answer;
    uint32_t needle;
} DraftQuestion;
LW_CHECK bool draft_question(HaystackDraft *draft, const DraftQuestion *question, Error *error);
/* Appends one line of what fills the space between the needles. */
typedef bool (*DraftFiller)(Rng *rng, Buffer *out, Error *error);
/*
 * n_tokens: of the haystack and the longest of its questions with its answer together. instruction comes first.
 * ERR_TOO_LARGE when the lines leave no room.
 */
LW_CHECK bool draft_make(HaystackDraft *draft, const char *instruction, DraftFiller filler, uint32_t n_tokens,
                         Haystack *ret_haystack, Error *error);
