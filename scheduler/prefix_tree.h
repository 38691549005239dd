/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes of the prefix cache: one array made once, the ordered children of each node, a heap of the leaves that may
 * be given up, and ghosts: nodes whose pages are gone, kept while nobody needs their place. Knows nothing of pages but
 * where they are written down. Engine thread.
 *
 *   FREE --take, insert--> LIVE --give up--> GHOST --revive--> LIVE
 *                           '--remove--> FREE <--the oldest, when a place is needed--'
 *
 * A ghost's descendants are ghosts, and older ones. All searches are O(log n) in the number of siblings.
 */
#pragma once
#include "base/error.h"
#include "engine/kv/page.h"

#define NODE_NONE UINT32_MAX
enum { NODE_TOP = 0 }; /* the parent of the namespaces; always live */

typedef enum NodeState { NODE_FREE, NODE_LIVE, NODE_GHOST } NodeState;

typedef struct PrefixNode {
    uint32_t tokens[KV_PAGE_TOKENS]; /* [n_tokens] of its page; of a namespace: its name */
    uint32_t n_tokens;
    PageSet pages; /* PAGE_NONE: not kept */
    uint8_t keep;  /* bit c: a checkpoint needs the page of class c */
    uint8_t state; /* NodeState */
    bool is_decoded;
    uint32_t n_pins, n_live_children, n_held_children;
    uint64_t bytes;            /* of its pages, as it was told */
    uint32_t parent, children; /* children: the root of a treap over them, in the order of their tokens */
    uint32_t left, right;      /* in the parent's treap */
    uint32_t weight;           /* random: keeps the treap flat */
    uint32_t before, after;    /* siblings in order */
    uint32_t older, newer;     /* ghosts by age; newer: free nodes too */
    uint32_t heap_at;          /* NODE_NONE: not in the heap */
    double worth;              /* log2 of its uses, each halved with time; grows with the clock, so that it is constant
                                  between two uses */
    uint64_t stamp;            /* of its last use, among equals */
} PrefixNode;

typedef struct PrefixTree {
    PrefixNode *nodes; /* [n_nodes] */
    uint32_t *heap;    /* [n_heap] the least worth first */
    uint32_t n_nodes, n_heap;
    uint32_t n_touched; /* nodes that were ever taken: the memory of the rest is not touched */
    uint32_t n_live;    /* besides the top */
    uint32_t free, oldest_ghost, newest_ghost;
    uint64_t idle_bytes; /* of live nodes that are not held: nobody stands on them or on a descendant */
    uint64_t stamp, random;
} PrefixTree;

/* The siblings around some tokens that are no node: the last that is smaller, the first that is not. */
typedef struct PrefixNear {
    uint32_t before, after;
} PrefixNear;

LW_CHECK bool prefix_tree_init(PrefixTree *tree, uint32_t max_nodes, Error *error);
void prefix_tree_done(PrefixTree *tree); /* {0} is fine */

/* How many leading tokens of tokens [n] the node shares. */
uint32_t prefix_tree_common(const PrefixTree *tree, uint32_t node, const uint32_t *tokens, uint32_t n);
/* The child, live or ghost, whose tokens are exactly these, or NODE_NONE. near may be NULL; after is the child itself.
 */
uint32_t prefix_tree_find(const PrefixTree *tree, uint32_t parent, const uint32_t *tokens, uint32_t n,
                          PrefixNear *ret_near);

/* A free place, for which the oldest ghost may go; NODE_NONE: all nodes live. */
uint32_t prefix_tree_take(PrefixTree *tree);
/* Makes a taken node, whose tokens are set and differ from its siblings', a live child without pages. */
void prefix_tree_insert(PrefixTree *tree, uint32_t parent, uint32_t node);
/* Frees a live leaf without pins. */
void prefix_tree_remove(PrefixTree *tree, uint32_t node);

void prefix_tree_pin(PrefixTree *tree, uint32_t node);
void prefix_tree_unpin(PrefixTree *tree, uint32_t node);
/* What the pages of a live node take; 0 before it is removed or given up. */
void prefix_tree_weigh(PrefixTree *tree, uint32_t node, uint64_t bytes);
/* It was of use at this time, in half-lives. */
void prefix_tree_touch(PrefixTree *tree, uint32_t node, double now);

/* The live leaf without pins that is least worth keeping, or NODE_NONE; then it becomes a ghost, its pages being gone.
 */
uint32_t prefix_tree_worst(const PrefixTree *tree);
void prefix_tree_give_up(PrefixTree *tree, uint32_t node);
/* A ghost whose parent lives becomes live again. */
void prefix_tree_revive(PrefixTree *tree, uint32_t node);
