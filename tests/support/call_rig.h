/* SPDX-License-Identifier: Apache-2.0 */
/* One tool, called f, in one form of calls: its grammar, and the parser that reads its calls. Test code; one thread. */
#pragma once
#include "engine/sample/calls/answer_grammar.h"
#include "engine/text/answer_parser.h"
#include "tests/support/grammar_rig.h"

#include "base/arena.h"

typedef struct CallRig {
    Arena arena;
    AnswerStyle style;
    ToolSpec spec;
    CallTool tool;
    GrammarRig grammar; /* of answers that are one call */
} CallRig;

/* parameters: borrowed. After a failure there is nothing to be done. */
LW_CHECK bool call_rig_init(CallRig *rig, const char *format, const cJSON *parameters, const GrammarVocab *vocab,
                            Error *error);
void call_rig_done(CallRig *rig);
/* The arguments of the one call that the text is; false: it is something else, or more. */
bool call_rig_read(const CallRig *rig, const char *text, size_t n, Buffer *arguments);
