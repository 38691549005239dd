/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A compiled grammar: one deterministic automaton for each rule, whose edges are bytes, tokens and texts of other
 * rules. What is left to chance is where a rule ends. Private to engine/sample/grammar. Immutable.
 */
#pragma once
#include "engine/sample/grammar/nfa.h"

typedef struct ByteEdge {
    uint32_t to;
    uint8_t first, last;
} ByteEdge;

/* A call of rule 'value', or the token 'value'. */
typedef struct ValueEdge {
    uint32_t value, to;
} ValueEdge;

typedef struct AutomatonState {
    uint32_t first_byte, first_call, first_token; /* of its edges; they end where those of the next state begin */
    bool is_final;                                /* the rule may end here */
} AutomatonState;

typedef struct Automaton {
    AutomatonState *states; /* [n_states] and one more, where all edges end */
    ByteEdge *bytes;        /* [n_bytes], of a state in order */
    ValueEdge *calls, *tokens;
    uint32_t n_states, n_bytes, n_calls, n_tokens;
    uint32_t max_states, max_bytes, max_calls, max_tokens;
    uint32_t *starts;   /* [n_rules] the state where a rule begins; AUTOMATON_NO_STATE: it has none */
    uint32_t *rule_of;  /* [n_states] */
    bool *may_be_empty; /* [n_rules] */
    uint32_t *alike;    /* [n_states] the first state that no text of AUTOMATON_ALIKE_BYTES tells from it */
    uint32_t n_rules;
    uint32_t class_of[256]; /* bytes of one class are on the same edges everywhere */
    uint32_t n_classes;
    uint64_t n_steps;              /* that compiling took so far */
    const GrammarBuilder *builder; /* while compiling */
} Automaton;

#define AUTOMATON_NO_STATE UINT32_MAX
enum { AUTOMATON_ALIKE_BYTES = 32 };

/* The automaton of all rules from root on, whose states are the first; the errors name a rule. */
LW_CHECK bool automaton_make(Automaton *automaton, const GrammarBuilder *builder, GrammarRule root, Error *error);
void automaton_done(Automaton *automaton);
size_t automaton_size_bytes(const Automaton *automaton);
/* Nothing but the end of the rule comes behind this state. */
bool automaton_is_bare(const Automaton *automaton, uint32_t state);

/* ---- for automaton_make ---- */

/* Adds the states of one rule; *ret_start: its first. */
LW_CHECK bool automaton_add_rule(Automaton *automaton, const Nfa *nfa, uint32_t start, uint32_t end,
                                 uint32_t *ret_start, Error *error);
LW_CHECK bool automaton_find_alike(Automaton *automaton, Error *error);
LW_CHECK bool automaton_count_steps(Automaton *automaton, uint64_t n, Error *error);
/* Removes edges that lead to no end; the root has a text; no rule begins with itself. */
LW_CHECK bool automaton_check(Automaton *automaton, const GrammarBuilder *builder, GrammarRule root, Error *error);
