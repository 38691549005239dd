/* SPDX-License-Identifier: Apache-2.0 */
/* What the parsers of grammars share: a text by code points, lists of nodes and ranges. Private to them. */
#pragma once
#include "engine/sample/grammar/grammar.h"

enum { SOURCE_MAX_DEPTH = 150, SOURCE_MAX_CODE = 0x10FFFF };
#define SOURCE_END UINT32_MAX

/* The text is UTF-8; at: bytes. */
typedef struct Source {
    const char *text; /* [n] */
    size_t n, at;
} Source;

uint32_t source_peek(const Source *source); /* SOURCE_END behind the last */
uint32_t source_next(Source *source);
/* If the text goes on with this, it is taken. */
bool source_take(Source *source, const char *word);
/* Exactly so many hexadecimal digits, a code point; false: takes nothing. */
LW_CHECK bool source_hex(Source *source, size_t n_digits, uint32_t *ret_code);
/* A decimal number; false: there is none, or it is beyond 9 digits. */
LW_CHECK bool source_number(Source *source, uint32_t *ret_number);

typedef struct NodeList {
    GrammarNode *nodes; /* [n] */
    size_t n;
    uint32_t max;
} NodeList;
void node_list_push(GrammarBuilder *builder, NodeList *list, GrammarNode node);
void node_list_done(NodeList *list);

typedef struct RangeList {
    CodeRange *ranges; /* [n] */
    size_t n;
    uint32_t max;
} RangeList;
void range_list_push(GrammarBuilder *builder, RangeList *list, uint32_t first, uint32_t last);
void range_list_done(RangeList *list);
