/* SPDX-License-Identifier: Apache-2.0 */
/* What stands around a long prompt: nothing but the first token of a text, or the turns of the model's chat template.
 */
#pragma once
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

typedef struct PromptFrame {
    TokenList before; /* the haystack and the question come between */
    TokenList after;  /* the answer comes behind */
} PromptFrame;

/* chat_template NULL: a plain text that goes on. */
LW_CHECK bool prompt_frame_init(const Tokenizer *tokenizer, const ChatTemplate *chat_template, PromptFrame *ret_frame,
                                Error *error);
void prompt_frame_done(PromptFrame *frame);
