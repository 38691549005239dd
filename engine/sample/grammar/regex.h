/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions as nodes: classes, \d \w \s, quantifiers, groups, alternation, escapes, ^ and $ at the ends of
 * alternatives. What looks around or back is refused by name. Any thread.
 */
#pragma once
#include "engine/sample/grammar/grammar.h"

enum { REGEX_MAX_BYTES = 64 << 10 };

typedef struct RegexDialect {
    bool searches; /* a match anywhere in the text will do, as in JSON Schema; false: it is the whole text */
    /* How one code point of these ranges [n], sorted and apart, is written; NULL: as UTF-8 */
    GrammarNode (*write)(GrammarBuilder *builder, const CodeRange *ranges, size_t n, void *arg);
    void *arg;
} RegexDialect;

/* dialect NULL: the whole text, in UTF-8. ERR_SCHEMA names the offset in bytes. */
LW_CHECK bool regex_parse(GrammarBuilder *builder, const char *text, size_t n, const RegexDialect *dialect,
                          GrammarNode *ret_node, Error *error);
