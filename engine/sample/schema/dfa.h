/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular languages over code points as deterministic automata, so that constraints on strings, keys and numbers can be
 * joined, cut and subtracted exactly. A Dfa is immutable and lives in the arena that its maker was given. Any thread.
 */
#pragma once
#include "base/arena.h"

enum { DFA_MAX_STATES = 20000, DFA_MAX_EDGES = 400000, DFA_NONE = -1 };
#define CODE_LAST UINT32_C(0x10FFFF)
#define CODE_SURROGATE_FIRST UINT32_C(0xD800)
#define CODE_SURROGATE_LAST UINT32_C(0xDFFF)

typedef struct DfaEdge {
    uint32_t first, last; /* code points, both in */
    uint32_t to;
} DfaEdge;

typedef struct Dfa {
    uint32_t n_states;      /* 0: the empty language; else it starts in state 0 */
    const uint32_t *begin;  /* [n_states + 1] into edges */
    const DfaEdge *edges;   /* of one state sorted and disjoint; what no edge takes is refused */
    const uint64_t *labels; /* [n_states] not 0: a word may end here */
} Dfa;

typedef enum DfaOp {
    DFA_AND,
    DFA_OR,
    DFA_MINUS,
    DFA_LABELS, /* whose labels are those of both, or-ed */
} DfaOp;

/* All strings of code points without U+0000 and surrogates. */
LW_CHECK bool dfa_any(Arena *arena, const Dfa **ret_dfa, Error *error);
/* The strings with so many code points; max UINT32_MAX: no end. */
LW_CHECK bool dfa_lengths(uint32_t min, uint32_t max, Arena *arena, const Dfa **ret_dfa, Error *error);
/* Just these words, valid UTF-8. */
LW_CHECK bool dfa_words(const char *const *words, uint32_t n, Arena *arena, const Dfa **ret_dfa, Error *error);
/* Results are trimmed: every state is reached and leads to an end. */
LW_CHECK bool dfa_combine(const Dfa *a, const Dfa *b, DfaOp op, Arena *arena, const Dfa **ret_dfa, Error *error);
/* The same language with as few states as can be found in bounded time. */
LW_CHECK bool dfa_minimize(const Dfa *dfa, Arena *arena, const Dfa **ret_dfa, Error *error);
/* Words whose label is 'wanted' under the mask; labels become 1. */
LW_CHECK bool dfa_with_label(const Dfa *dfa, uint64_t wanted, uint64_t mask, Arena *arena, const Dfa **ret_dfa,
                             Error *error);

/* The same language, every end with this label. */
LW_CHECK bool dfa_relabel(const Dfa *dfa, uint64_t label, Arena *arena, const Dfa **ret_dfa, Error *error);

/* 0 when the word, valid UTF-8, is refused. */
uint64_t dfa_label(const Dfa *dfa, const char *word);
bool dfa_is_empty(const Dfa *dfa);
/* It has so few words that they have an end: no way leads in a circle. */
LW_CHECK bool dfa_is_finite(const Dfa *dfa, Arena *arena, bool *ret_is_finite, Error *error);
/* DFA_NONE, or where the code point leads. */
int64_t dfa_step(const Dfa *dfa, uint32_t state, uint32_t code);
