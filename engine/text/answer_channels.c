/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers as messages: a header with the channel, and for a call with the function that it goes to, a mark, the text.
 * What goes to a tool is a call, what is analysis is reasoning, all else is content.
 */
#include "engine/text/answer_parser_impl.h"

#include <string.h>

enum { MAX_HEADER_BYTES = 512 };

static const char role[] = "assistant", recipient[] = " to=", functions[] = "functions.", analysis[] = "analysis";

static const AnswerMarker *mark_of(const AnswerParser *parser, AnswerMark mark)
{
    return &parser->plan->style->marks[mark];
}

static bool begins_with(const char *text, size_t n, const char *with, size_t n_with)
{
    return n >= n_with && !memcmp(text, with, n_with);
}

/* ---- headers ---- */

static const char *find(const char *text, size_t n, const char *what, size_t n_what)
{
    for (size_t i = 0; n_what && i + n_what <= n; i++)
        if (!memcmp(text + i, what, n_what)) return text + i;
    return NULL;
}

static bool is_name_end(char byte)
{
    return tool_call_is_blank(byte) || byte == ANSWER_CONTROL || byte == '<';
}

/* The tool that the header names, whose call begins. */
static bool begin_call(AnswerParser *parser, const char *header, size_t n)
{
    const char *name = find(header, n, recipient, strlen(recipient));
    if (!name || !parser->plan->n_tools) return false;
    name += strlen(recipient);
    size_t n_left = n - (size_t)(name - header), n_name = 0;
    if (begins_with(name, n_left, functions, strlen(functions))) {
        name += strlen(functions);
        n_left -= strlen(functions);
    }
    tool_call_begin_arguments(&parser->call);
    while (n_name < n_left && n_name < TOOL_NAME_MAX_BYTES && !is_name_end(name[n_name]))
        (void)!tool_call_spell(&parser->call, &parser->call.name, name[n_name++], TOOL_NAME_MAX_BYTES);
    return tool_call_name_done(&parser->call);
}

static bool is_analysis(const AnswerParser *parser, const char *header, size_t n)
{
    const AnswerMarker *mark = mark_of(parser, MARK_CHANNEL);
    const char *channel = find(header, n, mark->bytes, mark->n);
    if (!channel) return false;
    channel += mark->n;
    return begins_with(channel, n - (size_t)(channel - header), analysis, strlen(analysis));
}

/* How many of the bytes come before a mark of a header, or before what may become one. */
static size_t count_before(const AnswerParser *parser, const char *text, size_t n)
{
    static const AnswerMark marks[] = {MARK_CHANNEL, MARK_START};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const AnswerMarker *marker = mark_of(parser, marks[i]);
        for (size_t at = 0; marker->n && at < n; at++)
            if (!memcmp(text + at, marker->bytes, n - at < marker->n ? n - at : marker->n)) n = at;
    }
    return n;
}

/* What stands before a header [n] in held, or instead of one, is content; not a role, and whom it goes to. */
static void tell_before(AnswerParser *parser, size_t n)
{
    const char *text = parser->held.data;
    n = count_before(parser, text, n);
    for (; parser->mode == MODE_HEADER && n && tool_call_is_blank(*text); n--) text++;
    size_t n_role = begins_with(text, n, role, strlen(role)) ? strlen(role) : 0;
    if (n == n_role || begins_with(text + n_role, n - n_role, recipient, strlen(recipient))) return;
    if (parser->has_content) answer_parts_add(parser->parts, PART_CONTENT, "\n", 1);
    answer_parts_add(parser->parts, PART_CONTENT, text, n);
    parser->has_content = true;
}

/* The header [n] in held is whole. */
static void open_message(AnswerParser *parser, size_t n)
{
    tell_before(parser, n);
    const char *header = parser->held.data;
    bool thinks = parser->plan->splits_reasoning && is_analysis(parser, header, n);
    if (begin_call(parser, header, n)) {
        parser->mode = parser->call.is_over ? MODE_OVER : MODE_CALL;
    } else {
        parser->mode = thinks ? MODE_REASONING : MODE_CONTENT;
        parser->joins = thinks ? parser->has_reasoning : parser->has_content;
    }
    buffer_clear(&parser->held);
    parser->n_blank = 0;
}

/* May an answer's first bytes be a header? */
static bool may_be_header(const AnswerParser *parser)
{
    static const AnswerMark marks[] = {MARK_CHANNEL, MARK_START, MARK_MESSAGE};
    const Buffer *held = &parser->held;
    size_t n = held->n < strlen(recipient) ? held->n : strlen(recipient);
    if (!memcmp(held->data, recipient, n)) return true;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const AnswerMarker *marker = mark_of(parser, marks[i]);
        n = held->n < marker->n ? held->n : marker->n;
        if (n && !memcmp(held->data, marker->bytes, n)) return true;
    }
    return false;
}

static void read_text(AnswerParser *parser);

static void take_header(AnswerParser *parser)
{
    const AnswerMarker *message = mark_of(parser, MARK_MESSAGE);
    const Buffer *held = &parser->held;
    if (held->n >= message->n && !memcmp(held->data + held->n - message->n, message->bytes, message->n)) {
        open_message(parser, held->n - message->n);
    } else if (held->n >= MAX_HEADER_BYTES || (parser->mode == MODE_START && !may_be_header(parser))) {
        parser->mode = MODE_CONTENT;
        parser->joins = parser->has_content;
        read_text(parser);
    }
}

/* ---- texts ---- */

static void tell(AnswerParser *parser, size_t n)
{
    bool thinks = parser->mode == MODE_REASONING;
    PartKind kind = thinks ? PART_REASONING : PART_CONTENT;
    if (n && parser->joins) answer_parts_add(parser->parts, kind, "\n", 1);
    if (n) {
        parser->joins = false;
        *(thinks ? &parser->has_reasoning : &parser->has_content) = true;
    }
    answer_parts_add(parser->parts, kind, parser->held.data, n);
    buffer_consume(&parser->held, n);
}

/* Blanks at the ends of reasoning and behind a call are nobody's. */
static void end_message(AnswerParser *parser, AnswerMark mark)
{
    if (parser->mode == MODE_CONTENT) tell(parser, parser->n_blank);
    buffer_clear(&parser->held);
    parser->n_blank = 0;
    parser->mode = MODE_HEADER;
    const AnswerMarker *marker = mark_of(parser, mark);
    bool is_header = mark == MARK_CHANNEL || mark == MARK_START;
    if (is_header) (void)!buffer_append(&parser->held, marker->bytes, marker->n, &parser->parts->error);
}

/* Is the word behind the blanks a mark, or may it become one? */
static bool look(AnswerParser *parser)
{
    static const AnswerMark marks[] = {MARK_MESSAGE_END, MARK_START, MARK_CHANNEL, MARK_CALL_END};
    const char *word = parser->held.data + parser->n_blank;
    size_t n = parser->held.n - parser->n_blank;
    bool waits = false;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const AnswerMarker *marker = mark_of(parser, marks[i]);
        if (n > marker->n || memcmp(word, marker->bytes, n) != 0) continue;
        waits = true;
        if (n < marker->n) continue;
        end_message(parser, marks[i]);
        return true;
    }
    return waits;
}

static void count_blanks(AnswerParser *parser)
{
    while (parser->n_blank < parser->held.n && tool_call_is_blank(parser->held.data[parser->n_blank]))
        parser->n_blank++;
}

static void read_text(AnswerParser *parser)
{
    count_blanks(parser);
    while (parser->held.n > parser->n_blank && !look(parser)) {
        bool drops = parser->mode == MODE_CALLED || (parser->mode == MODE_REASONING && !parser->has_reasoning);
        if (drops) buffer_consume(&parser->held, parser->n_blank);
        size_t n = 1 + (drops ? 0 : parser->n_blank);
        if (parser->mode == MODE_CALLED) {
            parser->mode = MODE_CONTENT;
            parser->joins = parser->has_content;
        }
        tell(parser, n);
        parser->n_blank = 0;
        count_blanks(parser);
    }
}

/* ---- calls ---- */

static void take_call(AnswerParser *parser, char byte)
{
    CallStep step = byte == ANSWER_CONTROL ? CALL_BEFORE : tool_call_feed(&parser->call, byte);
    if (step == CALL_MORE) return;
    parser->mode = MODE_CALLED;
    if (step == CALL_BEFORE) answer_channels_feed(parser, byte);
}

/* ---- from outside ---- */

void answer_channels_feed(AnswerParser *parser, char byte)
{
    if (parser->mode == MODE_OVER) return;
    if (parser->mode == MODE_CALL) {
        take_call(parser, byte);
        return;
    }
    if (!buffer_append(&parser->held, &byte, 1, &parser->parts->error)) return;
    if (parser->mode == MODE_START || parser->mode == MODE_HEADER)
        take_header(parser);
    else
        read_text(parser);
}

/* Half a header is nothing; half a mark is text, but behind a call, and so is what no header came for. */
void answer_channels_finish(AnswerParser *parser)
{
    if (parser->mode == MODE_START || parser->mode == MODE_HEADER) tell_before(parser, parser->held.n);
    bool is_blank = parser->held.n == parser->n_blank;
    if (parser->mode == MODE_REASONING && is_blank) buffer_clear(&parser->held);
    if (parser->mode == MODE_REASONING || parser->mode == MODE_CONTENT) tell(parser, parser->held.n);
    buffer_clear(&parser->held);
    parser->n_blank = 0;
}
