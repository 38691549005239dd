/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of engine/sample/calls. */
#pragma once
#include "engine/sample/calls/answer_grammar.h"

enum { CALL_TAG_BYTES = 64 };

typedef struct CallWriter {
    GrammarBuilder *builder;
    const AnswerStyle *style;
    Error *error;
    uint32_t n_tools; /* that may be called */
} CallWriter;

/* A mark as the tokens or as the text that it is; empty when there is none. */
GrammarNode call_mark(const CallWriter *writer, AnswerMark mark);
/* name and arguments as the style's body has them, from behind the mark to before its end. */
LW_CHECK bool call_body(const CallWriter *writer, const CallTool *tool, const cJSON *parameters, GrammarNode *ret_node);
/* Answers in channels: a call, and the whole answer with calls of these. */
GrammarNode channel_call(const CallWriter *writer, const char *name, GrammarNode arguments);
GrammarNode channel_answer(const CallWriter *writer, const AnswerRules *rules, GrammarNode call, bool only_one);

/* Any text that the parser does not take for a call that begins without a mark. */
GrammarNode bare_text(const CallWriter *writer, const CallTool *tools, uint32_t n_tools);
