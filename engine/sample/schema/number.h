/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of numbers as automata over how they are written: -?(0|[1-9][0-9]*)(\.[0-9]+)?, without exponents. Every way to
 * write a value is in a set or none is, so sets may be joined, cut and subtracted. Any thread.
 */
#pragma once
#include "engine/sample/schema/dfa.h"

enum { NUMBER_MAX_DIGITS = 340, NUMBER_MAX_FACTOR = 5000 };

LW_CHECK bool number_all(Arena *arena, const Dfa **ret_dfa, Error *error);
/* Written without a fraction. */
LW_CHECK bool number_integers(Arena *arena, const Dfa **ret_dfa, Error *error);

/* A double is what JSON was read into: beyond 2^53 the limit that was written is not known, and rounded inwards. */
typedef struct NumberLimit {
    double value;
    bool is_maximum, is_exclusive;
} NumberLimit;

LW_CHECK bool number_within(NumberLimit limit, Arena *arena, const Dfa **ret_dfa, Error *error);
/* factor > 0 with at most NUMBER_MAX_FACTOR states: 5, 0.01, 1.5, but not 0.123456. */
LW_CHECK bool number_multiples(double factor, Arena *arena, const Dfa **ret_dfa, Error *error);
/* The text of a number that an 'enum' or 'const' has: integers beyond 2^53 are refused. */
LW_CHECK bool number_print(double value, Arena *arena, const char **ret_text, Error *error);
