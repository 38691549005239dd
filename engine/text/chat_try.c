/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/chat_template.h"
#include "engine/text/tool_call.h"

#include <stdio.h>
#include <string.h>

enum { TRY_BYTES = 1 << 20 };

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"nEeDlE\",\"description\":\"d\",\"parameters\":{\"type\":"
    "\"object\",\"properties\":{\"other\":{\"type\":\"string\",\"description\":\"d\"}},\"required\":[]}}}]";
static const char user_json[] = "[{\"role\":\"user\",\"content\":\"u\"}]";
#define CALL(id, name)                                                                                                 \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":{\"kEy\":\"v\"}}}"
#define CALLS(calls) "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"tool_calls\":[" calls "]}]"
static const char call_json[] = CALLS(CALL("abcdefghi", "nEeDlE"));
static const char two_json[] = CALLS(CALL("abcdefghi", "nEeDlE") "," CALL("bcdefghij", "oThEr"));

/* *text stays empty when the template refuses. */
static bool render(const ChatTemplate *t, const char *messages, bool tools, bool prompts, Buffer *text, Error *error)
{
    cJSON *json = cJSON_Parse(messages), *list = tools ? cJSON_Parse(tools_json) : NULL;
    ChatInput input = {.messages = json, .tools = list, .add_generation_prompt = prompts};
    ChatPrompt prompt;
    Error refusal = {0};
    buffer_init(text, TRY_BYTES);
    if (!json || (tools && !list)) {
        (void)error_set(&refusal, ERR_NO_MEMORY, "no memory to try a chat template");
    } else if (chat_template_render(t, &input, TRY_BYTES, &prompt, &refusal)) {
        (void)!buffer_append(text, prompt.text.data, prompt.text.n, &refusal);
        chat_prompt_done(&prompt);
    }
    cJSON_Delete(json);
    cJSON_Delete(list);
    if (refusal.code != ERR_NO_MEMORY) return true;
    *error = refusal;
    return false;
}

static const char *text_of(const Buffer *buffer)
{
    return buffer->data ? buffer->data : "";
}

static bool shows(const Buffer *text, const char *word)
{
    return strstr(text_of(text), word) != NULL;
}

static size_t count(const Buffer *text, const char *word)
{
    size_t n = 0;
    for (const char *at = text_of(text); (at = strstr(at, word)); at++) n++;
    return n;
}

static const char *end_of_object(const char *text)
{
    JsonScan scan = {0};
    for (; *text; text++)
        if (json_scan(&scan, *text) == SCAN_LAST) return text + 1;
    return NULL;
}

/* turn: what an assistant's turn shows. */
static void read_call(const char *turn, ChatCallShown *shown)
{
    const char *name = strstr(turn, "\"name\""), *brace = name;
    while (brace && brace > turn && *brace != '{') brace--;
    const char *end = brace && *brace == '{' ? end_of_object(brace) : NULL;
    if (!end || (size_t)(brace - turn) >= sizeof shown->before) return;
    shown->n_before = (size_t)(brace - turn);
    memcpy(shown->before, turn, shown->n_before);
    snprintf(shown->after, sizeof shown->after, "%s", end);
}

bool chat_template_try_tools(const ChatTemplate *t, ChatCallShown *ret_shown, Error *error)
{
    ChatCallShown shown = {0};
    Buffer prompt, call, two;
    if (!render(t, user_json, true, true, &prompt, error)) return false;
    shown.shows_tools = shows(&prompt, "nEeDlE");
    bool with = prompt.n > 0; /* some break without tools, some with them */
    if (!with) buffer_done(&prompt);
    bool ok = with || render(t, user_json, false, true, &prompt, error);
    ok = render(t, call_json, with, false, &call, ok ? error : &(Error){0}) && ok;
    ok = render(t, two_json, with, false, &two, ok ? error : &(Error){0}) && ok;
    shown.shows_call = shows(&call, "kEy") && (!with || count(&call, "nEeDlE") > count(&prompt, "nEeDlE"));
    shown.shows_two = shown.shows_call && shows(&two, "oThEr");
    if (shown.shows_call && prompt.n && call.n >= prompt.n && !memcmp(call.data, prompt.data, prompt.n))
        read_call(text_of(&call) + prompt.n, &shown);
    buffer_done(&prompt);
    buffer_done(&call);
    buffer_done(&two);
    if (ok) *ret_shown = shown;
    return ok;
}
