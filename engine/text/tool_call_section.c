/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/tool_call.h"

#include <string.h>

/*
 * Calls within one pair of marks, each between marks of its own: a name and its arguments as JSON, and what the format
 * has around these two (ToolSection).
 */
enum { SECTION_ITEM, SECTION_HEAD, SECTION_NAME, SECTION_NECK, SECTION_ARGUMENTS, SECTION_TAIL, SECTION_END };

/* Nothing is left out that the parser of answers should see again. */
static CallStep leave(ToolCall *call)
{
    tool_call_keep_unread(call);
    return CALL_BEFORE;
}

static CallStep go(ToolCall *call, int state)
{
    buffer_clear(&call->word);
    call->state = (uint8_t)state;
    return CALL_MORE;
}

/* The next byte of a text; blanks may stand before it. next: the state behind it. */
static CallStep match(ToolCall *call, const AnswerMarker *text, char byte, int next)
{
    if (!call->word.n && tool_call_is_blank(byte) && text->bytes[0] != byte) return CALL_MORE;
    (void)!tool_call_spell(call, &call->word, byte, ANSWER_MARK_MAX_BYTES);
    if (!tool_call_word_begins(&call->word, text->bytes, text->n)) return call->tool ? leave(call) : CALL_NOT;
    return call->word.n == text->n ? go(call, next) : CALL_MORE;
}

static CallStep take_item(ToolCall *call, char byte)
{
    const AnswerStyle *style = call->plan->style;
    call->is_named = call->has_arguments = false;
    buffer_clear(&call->name);
    return match(call, &style->marks[MARK_ITEM], byte, style->call_head.n ? SECTION_HEAD : SECTION_NAME);
}

/* functions.NAME:0 is NAME; without the number too. */
static bool find_name(ToolCall *call)
{
    const ToolSection *section = call->plan->style->format->section;
    size_t n_prefix = strlen(section->prefix), n = call->name.n;
    if (n > n_prefix && !memcmp(call->name.data, section->prefix, n_prefix)) buffer_consume(&call->name, n_prefix);
    n = call->name.n;
    while (section->counts && n && call->name.data[n - 1] >= '0' && call->name.data[n - 1] <= '9') n--;
    if (section->counts && n > 1 && n < call->name.n && call->name.data[n - 1] == ':') {
        char *behind = &call->name.data[n - 1];
        size_t n_all = call->name.n;
        *behind = '\0';
        call->name.n = n - 1;
        if (tool_call_name_done(call)) return true;
        *behind = ':';
        call->name.n = n_all;
    }
    return tool_call_name_done(call);
}

static CallStep take_name(ToolCall *call, char byte)
{
    const AnswerStyle *style = call->plan->style;
    if (!call->name.n && tool_call_is_blank(byte)) return CALL_MORE;
    if (tool_call_is_name_byte(byte))
        return tool_call_spell(call, &call->name, byte, TOOL_NAME_MAX_BYTES) ? CALL_MORE : CALL_NOT;
    if (!call->name.n || !find_name(call)) return CALL_NOT;
    call->scan = (JsonScan){0};
    (void)go(call, SECTION_NECK);
    return match(call, &style->call_neck, byte, SECTION_ARGUMENTS);
}

static CallStep take_arguments(ToolCall *call, char byte)
{
    if (!call->scan.begun && tool_call_is_blank(byte)) return CALL_MORE;
    ScanStep step = call->scan.begun || byte == '{' ? json_scan(&call->scan, byte) : SCAN_NOT;
    if (step == SCAN_NOT || step == SCAN_BEFORE) return leave(call);
    tool_call_arguments(call, &byte, 1);
    return step == SCAN_LAST ? go(call, call->plan->style->call_tail.n ? SECTION_TAIL : SECTION_END) : CALL_MORE;
}

CallStep tool_call_feed_section(ToolCall *call, char byte)
{
    const AnswerStyle *style = call->plan->style;
    switch (call->state) {
    case SECTION_ITEM:
        return take_item(call, byte);
    case SECTION_HEAD:
        return match(call, &style->call_head, byte, SECTION_NAME);
    case SECTION_NAME:
        return take_name(call, byte);
    case SECTION_NECK:
        return match(call, &style->call_neck, byte, SECTION_ARGUMENTS);
    case SECTION_ARGUMENTS:
        return take_arguments(call, byte);
    case SECTION_TAIL:
        return match(call, &style->call_tail, byte, SECTION_END);
    default:
        return match(call, &style->marks[MARK_ITEM_END], byte, SECTION_ITEM);
    }
}
