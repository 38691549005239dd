/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chat messages to prompt text through the model's own Jinja template. Immutable after creation; any thread may render.
 * The output carries which of its bytes came from the template itself (trusted: special tokens are recognised there)
 * and which from the messages.
 */
#pragma once
#include "base/buffer.h"
#include "engine/text/tokenizer.h"
#include <cjson/cJSON.h>

typedef struct ChatTemplate ChatTemplate;

/* source: the Jinja text; bos and eos: the text of these tokens, "" when there are none. Fails with ERR_TEMPLATE
 * (line). */
LW_CHECK bool chat_template_new(const char *source, size_t n, const char *bos, const char *eos,
                                ChatTemplate **ret_template, Error *error);
void chat_template_free(ChatTemplate *chat_template);
const char *chat_template_source(const ChatTemplate *chat_template);

enum { CHAT_SHOWN_BYTES = 64 };

/* What a template makes of a tool and of a call of it; found out by rendering. */
typedef struct ChatCallShown {
    bool shows_tools, shows_call, shows_two; /* two: calls of one turn */
    /* Of an assistant's turn that is a call in JSON: from the turn's begin to its brace, and what is behind it. */
    char before[CHAT_SHOWN_BYTES], after[CHAT_SHOWN_BYTES];
    size_t n_before; /* 0: it is none, or begins with its brace */
} ChatCallShown;
LW_CHECK bool chat_template_try_tools(const ChatTemplate *chat_template, ChatCallShown *ret_shown, Error *error);

typedef struct ChatInput {
    const cJSON *messages; /* array of objects, as the API takes them */
    const cJSON *tools;    /* array or NULL */
    const cJSON *kwargs;   /* object of extra variables (chat_template_kwargs) or NULL */
    bool add_generation_prompt;
    bool continue_final_message; /* leave the last message open, cut right after its content */
    int64_t now_unix;            /* what strftime_now formats (UTC) */
} ChatInput;

typedef struct ChatPrompt {
    Buffer text;
    TextRange *trusted; /* sorted, disjoint */
    size_t n_trusted;
    TextRange *answers; /* [n_answers] what the text shows of assistants' contents; sorted, disjoint */
    size_t n_answers;
} ChatPrompt;
void chat_prompt_done(ChatPrompt *prompt);

/*
 * max_bytes bounds the output, with ERR_TOO_LARGE; a step limit bounds the time. A raise_exception message arrives as
 * ERR_TEMPLATE.
 */
LW_CHECK bool chat_template_render(const ChatTemplate *chat_template, const ChatInput *input, size_t max_bytes,
                                   ChatPrompt *ret_prompt, Error *error);
