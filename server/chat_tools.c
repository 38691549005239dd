/* SPDX-License-Identifier: Apache-2.0 */
#include "server/chat_tools.h"

#include <string.h>

enum { MAX_TEXT_BYTES = 64 << 20 };

static bool no_memory(Error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory for the messages");
}

static const char *text_member(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

static bool set_text(cJSON *object, const char *key, const char *text, Error *error)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    return cJSON_AddStringToObject(object, key, text) || no_memory(error);
}

static bool has_role(const cJSON *message, const char *role)
{
    return !strcmp(text_member(message, "role"), role);
}

static bool append_json(Buffer *text, const cJSON *item, Error *error)
{
    char *json = cJSON_PrintUnformatted(item);
    bool ok = json ? buffer_append_text(text, json, error) : no_memory(error);
    cJSON_free(json);
    return ok;
}

/* ---- the tools ---- */

static bool describe(const AnswerStyle *style, const ApiTools *tools, Buffer *text, Error *error)
{
    const AnswerMarker *mark = &style->marks[MARK_CALL], *end = &style->marks[MARK_CALL_END];
    const char *key = style->format->arguments ? style->format->arguments : "arguments";
    if (!buffer_append_text(text, "You can call these functions:\n", error)) return false;
    for (const cJSON *tool = tools->list->child; tool; tool = tool->next)
        if (!append_json(text, cJSON_GetObjectItemCaseSensitive(tool, "function"), error) ||
            !buffer_append_text(text, "\n", error))
            return false;
    return buffer_printf(
        text, error, "To call one, answer with nothing but %s%s{\"name\": \"its name\", \"%s\": {its arguments}}%s%s",
        mark->n ? mark->text : "", style->pad_before, key, style->pad_after, end->n ? end->text : "");
}

/* Before what the system message says; a conversation without one gets it. */
static bool tell_tools(const AnswerStyle *style, const ApiTools *tools, cJSON *messages, Error *error)
{
    cJSON *first = messages->child, *made;
    Buffer text;
    buffer_init(&text, MAX_TEXT_BYTES);
    bool ok = describe(style, tools, &text, error);
    if (ok && first && has_role(first, "system")) {
        const char *own = text_member(first, "content");
        ok = (!*own || (buffer_append_text(&text, "\n\n", error) && buffer_append_text(&text, own, error))) &&
             set_text(first, "content", text.data, error);
    } else if (ok) {
        made = cJSON_CreateObject();
        ok = made && cJSON_AddStringToObject(made, "role", "system") &&
             cJSON_AddStringToObject(made, "content", text.data) && cJSON_InsertItemInArray(messages, 0, made);
        if (!ok) {
            cJSON_Delete(made);
            (void)no_memory(error);
        }
    }
    buffer_done(&text);
    return ok;
}

/* ---- calls and results ---- */

static bool append_call(const AnswerStyle *style, const cJSON *call, Buffer *text, Error *error)
{
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function");
    const cJSON *arguments = cJSON_GetObjectItemCaseSensitive(function, "arguments");
    const char *key = style->format->arguments ? style->format->arguments : "arguments";
    if (!buffer_printf(text, error, "%s{\"name\": \"%s\", \"%s\": ", text->n ? "\n" : "", text_member(function, "name"),
                       key))
        return false;
    bool ok = cJSON_IsString(arguments) ? buffer_append_text(text, arguments->valuestring, error)
                                        : append_json(text, arguments, error);
    return ok && buffer_append_text(text, "}", error);
}

static bool tell_calls(const AnswerStyle *style, cJSON *message, Error *error)
{
    const cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
    Buffer text;
    if (!cJSON_IsArray(calls)) return true;
    buffer_init(&text, MAX_TEXT_BYTES);
    bool ok = buffer_append_text(&text, text_member(message, "content"), error);
    for (const cJSON *call = calls->child; ok && call; call = call->next) ok = append_call(style, call, &text, error);
    ok = ok && set_text(message, "content", text.data ? text.data : "", error);
    if (ok) cJSON_DeleteItemFromObjectCaseSensitive(message, "tool_calls");
    buffer_done(&text);
    return ok;
}

static cJSON *next_result(const cJSON *message)
{
    return message->next && has_role(message->next, "tool") ? message->next : NULL;
}

/* Results that follow each other are one message: many templates want turns to alternate. */
static bool tell_results(cJSON *messages, cJSON *first, Error *error)
{
    Buffer text;
    bool ok = true;
    buffer_init(&text, MAX_TEXT_BYTES);
    for (const cJSON *result = first; ok && result; result = next_result(result))
        ok = buffer_append_text(&text, result == first ? "" : "\n", error) &&
             buffer_append_text(&text, "Result of the call: ", error) &&
             buffer_append_text(&text, text_member(result, "content"), error);
    ok = ok && set_text(first, "content", text.data, error);
    for (cJSON *result; ok && (result = next_result(first));)
        cJSON_Delete(cJSON_DetachItemViaPointer(messages, result));
    buffer_done(&text);
    return ok && set_text(first, "role", "user", error);
}

static bool tell(const AnswerStyle *style, const ApiTools *tools, cJSON *messages, Error *error)
{
    for (cJSON *message = messages->child; message && !style->shows_calls; message = message->next)
        if (has_role(message, "tool") ? !tell_results(messages, message, error) : !tell_calls(style, message, error))
            return false;
    return style->shows_tools || !api_tools_may_call(tools) || tell_tools(style, tools, messages, error);
}

static bool has_calls(const cJSON *messages)
{
    for (const cJSON *message = messages->child; message; message = message->next)
        if (has_role(message, "tool") || cJSON_HasObjectItem(message, "tool_calls")) return true;
    return false;
}

bool chat_tools_tell(const AnswerStyle *style, const ApiTools *tools, const cJSON *messages, cJSON **ret_told,
                     Error *error)
{
    *ret_told = NULL;
    bool has_news = (!style->shows_tools && api_tools_may_call(tools)) || (!style->shows_calls && has_calls(messages));
    if (!has_news) return true;
    cJSON *told = cJSON_Duplicate(messages, 1);
    if (!told) return no_memory(error);
    if (!tell(style, tools, told, error)) {
        cJSON_Delete(told);
        return false;
    }
    *ret_told = told;
    return true;
}
