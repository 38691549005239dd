/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the answer parser: the body of one call, or of a list of calls, byte by byte. Each form of writing is a row
 * {begin, feed}; all of them tell a call's name once it is one of the tools', and from then on its arguments as JSON.
 */
#pragma once
#include "engine/text/answer_parser.h"

typedef enum CallStep {
    CALL_MORE,   /* taken */
    CALL_OVER,   /* taken, and it was the last one */
    CALL_BEFORE, /* not taken: the byte before was the last one */
    CALL_NOT,    /* not taken, and what came since the last call is none */
} CallStep;

/* Where one JSON value ends. */
typedef struct JsonScan {
    uint32_t depth;
    bool begun, in_text, escaped, is_plain; /* plain: a number or a word */
} JsonScan;

typedef enum ScanStep { SCAN_MORE, SCAN_LAST, SCAN_BEFORE, SCAN_NOT } ScanStep;
ScanStep json_scan(JsonScan *scan, char byte);

typedef struct ToolCall {
    const AnswerPlan *plan;
    AnswerParts *parts;  /* of the push under way */
    const Buffer *since; /* of a call without a mark: what there is of it; NULL: it has one */
    CallBody body;
    uint8_t state, level, key_kind;
    bool is_list, is_named, is_over, has_arguments, is_first, skips_line;
    const ToolSpec *tool;       /* of the call that is written, or the one before; NULL: there was none yet */
    uint32_t kinds;             /* of the member that is read, by the tool's schema */
    uint32_t n_calls, n_before; /* before: this body */
    JsonScan scan;
    char quote;          /* Python: what ends the text */
    uint8_t want;        /* Python: what may come next within a value */
    bool has_comma;      /* Python: there is one that is not told yet */
    uint64_t objects;    /* Python: bits, by level; 0: a list */
    uint32_t code, high; /* of an escape: its digits so far, and the first half of a pair */
    uint8_t n_digits;
    Buffer word, name, held; /* a key, mark or value; the name; arguments that came before it */
    Buffer unread;           /* with CALL_BEFORE: bytes before the one in hand that are not the call's either */
} ToolCall;

/* A body begins; the object is used again and again. */
void tool_call_begin(ToolCall *call, CallBody body);
CallStep tool_call_feed(ToolCall *call, char byte);

/* ---- for the rows ---- */

void tool_call_begin_json(ToolCall *call);
CallStep tool_call_feed_json(ToolCall *call, char byte);
CallStep tool_call_feed_named(ToolCall *call, char byte);
CallStep tool_call_feed_tags(ToolCall *call, char byte);
void tool_call_begin_name(ToolCall *call); /* of tags: behind what stands before the name */
/* name and arguments alone: call->name comes next, and behind tool_call_name_done the arguments. */
void tool_call_begin_arguments(ToolCall *call);
CallStep tool_call_feed_section(ToolCall *call, char byte);
CallStep tool_call_feed_python(ToolCall *call, char byte);
CallStep tool_call_feed_gemma(ToolCall *call, char byte);

enum { TOOL_WORD_MAX_BYTES = 32 << 20 }; /* of a key or a literal: beyond any answer */
/* Appends to a word that is never longer than 'max'; false: it would be. */
bool tool_call_spell(ToolCall *call, Buffer *word, char byte, size_t max);
bool tool_call_word_is(const Buffer *word, const char *text);
/* May the word become this text? */
bool tool_call_word_begins(const Buffer *word, const char *text, size_t n);
/* call->name is complete. false: no such tool. */
bool tool_call_name_done(ToolCall *call);
void tool_call_arguments(ToolCall *call, const char *text, size_t n);
void tool_call_escaped(ToolCall *call, const char *text, size_t n);
/* The code point in UTF-8, as it stands in a JSON string. */
void tool_call_code_point(ToolCall *call, uint32_t code, bool escaped);
bool tool_call_is_blank(char byte);
bool tool_call_is_name_byte(char byte);
bool tool_call_is_number(const char *text, size_t n); /* one of JSON's */
/* The word but for its last byte, which is the one in hand, is not the call's: for CALL_BEFORE. */
void tool_call_keep_unread(ToolCall *call);
/* What breaks off: a call whose name is told ends there, any other is none. */
CallStep tool_call_broken(const ToolCall *call);
