/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/chat_template.h"
#include "engine/text/jinja.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_STEPS = 50 * 1000 * 1000, /* one to two seconds */
    BASE_MEMORY_BYTES = 64 << 20,
    MEMORY_PER_OUTPUT_BYTE = 8,
    PROBE_BYTES = 1 << 20,
};

/* The content of a message that has tool calls and no content. */
typedef enum NoContent { NO_CONTENT_ABSENT, NO_CONTENT_NULL, NO_CONTENT_BLANK, NO_CONTENT_KINDS } NoContent;

/* How this template wants the inputs that come in more than one form; found out by rendering small conversations. */
typedef struct Wishes {
    bool takes_text;       /* content as a string */
    bool takes_parts;      /* content as a list of parts */
    bool string_arguments; /* a tool call's arguments as JSON text, not as an object */
    NoContent no_content;
} Wishes;

struct ChatTemplate {
    JinjaProgram *program;
    char *source, *bos, *eos;
    Wishes wishes;
};

/* Appended to the content where the prompt is to be cut, and recognised again by its mark. The blank at its end tells
 * whether the template trims what follows the content. */
static const char cut_text[] = "CONTINUE_FINAL_MESSAGE_TAG ";

static JText text_of(const char *s)
{
    return (JText){.data = s, .n = strlen(s)};
}

static bool set_key(JinjaRun *run, JValue dict, const char *key, JValue value)
{
    return jinja_dict_set_text(run, dict.dict, text_of(key), value);
}

static bool add_cut(JinjaRun *run, JValue *text)
{
    JBuild build = {0};
    return jinja_build_text(run, &build, *text->text) &&
           jinja_build_bytes(run, &build, cut_text, sizeof cut_text - 1, JINJA_MARK_CUT) &&
           jinja_make_text(run, jinja_build_done(&build), text);
}

/* ---- messages ---- */

/* A role that is one of the fixed words may stand inside a special token that the template puts together. */
static bool role_value(JinjaRun *run, const cJSON *role, JValue *ret)
{
    static const char *const words[] = {"system", "user", "assistant", "tool", "developer", "function"};
    for (size_t i = 0; cJSON_IsString(role) && i < sizeof words / sizeof *words; i++)
        if (strcmp(role->valuestring, words[i]) == 0) return jinja_make_text(run, text_of(words[i]), ret);
    return jinja_from_json(run, role, ret);
}

static const char *part_text(const cJSON *part)
{
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(part, "text");
    return cJSON_IsString(text) ? text->valuestring : NULL;
}

/* Parts as one string, a line each. */
static bool join_parts(JinjaRun *run, const cJSON *parts, Error *error, JValue *ret)
{
    JBuild build = {0};
    for (const cJSON *part = parts->child; part; part = part->next) {
        const char *text = part_text(part);
        if (!text)
            return error_set_param(error, ERR_UNSUPPORTED, "messages", "this model's template takes text parts only");
        if (part != parts->child && !jinja_build_bytes(run, &build, "\n", 1, JINJA_MARK_INPUT)) return false;
        if (!jinja_build_bytes(run, &build, text, strlen(text), JINJA_MARK_INPUT)) return false;
    }
    return jinja_make_text(run, jinja_build_done(&build), ret);
}

/* A string as the one part of a list. */
static bool wrap_text(JinjaRun *run, JValue text, JValue *ret)
{
    JValue part, type;
    return jinja_make_list(run, J_LIST, 1, ret) && jinja_make_dict(run, J_DICT, &part) &&
           jinja_make_text(run, JTEXT("text"), &type) && set_key(run, part, "type", type) &&
           set_key(run, part, "text", text) && jinja_list_push(run, ret->list, part);
}

static bool cut_last_part(JinjaRun *run, JValue parts)
{
    for (size_t i = parts.list->n; i-- > 0;) {
        JValue part = parts.list->items[i], text, key;
        JEntry *entry;
        if (part.type != J_DICT) continue;
        if (!jinja_make_text(run, JTEXT("text"), &key) || !jinja_dict_find(run, part.dict, &key, &entry)) return false;
        if (!entry || entry->value.type != J_TEXT) continue;
        text = entry->value;
        return add_cut(run, &text) && jinja_dict_set(run, part.dict, &key, text);
    }
    return true;
}

/* The content of an assistant's message: perhaps what was answered here before. */
static bool answer_value(JinjaRun *run, const char *content, JValue *ret)
{
    JBuild build = {0};
    return jinja_build_bytes(run, &build, content, strlen(content), JINJA_MARK_ANSWER) &&
           jinja_make_text(run, jinja_build_done(&build), ret);
}

static bool content_value(JinjaRun *run, const Wishes *wishes, const cJSON *content, bool is_answer, bool cut,
                          Error *error, JValue *ret)
{
    bool is_list = cJSON_IsArray(content),
         one = is_list && cJSON_GetArraySize(content) == 1 && part_text(content->child);
    if (is_list && (!wishes->takes_parts || (one && wishes->takes_text))) {
        if (!join_parts(run, content, error, ret)) return false;
    } else if (is_answer && cJSON_IsString(content)) {
        if (!answer_value(run, content->valuestring, ret)) return false;
    } else if (!jinja_from_json(run, content, ret)) {
        return false;
    }
    if (ret->type == J_LIST) return !cut || cut_last_part(run, *ret);
    if (ret->type != J_TEXT) return true;
    if (cut && !add_cut(run, ret)) return false;
    return wishes->takes_text || !wishes->takes_parts || wrap_text(run, *ret, ret);
}

/* JSON text to an object or the reverse, as the template wants it; what does not convert stays as it is. */
static bool arguments_value(JinjaRun *run, const Wishes *wishes, const cJSON *arguments, JValue *ret)
{
    if (cJSON_IsString(arguments) && !wishes->string_arguments) {
        cJSON *parsed;
        if (!jinja_parse_json(run, arguments->valuestring, &parsed)) return false;
        bool ok = cJSON_IsObject(parsed) ? jinja_copy_json(run, parsed, ret) : jinja_from_json(run, arguments, ret);
        cJSON_Delete(parsed);
        return ok;
    }
    if (!cJSON_IsObject(arguments) || !wishes->string_arguments) return jinja_from_json(run, arguments, ret);
    JsonStyle style = {.item_separator = JTEXT(", "), .key_separator = JTEXT(": ")};
    JBuild build = {0};
    JValue object;
    return jinja_from_json(run, arguments, &object) && jinja_build_json(run, &build, &style, &object) &&
           jinja_make_text(run, jinja_build_done(&build), ret);
}

static bool tool_call_value(JinjaRun *run, const Wishes *wishes, const cJSON *call, JValue *ret)
{
    if (!jinja_from_json(run, call, ret)) return false;
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function");
    const cJSON *arguments = cJSON_GetObjectItemCaseSensitive(function, "arguments");
    if (!arguments || !cJSON_IsObject(function)) return true;
    JValue copy, value;
    return jinja_from_json(run, function, &copy) && arguments_value(run, wishes, arguments, &value) &&
           set_key(run, copy, "arguments", value) && set_key(run, *ret, "function", copy);
}

static bool tool_calls_value(JinjaRun *run, const Wishes *wishes, const cJSON *calls, JValue *ret)
{
    if (!cJSON_IsArray(calls)) return jinja_from_json(run, calls, ret);
    if (!jinja_make_list(run, J_LIST, 0, ret)) return false;
    for (const cJSON *call = calls->child; call; call = call->next) {
        JValue value;
        if (!tool_call_value(run, wishes, call, &value) || !jinja_list_push(run, ret->list, value)) return false;
    }
    return true;
}

/* Reasoning goes by several names; templates read the first or the second. */
static bool alias_reasoning(JinjaRun *run, const cJSON *message, JValue dict)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const cJSON *found = NULL;
    for (size_t i = 0; !found && i < sizeof names / sizeof *names; i++) {
        found = cJSON_GetObjectItemCaseSensitive(message, names[i]);
        if (cJSON_IsNull(found)) found = NULL;
    }
    if (!found) return true;
    JValue value;
    const cJSON *thinking = cJSON_GetObjectItemCaseSensitive(message, names[1]);
    if (!jinja_from_json(run, found, &value) || !set_key(run, dict, names[0], value)) return false;
    return (thinking && !cJSON_IsNull(thinking)) || set_key(run, dict, names[1], value);
}

static bool fill_content(JinjaRun *run, const Wishes *wishes, const cJSON *message, JValue dict)
{
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(message, "content");
    const cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
    if (wishes->no_content == NO_CONTENT_ABSENT || !cJSON_IsArray(calls) || (content && !cJSON_IsNull(content)))
        return true;
    JValue value = jinja_none();
    if (wishes->no_content == NO_CONTENT_BLANK && !jinja_make_text(run, JTEXT(""), &value)) return false;
    return set_key(run, dict, "content", value);
}

static bool item_value(JinjaRun *run, const Wishes *wishes, const cJSON *item, bool is_answer, bool cut, Error *error,
                       JValue *ret)
{
    if (strcmp(item->string, "role") == 0) return role_value(run, item, ret);
    if (strcmp(item->string, "content") == 0) return content_value(run, wishes, item, is_answer, cut, error, ret);
    if (strcmp(item->string, "tool_calls") == 0) return tool_calls_value(run, wishes, item, ret);
    return jinja_from_json(run, item, ret);
}

static bool message_value(JinjaRun *run, const Wishes *wishes, const cJSON *message, bool cut, Error *error,
                          JValue *ret)
{
    if (!cJSON_IsObject(message)) return error_set_param(error, ERR_INVALID, "messages", "a message must be an object");
    if (!jinja_make_dict(run, J_DICT, ret)) return false;
    const cJSON *role = cJSON_GetObjectItemCaseSensitive(message, "role");
    bool is_answer = cJSON_IsString(role) && strcmp(role->valuestring, "assistant") == 0;
    for (const cJSON *item = message->child; item; item = item->next) {
        if (cJSON_IsNull(item)) continue; /* null is absent: templates would print it */
        JValue key, value;
        if (!item_value(run, wishes, item, is_answer, cut, error, &value)) return false;
        if (!jinja_input_text(run, item->string, strlen(item->string), &key)) return false;
        if (!jinja_dict_set(run, ret->dict, &key, value)) return false;
    }
    return fill_content(run, wishes, message, *ret) && alias_reasoning(run, message, *ret);
}

static bool messages_value(JinjaRun *run, const Wishes *wishes, const ChatInput *input, Error *error, JValue *ret)
{
    if (!cJSON_IsArray(input->messages)) return error_set_param(error, ERR_INVALID, "messages", "must be an array");
    if (!jinja_make_list(run, J_LIST, 0, ret)) return false;
    for (const cJSON *message = input->messages->child; message; message = message->next) {
        JValue value;
        bool cut = input->continue_final_message && !message->next;
        if (!message_value(run, wishes, message, cut, error, &value)) return false;
        if (!jinja_list_push(run, ret->list, value)) return false;
    }
    return true;
}

/* ---- variables ---- */

static bool set_json(JinjaRun *run, const char *name, const cJSON *json)
{
    JValue value = jinja_none();
    if (json && !jinja_from_json(run, json, &value)) return false;
    return jinja_run_set(run, name, value);
}

static bool set_token(JinjaRun *run, const char *name, const char *token)
{
    JValue value;
    return !token[0] || (jinja_make_text(run, text_of(token), &value) && jinja_run_set(run, name, value));
}

static bool set_variables(JinjaRun *run, const ChatTemplate *t, const ChatInput *input, Error *error)
{
    JValue messages;
    if (!set_json(run, "documents", NULL)) return false;
    const cJSON *kwargs = cJSON_IsObject(input->kwargs) ? input->kwargs->child : NULL;
    for (; kwargs; kwargs = kwargs->next)
        if (!set_json(run, kwargs->string, kwargs)) return false;
    const cJSON *tools = input->tools && cJSON_GetArraySize(input->tools) > 0 ? input->tools : NULL;
    return messages_value(run, &t->wishes, input, error, &messages) && jinja_run_set(run, "messages", messages) &&
           set_json(run, "tools", tools) && set_token(run, "bos_token", t->bos) &&
           set_token(run, "eos_token", t->eos) &&
           jinja_run_set(run, "add_generation_prompt", jinja_bool(input->add_generation_prompt));
}

/* ---- output ---- */

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Cuts the prompt where the final message's content ends. */
static bool cut_prompt(JText *text, Error *error)
{
    size_t end = text->n;
    while (text->marks && end > 0 && text->marks[end - 1] != JINJA_MARK_CUT) end--;
    if (!text->marks || end == 0)
        return error_set_param(error, ERR_TEMPLATE, "continue_final_message",
                               "the template does not show the final message's content as it is");
    size_t start = end;
    while (start > 0 && text->marks[start - 1] == JINJA_MARK_CUT) start--;
    bool trimmed = end - start < sizeof cut_text - 1;
    while (trimmed && start > 0 && is_blank(text->data[start - 1])) start--;
    text->n = start;
    return true;
}

/* Runs of bytes with this mark. */
static bool find_marked(JText text, uint8_t mark, TextRange **ret_ranges, size_t *ret_n, Error *error)
{
    size_t n = 0, capacity = 0;
    TextRange *ranges = NULL;
    for (size_t at = 0; at < text.n;) {
        size_t end = at;
        uint8_t is = text.marks ? text.marks[at] : JINJA_MARK_TEMPLATE;
        while (end < text.n && (!text.marks || text.marks[end] == is)) end++;
        if (is == mark && n == capacity) {
            capacity = capacity ? capacity * 2 : 16;
            TextRange *more = realloc(ranges, capacity * sizeof *more);
            if (!more) {
                free(ranges);
                return error_set(error, ERR_NO_MEMORY, "no memory for a prompt's ranges");
            }
            ranges = more;
        }
        if (is == mark) ranges[n++] = (TextRange){.start = at, .end = end};
        at = end;
    }
    *ret_ranges = ranges;
    *ret_n = n;
    return true;
}

static bool render_text(const ChatTemplate *t, const ChatInput *input, JinjaRun *run, JText *ret, Error *error)
{
    if (!set_variables(run, t, input, error) || !jinja_render(run, t->program, ret)) return false;
    return !input->continue_final_message || cut_prompt(ret, error);
}

bool chat_template_render(const ChatTemplate *t, const ChatInput *input, size_t max_bytes, ChatPrompt *ret_prompt,
                          Error *error)
{
    size_t scaled =
        max_bytes < SIZE_MAX / MEMORY_PER_OUTPUT_BYTE / 2 ? max_bytes * MEMORY_PER_OUTPUT_BYTE : SIZE_MAX / 2;
    JinjaLimits limits = {
        .max_text_bytes = max_bytes, .max_memory_bytes = BASE_MEMORY_BYTES + scaled, .max_steps = MAX_STEPS};
    JinjaRun *run;
    JText text;
    ChatPrompt prompt = {0};
    if (!jinja_run_new(&limits, input->now_unix, &run, error)) return false;
    buffer_init(&prompt.text, max_bytes);
    bool ok = render_text(t, input, run, &text, error) && buffer_append(&prompt.text, text.data, text.n, error) &&
              find_marked(text, JINJA_MARK_TEMPLATE, &prompt.trusted, &prompt.n_trusted, error) &&
              find_marked(text, JINJA_MARK_ANSWER, &prompt.answers, &prompt.n_answers, error);
    jinja_run_free(run);
    if (ok)
        *ret_prompt = prompt;
    else
        chat_prompt_done(&prompt);
    return ok;
}

void chat_prompt_done(ChatPrompt *prompt)
{
    buffer_done(&prompt->text);
    free(prompt->trusted);
    free(prompt->answers);
    prompt->trusted = prompt->answers = NULL;
    prompt->n_trusted = prompt->n_answers = 0;
}

/* ---- what a template takes ---- */

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"other\":{\"type\":\"string\",\"description\":\"d\"}},\"required\":[]}}}]";

static const char call_json[] =
    "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":"
    "\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"nEeDlE\":\"v\"}}}]},{\"role\":\"tool\",\"tool_call_"
    "id\":"
    "\"abcdefghi\",\"name\":\"f\",\"content\":\"r\"}]";

/*
 * Renders a conversation: does the needle show, and none of the signs of a wrong form? A template that breaks shows
 * nothing; only ERR_NO_MEMORY is a failure.
 */
static bool probe(const ChatTemplate *t, const char *messages, const char *const wrong[3], bool *ret_shows,
                  Error *error)
{
    cJSON *json = cJSON_Parse(messages), *tools = cJSON_Parse(tools_json);
    ChatInput input = {.messages = json, .tools = messages == call_json ? tools : NULL};
    ChatPrompt prompt;
    Error refusal = {0};
    bool shows = false;
    if (!json || !tools) {
        error_set(&refusal, ERR_NO_MEMORY, "no memory to try a chat template");
    } else if (chat_template_render(t, &input, PROBE_BYTES, &prompt, &refusal)) {
        const char *text = prompt.text.data ? prompt.text.data : "";
        shows = strstr(text, "nEeDlE") != NULL;
        for (size_t i = 0; i < 3; i++) shows = shows && !strstr(text, wrong[i]);
        chat_prompt_done(&prompt);
    }
    cJSON_Delete(json);
    cJSON_Delete(tools);
    if (refusal.code == ERR_NO_MEMORY) {
        *error = refusal;
        return false;
    }
    *ret_shows = shows;
    return true;
}

/* The first combination under which a tool call shows. Without any, blank content: it breaks the fewest templates. */
static bool find_call_wishes(ChatTemplate *t, Error *error)
{
    static const char *const wrong[3] = {"'nEeDlE'", "\\\"nEeDlE", "None"};
    for (int kind = 0; kind < NO_CONTENT_KINDS; kind++) {
        for (int string = 0; string < 2; string++) {
            bool shows = false;
            t->wishes.no_content = (NoContent)kind;
            t->wishes.string_arguments = string;
            if (!probe(t, call_json, wrong, &shows, error)) return false;
            if (shows) return true;
        }
    }
    t->wishes.no_content = NO_CONTENT_BLANK;
    t->wishes.string_arguments = false;
    return true;
}

static bool find_wishes(ChatTemplate *t, Error *error)
{
    static const char *const wrong[3] = {"'text'", "\"text\"", "'type'"};
    /* Two parts: a single one would be handed over as a string. */
    static const char in_parts[] = "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"nEeDlE\"},{\"type\":"
                                   "\"text\",\"text\":\"b\"}]}]";
    bool text = false, parts = false;
    t->wishes = (Wishes){.takes_text = true, .takes_parts = true};
    if (!probe(t, "[{\"role\":\"user\",\"content\":\"nEeDlE\"}]", wrong, &text, error) ||
        !probe(t, in_parts, wrong, &parts, error))
        return false;
    t->wishes.takes_text = text || !parts;
    t->wishes.takes_parts = parts;
    return find_call_wishes(t, error);
}

bool chat_template_new(const char *source, size_t n, const char *bos, const char *eos, ChatTemplate **ret_template,
                       Error *error)
{
    ChatTemplate *t = calloc(1, sizeof *t);
    if (!t) return error_set(error, ERR_NO_MEMORY, "no memory for a chat template");
    if (!jinja_parse(source, n, &t->program, error)) goto fail;
    t->source = strndup(source, n);
    t->bos = strdup(bos);
    t->eos = strdup(eos);
    if (!t->source || !t->bos || !t->eos) {
        (void)error_set(error, ERR_NO_MEMORY, "no memory for a chat template");
        goto fail;
    }
    if (!find_wishes(t, error)) goto fail;
    *ret_template = t;
    return true;
fail:
    chat_template_free(t);
    return false;
}

const char *chat_template_source(const ChatTemplate *t)
{
    return t->source;
}

void chat_template_free(ChatTemplate *t)
{
    if (!t) return;
    jinja_program_free(t->program);
    free(t->source);
    free(t->bos);
    free(t->eos);
    free(t);
}
