/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/tool_call.h"

#include "base/numbers.h"

#include <string.h>

/*
 * [name(key=value, ...), ...] with Python's literals, and call:name{key:value,...} with texts between marks: the same
 * literals, other signs around them. All becomes JSON as it comes.
 */
enum {
    PY_PREFIX, /* call: */
    PY_ITEM,
    PY_NAME,
    PY_KEY,
    PY_IN_KEY,
    PY_VALUE, /* between the words of a value */
    PY_WORD,
    PY_QUOTE, /* within the mark before a text */
    PY_TEXT,
    PY_ESCAPE,
    PY_HEX,
    PY_NEXT,
};

/* What may come within a value: JSON has to come out, whatever the model writes. */
enum {
    WANT_VALUE,
    WANT_ITEM, /* a value, or the end of the list */
    WANT_KEY,  /* or the end of the object */
    WANT_COLON,
    WANT_NOTHING, /* but a comma or an end */
};

enum { MAX_NESTED = 64 }; /* bits of ToolCall.objects */

static const char prefix[] = "call:";

typedef struct Signs {
    char open, close, is;
} Signs;

static Signs signs_of(const ToolCall *call)
{
    return call->body == CALL_GEMMA ? (Signs){'{', '}', ':'} : (Signs){'(', ')', '='};
}

static bool is_letter(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
           byte == '_' || (byte & 0x80);
}

static bool is_word_byte(char byte)
{
    return is_letter(byte) || (byte && strchr("+-.", byte));
}

static CallStep go(ToolCall *call, int state)
{
    call->state = (uint8_t)state;
    return CALL_MORE;
}

static CallStep broken(ToolCall *call)
{
    return call->tool ? CALL_BEFORE : CALL_NOT;
}

/* ---- around the values ---- */

static CallStep take_prefix(ToolCall *call, char byte)
{
    if (!call->word.n && tool_call_is_blank(byte)) return CALL_MORE;
    if (!tool_call_spell(call, &call->word, byte, sizeof prefix) ||
        !tool_call_word_begins(&call->word, prefix, sizeof prefix - 1))
        return CALL_NOT;
    if (call->word.n < sizeof prefix - 1) return CALL_MORE;
    buffer_clear(&call->name);
    return go(call, PY_NAME);
}

/* Also the list's own bracket. */
static CallStep take_item(ToolCall *call, char byte)
{
    if (tool_call_is_blank(byte)) return CALL_MORE;
    if (byte == '[' && !call->is_list) {
        call->is_list = true;
        return CALL_MORE;
    }
    if (byte == ']' && call->tool) return CALL_OVER;
    if (!call->is_list || !tool_call_is_name_byte(byte)) return broken(call);
    call->is_named = false;
    buffer_clear(&call->name);
    (void)!tool_call_spell(call, &call->name, byte, TOOL_NAME_MAX_BYTES);
    return go(call, PY_NAME);
}

static CallStep take_name(ToolCall *call, char byte)
{
    if (byte != signs_of(call).open)
        return tool_call_is_name_byte(byte) && tool_call_spell(call, &call->name, byte, TOOL_NAME_MAX_BYTES) ? CALL_MORE
                                                                                                             : CALL_NOT;
    if (!tool_call_name_done(call)) return CALL_NOT;
    call->is_first = true;
    tool_call_arguments(call, "{", 1);
    return go(call, PY_KEY);
}

static CallStep end_call(ToolCall *call)
{
    tool_call_arguments(call, "}", 1);
    return call->body == CALL_GEMMA ? CALL_OVER : go(call, PY_NEXT);
}

static CallStep break_call(ToolCall *call)
{
    tool_call_arguments(call, "}", 1);
    return CALL_BEFORE;
}

static CallStep take_key(ToolCall *call, char byte)
{
    if (tool_call_is_blank(byte)) return CALL_MORE;
    if (byte == signs_of(call).close) return end_call(call);
    if (!is_letter(byte)) return break_call(call);
    buffer_clear(&call->word);
    (void)!tool_call_spell(call, &call->word, byte, TOOL_WORD_MAX_BYTES);
    return go(call, PY_IN_KEY);
}

static CallStep take_in_key(ToolCall *call, char byte)
{
    if (tool_call_is_blank(byte)) return CALL_MORE;
    if (byte != signs_of(call).is)
        return is_word_byte(byte) && tool_call_spell(call, &call->word, byte, TOOL_WORD_MAX_BYTES) ? CALL_MORE
                                                                                                   : break_call(call);
    tool_call_arguments(call, call->is_first ? "\"" : ", \"", call->is_first ? 1 : 3);
    tool_call_escaped(call, call->word.data, call->word.n);
    tool_call_arguments(call, "\": ", 3);
    call->is_first = false;
    call->want = WANT_VALUE;
    call->has_comma = false;
    call->scan.depth = 0;
    buffer_clear(&call->word);
    return go(call, PY_VALUE);
}

static CallStep take_next(ToolCall *call, char byte)
{
    if (tool_call_is_blank(byte)) return CALL_MORE;
    if (byte == ',') return go(call, PY_ITEM);
    return byte == ']' ? CALL_OVER : CALL_BEFORE;
}

/* ---- values ---- */

/* Python may have a comma behind the last one: JSON's is told before the next one. */
static void begin_item(ToolCall *call)
{
    if (call->has_comma) tool_call_arguments(call, ", ", 2);
    call->has_comma = false;
}

static bool takes_item(const ToolCall *call)
{
    return call->want == WANT_VALUE || call->want == WANT_ITEM;
}

static bool is_in_object(const ToolCall *call)
{
    return call->objects >> (call->scan.depth - 1) & 1;
}

/* Behind a word or a text. */
static void end_item(ToolCall *call)
{
    call->want = call->want == WANT_KEY ? WANT_COLON : WANT_NOTHING;
}

static void close_bracket(ToolCall *call)
{
    tool_call_arguments(call, is_in_object(call) ? "}" : "]", 1);
    call->scan.depth--;
    call->has_comma = false;
    call->want = WANT_NOTHING;
}

static CallStep begin_text(ToolCall *call)
{
    buffer_clear(&call->word);
    begin_item(call);
    tool_call_arguments(call, "\"", 1);
    call->high = 0;
    return go(call, PY_TEXT);
}

/* What is missing yet is null, what is open is closed. */
static CallStep end_value(ToolCall *call, CallStep (*end)(ToolCall *))
{
    if (call->want == WANT_COLON) tool_call_arguments(call, ": ", 2);
    if (call->want == WANT_COLON || call->want == WANT_VALUE) tool_call_arguments(call, "null", 4);
    while (call->scan.depth) close_bracket(call);
    return end ? end(call) : go(call, PY_KEY);
}

static CallStep take_open(ToolCall *call, char byte)
{
    bool is_object = byte == '{';
    if (!takes_item(call) || call->scan.depth == MAX_NESTED) return end_value(call, break_call);
    begin_item(call);
    uint64_t bit = UINT64_C(1) << call->scan.depth++;
    call->objects = is_object ? call->objects | bit : call->objects & ~bit;
    call->want = is_object ? WANT_KEY : WANT_ITEM;
    tool_call_arguments(call, is_object ? "{" : "[", 1);
    return CALL_MORE;
}

static CallStep take_close(ToolCall *call, char byte)
{
    if (!call->scan.depth) return end_value(call, byte == signs_of(call).close ? end_call : break_call);
    if (is_in_object(call) != (byte == '}') || call->want == WANT_VALUE || call->want == WANT_COLON)
        return end_value(call, break_call);
    close_bracket(call);
    return CALL_MORE;
}

static CallStep take_comma(ToolCall *call)
{
    if (!call->scan.depth) return end_value(call, NULL);
    if (call->want != WANT_NOTHING) return end_value(call, break_call);
    call->has_comma = true;
    call->want = is_in_object(call) ? WANT_KEY : WANT_ITEM;
    return CALL_MORE;
}

static CallStep take_colon(ToolCall *call)
{
    if (call->want != WANT_COLON) return end_value(call, break_call);
    tool_call_arguments(call, ": ", 2);
    call->want = WANT_VALUE;
    return CALL_MORE;
}

static CallStep take_value(ToolCall *call, char byte)
{
    bool is_gemma = call->body == CALL_GEMMA;
    const AnswerMarker *quote = &call->plan->style->marks[MARK_QUOTE];
    if (tool_call_is_blank(byte)) return CALL_MORE;
    if (byte == '[' || byte == '{' || byte == '(') return take_open(call, byte);
    if (byte == ']' || byte == '}' || byte == ')') return take_close(call, byte);
    if (byte == ',') return take_comma(call);
    if (byte == ':') return take_colon(call);
    if (!takes_item(call) && call->want != WANT_KEY) return end_value(call, break_call);
    if (is_word_byte(byte) || (is_gemma && quote->n && byte == quote->bytes[0])) {
        buffer_clear(&call->word);
        (void)!tool_call_spell(call, &call->word, byte, TOOL_WORD_MAX_BYTES);
        return go(call, is_word_byte(byte) && byte != quote->bytes[0] ? PY_WORD : PY_QUOTE);
    }
    if (!is_gemma && (byte == '"' || byte == '\'')) {
        call->quote = byte;
        return begin_text(call);
    }
    return end_value(call, break_call);
}

static CallStep take_quote(ToolCall *call, char byte)
{
    const AnswerMarker *quote = &call->plan->style->marks[MARK_QUOTE];
    if (!tool_call_spell(call, &call->word, byte, TOOL_WORD_MAX_BYTES) ||
        !tool_call_word_begins(&call->word, quote->bytes, quote->n))
        return end_value(call, break_call);
    return call->word.n == quote->n ? begin_text(call) : CALL_MORE;
}

static void tell_word(ToolCall *call)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    bool is_key = call->want == WANT_KEY;
    begin_item(call);
    for (size_t i = 0; !is_key && i < sizeof words / sizeof *words; i++)
        if (tool_call_word_is(&call->word, words[i][0])) {
            tool_call_arguments(call, words[i][1], strlen(words[i][1]));
            return;
        }
    bool is_plain = !is_key && tool_call_is_number(call->word.data, call->word.n);
    if (!is_plain) tool_call_arguments(call, "\"", 1);
    tool_call_escaped(call, call->word.data, call->word.n);
    if (!is_plain) tool_call_arguments(call, "\"", 1);
}

static CallStep take_word(ToolCall *call, char byte)
{
    if (is_word_byte(byte))
        return tool_call_spell(call, &call->word, byte, TOOL_WORD_MAX_BYTES) ? CALL_MORE : end_value(call, break_call);
    tell_word(call);
    end_item(call);
    call->state = PY_VALUE;
    return take_value(call, byte);
}

static CallStep end_text(ToolCall *call)
{
    tool_call_arguments(call, "\"", 1);
    end_item(call);
    return go(call, PY_VALUE);
}

static CallStep take_marked_text(ToolCall *call, char byte)
{
    const AnswerMarker *quote = &call->plan->style->marks[MARK_QUOTE];
    (void)!tool_call_spell(call, &call->word, byte, TOOL_WORD_MAX_BYTES);
    while (call->word.n && !tool_call_word_begins(&call->word, quote->bytes, quote->n)) {
        tool_call_escaped(call, call->word.data, 1);
        buffer_consume(&call->word, 1);
    }
    return call->word.n == quote->n ? end_text(call) : CALL_MORE;
}

static CallStep take_text(ToolCall *call, char byte)
{
    if (call->body == CALL_GEMMA) return take_marked_text(call, byte);
    if (byte == '\\') return go(call, PY_ESCAPE);
    if (byte == call->quote) return end_text(call);
    tool_call_escaped(call, &byte, 1);
    return CALL_MORE;
}

static CallStep take_escape(ToolCall *call, char byte)
{
    static const char names[] = "abfnrtv0\\'\"\n", letters[] = "\a\b\f\n\r\t\v\0\\'\"";
    static const char codes[] = "xuU";
    if (byte && strchr(codes, byte)) {
        call->code = 0;
        call->n_digits = byte == 'x' ? 2 : byte == 'u' ? 4 : 8;
        return go(call, PY_HEX);
    }
    const char *name = byte ? strchr(names, byte) : NULL;
    if (!name) tool_call_escaped(call, "\\", 1); /* as Python does */
    if (!name || *name != '\n') tool_call_escaped(call, name ? &letters[name - names] : &byte, 1);
    return go(call, PY_TEXT);
}

static CallStep take_hex(ToolCall *call, char byte)
{
    int digit = hex_value(byte);
    if (digit < 0) {
        call->state = PY_TEXT;
        tool_call_code_point(call, 0, true);
        return take_text(call, byte);
    }
    call->code = call->code << 4 | (uint32_t)digit;
    if (--call->n_digits) return CALL_MORE;
    tool_call_code_point(call, call->code, true);
    return go(call, PY_TEXT);
}

/* ---- the rows ---- */

static CallStep feed(ToolCall *call, char byte)
{
    static CallStep (*const takes[])(ToolCall *, char) = {
        [PY_PREFIX] = take_prefix, [PY_ITEM] = take_item,     [PY_NAME] = take_name, [PY_KEY] = take_key,
        [PY_IN_KEY] = take_in_key, [PY_VALUE] = take_value,   [PY_WORD] = take_word, [PY_QUOTE] = take_quote,
        [PY_TEXT] = take_text,     [PY_ESCAPE] = take_escape, [PY_HEX] = take_hex,   [PY_NEXT] = take_next,
    };
    return takes[call->state](call, byte);
}

CallStep tool_call_feed_python(ToolCall *call, char byte)
{
    if (call->state == PY_PREFIX) call->state = PY_ITEM;
    return feed(call, byte);
}

CallStep tool_call_feed_gemma(ToolCall *call, char byte)
{
    return feed(call, byte);
}
