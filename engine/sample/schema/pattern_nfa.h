/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a pattern is before it is a Dfa: states that wait for a code point of a set, or fork. Pieces are built one
 * behind the other, so that one may be repeated by copying its states. Heap, bounded; one thread at a time.
 */
#pragma once
#include "engine/sample/grammar/grammar.h"
#include "engine/sample/schema/dfa.h"

enum { PATTERN_MAX_STATES = 8192, PATTERN_MAX_RANGES = 65536, PATTERN_MAX_WORK = 20000000 };
#define PATTERN_NOWHERE UINT32_MAX

typedef struct PatternState {
    uint32_t next, other;      /* PATTERN_NOWHERE: none; other is for forks */
    uint32_t ranges, n_ranges; /* n_ranges 0: a fork, which takes nothing */
} PatternState;

/* States [start, n) of the moment when it was finished; end is a fork whose 'next' is open. */
typedef struct PatternPiece {
    uint32_t first, n, start, end;
} PatternPiece;

typedef struct PatternNfa {
    PatternState *states;
    CodeRange *ranges;
    uint32_t n_states, states_capacity, n_ranges, ranges_capacity;
    Error *error;
} PatternNfa;

void pattern_nfa_init(PatternNfa *nfa, Error *error);
void pattern_nfa_done(PatternNfa *nfa);
/* One code point of the ranges: sorted, apart, n >= 0 (0: nothing matches). */
LW_CHECK bool pattern_nfa_set(PatternNfa *nfa, const CodeRange *ranges, uint32_t n, PatternPiece *ret_piece);
LW_CHECK bool pattern_nfa_empty(PatternNfa *nfa, PatternPiece *ret_piece);
/* b was built right behind a. */
void pattern_nfa_join(PatternNfa *nfa, PatternPiece a, PatternPiece b, PatternPiece *ret_piece);
LW_CHECK bool pattern_nfa_either(PatternNfa *nfa, PatternPiece a, PatternPiece b, PatternPiece *ret_piece);
/* The last piece that was built; max UINT32_MAX: no end. */
LW_CHECK bool pattern_nfa_repeat(PatternNfa *nfa, PatternPiece piece, uint32_t min, uint32_t max,
                                 PatternPiece *ret_piece);
/* The texts of the piece, which is all that was built. */
LW_CHECK bool pattern_nfa_to_dfa(PatternNfa *nfa, PatternPiece piece, Arena *arena, const Dfa **ret_dfa);
