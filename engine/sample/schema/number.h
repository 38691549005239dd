/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of numbers as automata over how they are written: -?(0|[1-9][0-9]*)(\.[0-9]+)?, without exponents. Every way to
 * write a value is in a set or none is, so sets may be joined, cut and subtracted; in the end they are cut to the ways
 * that are to be written. Any thread.
 */
#pragma once
#include "engine/sample/schema/dfa.h"

enum {
    NUMBER_MAX_DIGITS = 340,
    NUMBER_MAX_FACTOR = 5000,
    NUMBER_EXACT_DIGITS = 15, /* what a double gives back as it was */
    NUMBER_MAX_WRITTEN = 64,  /* digits that are written, so that an answer has an end */
};

LW_CHECK bool number_all(Arena *arena, const Dfa **ret_dfa, Error *error);
LW_CHECK bool number_integers(Arena *arena, const Dfa **ret_dfa, Error *error);

/* A double is what JSON was read into: beyond 2^53 the limit that was written is not known, and rounded inwards. */
typedef struct NumberLimit {
    double value;
    bool is_maximum, is_exclusive;
} NumberLimit;

LW_CHECK bool number_within(NumberLimit limit, Arena *arena, const Dfa **ret_dfa, Error *error);
/* factor > 0 with at most NUMBER_MAX_FACTOR states: 5, 0.01, 1.5, but not 0.123456. */
LW_CHECK bool number_multiples(double factor, Arena *arena, const Dfa **ret_dfa, Error *error);
/* The words, not empty, and the same with zeros at the end of the fraction. */
LW_CHECK bool number_spellings(const Dfa *words, Arena *arena, const Dfa **ret_dfa, Error *error);

/* Ways to write: without zeros at the end of a fraction, and no -0. */
LW_CHECK bool number_plain(Arena *arena, const Dfa **ret_dfa, Error *error);
/* With a fraction up to NUMBER_EXACT_DIGITS from the first one on that is not zero, NUMBER_MAX_WRITTEN in all. */
LW_CHECK bool number_short(Arena *arena, const Dfa **ret_dfa, Error *error);
/* The text of a number that an 'enum' or 'const' has: integers beyond 2^53 are refused. */
LW_CHECK bool number_print(double value, Arena *arena, const char **ret_text, Error *error);
