/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of a request body to prompt text and tokens, through the model's template. Pool thread. */
#pragma once
#include "server/answer_ids.h"
#include "server/api_job.h"
#include "server/api_params.h"

/* Normalises job->json's messages and renders them. The caller ends *ret_prompt with chat_prompt_done. */
LW_CHECK bool chat_prompt_render(ApiJob *job, const ApiParams *params, ChatPrompt *ret_prompt, Error *error);
/* What an answer to a prompt goes on from. */
typedef struct ChatPromptEnd {
    bool in_reasoning;
    bool closed_reasoning; /* the template has begun and ended it */
    PromptHashes hashes;   /* but for is_turn */
} ChatPromptEnd;

/* The same down to ids; special tokens of the template are recognised, text of the messages stays text. ret_end may be
 * NULL. */
LW_CHECK bool chat_prompt_tokens(ApiJob *job, const ApiParams *params, TokenList *list, ChatPromptEnd *ret_end,
                                 Error *error);
