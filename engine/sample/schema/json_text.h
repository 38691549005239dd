/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON's own texts as grammar nodes. Blanks are bounded: one blank, or a line break and an indent, behind and before
 * brackets and behind commas; one blank behind a colon. Characters come raw or as short escapes, controls and what is
 * beyond ASCII also as \u escapes, never U+0000 and never half of a surrogate pair. One thread at a time.
 */
#pragma once
#include "engine/sample/grammar/grammar.h"
#include "engine/sample/schema/dfa.h"

enum { JSON_TEXT_MAX_INDENT = 20 };

GrammarNode json_text_blank(GrammarBuilder *builder); /* within brackets, behind commas */
GrammarNode json_text_comma(GrammarBuilder *builder);
GrammarNode json_text_colon(GrammarBuilder *builder);
/* As rules: a comma, a blank and the end of an object, for objects with many places. */
GrammarNode json_text_shared_comma(GrammarBuilder *builder);
GrammarNode json_text_shared_end(GrammarBuilder *builder);
/* One code point of the ranges, sorted and apart, as it may stand in a string. */
GrammarNode json_text_codes(GrammarBuilder *builder, const CodeRange *ranges, size_t n);
/* A string with its quotes, of so many code points; max GRAMMAR_UNBOUNDED: no end. */
GrammarNode json_text_string(GrammarBuilder *builder, uint32_t min, uint32_t max);
/* This text as it may stand within a string; valid UTF-8. */
GrammarNode json_text_part(GrammarBuilder *builder, const char *text, size_t n);
/* This string with its quotes; valid UTF-8. */
GrammarNode json_text_word(GrammarBuilder *builder, const char *word);
/* Any string of the automaton with its quotes. */
GrammarNode json_text_words(GrammarBuilder *builder, const Dfa *words);
/* A text of the automaton as it is: numbers. */
GrammarNode json_text_plain(GrammarBuilder *builder, const Dfa *texts);
GrammarNode json_text_number(GrammarBuilder *builder); /* any */
GrammarNode json_text_value(GrammarBuilder *builder);  /* any */
GrammarNode json_text_object(GrammarBuilder *builder); /* any */
