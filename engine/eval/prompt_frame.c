/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/prompt_frame.h"

#include <string.h>

enum { MAX_BYTES = 1 << 20 };

static const char MARK[] = "@@the-text@@";

static bool encode_range(const Tokenizer *tokenizer, const ChatPrompt *chat, TextRange part, TokenList *list,
                         Error *error)
{
    TextRange trusted[64];
    size_t n = 0;
    for (size_t i = 0; i < chat->n_trusted; i++) {
        size_t start = chat->trusted[i].start > part.start ? chat->trusted[i].start : part.start;
        size_t end = chat->trusted[i].end < part.end ? chat->trusted[i].end : part.end;
        if (start >= end) continue;
        if (n == sizeof trusted / sizeof *trusted)
            return error_set(error, ERR_TEMPLATE, "the chat template makes one message of too many parts");
        trusted[n++] = (TextRange){start - part.start, end - part.start};
    }
    const TokEncode in = {chat->text.data + part.start, part.end - part.start, trusted, n, false};
    return tok_encode(tokenizer, &in, list, error);
}

/* Not by TokEncode.add_special, which would also end the text where the model asks for it. */
static bool begin_text(const Tokenizer *tokenizer, TokenList *list, Error *error)
{
    uint32_t bos = tok_bos(tokenizer);
    if (!tok_adds_bos(tokenizer) || bos == TOK_NONE || (list->n && list->ids[0] == bos)) return true;
    if (!token_list_push(list, bos, error)) return false;
    memmove(list->ids + 1, list->ids, (list->n - 1) * sizeof *list->ids);
    list->ids[0] = bos;
    return true;
}

static bool split(const Tokenizer *tokenizer, const ChatPrompt *chat, PromptFrame *frame, Error *error)
{
    const char *at = chat->text.data ? strstr(chat->text.data, MARK) : NULL;
    if (!at) return error_set(error, ERR_TEMPLATE, "the chat template does not show a message as it is");
    size_t start = (size_t)(at - chat->text.data), end = start + sizeof MARK - 1;
    return encode_range(tokenizer, chat, (TextRange){0, start}, &frame->before, error) &&
           encode_range(tokenizer, chat, (TextRange){end, chat->text.n}, &frame->after, error);
}

static bool render(const ChatTemplate *chat_template, ChatPrompt *ret_chat, Error *error)
{
    cJSON *messages = cJSON_CreateArray(), *message = cJSON_CreateObject();
    bool ok = messages && message && cJSON_AddStringToObject(message, "role", "user") &&
              cJSON_AddStringToObject(message, "content", MARK) && cJSON_AddItemToArray(messages, message);
    if (!ok) {
        cJSON_Delete(message);
        error_set(error, ERR_NO_MEMORY, "no memory for the message");
    }
    const ChatInput input = {.messages = messages, .add_generation_prompt = true};
    ok = ok && chat_template_render(chat_template, &input, MAX_BYTES, ret_chat, error);
    cJSON_Delete(messages);
    return ok;
}

bool prompt_frame_init(const Tokenizer *tokenizer, const ChatTemplate *chat_template, PromptFrame *ret_frame,
                       Error *error)
{
    PromptFrame frame = {0};
    bool ok;
    if (chat_template) {
        ChatPrompt chat;
        if (!render(chat_template, &chat, error)) return false;
        ok = split(tokenizer, &chat, &frame, error);
        chat_prompt_done(&chat);
    } else {
        ok = tok_encode(tokenizer, &(TokEncode){.text = "\n", .n = 1}, &frame.after, error);
    }
    ok = ok && begin_text(tokenizer, &frame.before, error);
    if (ok)
        *ret_frame = frame;
    else
        prompt_frame_done(&frame);
    return ok;
}

void prompt_frame_done(PromptFrame *frame)
{
    token_list_done(&frame->before);
    token_list_done(&frame->after);
}
