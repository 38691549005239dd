/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template source to tokens, on demand, with Jinja's white space rules under trim_blocks and lstrip_blocks. The source
 * has "\n" line ends only. Private to the jinja_*.c files.
 */
#pragma once
#include "engine/text/jinja_ast.h"

typedef enum JTokenType {
    T_END,
    T_DATA,
    T_VARIABLE_BEGIN,
    T_VARIABLE_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OPERATOR,
} JTokenType;

/* An operator of one or two characters as a number. */
#define JINJA_OP(a, b) ((uint16_t)((uint16_t)(a) | (uint16_t)((uint16_t)(b) << 8)))

typedef struct JToken {
    JTokenType type;
    uint16_t op; /* JINJA_OP; T_OPERATOR */
    uint32_t line;
    JText text; /* T_DATA, T_NAME, T_STRING (escapes resolved) */
    int64_t integer;
    double real;
} JToken;

enum { JINJA_MAX_BRACKETS = 200 };

typedef struct JLexer {
    const char *source; /* [n], lives as long as the program */
    size_t n, at;
    size_t line_at; /* 'line' is the line of this offset */
    uint32_t line;
    enum { J_LEX_DATA, J_LEX_RAW, J_LEX_VARIABLE, J_LEX_BLOCK } mode;
    bool begin_pending;                /* the begin token of 'mode' has not been given out */
    char brackets[JINJA_MAX_BRACKETS]; /* [n_brackets], the closing ones that are awaited */
    uint32_t n_brackets;
    Arena *arena; /* for strings with escapes */
    Error *error;
} JLexer;

LW_CHECK bool jinja_lex(JLexer *lexer, JToken *ret_token);
/* "'name'", "end of template", ...: for error messages; writes into text. */
void jinja_token_describe(const JToken *token, char text[64]);
