/* SPDX-License-Identifier: Apache-2.0 */
/* Answers as models of every format write them, and what they are. */
#pragma once
#include "engine/text/answer_parser.h"

typedef struct AnswerCase {
    const char *format, *reasoning; /* rows of answer_style */
    const char *text;               /* raw; marks as texts */
    const char *wanted;             /* R(reasoning) C(content) and f(arguments), in order */
    bool begins_in_reasoning;
    uint32_t max_calls;
} AnswerCase;

extern const AnswerCase answer_cases[];
extern const size_t n_answer_cases;

/* Two tools, "weather" with the text "city", and "add". */
extern const ToolSpec answer_case_tools[2];

AnswerPlan answer_case_plan(const AnswerCase *one, AnswerStyle *style);
/* The parts in the notation of 'wanted'. */
void answer_case_show(const AnswerParts *parts, Buffer *shown);
