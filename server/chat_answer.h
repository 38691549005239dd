/* SPDX-License-Identifier: Apache-2.0 */
/* What the answer of a chat is to be taken apart into, from its tools and from how the model writes. Pool thread. */
#pragma once
#include "server/chat_prompt.h"

/* Sets the plan of job->user's only request. */
LW_CHECK bool chat_answer_plan(ApiJob *job, const ApiParams *params, const ChatPromptEnd *end, Error *error);
