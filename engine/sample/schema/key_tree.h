/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of properties by what they begin with: where names part, a node has a child for each next code point. Each node
 * knows which names lie below it, so an object whose properties come in order needs a place for each name of each node
 * instead of one for each set of names. Private to engine/sample/schema; immutable, arena.
 */
#pragma once
#include "base/arena.h"

#define KEY_NONE UINT32_MAX

typedef struct KeyNode {
    uint32_t begin, end;        /* bytes of its names: begin lead here, end they have in common */
    uint32_t n;                 /* names */
    const uint32_t *names;      /* [n] their numbers, ascending */
    uint32_t child, n_children; /* children are one behind the other */
    uint32_t word;              /* the name that ends here, or KEY_NONE */
} KeyNode;

typedef struct KeyTree {
    const KeyNode *nodes; /* the root is the first; none without names */
    uint32_t n_nodes;
} KeyTree;

/* names [n]: valid UTF-8, different from each other. */
LW_CHECK bool key_tree_make(const char *const *names, uint32_t n, Arena *arena, KeyTree *ret_tree, Error *error);
/* The first of a node's names that is not before 'from', or KEY_NONE. */
uint32_t key_node_next(const KeyNode *node, uint32_t from);
