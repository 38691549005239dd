/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens to syntax tree; what the two halves of the parser share. Private to jinja_parse.c and jinja_parse_expr.c. */
#pragma once
#include "engine/text/jinja_lex.h"

enum { JINJA_MAX_PARSE_DEPTH = 150, JINJA_MAX_TREE_HEIGHT = 300 };

/* A macro or call block around the place being parsed; collects what its body mentions. */
typedef struct JMacroFrame {
    struct JMacroFrame *parent;
    uint8_t uses;
} JMacroFrame;

typedef struct JParser {
    JLexer lexer;
    JToken current, ahead;
    bool has_ahead;
    JinjaProgram *program;
    Error *error;
    uint32_t depth;
    uint32_t loops;       /* around this place, inside the same macro */
    uint32_t conditional; /* > 0 inside an if: unknown filters and tests fail only when they are reached */
    const JNode *unknown; /* the first one outside of any, or NULL */
    JMacroFrame *macros;
} JParser;

/* Functions that return a node return NULL with the error set when they fail. */
JNode *jinja_node_new(JParser *parser, JNodeType type, uint32_t line);
JNode *jinja_node_done(JParser *parser, JNode *node); /* checks its height */
bool jinja_parse_fail(JParser *parser, uint32_t line, const char *fmt, ...) LW_PRINTF(3, 4);

LW_CHECK bool jinja_advance(JParser *parser);
LW_CHECK bool jinja_peek(JParser *parser, const JToken **ret_token);
bool jinja_at_op(const JParser *parser, uint16_t op);
bool jinja_at_name(const JParser *parser, const char *name);
LW_CHECK bool jinja_expect_op(JParser *parser, uint16_t op);
LW_CHECK bool jinja_expect_type(JParser *parser, JTokenType type);
/* Takes the token when it is there. */
LW_CHECK bool jinja_skip_op(JParser *parser, uint16_t op, bool *ret_skipped);
LW_CHECK bool jinja_skip_name(JParser *parser, const char *name, bool *ret_skipped);
LW_CHECK bool jinja_expect_name(JParser *parser, JText *ret_name);
bool jinja_text_is(JText text, const char *literal);

JNode *jinja_parse_expression(JParser *parser, bool with_ternary);
/* One expression, or a tuple when commas follow. */
JNode *jinja_parse_tuple(JParser *parser, bool with_ternary, const char *end_name);
/* Filters after 'input'; where 'named', the first one's name comes without its bar. */
JNode *jinja_parse_filters(JParser *parser, JNode *input, bool named);
