/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON's values as grammar nodes, in each of the forms that models write them. JSON and Python: blanks are bounded (one
 * blank, or a line break and an indent, within brackets and behind commas; one blank behind a colon); characters come
 * raw or as short escapes, controls and what is beyond ASCII also by their numbers, never U+0000 and never half of a
 * surrogate pair. Marked: no blanks, strings raw between two marks, keys bare words. One thread at a time.
 */
#pragma once
#include "engine/sample/grammar/grammar.h"
#include "engine/sample/schema/dfa.h"

enum { VALUE_TEXT_MAX_INDENT = 20 };

typedef enum StringText { STRINGS_JSON, STRINGS_PYTHON, STRINGS_RAW } StringText;

typedef struct ValueText {
    GrammarBuilder *builder;
    const char *name; /* of the rules that all schemas of a builder share */
    const char *null, *no, *yes;
    StringText strings;
    GrammarNode before_string, behind_string;
    const char *end;                 /* no raw string has this in it; NULL: any text */
    GrammarNode blank, comma, colon; /* blank: within brackets */
    const Dfa *keys;                 /* keys are these words, bare; NULL: they are strings */
} ValueText;

ValueText value_text_json(GrammarBuilder *builder);
ValueText value_text_python(GrammarBuilder *builder);
ValueText value_text_marked(GrammarBuilder *builder, GrammarNode mark, const char *end, const Dfa *keys);
/* Strings alone, with nothing around them. */
ValueText value_text_raw(GrammarBuilder *builder, const char *end);

/* A string of so many code points; max GRAMMAR_UNBOUNDED: no end. With an end of its own only all or none of both. */
GrammarNode value_text_string(const ValueText *text, uint32_t min, uint32_t max);
/* This text as it may stand within a string; valid UTF-8. */
GrammarNode value_text_part(const ValueText *text, const char *part, size_t n);
/* As rules: a comma, a blank and the end of an object, for objects with many places. */
GrammarNode value_text_shared_comma(const ValueText *text);
GrammarNode value_text_shared_end(const ValueText *text);
/* Any string of the automaton. */
GrammarNode value_text_words(const ValueText *text, const Dfa *words);
/* A text of the automaton as it is: numbers, bare keys. */
GrammarNode value_text_plain(const ValueText *text, const Dfa *texts);
GrammarNode value_text_number(const ValueText *text); /* any */
GrammarNode value_text_value(const ValueText *text);  /* any */
GrammarNode value_text_object(const ValueText *text); /* any */
