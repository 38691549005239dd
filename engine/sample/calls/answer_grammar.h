/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole answer as a grammar: reasoning, content and calls of tools in the way that the model writes them, the
 * arguments of each call by its tool's schema. What the answer parser takes for a call is a call of this grammar. Any
 * thread.
 */
#pragma once
#include "engine/sample/grammar/grammar.h"
#include "engine/text/answer_style.h"

typedef struct CallTool {
    const char *name;
    const cJSON *parameters; /* a schema; NULL: no arguments */
    bool is_strict;          /* a schema that cannot be followed is an error; else its arguments are any object */
    uint32_t index;          /* among the request's tools, for errors */
} CallTool;

typedef struct AnswerRules {
    const AnswerStyle *style;
    bool in_reasoning;     /* it begins within */
    bool may_reason;       /* it may begin with */
    const CallTool *tools; /* [n_tools] that may be called */
    uint32_t n_tools;
    bool must_call;
    bool one_call;    /* at most */
    bool has_content; /* what is no call is this node; else any text */
    GrammarNode content;
} AnswerRules;

/* ERR_SCHEMA names the tool's parameters and the place in them. */
LW_CHECK bool answer_grammar(GrammarBuilder *builder, const AnswerRules *rules, GrammarNode *ret_root, Error *error);
