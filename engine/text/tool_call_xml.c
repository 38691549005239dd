/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/tool_call.h"

#include <cjson/cJSON.h>
#include <string.h>

/*
 * <function=name> <parameter=key> value </parameter> ... </function>. Values are text without escapes: they become JSON
 * texts where the tool's schema wants one, else what they read as.
 */
enum { XML_BEGIN, XML_NAME, XML_TAG, XML_KEY, XML_TEXT, XML_VALUE };

enum { MAX_KEY_BYTES = 256 };

static const char function_open[] = "<function=", function_end[] = "</function>";
static const char parameter_open[] = "<parameter=", parameter_end[] = "</parameter>";
static const char line_end[] = "\n</parameter>";

static bool begins(const Buffer *word, const char *text)
{
    return tool_call_word_begins(word, text, strlen(text));
}

static CallStep take_begin(ToolCall *call, char byte)
{
    if (!call->word.n && tool_call_is_blank(byte)) return CALL_MORE;
    if (!tool_call_spell(call, &call->word, byte, sizeof function_open) || !begins(&call->word, function_open))
        return CALL_NOT;
    if (tool_call_word_is(&call->word, function_open)) {
        buffer_clear(&call->word);
        call->state = XML_NAME;
    }
    return CALL_MORE;
}

static CallStep take_name(ToolCall *call, char byte)
{
    if (byte != '>') return tool_call_spell(call, &call->name, byte, TOOL_NAME_MAX_BYTES) ? CALL_MORE : CALL_NOT;
    if (!tool_call_name_done(call)) return CALL_NOT;
    tool_call_arguments(call, "{", 1);
    call->state = XML_TAG;
    return CALL_MORE;
}

static CallStep end_arguments(ToolCall *call, CallStep step)
{
    tool_call_arguments(call, "}", 1);
    return step;
}

static CallStep take_tag(ToolCall *call, char byte)
{
    if (!call->word.n && tool_call_is_blank(byte)) return CALL_MORE;
    if (!tool_call_spell(call, &call->word, byte, sizeof parameter_open + sizeof function_end))
        return end_arguments(call, CALL_BEFORE);
    if (tool_call_word_is(&call->word, function_end)) return end_arguments(call, CALL_OVER);
    if (!begins(&call->word, function_end) && !begins(&call->word, parameter_open))
        return end_arguments(call, CALL_BEFORE);
    if (tool_call_word_is(&call->word, parameter_open)) {
        buffer_clear(&call->word);
        call->state = XML_KEY;
    }
    return CALL_MORE;
}

static bool wants_text(const ToolCall *call)
{
    for (uint32_t i = 0; i < call->tool->n_texts; i++)
        if (tool_call_word_is(&call->word, call->tool->texts[i])) return true;
    return false;
}

static CallStep take_key(ToolCall *call, char byte)
{
    if (byte != '>') {
        if (byte != '\n' && tool_call_spell(call, &call->word, byte, MAX_KEY_BYTES)) return CALL_MORE;
        return end_arguments(call, CALL_BEFORE);
    }
    call->state = wants_text(call) ? XML_TEXT : XML_VALUE;
    tool_call_arguments(call, call->is_first ? "\"" : ", \"", call->is_first ? 1 : 3);
    tool_call_escaped(call, call->word.data, call->word.n);
    tool_call_arguments(call, "\": \"", call->state == XML_TEXT ? 4 : 3);
    call->is_first = false;
    call->skips_line = true; /* one line break behind the key is no part of the value */
    buffer_clear(&call->word);
    buffer_clear(&call->name);
    return CALL_MORE;
}

/* As JSON what reads as JSON, or as Python's names of its constants; else as a text. */
static void tell_value(ToolCall *call)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    Buffer *value = &call->name;
    const char *text = value->data ? value->data : "";
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(text, words[i][0])) text = words[i][1];
    cJSON *json = cJSON_ParseWithOpts(text, NULL, true);
    cJSON_Delete(json);
    if (json) {
        tool_call_arguments(call, text, strlen(text));
        return;
    }
    tool_call_arguments(call, "\"", 1);
    tool_call_escaped(call, text, value->n);
    tool_call_arguments(call, "\"", 1);
}

static void tell_byte(ToolCall *call, char byte)
{
    if (call->state == XML_TEXT)
        tool_call_escaped(call, &byte, 1);
    else
        (void)!buffer_append(&call->name, &byte, 1, &call->parts->error);
}

/* What may be the end of the value is held back. */
static CallStep take_value(ToolCall *call, char byte)
{
    bool skips = call->skips_line && byte == '\n';
    call->skips_line = false;
    if (skips) return CALL_MORE;
    if (!tool_call_spell(call, &call->word, byte, sizeof line_end)) return CALL_BEFORE;
    while (call->word.n && !begins(&call->word, line_end) && !begins(&call->word, parameter_end)) {
        tell_byte(call, call->word.data[0]);
        buffer_consume(&call->word, 1);
    }
    if (!tool_call_word_is(&call->word, line_end) && !tool_call_word_is(&call->word, parameter_end)) return CALL_MORE;
    if (call->state == XML_TEXT)
        tool_call_arguments(call, "\"", 1);
    else
        tell_value(call);
    buffer_clear(&call->word);
    call->state = XML_TAG;
    return CALL_MORE;
}

CallStep tool_call_feed_xml(ToolCall *call, char byte)
{
    static CallStep (*const takes[])(ToolCall *, char) = {
        [XML_BEGIN] = take_begin, [XML_NAME] = take_name,  [XML_TAG] = take_tag,
        [XML_KEY] = take_key,     [XML_TEXT] = take_value, [XML_VALUE] = take_value,
    };
    return takes[call->state](call, byte);
}

void tool_call_begin_xml_name(ToolCall *call)
{
    call->state = XML_NAME;
}
