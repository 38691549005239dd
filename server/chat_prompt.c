/* SPDX-License-Identifier: Apache-2.0 */
#include "server/chat_prompt.h"
#include "base/clock.h"
#include "server/chat_messages.h"
#include "server/chat_tools.h"
#include "server/generation.h"
#include "server/turn_hash.h"

#include <stdlib.h>
#include <string.h>

/* A token is seldom longer than this many bytes; a prompt far beyond the context need not be rendered to its end. */
enum { MIN_PROMPT_BYTES = 4 << 20, BYTES_PER_TOKEN = 64 };

/* chat_template_kwargs with reasoning_effort among them. *ret_kwargs: NULL or a copy that the caller deletes. */
static bool build_kwargs(const ApiParams *params, cJSON **ret_kwargs, Error *error)
{
    cJSON *kwargs =
        params->chat_template_kwargs ? cJSON_Duplicate(params->chat_template_kwargs, 1) : cJSON_CreateObject();
    if (!kwargs) return error_set(error, ERR_NO_MEMORY, "no memory for chat_template_kwargs");
    bool add = params->reasoning_effort && !json_member(kwargs, "reasoning_effort");
    bool ok = !add || cJSON_AddStringToObject(kwargs, "reasoning_effort", params->reasoning_effort);
    bool is_none = params->reasoning_effort && !strcmp(params->reasoning_effort, "none");
    if (ok && is_none && !json_member(kwargs, "enable_thinking"))
        ok = cJSON_AddFalseToObject(kwargs, "enable_thinking");
    if (!ok) {
        cJSON_Delete(kwargs);
        return error_set(error, ERR_NO_MEMORY, "no memory for chat_template_kwargs");
    }
    *ret_kwargs = kwargs;
    return true;
}

static TokenContext context_of(const ApiParams *params)
{
    return (TokenContext){params->cache_salt, params->cache_salt ? strlen(params->cache_salt) : 0};
}

static bool restore_reasoning(ApiJob *job, const ApiParams *params, Error *error)
{
    const TokenContext context = context_of(params);
    if (!job->model->style || !job->model->style->has_reasoning) return true;
    return turn_hash_restore(job->server->memory, &context, cJSON_GetObjectItemCaseSensitive(job->json, "messages"),
                             error);
}

bool chat_prompt_render(ApiJob *job, const ApiParams *params, ChatPrompt *ret_prompt, Error *error)
{
    cJSON *kwargs = NULL, *told = NULL;
    if (!chat_messages_normalise(job->json, error)) return false;
    if (!job->model->chat_template)
        return error_set_param(error, ERR_TEMPLATE, "messages", "this model has no chat template; use /v1/completions");
    const cJSON *messages = json_member(job->json, "messages");
    const AnswerStyle *style = job->model->style;
    if (!restore_reasoning(job, params, error) ||
        (style && !chat_tools_tell(style, &params->tools, messages, &told, error)))
        return false;
    if (!build_kwargs(params, &kwargs, error)) {
        cJSON_Delete(told);
        return false;
    }
    ChatInput input = {
        .messages = told ? told : messages,
        .tools = params->tools.list,
        .kwargs = kwargs,
        .add_generation_prompt = params->add_generation_prompt,
        .continue_final_message = params->continue_final_message,
        .now_unix = clock_unix_seconds(),
    };
    size_t max_bytes = (size_t)job->model->context * BYTES_PER_TOKEN;
    if (max_bytes < MIN_PROMPT_BYTES) max_bytes = MIN_PROMPT_BYTES;
    bool ok = chat_template_render(job->model->chat_template, &input, max_bytes, ret_prompt, error);
    cJSON_Delete(kwargs);
    cJSON_Delete(told);
    if (ok || error->code != ERR_TOO_LARGE) return ok;
    return error_set_param(error, ERR_CONTEXT_LENGTH, "messages",
                           "the prompt has more than %zu bytes, but this model's maximum context length is %u tokens",
                           max_bytes, job->model->context);
}

/* The last place of the mark in text [n], or NULL. */
static const char *find_last(const char *text, size_t n, const AnswerMarker *mark)
{
    size_t n_mark = strlen(mark->text);
    for (size_t at = n_mark && n >= n_mark ? n - n_mark + 1 : 0; at-- > 0;)
        if (!memcmp(text + at, mark->text, n_mark)) return text + at;
    return NULL;
}

static bool opens_reasoning(const AnswerStyle *style, const char *text, size_t n)
{
    const char *open = find_last(text, n, &style->marks[MARK_THINK]);
    const char *end = find_last(text, n, &style->marks[MARK_THINK_END]);
    return open && (!end || end < open);
}

/* Does the answer go on within reasoning, which the template or the last message has begun? Or is it over? */
static bool ends_in_reasoning(const ApiJob *job, const ApiParams *params, const ChatPrompt *prompt, bool *ret_closed)
{
    const AnswerStyle *style = job->model->style;
    *ret_closed = false;
    if (!style || !style->has_reasoning || !prompt->n_trusted) return false;
    if (params->continue_final_message) {
        const cJSON *messages = json_member(job->json, "messages");
        const cJSON *content = json_member(cJSON_GetArrayItem(messages, cJSON_GetArraySize(messages) - 1), "content");
        return cJSON_IsString(content) && opens_reasoning(style, content->valuestring, strlen(content->valuestring));
    }
    TextRange tail = prompt->trusted[prompt->n_trusted - 1];
    if (tail.end != prompt->text.n) return false;
    const char *text = prompt->text.data + tail.start;
    bool opens = opens_reasoning(style, text, tail.end - tail.start);
    /* In channels each message before has an end as reasoning has: it is never over before it begins. */
    *ret_closed = !opens && style->format->body != CALL_CHANNELS &&
                  find_last(text, tail.end - tail.start, &style->marks[MARK_THINK_END]);
    return opens;
}

bool chat_prompt_tokens(ApiJob *job, const ApiParams *params, TokenList *list, ChatPromptEnd *ret_end, Error *error)
{
    ChatPrompt prompt;
    if (!chat_prompt_render(job, params, &prompt, error)) return false;
    TokenRecall recall = {
        .context = context_of(params),
        .encode = {.text = prompt.text.data ? prompt.text.data : "",
                   .n = prompt.text.n,
                   .trusted = prompt.trusted,
                   .n_trusted = prompt.n_trusted,
                   .add_special = true},
        .answers = prompt.answers,
        .n_answers = prompt.n_answers,
    };
    uint64_t *turns = NULL;
    bool ok = generation_check_bytes(job, prompt.text.n, "messages", error) &&
              turn_hash_list(job->server->memory, &recall.context, json_member(job->json, "messages"), &turns,
                             &recall.n_turns, error);
    recall.turns = turns;
    ok = ok && token_memory_encode(job->server->memory, &recall, list, error);
    free(turns);
    if (ok && ret_end) {
        TokenMemory *memory = job->server->memory;
        const cJSON *messages = json_member(job->json, "messages");
        *ret_end = (ChatPromptEnd){
            .hashes = {.text = token_memory_text_hash(memory, &recall.context, prompt.text.data, prompt.text.n),
                       .messages = turn_hash_messages(memory, &recall.context, messages)}};
        ret_end->in_reasoning = ends_in_reasoning(job, params, &prompt, &ret_end->closed_reasoning);
    }
    chat_prompt_done(&prompt);
    return ok;
}
