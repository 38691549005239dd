/* SPDX-License-Identifier: Apache-2.0 */
/* One node of a grammar as a nondeterministic automaton, from one state to another. Private to the compiler. */
#pragma once
#include "engine/sample/grammar/grammar_impl.h"

typedef enum EdgeKind {
    EDGE_EMPTY,
    EDGE_BYTES, /* any byte of first to last */
    EDGE_CALL,  /* a text of rule 'value' */
    EDGE_TOKEN, /* the token 'value' */
} EdgeKind;

#define NFA_NO_EDGE UINT32_MAX

typedef struct NfaEdge {
    uint32_t next; /* edge of the same state; NFA_NO_EDGE ends the list */
    uint32_t to, value;
    EdgeKind kind;
    uint8_t first, last;
} NfaEdge;

typedef struct Nfa {
    const GrammarBuilder *builder;
    NfaEdge *edges;  /* [n_edges] */
    uint32_t *heads; /* [n_states] */
    uint32_t n_edges, max_edges, n_states, max_states;
} Nfa;

/* {builder} before the first; what was there is forgotten, its memory kept. */
LW_CHECK bool nfa_build(Nfa *nfa, GrammarNode node, uint32_t *ret_start, uint32_t *ret_end, Error *error);
void nfa_done(Nfa *nfa);

/* For the files of nfa_build. */
LW_CHECK bool nfa_state(Nfa *nfa, uint32_t *ret_state, Error *error);
LW_CHECK bool nfa_edge(Nfa *nfa, uint32_t from, NfaEdge edge, Error *error);
/* One code point of the ranges. */
LW_CHECK bool nfa_add_class(Nfa *nfa, const Node *node, uint32_t from, uint32_t to, Error *error);
/* Free text and its markers. */
LW_CHECK bool nfa_add_free(Nfa *nfa, const Node *node, uint32_t from, uint32_t to, Error *error);
