/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a model writes what is not plain text: where it thinks, how it calls tools. Found out once, from its chat
 * template and vocabulary, or named by options. Immutable then; any thread.
 */
#pragma once
#include "engine/text/answer_parts.h"
#include "engine/text/chat_template.h"

/* How a call is written between its markers. */
typedef enum CallBody {
    CALL_JSON,     /* {"name": ..., "arguments": {...}}, or a list of these */
    CALL_NAMED,    /* name ARGS {...}, or such a list */
    CALL_SECTION,  /* several of name, {...}, each between marks of its own */
    CALL_TAGS,     /* <function=name> <parameter=key> value </parameter> ... </function> */
    CALL_PYTHON,   /* [name(key=value, ...), ...] */
    CALL_GEMMA,    /* call:name{key:value,...} */
    CALL_CHANNELS, /* the whole answer is messages, each with a channel; what goes to a function is its arguments */
} CallBody;

typedef enum AnswerMark {
    MARK_THINK,     /* reasoning begins */
    MARK_THINK_END, /* and ends */
    MARK_CALL,      /* a call, or a list of calls */
    MARK_CALL_ALSO, /* some models leave the first one out */
    MARK_CALL_END,
    MARK_ITEM, /* CALL_SECTION: one call */
    MARK_ITEM_END,
    MARK_ARGUMENTS, /* between name and arguments, or what name and kind are written with */
    MARK_CALL_ID,   /* CALL_NAMED: before an id, which is between name and arguments */
    MARK_QUOTE,     /* CALL_GEMMA: around texts */
    MARK_CHANNEL,   /* CALL_CHANNELS: before the channel, in a message's header */
    MARK_MESSAGE,   /* behind the header */
    MARK_MESSAGE_END,
    MARK_START,     /* of the next message */
    MARK_CONSTRAIN, /* before the kind of its text */
    ANSWER_MARKS
} AnswerMark;

/* CALL_TAGS: the texts of a format. Blanks may stand between them. */
typedef struct ToolTags {
    const char *before_name, *behind_name; /* the last one: one sign; "": the name ends where no name goes on */
    const char *before_key, *behind_key, *before_value, *behind_value;
    const char *end; /* behind all members; "": the call's mark alone */
    bool has_lines;  /* a value stands on lines of its own, whose breaks are not part of it */
} ToolTags;

/* CALL_SECTION: the texts around a name and its arguments, in which % is MARK_ARGUMENTS. */
typedef struct ToolSection {
    const char *prefix; /* of each name */
    const char *head, *neck, *tail;
    const char *between; /* calls */
    bool counts;         /* a name ends with a colon and the call's number */
} ToolSection;

/* A row of the table of formats. */
typedef struct ToolFormat {
    const char *name;
    const char *signs[3]; /* the template has all of these */
    const char *lacks;    /* and not this; NULL: nothing */
    CallBody body;
    const ToolTags *tags;
    const ToolSection *section;
    char bare;                       /* a call may also begin an answer with this byte, without a mark; 0: no */
    const char *marks[ANSWER_MARKS]; /* of calls; NULL: there is none */
    const char *pad;                 /* within the marks, around a call; "" */
    const char *before;              /* stands between content and the first call, belongs to neither; "" */
    const char *arguments;           /* CALL_JSON: the key of the arguments */
} ToolFormat;

enum { ANSWER_MARK_MAX_BYTES = 48, ANSWER_PAD_BYTES = 4 };

/* A mark as the parser meets it: its text, or, where it is a control token, ANSWER_CONTROL and its number. */
typedef struct AnswerMarker {
    char bytes[ANSWER_MARK_MAX_BYTES];
    uint32_t n;                       /* 0: there is none */
    uint32_t id;                      /* the token, control or user-defined, whose text it is; TOK_NONE */
    bool is_control;                  /* the token alone counts */
    char text[ANSWER_MARK_MAX_BYTES]; /* as in the template */
} AnswerMarker;

typedef struct AnswerStyle {
    const ToolFormat *format; /* never NULL */
    char bare;                /* as the format's; 0 when the template shows a mark */
    bool shows_tools;         /* the template does */
    bool shows_calls;         /* and the calls in a conversation */
    bool shows_two;           /* of one turn, too */
    bool marks_arguments;     /* CALL_NAMED: older templates have no mark for them */
    bool lists_calls;         /* a call is written as a list, also if it is alone */
    char pad_before[ANSWER_PAD_BYTES], pad_after[ANSWER_PAD_BYTES]; /* within the marks */
    bool has_reasoning;
    AnswerMarker marks[ANSWER_MARKS];
    AnswerMarker call_head, call_neck, call_tail; /* of the format's section, as the parser meets them */
    uint32_t control_ids[ANSWER_MARKS];           /* [n_control_ids] of the marks that are control tokens */
    uint32_t n_control_ids;
} AnswerStyle;

/*
 * chat_template may be NULL. tool_format, reasoning: names of rows, "auto" or NULL to find out; reasoning also "none".
 * ERR_INVALID names an unknown one by its option.
 */
LW_CHECK bool answer_style_find(const ChatTemplate *chat_template, const Tokenizer *tokenizer, const char *tool_format,
                                const char *reasoning, AnswerStyle *ret_style, Error *error);
/*
 * How a call that has no mark begins: one of these [*ret_n], the name, and what follows it. All else is content, also
 * if it would do behind a mark.
 */
const char *const *answer_style_begins(const AnswerStyle *style, size_t *ret_n);
char answer_style_name_end(const AnswerStyle *style);
/* The mark whose control token it is, or ANSWER_MARKS. */
AnswerMark answer_style_control(const AnswerStyle *style, uint32_t id);
