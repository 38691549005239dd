/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the grammar's builder and compiler share: nodes and rules. Private to them. */
#pragma once
#include "base/arena.h"
#include "engine/sample/grammar/grammar.h"

typedef enum NodeKind {
    NODE_EMPTY,
    NODE_NEVER,
    NODE_BYTES,    /* text [n] */
    NODE_CLASS,    /* ranges [n], sorted, apart, without U+0000 and surrogates */
    NODE_SEQUENCE, /* nodes [n] */
    NODE_CHOICE,   /* nodes [n] */
    NODE_REPEAT,   /* of node a, b to c times */
    NODE_MACHINE,  /* edges [n] between a states */
    NODE_TOKEN,    /* id a */
    NODE_FREE,     /* markers [n]; a: which of them ends it, FREE_ANY, FREE_NONE */
    NODE_RULE,     /* a */
} NodeKind;

#define FREE_ANY GRAMMAR_ANY_MARKER
#define FREE_NONE (UINT32_MAX - 1)

typedef struct Marker {
    const char *text; /* [n] */
    size_t n;
} Marker;

typedef struct Node {
    NodeKind kind;
    uint32_t a, b, c;
    uint32_t depth;  /* 1 without nodes below */
    uint32_t weight; /* states that it takes, about; rules not among them */
    bool has_rules;
    size_t n;
    union {
        const void *data;
        const char *text;
        const CodeRange *ranges;
        const GrammarNode *nodes;
        const Marker *markers;
        const GrammarEdge *edges;
    };
} Node;

typedef struct Rule {
    const char *name; /* [n_name] */
    size_t n_name;
    uint32_t hash;
    GrammarNode node; /* GRAMMAR_FAILED: not defined */
} Rule;

/* Ids by hash, open addressing; the owner compares. */
typedef struct IdTable {
    uint32_t *ids; /* [n_slots] + 1; 0: free */
    uint32_t n_slots, n_used;
} IdTable;

struct GrammarBuilder {
    Arena arena; /* texts, ranges, lists of nodes */
    Node *nodes; /* [n_nodes] */
    uint32_t *node_hashes;
    uint32_t n_nodes, max_nodes;
    IdTable by_node;
    Rule *rules; /* [n_rules] */
    uint32_t n_rules, max_rules;
    IdTable by_name;
    uint32_t n_fresh; /* names given by grammar_rule_new */
    char place[GRAMMAR_MAX_PLACE_BYTES];
    Error error;        /* the first one */
    GrammarNote *notes; /* [n_notes] */
    uint32_t n_notes, max_notes;
    uint64_t deadline_cpu_usec;
    bool is_try;
    const atomic_bool *cancelled; /* or NULL */
    uint64_t deadline_usec;       /* of the clock; 0: none */
};

uint32_t hash_bytes(uint32_t hash, const void *bytes, size_t n);
void id_table_done(IdTable *table);
/* Room for one more; hash_of tells the hash of an id that is in there. */
LW_CHECK bool id_table_reserve(IdTable *table, uint32_t (*hash_of)(const void *owner, uint32_t id), const void *owner);
/* The slot of the id for which is_same holds, or a free one (which holds 0). */
uint32_t *id_table_find(IdTable *table, uint32_t hash, bool (*is_same)(const void *owner, uint32_t id, const void *key),
                        const void *owner, const void *key);
/* Puts the id into a free slot, for which there is room. */
void id_table_fill(IdTable *table, uint32_t *slot, uint32_t id);
