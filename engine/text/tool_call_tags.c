/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/tool_call.h"

#include <cjson/cJSON.h>
#include <string.h>

/*
 * A name and members between tags, whose texts are the format's (ToolTags). Values have no escapes: they are texts
 * where the tool's schema has nothing but texts, else what they read as, if that may be there.
 */
enum { TAGS_BEGIN, TAGS_NAME, TAGS_NEXT, TAGS_KEY, TAGS_GAP, TAGS_TEXT, TAGS_VALUE };

static const ToolTags *tags_of(const ToolCall *call)
{
    return call->plan->style->format->tags;
}

static bool begins(const Buffer *word, const char *text)
{
    return tool_call_word_begins(word, text, strlen(text));
}

static CallStep take_begin(ToolCall *call, char byte)
{
    const char *before = tags_of(call)->before_name;
    if (!call->word.n && tool_call_is_blank(byte)) return CALL_MORE;
    if (!*before) {
        call->state = TAGS_NAME;
        return tool_call_feed_tags(call, byte);
    }
    if (!tool_call_spell(call, &call->word, byte, strlen(before)) || !begins(&call->word, before)) return CALL_NOT;
    if (tool_call_word_is(&call->word, before)) {
        buffer_clear(&call->word);
        call->state = TAGS_NAME;
    }
    return CALL_MORE;
}

static CallStep take_name(ToolCall *call, char byte)
{
    const char *behind = tags_of(call)->behind_name;
    if (tool_call_is_name_byte(byte))
        return tool_call_spell(call, &call->name, byte, TOOL_NAME_MAX_BYTES) ? CALL_MORE : CALL_NOT;
    if ((*behind && byte != *behind) || !tool_call_name_done(call)) return CALL_NOT;
    tool_call_arguments(call, "{", 1);
    call->state = TAGS_NEXT;
    return *behind ? CALL_MORE : tool_call_feed_tags(call, byte);
}

static CallStep end_arguments(ToolCall *call, CallStep step)
{
    tool_call_arguments(call, "}", 1);
    return step;
}

/* The next member, or the end of the call: its own, or the mark behind it. */
static CallStep take_next(ToolCall *call, char byte)
{
    const ToolTags *tags = tags_of(call);
    const AnswerMarker *mark = &call->plan->style->marks[MARK_CALL_END];
    const char *end = *tags->end ? tags->end : mark->bytes;
    size_t n_end = *tags->end ? strlen(tags->end) : mark->n;
    if (!call->word.n && tool_call_is_blank(byte)) return CALL_MORE;
    (void)!tool_call_spell(call, &call->word, byte, ANSWER_MARK_MAX_BYTES);
    bool is_end = tool_call_word_begins(&call->word, end, n_end), is_key = begins(&call->word, tags->before_key);
    if (!is_end && !is_key) {
        tool_call_keep_unread(call);
        return end_arguments(call, CALL_BEFORE);
    }
    if (is_end && call->word.n == n_end) return end_arguments(call, CALL_OVER);
    if (is_key && tool_call_word_is(&call->word, tags->before_key)) {
        buffer_clear(&call->word);
        call->state = TAGS_KEY;
    }
    return CALL_MORE;
}

static CallStep begin_value(ToolCall *call)
{
    buffer_clear(&call->word);
    buffer_clear(&call->name);
    call->state = call->kinds == KIND_STRING ? TAGS_TEXT : TAGS_VALUE;
    if (call->state == TAGS_TEXT) tool_call_arguments(call, "\"", 1);
    call->skips_line = tags_of(call)->has_lines; /* one line break is no part of the value */
    return CALL_MORE;
}

static CallStep take_key(ToolCall *call, char byte)
{
    const char *behind = tags_of(call)->behind_key;
    size_t n = strlen(behind);
    if (byte == '\n' || !tool_call_spell(call, &call->word, byte, TOOL_WORD_MAX_BYTES))
        return end_arguments(call, CALL_BEFORE);
    if (call->word.n < n || memcmp(call->word.data + call->word.n - n, behind, n) != 0) return CALL_MORE;
    size_t n_key = call->word.n - n;
    tool_call_arguments(call, call->is_first ? "\"" : ", \"", call->is_first ? 1 : 3);
    tool_call_escaped(call, call->word.data, n_key);
    tool_call_arguments(call, "\": ", 3);
    call->kinds = object_kinds_of(&call->tool->kinds, call->word.data, n_key);
    call->is_first = false;
    if (!*tags_of(call)->before_value) return begin_value(call);
    buffer_clear(&call->word);
    call->state = TAGS_GAP;
    return CALL_MORE;
}

static CallStep take_gap(ToolCall *call, char byte)
{
    const char *before = tags_of(call)->before_value;
    if (!call->word.n && tool_call_is_blank(byte)) return CALL_MORE;
    if (!tool_call_spell(call, &call->word, byte, strlen(before)) || !begins(&call->word, before)) {
        tool_call_arguments(call, "null", 4);
        return end_arguments(call, CALL_BEFORE);
    }
    return tool_call_word_is(&call->word, before) ? begin_value(call) : CALL_MORE;
}

/* ---- values ---- */

static void tell_text(ToolCall *call, const char *text, size_t n)
{
    tool_call_arguments(call, "\"", 1);
    tool_call_escaped(call, text, n);
    tool_call_arguments(call, "\"", 1);
}

/*
 * What cJSON lets pass and JSON has not: numbers as C writes them, control bytes for blanks. Those within strings are
 * told with a backslash.
 */
static bool is_spelt_well(const char *text, size_t n)
{
    JsonScan scan = {.depth = 1, .begun = true};
    for (size_t i = 0; i < n; i++) {
        bool is_value = !scan.in_text && text[i] && strchr("-0123456789", text[i]);
        size_t n_number = is_value ? strspn(text + i, "0123456789+-.eE") : 0;
        if (n_number && !tool_call_is_number(text + i, n_number)) return false;
        if (!scan.in_text && (unsigned char)text[i] < 0x20 && !tool_call_is_blank(text[i])) return false;
        if (n_number)
            i += n_number - 1;
        else
            (void)json_scan(&scan, text[i]);
    }
    return true;
}

/* text: and a NUL behind it, which is the only one. 0: it is no JSON. */
static uint32_t kind_of_json(const char *text, size_t n)
{
    if (n && strchr("-0123456789", *text)) return tool_call_is_number(text, n) ? KIND_NUMBER : 0;
    cJSON *json = cJSON_ParseWithOpts(text, NULL, true);
    uint32_t kind = cJSON_IsString(json) ? KIND_STRING : cJSON_IsArray(json) ? KIND_ARRAY : KIND_OBJECT;
    if (!json || !strchr("\"[{", *text) || !is_spelt_well(text, n)) kind = 0;
    cJSON_Delete(json);
    return kind;
}

/* JSON as it is, but for control bytes within strings. */
static void tell_json(ToolCall *call, const char *text, size_t n)
{
    JsonScan scan = {.depth = 1, .begun = true};
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_control = scan.in_text && (unsigned char)text[i] < 0x20;
        (void)json_scan(&scan, text[i]);
        if (!is_control) continue;
        tool_call_arguments(call, text + from, i - from);
        tool_call_escaped(call, text + i, 1);
        from = i + 1;
    }
    tool_call_arguments(call, text + from, n - from);
}

/* As JSON what reads as a value that may be there, or as Python's name of one; else as a text. */
static void tell_value(ToolCall *call)
{
    static const struct {
        const char *text, *json;
        uint32_t kind;
    } words[] = {{"null", "null", KIND_NULL}, {"None", "null", KIND_NULL},    {"true", "true", KIND_TRUE},
                 {"True", "true", KIND_TRUE}, {"false", "false", KIND_FALSE}, {"False", "false", KIND_FALSE}};
    const char *text = call->name.data ? call->name.data : "";
    size_t n = call->name.n, n_blank = 0;
    bool may_be_text = call->kinds & KIND_STRING;
    uint32_t kinds = may_be_text ? call->kinds : KINDS_ALL;
    while (!may_be_text && tool_call_is_blank(text[n_blank])) n_blank++;
    while (!may_be_text && n > n_blank && tool_call_is_blank(text[n - 1])) n--;
    if (n < call->name.n) call->name.data[n] = '\0';
    text += n_blank;
    n -= n_blank;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if ((kinds & words[i].kind) && n == strlen(words[i].text) && !memcmp(text, words[i].text, n)) {
            tool_call_arguments(call, words[i].json, strlen(words[i].json));
            return;
        }
    bool is_json = strlen(text) == n && !(n && tool_call_is_blank(text[n - 1])) && (kind_of_json(text, n) & kinds);
    if (is_json)
        tell_json(call, text, n);
    else
        tell_text(call, text, n);
}

static void tell_byte(ToolCall *call, char byte)
{
    if (call->state == TAGS_TEXT)
        tool_call_escaped(call, &byte, 1);
    else
        (void)!buffer_append(&call->name, &byte, 1, &call->parts->error);
}

/* Is the word, behind a line break if there may be one, the beginning of the value's end, or all of it? */
static bool is_end(const ToolCall *call, bool *ret_whole)
{
    const ToolTags *tags = tags_of(call);
    size_t n_line = tags->has_lines && call->word.data[0] == '\n', n = strlen(tags->behind_value);
    *ret_whole = call->word.n == n_line + n;
    return call->word.n <= n_line + n && !memcmp(call->word.data + n_line, tags->behind_value, call->word.n - n_line);
}

/* What may be the end of the value is held back. */
static CallStep take_value(ToolCall *call, char byte)
{
    bool skips = call->skips_line && byte == '\n', is_whole = false;
    call->skips_line = false;
    if (skips) return CALL_MORE;
    (void)!tool_call_spell(call, &call->word, byte, ANSWER_MARK_MAX_BYTES);
    while (call->word.n && !is_end(call, &is_whole)) {
        tell_byte(call, call->word.data[0]);
        buffer_consume(&call->word, 1);
    }
    if (!call->word.n || !is_whole) return CALL_MORE;
    if (call->state == TAGS_TEXT)
        tool_call_arguments(call, "\"", 1);
    else
        tell_value(call);
    buffer_clear(&call->word);
    call->state = TAGS_NEXT;
    return CALL_MORE;
}

CallStep tool_call_feed_tags(ToolCall *call, char byte)
{
    static CallStep (*const takes[])(ToolCall *, char) = {
        [TAGS_BEGIN] = take_begin, [TAGS_NAME] = take_name,  [TAGS_NEXT] = take_next,   [TAGS_KEY] = take_key,
        [TAGS_GAP] = take_gap,     [TAGS_TEXT] = take_value, [TAGS_VALUE] = take_value,
    };
    return takes[call->state](call, byte);
}

void tool_call_begin_name(ToolCall *call)
{
    call->state = TAGS_NAME;
}
