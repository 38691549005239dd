/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/answer_parser_impl.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_HELD_BYTES = 64 << 20, MAX_MARKS = 3 };

bool answer_parser_new(const AnswerPlan *plan, AnswerParser **ret_parser, Error *error)
{
    AnswerParser *parser = calloc(1, sizeof *parser);
    if (!parser) return error_set(error, ERR_NO_MEMORY, "no memory for a parser of answers");
    parser->plan = parser->call.plan = plan;
    parser->mode = plan->splits_reasoning && plan->begins_in_reasoning ? MODE_REASONING : MODE_START;
    Buffer *buffers[] = {&parser->held,      &parser->raw,       &parser->since,      &parser->call.word,
                         &parser->call.name, &parser->call.held, &parser->call.unread};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) buffer_init(buffers[i], MAX_HELD_BYTES);
    *ret_parser = parser;
    return true;
}

void answer_parser_free(AnswerParser *parser)
{
    if (!parser) return;
    buffer_done(&parser->held);
    buffer_done(&parser->raw);
    buffer_done(&parser->since);
    buffer_done(&parser->call.word);
    buffer_done(&parser->call.name);
    buffer_done(&parser->call.held);
    buffer_done(&parser->call.unread);
    free(parser);
}

/* ---- telling ---- */

static PartKind kind_of(const AnswerParser *parser)
{
    return parser->mode == MODE_REASONING ? PART_REASONING : PART_CONTENT;
}

/* Blanks before the first word of reasoning, behind reasoning and behind calls are nobody's. */
static bool drops_blanks(const AnswerParser *parser)
{
    return parser->mode == MODE_THOUGHT || parser->mode == MODE_BETWEEN || parser->mode == MODE_CALLED ||
           (parser->mode == MODE_REASONING && !parser->has_reasoning);
}

static void tell(AnswerParser *parser, size_t n)
{
    answer_parts_add(parser->parts, kind_of(parser), parser->held.data, n);
    if (n) *(parser->mode == MODE_REASONING ? &parser->has_reasoning : &parser->has_content) = true;
    buffer_consume(&parser->held, n);
}

static void drop(AnswerParser *parser, size_t n)
{
    buffer_consume(&parser->held, n);
    parser->n_blank -= n;
}

/* ---- marks ---- */

typedef struct MarkList {
    AnswerMark marks[MAX_MARKS];
    size_t n;
} MarkList;

static void list_mark(const AnswerParser *parser, MarkList *list, AnswerMark mark)
{
    if (parser->plan->style->marks[mark].n) list->marks[list->n++] = mark;
}

static MarkList list_marks(const AnswerParser *parser)
{
    const AnswerPlan *plan = parser->plan;
    MarkList list = {.n = 0};
    if (plan->splits_reasoning &&
        (parser->mode == MODE_START || (parser->mode == MODE_REASONING && !parser->has_reasoning)))
        list_mark(parser, &list, MARK_THINK);
    if (parser->mode == MODE_REASONING) {
        list_mark(parser, &list, MARK_THINK_END);
    } else if (parser->mode == MODE_CALLED) {
        list_mark(parser, &list, MARK_CALL_END);
    } else if (plan->n_tools) {
        list_mark(parser, &list, MARK_CALL);
        list_mark(parser, &list, MARK_CALL_ALSO);
    }
    return list;
}

static void begin_call(AnswerParser *parser, bool is_marked)
{
    buffer_clear(&parser->raw);
    buffer_clear(&parser->since);
    if (drops_blanks(parser)) drop(parser, parser->n_blank);
    parser->mode = MODE_CALL;
    tool_call_begin(&parser->call, parser->plan->style->format->body);
    parser->call.since = is_marked ? NULL : &parser->since;
    (void)!buffer_append(&parser->raw, parser->held.data, is_marked ? parser->held.n : parser->n_blank,
                         &parser->parts->error);
}

static void open_call(AnswerParser *parser, AnswerMark mark)
{
    const char *before = parser->plan->style->format->before;
    size_t n = strlen(before), n_told = parser->n_blank;
    if (parser->mode != MODE_CONTENT) {
        n_told = 0;
    } else if (n_told >= n && !memcmp(parser->held.data + n_told - n, before, n)) {
        n_told -= n;
    }
    tell(parser, n_told);
    parser->n_blank -= n_told;
    begin_call(parser, true);
    if (mark == MARK_CALL_ALSO) tool_call_begin_name(&parser->call);
    buffer_clear(&parser->held);
    parser->n_blank = 0;
}

static void act(AnswerParser *parser, AnswerMark mark)
{
    if (mark == MARK_CALL || mark == MARK_CALL_ALSO) {
        open_call(parser, mark);
        return;
    }
    parser->mode = mark == MARK_THINK ? MODE_REASONING : mark == MARK_THINK_END ? MODE_THOUGHT : MODE_BETWEEN;
    buffer_clear(&parser->held);
    parser->n_blank = 0;
}

/* ---- one byte ---- */

static void feed(AnswerParser *parser, char byte);

/* May a call begin here without a mark? */
static bool is_bare(const AnswerParser *parser, char byte)
{
    char bare = parser->plan->n_tools ? parser->plan->style->bare : 0;
    return bare && byte == bare &&
           (parser->mode == MODE_START || parser->mode == MODE_THOUGHT || parser->mode == MODE_BETWEEN);
}

static void count_blanks(AnswerParser *parser)
{
    while (parser->n_blank < parser->held.n && tool_call_is_blank(parser->held.data[parser->n_blank]))
        parser->n_blank++;
}

typedef enum Look { LOOK_WAIT, LOOK_DONE, LOOK_TEXT } Look;

/* What the word behind the blanks is or may become. */
static Look look(AnswerParser *parser)
{
    const char *word = parser->held.data + parser->n_blank;
    size_t n = parser->held.n - parser->n_blank;
    MarkList list = list_marks(parser);
    Look found = n ? LOOK_TEXT : LOOK_WAIT;
    for (size_t i = 0; n && i < list.n; i++) {
        const AnswerMarker *marker = &parser->plan->style->marks[list.marks[i]];
        if (n > marker->n || memcmp(word, marker->bytes, n)) continue;
        found = LOOK_WAIT;
        if (n < marker->n) continue;
        act(parser, list.marks[i]);
        return LOOK_DONE;
    }
    return found;
}

/* The first byte of the held word is no mark's. */
static void be_text(AnswerParser *parser)
{
    if (parser->mode == MODE_CALLED) {
        parser->mode = MODE_BETWEEN;
        return;
    }
    if (drops_blanks(parser)) drop(parser, parser->n_blank);
    if (parser->mode != MODE_REASONING) parser->mode = MODE_CONTENT;
    tell(parser, parser->n_blank + 1);
    parser->n_blank = 0;
    count_blanks(parser);
}

static void settle(AnswerParser *parser)
{
    count_blanks(parser);
    while (parser->held.n > parser->n_blank) {
        char byte = parser->held.data[parser->n_blank];
        if (is_bare(parser, byte) && parser->held.n == parser->n_blank + 1) {
            begin_call(parser, false);
            buffer_clear(&parser->held);
            parser->n_blank = 0;
            feed(parser, byte);
            return;
        }
        /* Between calls that have no marks some models write a semicolon. */
        bool is_separator = parser->mode == MODE_BETWEEN && parser->plan->style->bare && byte == ';';
        if (is_separator) {
            parser->n_blank++;
            drop(parser, parser->n_blank);
            count_blanks(parser);
            continue;
        }
        Look found = look(parser);
        if (found != LOOK_TEXT) return;
        be_text(parser);
    }
}

static void end_call(AnswerParser *parser)
{
    bool has_end = parser->plan->style->marks[MARK_CALL_END].n;
    parser->mode = has_end ? MODE_CALLED : MODE_BETWEEN;
    buffer_clear(&parser->raw);
}

/* What came since the last call is none. */
static void give_up(AnswerParser *parser)
{
    parser->mode = MODE_CONTENT;
    if (parser->raw.n) parser->has_content = true;
    answer_parts_add(parser->parts, PART_CONTENT, parser->raw.data, parser->raw.n);
    buffer_clear(&parser->raw);
}

/* What the call looked at and left: no more than a mark. */
static void feed_unread(AnswerParser *parser)
{
    char bytes[ANSWER_MARK_MAX_BYTES];
    size_t n = parser->call.unread.n < sizeof bytes ? parser->call.unread.n : sizeof bytes;
    if (n) memcpy(bytes, parser->call.unread.data, n);
    buffer_clear(&parser->call.unread);
    for (size_t i = 0; i < n; i++) feed(parser, bytes[i]);
}

static void feed_call(AnswerParser *parser, char byte)
{
    ToolCall *call = &parser->call;
    CallStep step = tool_call_feed(call, byte);
    bool is_taken = step == CALL_MORE || step == CALL_OVER;
    Error *error = &parser->parts->error;
    if (call->is_named)
        buffer_clear(&parser->raw);
    else if (is_taken)
        (void)!buffer_append(&parser->raw, &byte, 1, error);
    if (is_taken && call->since && call->n_calls == call->n_before)
        (void)!buffer_append(&parser->since, &byte, 1, error);
    if (call->is_over)
        parser->mode = MODE_OVER;
    else if (step == CALL_NOT)
        give_up(parser);
    else if (step != CALL_MORE)
        end_call(parser);
    if (step == CALL_BEFORE) feed_unread(parser);
    if (!is_taken) feed(parser, byte);
}

static bool has_channels(const AnswerParser *parser)
{
    return parser->plan->style->format->body == CALL_CHANNELS;
}

static void feed(AnswerParser *parser, char byte)
{
    if (parser->mode == MODE_OVER) return;
    if (has_channels(parser)) {
        answer_channels_feed(parser, byte);
        return;
    }
    if (parser->mode == MODE_CALL) {
        feed_call(parser, byte);
        return;
    }
    if (buffer_append(&parser->held, &byte, 1, &parser->parts->error)) settle(parser);
}

/* ---- from outside ---- */

/* Nothing but content can come any more. */
static bool is_plain(const AnswerParser *parser)
{
    return parser->mode == MODE_CONTENT && !parser->held.n && !parser->plan->n_tools && !has_channels(parser);
}

bool answer_parser_push(AnswerParser *parser, const char *text, size_t n, AnswerParts *parts, Error *error)
{
    parser->parts = parser->call.parts = parts;
    for (size_t i = 0; i < n && parts->error.code == ERR_NONE; i++) {
        if (is_plain(parser)) {
            answer_parts_add(parts, PART_CONTENT, text + i, n - i);
            break;
        }
        feed(parser, text[i]);
    }
    return answer_parts_end(parts, error);
}

/* Behind a call of a list blanks are nobody's; all else is content. */
static void end_unnamed(AnswerParser *parser)
{
    size_t n = 0;
    while (n < parser->raw.n && tool_call_is_blank(parser->raw.data[n])) n++;
    if (parser->call.tool && n == parser->raw.n)
        end_call(parser);
    else
        give_up(parser);
}

bool answer_parser_finish(AnswerParser *parser, AnswerParts *parts, Error *error)
{
    parser->parts = parser->call.parts = parts;
    if (has_channels(parser)) {
        answer_channels_finish(parser);
        return answer_parts_end(parts, error);
    }
    if (parser->mode == MODE_CALL && !parser->call.is_named) end_unnamed(parser);
    /* Blanks at the end of reasoning would have gone with its mark; half an end mark of a call is no content. */
    bool is_nothing = parser->mode == MODE_CALLED || parser->mode == MODE_OVER;
    bool is_blank = parser->held.n == parser->n_blank;
    if (drops_blanks(parser) || (parser->mode == MODE_REASONING && is_blank)) drop(parser, parser->n_blank);
    if (!is_nothing) tell(parser, parser->held.n);
    return answer_parts_end(parts, error);
}

AnswerPhase answer_parser_phase(const AnswerParser *parser)
{
    bool has_mark = parser->plan->style->marks[MARK_CALL].n && !parser->plan->style->bare;
    switch (parser->mode) {
    case MODE_START:
        return PHASE_START;
    case MODE_REASONING:
        return PHASE_REASONING;
    case MODE_CALL:
        return has_mark || parser->call.is_named || parser->call.tool ? PHASE_CALL : PHASE_TEXT;
    case MODE_CALLED:
        return PHASE_CALL;
    default:
        return PHASE_TEXT;
    }
}

bool answer_parser_is_over(const AnswerParser *parser)
{
    return parser->mode == MODE_OVER;
}
