/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An answer's bytes to content, reasoning and calls of tools, as they come: what the pushes release, joined, does not
 * depend on how they cut the bytes. What turns out to be no call is content. Held back is only what may still be the
 * beginning of a mark or of a call. One thread at a time.
 */
#pragma once
#include "engine/text/answer_parts.h"
#include "engine/text/answer_style.h"
#include "engine/text/value_kinds.h"

/* A function that may be called. */
typedef struct ToolSpec {
    const char *name;
    ObjectKinds kinds; /* of its parameters; CALL_TAGS */
} ToolSpec;

enum { TOOL_NAME_MAX_BYTES = 128 };

/* What is looked for in one answer. All is borrowed. */
typedef struct AnswerPlan {
    const AnswerStyle *style;
    bool splits_reasoning;    /* needs style->has_reasoning */
    bool begins_in_reasoning; /* the prompt ends within it */
    const ToolSpec *tools;    /* [n_tools]; 0: no calls are looked for */
    uint32_t n_tools;
    uint32_t max_calls; /* 0: any number; one more ends the answer */
} AnswerPlan;

typedef enum AnswerPhase {
    PHASE_START,     /* nothing but blanks yet */
    PHASE_REASONING, /* within it */
    PHASE_TEXT,      /* content, or behind a call */
    PHASE_CALL,      /* within a call: behind its mark, or since the name is known where there is none */
} AnswerPhase;

typedef struct AnswerParser AnswerParser;

LW_CHECK bool answer_parser_new(const AnswerPlan *plan, AnswerParser **ret_parser, Error *error);
void answer_parser_free(AnswerParser *parser); /* NULL is fine */
/*
 * text [n]: whole code points, and marks that are control tokens as their marker's bytes. Appends to parts. After an
 * error only free.
 */
LW_CHECK bool answer_parser_push(AnswerParser *parser, const char *text, size_t n, AnswerParts *parts, Error *error);
/* The answer ends here: appends what was held back. */
LW_CHECK bool answer_parser_finish(AnswerParser *parser, AnswerParts *parts, Error *error);

AnswerPhase answer_parser_phase(const AnswerParser *parser);
/* A call beyond max_calls has begun: what follows counts for nothing. */
bool answer_parser_is_over(const AnswerParser *parser);
