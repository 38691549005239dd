/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/tool_call.h"

#include "base/numbers.h"

#include <string.h>

/* One object {"name": ..., "arguments": {...}}, perhaps as the member "function" of another; or a list of such. */
enum {
    JSON_BEGIN,
    JSON_ITEM, /* the next of the list */
    JSON_KEY,
    JSON_IN_KEY,
    JSON_COLON,
    JSON_VALUE,
    JSON_NAME,
    JSON_ARGUMENTS,
    JSON_TEXT, /* arguments as JSON in a text */
    JSON_ESCAPE,
    JSON_HEX,
    JSON_SKIP, /* a value that nobody asks for */
    JSON_NEXT,
};

typedef enum KeyKind { KEY_OTHER, KEY_NAME, KEY_FUNCTION, KEY_ARGUMENTS } KeyKind;

enum { MAX_KEY_BYTES = 64, MAX_LEVELS = 2 };

static KeyKind key_kind(const Buffer *key)
{
    static const struct {
        const char *key;
        KeyKind kind;
    } kinds[] = {{"name", KEY_NAME},
                 {"function", KEY_FUNCTION},
                 {"tool", KEY_NAME},
                 {"arguments", KEY_ARGUMENTS},
                 {"parameters", KEY_ARGUMENTS}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (tool_call_word_is(key, kinds[i].key)) return kinds[i].kind;
    return KEY_OTHER;
}

static CallStep open_object(ToolCall *call)
{
    call->level = 1;
    call->is_named = call->has_arguments = false;
    buffer_clear(&call->name);
    buffer_clear(&call->held);
    call->state = JSON_KEY;
    return CALL_MORE;
}

static CallStep take_begin(ToolCall *call, char byte)
{
    if (tool_call_is_blank(byte)) return CALL_MORE;
    if (byte == '{') return open_object(call);
    if (byte == '[' && call->state == JSON_BEGIN) {
        call->is_list = true;
        call->state = JSON_ITEM;
        return CALL_MORE;
    }
    if (call->state == JSON_BEGIN) return CALL_NOT;
    if (byte == ',') return CALL_MORE;
    if (byte == ']' && call->tool) return CALL_OVER;
    return call->tool ? CALL_BEFORE : CALL_NOT;
}

static CallStep close_object(ToolCall *call)
{
    if (--call->level) {
        call->state = JSON_NEXT;
        return CALL_MORE;
    }
    if (!call->is_named) return CALL_NOT;
    if (!call->has_arguments) tool_call_arguments(call, "{}", 2);
    call->state = JSON_ITEM;
    return call->is_list ? CALL_MORE : CALL_OVER;
}

static CallStep take_key(ToolCall *call, char byte)
{
    if (tool_call_is_blank(byte)) return CALL_MORE;
    if (byte == '}') return close_object(call);
    if (byte != '"') return tool_call_broken(call);
    buffer_clear(&call->word);
    call->state = JSON_IN_KEY;
    return CALL_MORE;
}

static CallStep take_in_key(ToolCall *call, char byte)
{
    if (byte == '"') {
        call->key_kind = (uint8_t)key_kind(&call->word);
        call->state = JSON_COLON;
        return CALL_MORE;
    }
    if (byte == '\\') return tool_call_broken(call);
    return tool_call_spell(call, &call->word, byte, MAX_KEY_BYTES) ? CALL_MORE : tool_call_broken(call);
}

static CallStep take_colon(ToolCall *call, char byte)
{
    if (tool_call_is_blank(byte)) return CALL_MORE;
    if (byte != ':') return tool_call_broken(call);
    call->state = JSON_VALUE;
    return CALL_MORE;
}

static CallStep take_scanned(ToolCall *call, char byte);

static CallStep begin_text(ToolCall *call, int state)
{
    call->state = (uint8_t)state;
    call->high = 0;
    if (state == JSON_TEXT) call->has_arguments = true;
    return CALL_MORE;
}

static CallStep take_value(ToolCall *call, char byte)
{
    KeyKind kind = (KeyKind)call->key_kind;
    if (tool_call_is_blank(byte)) return CALL_MORE;
    if (kind == KEY_FUNCTION && byte == '{') {
        if (call->level == MAX_LEVELS) return tool_call_broken(call);
        call->level++;
        call->state = JSON_KEY;
        return CALL_MORE;
    }
    if (kind == KEY_NAME || kind == KEY_FUNCTION) {
        if (byte != '"' || call->is_named) return tool_call_broken(call);
        return begin_text(call, JSON_NAME);
    }
    if (kind == KEY_ARGUMENTS && call->has_arguments) return tool_call_broken(call);
    if (kind == KEY_ARGUMENTS && byte == '"') return begin_text(call, JSON_TEXT);
    /* No arguments at all. */
    bool is_null = kind == KEY_ARGUMENTS && byte == 'n';
    call->state = kind == KEY_ARGUMENTS && !is_null ? JSON_ARGUMENTS : JSON_SKIP;
    call->scan = (JsonScan){0};
    return take_scanned(call, byte);
}

static CallStep take_name(ToolCall *call, char byte)
{
    if (byte != '"')
        return byte != '\\' && tool_call_spell(call, &call->name, byte, TOOL_NAME_MAX_BYTES) ? CALL_MORE : CALL_NOT;
    call->state = JSON_NEXT;
    return tool_call_name_done(call) ? CALL_MORE : CALL_NOT;
}

static CallStep take_next(ToolCall *call, char byte)
{
    if (tool_call_is_blank(byte)) return CALL_MORE;
    if (byte == '}') return close_object(call);
    if (byte != ',') return tool_call_broken(call);
    call->state = JSON_KEY;
    return CALL_MORE;
}

static CallStep take_scanned(ToolCall *call, char byte)
{
    ScanStep step = json_scan(&call->scan, byte);
    if (step == SCAN_NOT) return tool_call_broken(call);
    if (step != SCAN_BEFORE && call->state == JSON_ARGUMENTS) tool_call_arguments(call, &byte, 1);
    if (step == SCAN_MORE) return CALL_MORE;
    call->state = JSON_NEXT;
    return step == SCAN_BEFORE ? take_next(call, byte) : CALL_MORE;
}

/* Half a pair that nothing joins. */
static void drop_half(ToolCall *call)
{
    if (call->high) tool_call_code_point(call, 0, false);
    call->high = 0;
}

static CallStep take_text(ToolCall *call, char byte)
{
    if (byte == '\\') {
        call->state = JSON_ESCAPE;
        return CALL_MORE;
    }
    drop_half(call);
    if (byte == '"')
        call->state = JSON_NEXT;
    else
        tool_call_arguments(call, &byte, 1);
    return CALL_MORE;
}

static CallStep take_escape(ToolCall *call, char byte)
{
    static const char names[] = "bfnrt", letters[] = "\b\f\n\r\t";
    if (byte == 'u') {
        call->code = call->n_digits = 0;
        call->state = JSON_HEX;
        return CALL_MORE;
    }
    const char *name = byte ? strchr(names, byte) : NULL;
    drop_half(call);
    tool_call_arguments(call, name ? &letters[name - names] : &byte, 1);
    call->state = JSON_TEXT;
    return CALL_MORE;
}

static void end_escape(ToolCall *call)
{
    bool is_low = call->code >= 0xDC00 && call->code <= 0xDFFF;
    uint32_t high = call->high;
    if (!is_low) drop_half(call);
    call->high = 0;
    if (call->code >= 0xD800 && call->code <= 0xDBFF)
        call->high = call->code;
    else
        tool_call_code_point(
            call, is_low && high ? 0x10000 + ((high - 0xD800) << 10) + (call->code - 0xDC00) : call->code, false);
}

static CallStep take_hex(ToolCall *call, char byte)
{
    int digit = hex_value(byte);
    if (digit < 0) return tool_call_broken(call);
    call->code = call->code << 4 | (uint32_t)digit;
    if (++call->n_digits < 4) return CALL_MORE;
    call->state = JSON_TEXT;
    end_escape(call);
    return CALL_MORE;
}

void tool_call_begin_json(ToolCall *call)
{
    call->body = CALL_JSON;
    call->state = JSON_BEGIN;
}

CallStep tool_call_feed_json(ToolCall *call, char byte)
{
    static CallStep (*const takes[])(ToolCall *, char) = {
        [JSON_BEGIN] = take_begin,       [JSON_ITEM] = take_begin,   [JSON_KEY] = take_key,
        [JSON_IN_KEY] = take_in_key,     [JSON_COLON] = take_colon,  [JSON_VALUE] = take_value,
        [JSON_NAME] = take_name,         [JSON_TEXT] = take_text,    [JSON_ESCAPE] = take_escape,
        [JSON_HEX] = take_hex,           [JSON_SKIP] = take_scanned, [JSON_NEXT] = take_next,
        [JSON_ARGUMENTS] = take_scanned,
    };
    return takes[call->state](call, byte);
}
