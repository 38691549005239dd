/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The grammar of a chat's answer: what the request's guide asks for, the calls that its tools allow, and reasoning
 * before them. Pool thread.
 */
#pragma once
#include "engine/sample/grammar/cache.h"
#include "server/chat_prompt.h"

/* What api_grammar_attach makes of a chat's grammars; lives while the body is read. */
typedef struct ChatGuide {
    const ApiParams *params;
    const ChatPromptEnd *end;
    const AnswerStyle *style; /* NULL: answers are text */
} ChatGuide;

/* Sets the grammar of job->user, if anything wants one. */
LW_CHECK bool chat_grammar_read(ApiJob *job, const ApiParams *params, const ChatPromptEnd *end, Error *error);
/* The grammar of the whole answer whose content is 'source'. */
LW_CHECK bool chat_grammar_get(GrammarCache *cache, const ChatGuide *guide, const GrammarSource *source,
                               Grammar **ret_grammar, Error *error);
