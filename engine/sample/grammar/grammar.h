/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a text may be, as a context-free grammar over bytes and token ids. A builder makes the nodes: JSON schemas,
 * GBNF, regular expressions and formats of tool calls all end in them. Compiled it never changes and is shared; what
 * follows it through an answer is a matcher (matcher.h). Builder: one thread; a compiled grammar: any thread may take
 * and release it.
 */
#pragma once
#include "base/error.h"
#include <stdatomic.h>
#include <stdint.h>

enum {
    GRAMMAR_MAX_NODES = 1 << 18,    /* of a builder */
    GRAMMAR_MAX_RULES = 1 << 14,    /* of a builder */
    GRAMMAR_MAX_EDGES = 1 << 20,    /* of an automaton that is a node */
    GRAMMAR_MAX_REPEATS = 10000,    /* of {min,max}: each repeat is states of its own */
    GRAMMAR_MAX_STATES = 1 << 17,   /* of the automata of all rules */
    GRAMMAR_MAX_STEPS = 8000000,    /* of compiling */
    GRAMMAR_MAX_CPU_USEC = 3000000, /* of the thread, from the builder to the compiled grammar */
    GRAMMAR_TRY_CPU_USEC = 150000,  /* the same, of a try */
    GRAMMAR_MAX_DEPTH = 200,        /* of nodes in nodes within a rule; rules in rules have no such limit */
    GRAMMAR_MAX_BYTES = 64 << 20,   /* of a builder */
    GRAMMAR_MAX_PLACE_BYTES = 160,
};

typedef struct GrammarBuilder GrammarBuilder;

/*
 * A node never changes and may stand in any number of places; equal nodes are one. What is heavy and stands in several
 * places is compiled once if it is a rule. After a failure all that is made gives GRAMMAR_FAILED, compiling tells why.
 */
typedef uint32_t GrammarNode;
typedef uint32_t GrammarRule;
#define GRAMMAR_FAILED UINT32_MAX

LW_CHECK bool grammar_builder_new(GrammarBuilder **ret_builder, Error *error);
/* One to try something in: it has the time that is left to the other one, and ends with it. */
LW_CHECK bool grammar_builder_new_within(const GrammarBuilder *other, GrammarBuilder **ret_builder, Error *error);
void grammar_builder_free(GrammarBuilder *builder); /* and all its nodes; NULL is fine */
/*
 * Compiling fails with ERR_CANCELLED soon after *cancelled is true (NULL: never; borrowed, any thread may set it), with
 * ERR_DEADLINE when the clock is behind deadline_usec (0: never).
 */
void grammar_builder_watch(GrammarBuilder *builder, const atomic_bool *cancelled, uint64_t deadline_usec);
/* The time is short from here on; when it is over, compiling fails with ERR_BUSY. */
void grammar_builder_try(GrammarBuilder *builder);
/* false: the time is over (ERR_TOO_LARGE), or nobody wants it any more. Asks the system: not for each byte. */
LW_CHECK bool grammar_in_time(const GrammarBuilder *builder, Error *error);
/* Where in its source the author is; errors from here on begin with it: "rule 'x', offset 12", "#/properties/a". */
void grammar_at(GrammarBuilder *builder, const char *fmt, ...) LW_PRINTF(2, 3);
/* For authors: the first failure is kept, with the place. Returns GRAMMAR_FAILED. */
GrammarNode grammar_fail(GrammarBuilder *builder, ErrorCode code, const char *fmt, ...) LW_PRINTF(3, 4);
/* false: something has failed, and *error tells it. */
LW_CHECK bool grammar_is_sound(const GrammarBuilder *builder, Error *error);

/* ---- nodes ---- */

/* Both ends belong to it. */
typedef struct CodeRange {
    uint32_t first, last;
} CodeRange;

GrammarNode grammar_empty(GrammarBuilder *builder); /* the empty text */
GrammarNode grammar_never(GrammarBuilder *builder); /* no text at all */
/* These bytes; NUL fails, as no answer can hold it. */
GrammarNode grammar_bytes(GrammarBuilder *builder, const char *bytes, size_t n);
GrammarNode grammar_text(GrammarBuilder *builder, const char *text);
/*
 * One code point of (negated: not of) the ranges, in any order, as UTF-8. Never U+0000, no surrogate.
 */
GrammarNode grammar_class(GrammarBuilder *builder, const CodeRange *ranges, size_t n, bool negated);
/* The ranges of such a node, sorted and apart; 0: it is none. */
size_t grammar_class_ranges(const GrammarBuilder *builder, GrammarNode node, const CodeRange **ret_ranges);
GrammarNode grammar_sequence(GrammarBuilder *builder, const GrammarNode *nodes, size_t n);
GrammarNode grammar_choice(GrammarBuilder *builder, const GrammarNode *nodes, size_t n);
/* grammar_seq(builder, a, b, c), grammar_alt(builder, a, b, c) */
#define GRAMMAR_NODES_(...)                                                                                            \
    (const GrammarNode[]){__VA_ARGS__}, sizeof((const GrammarNode[]){__VA_ARGS__}) / sizeof(GrammarNode)
#define grammar_seq(builder, ...) grammar_sequence(builder, GRAMMAR_NODES_(__VA_ARGS__))
#define grammar_alt(builder, ...) grammar_choice(builder, GRAMMAR_NODES_(__VA_ARGS__))
#define GRAMMAR_UNBOUNDED UINT32_MAX
GrammarNode grammar_repeat(GrammarBuilder *builder, GrammarNode node, uint32_t min, uint32_t max);
GrammarNode grammar_optional(GrammarBuilder *builder, GrammarNode node);
GrammarNode grammar_many(GrammarBuilder *builder, GrammarNode node); /* 0 or more */
/* One token by its id, whatever its text: the markers of chat formats. Control tokens come by this alone. */
GrammarNode grammar_token(GrammarBuilder *builder, uint32_t id);
/*
 * Free text (any UTF-8) that ends with the first occurrence of any of the markers (valid UTF-8, none of them empty);
 * only: the index of the one that may be that first one, or GRAMMAR_ANY_MARKER.
 */
#define GRAMMAR_ANY_MARKER UINT32_MAX
GrammarNode grammar_until(GrammarBuilder *builder, const char *const *markers, size_t n, uint32_t only);
/* Free text in which none of the markers occurs; n = 0: any text. */
GrammarNode grammar_without(GrammarBuilder *builder, const char *const *markers, size_t n);

/*
 * An automaton whose edges are nodes: it begins in state 0 of n_states and ends by an edge to GRAMMAR_MACHINE_END. What
 * is regular and has many places takes no more states than it needs.
 */
typedef struct GrammarEdge {
    uint32_t from, to;
    GrammarNode node;
} GrammarEdge;
#define GRAMMAR_MACHINE_END UINT32_MAX
GrammarNode grammar_machine(GrammarBuilder *builder, const GrammarEdge *edges, size_t n, uint32_t n_states);

/* ---- rules ---- */

/* The rule of this name, new unless there is one; it may be used before it is defined. */
GrammarRule grammar_rule(GrammarBuilder *builder, const char *name, size_t n);
/* A new rule under a name that nothing else has: prefix and a number. */
GrammarRule grammar_rule_new(GrammarBuilder *builder, const char *prefix);
bool grammar_rule_is_defined(const GrammarBuilder *builder, GrammarRule rule);
void grammar_define(GrammarBuilder *builder, GrammarRule rule, GrammarNode node); /* once */
GrammarNode grammar_ref(GrammarBuilder *builder, GrammarRule rule);

/* ---- compiled ---- */

/* What whoever asked for a grammar is to be told of it. */
typedef struct GrammarNote {
    const char *what, *why;
} GrammarNote;
void grammar_note(GrammarBuilder *builder, const char *what, const char *why);

typedef struct Grammar Grammar;
typedef struct GrammarVocab GrammarVocab; /* vocab.h */

/*
 * ERR_SCHEMA with the place or the rule: what an author failed at, a rule that is not defined, left recursion, a
 * grammar without any text; ERR_TOO_LARGE: over a limit. vocab is borrowed (NULL: no masks, bytes alone). One
 * reference.
 */
LW_CHECK bool grammar_compile(GrammarBuilder *builder, GrammarNode root, const GrammarVocab *vocab,
                              Grammar **ret_grammar, Error *error);
Grammar *grammar_take(Grammar *grammar);
void grammar_release(Grammar *grammar);                    /* NULL is fine */
const GrammarVocab *grammar_vocab(const Grammar *grammar); /* NULL: none */
const GrammarNote *grammar_notes(const Grammar *grammar, uint32_t *ret_n);
size_t grammar_size_bytes(const Grammar *grammar); /* with what its matchers have come to remember; any thread */
uint32_t grammar_n_states(const Grammar *grammar);
