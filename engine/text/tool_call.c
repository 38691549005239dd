/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/tool_call.h"

#include <string.h>
#include <utf8proc.h>

/* ---- where a JSON value ends ---- */

static ScanStep scan_text(JsonScan *scan, char byte)
{
    if (scan->escaped || byte == '\\') {
        scan->escaped = !scan->escaped;
        return SCAN_MORE;
    }
    scan->in_text = byte != '"';
    return scan->in_text || scan->depth ? SCAN_MORE : SCAN_LAST;
}

static bool ends_plain(char byte)
{
    return tool_call_is_blank(byte) || byte == ',' || byte == ']' || byte == '}';
}

ScanStep json_scan(JsonScan *scan, char byte)
{
    if (scan->in_text) return scan_text(scan, byte);
    if (scan->is_plain) return ends_plain(byte) ? SCAN_BEFORE : SCAN_MORE;
    bool opens = byte == '{' || byte == '[', closes = byte == '}' || byte == ']';
    if (byte == '"') {
        scan->in_text = true;
    } else if (opens) {
        scan->depth++;
    } else if (!scan->begun) {
        if (!byte || !strchr("-0123456789tfn", byte)) return SCAN_NOT;
        scan->is_plain = true;
    } else if (closes && --scan->depth == 0) {
        return SCAN_LAST;
    }
    scan->begun = true;
    return SCAN_MORE;
}

/* ---- what all forms need ---- */

bool tool_call_is_blank(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

bool tool_call_is_name_byte(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
           (byte && strchr("_-.:/", byte));
}

static size_t count_digits(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && text[i] >= '0' && text[i] <= '9') i++;
    return i;
}

bool tool_call_is_number(const char *text, size_t n)
{
    size_t at = n && *text == '-', n_digits = count_digits(text + at, n - at);
    if (!n_digits || (n_digits > 1 && text[at] == '0')) return false;
    at += n_digits;
    if (at < n && text[at] == '.') {
        n_digits = count_digits(text + at + 1, n - at - 1);
        if (!n_digits) return false;
        at += 1 + n_digits;
    }
    if (at < n && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        if (at < n && (text[at] == '+' || text[at] == '-')) at++;
        n_digits = count_digits(text + at, n - at);
        if (!n_digits) return false;
        at += n_digits;
    }
    return at == n;
}

bool tool_call_spell(ToolCall *call, Buffer *word, char byte, size_t max)
{
    return word->n < max && buffer_append(word, &byte, 1, &call->parts->error);
}

bool tool_call_word_is(const Buffer *word, const char *text)
{
    return word->n == strlen(text) && (!word->n || !memcmp(word->data, text, word->n));
}

bool tool_call_word_begins(const Buffer *word, const char *text, size_t n)
{
    return word->n <= n && (!word->n || !memcmp(word->data, text, word->n));
}

void tool_call_arguments(ToolCall *call, const char *text, size_t n)
{
    call->has_arguments = true;
    if (call->is_over) return;
    if (call->is_named)
        answer_parts_add(call->parts, PART_ARGUMENTS, text, n);
    else
        (void)!buffer_append(&call->held, text, n, &call->parts->error);
}

void tool_call_escaped(ToolCall *call, const char *text, size_t n)
{
    if (!call->is_over) answer_parts_add_escaped(call->parts, PART_ARGUMENTS, text, n);
}

void tool_call_code_point(ToolCall *call, uint32_t code, bool escaped)
{
    char bytes[4];
    bool is_text = code && code < 0x110000 && (code < 0xD800 || code > 0xDFFF);
    size_t n = (size_t)utf8proc_encode_char(is_text ? (utf8proc_int32_t)code : 0xFFFD, (utf8proc_uint8_t *)bytes);
    if (escaped)
        tool_call_escaped(call, bytes, n);
    else
        tool_call_arguments(call, bytes, n);
}

void tool_call_keep_unread(ToolCall *call)
{
    buffer_clear(&call->unread);
    if (call->word.n > 1) (void)!buffer_append(&call->unread, call->word.data, call->word.n - 1, &call->parts->error);
}

CallStep tool_call_broken(const ToolCall *call)
{
    return call->is_named ? CALL_BEFORE : CALL_NOT;
}

static const ToolSpec *find_tool(const AnswerPlan *plan, const Buffer *name)
{
    for (uint32_t i = 0; i < plan->n_tools; i++)
        if (tool_call_word_is(name, plan->tools[i].name)) return &plan->tools[i];
    return NULL;
}

/* Without a mark a call begins in one of few ways, and nothing but a call does. */
static bool begins_well(const ToolCall *call)
{
    size_t n_begins;
    const char *const *begins = answer_style_begins(call->plan->style, &n_begins);
    if (!call->since || call->n_calls > call->n_before) return true;
    for (size_t i = 0; i < n_begins; i++) {
        size_t n = strlen(begins[i]);
        if (call->since->n == n + call->name.n && !memcmp(call->since->data, begins[i], n)) return true;
    }
    return false;
}

bool tool_call_name_done(ToolCall *call)
{
    const ToolSpec *tool = find_tool(call->plan, &call->name);
    if (!tool || !begins_well(call)) return false;
    call->tool = tool;
    call->is_named = true;
    if (call->plan->max_calls && call->n_calls == call->plan->max_calls) call->is_over = true;
    if (call->is_over) return true;
    call->n_calls++;
    answer_parts_add(call->parts, PART_CALL, call->name.data, call->name.n);
    answer_parts_add(call->parts, PART_ARGUMENTS, call->held.data, call->held.n);
    return true;
}

/* ---- name ARGS {...} ---- */

enum { NAMED_BEGIN, NAMED_NAME, NAMED_MARK, NAMED_ID, NAMED_ARGUMENTS, NAMED_LIST };

/* Behind the name: a mark, or the arguments at once. */
static CallStep take_mark(ToolCall *call, char byte)
{
    const AnswerMarker *arguments = &call->plan->style->marks[MARK_ARGUMENTS];
    const AnswerMarker *id = &call->plan->style->marks[MARK_CALL_ID];
    if (!call->word.n && tool_call_is_blank(byte)) return CALL_MORE;
    if (!tool_call_spell(call, &call->word, byte, ANSWER_MARK_MAX_BYTES)) return tool_call_broken(call);
    bool is_arguments = arguments->n && tool_call_word_begins(&call->word, arguments->bytes, arguments->n);
    bool is_id = id->n && tool_call_word_begins(&call->word, id->bytes, id->n);
    if (is_arguments && call->word.n == arguments->n) call->state = NAMED_ARGUMENTS;
    if (is_id && call->word.n == id->n) call->state = NAMED_ID;
    if (call->state != NAMED_MARK) buffer_clear(&call->word);
    return is_arguments || is_id ? CALL_MORE : tool_call_broken(call);
}

static CallStep take_arguments(ToolCall *call, char byte)
{
    if (!call->scan.begun && tool_call_is_blank(byte)) return CALL_MORE;
    ScanStep step = json_scan(&call->scan, byte);
    if (step == SCAN_NOT) return tool_call_broken(call);
    if (step == SCAN_BEFORE) return CALL_BEFORE;
    tool_call_arguments(call, &byte, 1);
    return step == SCAN_LAST ? CALL_OVER : CALL_MORE;
}

static CallStep end_name(ToolCall *call, char byte)
{
    if (!call->name.n || !tool_call_name_done(call)) return CALL_NOT;
    call->state = byte == '{' ? NAMED_ARGUMENTS : NAMED_MARK;
    return byte == '{' ? take_arguments(call, byte) : take_mark(call, byte);
}

CallStep tool_call_feed_named(ToolCall *call, char byte)
{
    switch (call->state) {
    case NAMED_BEGIN:
        if (tool_call_is_blank(byte)) return CALL_MORE;
        call->state = byte == '[' || byte == '{' ? NAMED_LIST : NAMED_NAME;
        if (call->state == NAMED_LIST) {
            tool_call_begin_json(call);
            return tool_call_feed_json(call, byte);
        }
        return tool_call_feed_named(call, byte);
    case NAMED_NAME:
        if (!tool_call_is_name_byte(byte)) return end_name(call, byte);
        return tool_call_spell(call, &call->name, byte, TOOL_NAME_MAX_BYTES) ? CALL_MORE : CALL_NOT;
    case NAMED_MARK:
        return byte == '{' && !call->word.n ? (call->state = NAMED_ARGUMENTS, take_arguments(call, byte))
                                            : take_mark(call, byte);
    case NAMED_ID: /* whatever it is, up to the mark of the arguments */
        if (byte != call->plan->style->marks[MARK_ARGUMENTS].bytes[0]) return CALL_MORE;
        call->state = NAMED_MARK;
        return take_mark(call, byte);
    default:
        return take_arguments(call, byte);
    }
}

/* ---- the rows ---- */

static CallStep (*const feeds[])(ToolCall *, char) = {
    [CALL_JSON] = tool_call_feed_json,      [CALL_NAMED] = tool_call_feed_named,
    [CALL_TAGS] = tool_call_feed_tags,      [CALL_PYTHON] = tool_call_feed_python,
    [CALL_GEMMA] = tool_call_feed_gemma,    [CALL_SECTION] = tool_call_feed_section,
    [CALL_CHANNELS] = tool_call_feed_named,
};

void tool_call_begin(ToolCall *call, CallBody body)
{
    call->body = body;
    call->n_before = call->n_calls;
    call->state = call->level = call->key_kind = 0;
    call->is_list = call->is_named = call->has_arguments = call->skips_line = false;
    call->is_first = true;
    call->tool = NULL;
    call->scan = (JsonScan){0};
    call->code = call->high = 0;
    call->n_digits = 0;
    buffer_clear(&call->word);
    buffer_clear(&call->name);
    buffer_clear(&call->held);
    buffer_clear(&call->unread);
}

void tool_call_begin_arguments(ToolCall *call)
{
    tool_call_begin(call, CALL_CHANNELS);
    call->since = NULL;
    call->state = NAMED_ARGUMENTS;
}

CallStep tool_call_feed(ToolCall *call, char byte)
{
    return feeds[call->body](call, byte);
}
