/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of code points in regular expressions: escapes and classes in brackets. Private to regex.c. */
#pragma once
#include "engine/sample/grammar/source.h"

/* '.' is all but these. */
extern const CodeRange regex_line_breaks[];
extern const size_t regex_n_line_breaks;

/* What is wrong with the text from 'offset' on; NULL: nothing. */
typedef struct RegexFault {
    const char *text;
    size_t offset;
} RegexFault;

/* What a backslash, already taken, begins: one code point, or a set of them, which goes to ranges. */
void regex_read_escape(GrammarBuilder *builder, Source *source, bool in_class, RangeList *ranges, RegexFault *fault);
/* A class behind its bracket; *ret_negated: it is all but the ranges. */
void regex_read_class(GrammarBuilder *builder, Source *source, RangeList *ranges, bool *ret_negated, RegexFault *fault);
