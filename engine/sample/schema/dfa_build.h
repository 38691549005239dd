/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How automata are made: states one after another in the order of their numbers, each with its edges, then trimmed into
 * an arena. And a table of keys, so that a state that is met again keeps its number. Heap; one thread at a time.
 */
#pragma once
#include "engine/sample/schema/dfa.h"

typedef struct DfaBuilder {
    uint32_t *begin;
    uint64_t *labels;
    DfaEdge *edges;
    uint32_t n_states, states_capacity, n_edges, edges_capacity;
    Error *error;
} DfaBuilder;

void dfa_builder_init(DfaBuilder *builder, Error *error);
void dfa_builder_done(DfaBuilder *builder);
/* Edges that follow leave this state. */
LW_CHECK bool dfa_builder_state(DfaBuilder *builder, uint64_t label);
/* In order; 'to' may be a state that is still to come. */
LW_CHECK bool dfa_builder_edge(DfaBuilder *builder, uint32_t first, uint32_t last, uint32_t to);
LW_CHECK bool dfa_builder_finish(DfaBuilder *builder, Arena *arena, const Dfa **ret_dfa);

/* Keys of n words each, numbered from 0 in the order in which they came. */
typedef struct KeyTable {
    uint32_t *words; /* [n_keys, width] */
    uint32_t *slots; /* number + 1; 0: free */
    uint32_t width, n_keys, keys_capacity, n_slots;
} KeyTable;

void key_table_init(KeyTable *table, uint32_t width);
void key_table_done(KeyTable *table);
/* The key's number, a new one if need be; fails beyond max_keys or without memory. */
LW_CHECK bool key_table_number(KeyTable *table, const uint32_t *key, uint32_t max_keys, uint32_t *ret_number,
                               Error *error);
