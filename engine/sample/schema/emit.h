/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes as grammar: what has arrays or objects becomes a rule, so that recursion is one of the grammar. Private to
 * engine/sample/schema; one thread at a time.
 */
#pragma once
#include "engine/sample/grammar/grammar.h"
#include "engine/sample/schema/node.h"

/* Larger maxima of characters and items are cut to EMIT_MAX_REPEATS: a shorter text is valid too. */
enum {
    EMIT_MAX_REPEATS = GRAMMAR_MAX_REPEATS,
    EMIT_MAX_INLINE_ITEMS = 64,
    EMIT_MAX_ANY_ORDER = 4, /* properties that may come in any order */
    EMIT_MAX_INLINE_PROPERTIES = 16,
    EMIT_MAX_OBJECT_STATES = 1 << 16,
    EMIT_INLINE_STATES = 16 /* automata up to this size are written where they stand */
};

/* An automaton, what it is as a node, and what stands for it. */
typedef struct EmittedDfa {
    const Dfa *dfa;
    GrammarNode node, text;
    struct EmittedDfa *next;
} EmittedDfa;

typedef struct Emit {
    Nodes *nodes;
    GrammarBuilder *builder;
    SchemaNode **queue; /* [n_queued] whose rules are to be defined */
    uint32_t n_queued;
    EmittedDfa *words, *numbers;
} Emit;

/* The nodes are settled. */
LW_CHECK bool emit_all(Nodes *nodes, SchemaNode *root, GrammarBuilder *builder, GrammarNode *ret_text);

/* ---- for the files of emit_all ---- */

LW_CHECK bool emit_node(Emit *emit, SchemaNode *node, GrammarNode *ret_text);
LW_CHECK bool emit_array(Emit *emit, const ArrayShape *shape, GrammarNode *ret_text);
LW_CHECK bool emit_object(Emit *emit, const ObjectShape *shape, GrammarNode *ret_text);
/* A string of the automaton, with its quotes. */
GrammarNode emit_words(Emit *emit, const Dfa *words);
