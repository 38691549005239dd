/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes as grammar: what has arrays or objects becomes a rule, so that recursion is one of the grammar. Private to
 * engine/sample/schema; one thread at a time.
 */
#pragma once
#include "engine/sample/grammar/grammar.h"
#include "engine/sample/schema/node.h"
#include "engine/sample/schema/value_text.h"

/* Larger maxima of characters and items are cut to EMIT_MAX_REPEATS: a shorter text is valid too. */
enum {
    EMIT_MAX_REPEATS = GRAMMAR_MAX_REPEATS,
    EMIT_MAX_INLINE_ITEMS = 64,
    EMIT_MAX_ANY_ORDER = 4, /* properties that may come in any order */
    EMIT_MAX_INLINE_PROPERTIES = 16,
    EMIT_MAX_OBJECT_STATES = 1 << 16,
    EMIT_INLINE_STATES = 16, /* automata up to this size are written where they stand */
    EMIT_MAX_RAW = 8000,     /* characters of a raw string with a maximum */
    EMIT_RAW_STATES = 4096,  /* that such a string should take at most */
};

/* An automaton, what it is as a node, and what stands for it. */
typedef struct EmittedDfa {
    const Dfa *dfa;
    GrammarNode node, text;
    struct EmittedDfa *next;
} EmittedDfa;

/* What stands around the members of an object, and around each. */
typedef struct ObjectText {
    GrammarNode open, close, close_at_member; /* the last one: behind a member */
    GrammarNode between, before_key, behind_key, before_value, behind_value;
    GrammarNode many_between, many_close; /* between and close_at_member where they stand in many places */
    const Dfa *keys;                      /* keys are these words, bare; NULL: they are strings */
} ObjectText;

typedef struct Emit {
    Nodes *nodes;
    GrammarBuilder *builder;
    ValueText text, raw; /* raw: strings of tagged members */
    ObjectText object, root;
    bool has_root;      /* the root is written in another way than an object within it */
    bool has_tags;      /* and its members as raw text or JSON, by their kinds */
    SchemaNode **queue; /* [n_queued] whose rules are to be defined */
    uint32_t n_queued;
    EmittedDfa *words, *raw_words, *numbers;
} Emit;

/* The nodes are settled. */
LW_CHECK bool emit_all(Nodes *nodes, SchemaNode *root, GrammarBuilder *builder, GrammarNode *ret_text);

/* ---- for the files of emit_all ---- */

LW_CHECK bool emit_node(Emit *emit, SchemaNode *node, GrammarNode *ret_text);
LW_CHECK bool emit_array(Emit *emit, const ArrayShape *shape, GrammarNode *ret_text);
LW_CHECK bool emit_object(Emit *emit, const ObjectShape *shape, bool is_root, GrammarNode *ret_text);
/* Strings in this text, which has no end of its own unless they have words. */
LW_CHECK bool emit_strings(Emit *emit, const ValueText *text, Strings strings, GrammarNode *ret_text);
/* A string of the automaton. */
GrammarNode emit_words(Emit *emit, const Dfa *words);
/* A bare word of the automaton. */
GrammarNode emit_plain(Emit *emit, const Dfa *words);

/* ---- emit_forms.c ---- */

/* By the writer of the options. */
LW_CHECK bool emit_forms(Emit *emit);
/*
 * Strings in this text, if it has an end of its own cut so that none has it in it. kinds: of other values that stand in
 * the same place without quotes: no string may read as one of these.
 */
LW_CHECK bool emit_raw(Emit *emit, const ValueText *text, Strings strings, uint32_t kinds, GrammarNode *ret_text);
/* The value of a tagged member that may be of these kinds. */
LW_CHECK bool emit_tagged(Emit *emit, SchemaNode *node, uint32_t kinds, GrammarNode *ret_text);
