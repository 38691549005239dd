/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of JSON's scalar values, exact, with their operations. Immutable; arena. Private to engine/sample/schema; one
 * thread at a time.
 */
#pragma once
#include "engine/sample/grammar/grammar.h"
#include "engine/sample/schema/dfa.h"
#include "engine/sample/schema/number.h"
#include "engine/text/value_kinds.h"

/* NULL: all of them. */
typedef const Dfa *Numbers;

/* Words of the automaton (NULL: all) with so many code points. */
typedef struct Strings {
    const Dfa *words;
    uint32_t min, max; /* max UINT32_MAX: no end */
} Strings;
#define STRINGS_ALL ((Strings){.max = UINT32_MAX})

/* Null, true and false as kinds; numbers and strings where their kind is there. */
typedef struct Scalars {
    uint32_t kinds;
    Numbers numbers;
    const Dfa *strings; /* NULL: all of them */
} Scalars;

typedef struct KnownNumbers {
    NumberLimit limit;
    bool is_factor; /* multiples of the limit's value */
    const Dfa *dfa;
    struct KnownNumbers *next;
} KnownNumbers;

enum { SETS_CUT_SLOTS = 256 };

/* Automata that are made when they are first needed. */
typedef struct Sets {
    Arena *arena;
    const Dfa *all_numbers, *integers, *all_strings, *plain_numbers, *short_numbers;
    KnownNumbers *known;
    struct {
        const Dfa *a, *b, *both;
    } cuts[SETS_CUT_SLOTS];        /* the last ones, by a hash */
    const GrammarBuilder *builder; /* knows when to give up */
    Error *error;
} Sets;

void sets_init(Sets *sets, const GrammarBuilder *builder, Arena *arena, Error *error);
LW_CHECK bool sets_in_time(const Sets *sets); /* grammar_in_time */
LW_CHECK bool sets_all_numbers(Sets *sets, const Dfa **ret_dfa);
LW_CHECK bool sets_integers(Sets *sets, const Dfa **ret_dfa);
LW_CHECK bool sets_all_strings(Sets *sets, const Dfa **ret_dfa);
/* number_within and number_multiples, each once. */
LW_CHECK bool sets_within(Sets *sets, NumberLimit limit, const Dfa **ret_dfa);
LW_CHECK bool sets_multiples(Sets *sets, double factor, const Dfa **ret_dfa);

/* *numbers keeps what is in the automaton too. */
LW_CHECK bool sets_cut_numbers(Sets *sets, Numbers *numbers, const Dfa *with);
LW_CHECK bool sets_cut_words(Sets *sets, Strings *strings, const Dfa *with);
void sets_cut_length(Strings *strings, uint32_t min, uint32_t max);
/* One automaton for words and lengths. */
LW_CHECK bool sets_words(Sets *sets, Strings strings, const Dfa **ret_dfa);
/*
 * How the numbers of a set are to be written. Few values: each in its shortest way, and so are integers; others so that
 * a double holds what was written.
 */
LW_CHECK bool sets_written(Sets *sets, const Dfa *numbers, const Dfa **ret_texts);
bool sets_are_empty(Strings strings);

LW_CHECK bool scalars_join(Sets *sets, Scalars a, Scalars b, Scalars *ret_scalars);
/* Of the scalar kinds alone. */
LW_CHECK bool scalars_subtract(Sets *sets, Scalars a, Scalars b, Scalars *ret_scalars);
