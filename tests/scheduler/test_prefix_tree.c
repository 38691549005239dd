/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/prefix_tree.h"

#include <criterion/criterion.h>
#include <string.h>

enum { N_NODES = 200 };

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static PrefixTree tree_new(void)
{
    PrefixTree tree;
    Error error;
    cr_assert(prefix_tree_init(&tree, N_NODES, &error), "%s", error.text);
    return tree;
}

/* NODE_NONE when it is there already, or when all nodes live. */
static uint32_t add(PrefixTree *tree, uint32_t parent, const uint32_t *tokens, uint32_t n)
{
    if (prefix_tree_find(tree, parent, tokens, n, NULL) != NODE_NONE) return NODE_NONE;
    uint32_t node = prefix_tree_take(tree);
    if (node == NODE_NONE) return NODE_NONE;
    memcpy(tree->nodes[node].tokens, tokens, n * sizeof *tokens);
    tree->nodes[node].n_tokens = n;
    prefix_tree_insert(tree, parent, node);
    return node;
}

static bool is_evictable(const PrefixTree *tree, uint32_t node)
{
    const PrefixNode *n = &tree->nodes[node];
    if (n->state != NODE_LIVE || n->n_pins || node == NODE_TOP) return false;
    for (uint32_t i = 0; i < tree->n_nodes; i++)
        if (tree->nodes[i].state == NODE_LIVE && tree->nodes[i].parent == node) return false;
    return true;
}

/* By looking at every node. */
static uint32_t worst(const PrefixTree *tree)
{
    uint32_t found = NODE_NONE;
    for (uint32_t i = 0; i < tree->n_nodes; i++) {
        const PrefixNode *n = &tree->nodes[i];
        if (!is_evictable(tree, i)) continue;
        if (found == NODE_NONE || n->worth < tree->nodes[found].worth ||
            (n->worth == tree->nodes[found].worth && n->stamp < tree->nodes[found].stamp))
            found = i;
    }
    return found;
}

static int order(const PrefixNode *a, const PrefixNode *b)
{
    for (uint32_t i = 0; i < a->n_tokens && i < b->n_tokens; i++)
        if (a->tokens[i] != b->tokens[i]) return a->tokens[i] < b->tokens[i] ? -1 : 1;
    return (int)a->n_tokens - (int)b->n_tokens;
}

static bool is_held(const PrefixTree *tree, uint32_t node)
{
    if (tree->nodes[node].n_pins) return true;
    for (uint32_t i = 1; i < tree->n_nodes; i++)
        if (tree->nodes[i].state == NODE_LIVE && tree->nodes[i].parent == node && is_held(tree, i)) return true;
    return false;
}

static void check_idle(const PrefixTree *tree)
{
    uint64_t bytes = 0;
    for (uint32_t i = 1; i < tree->n_nodes; i++)
        if (tree->nodes[i].state == NODE_LIVE && !is_held(tree, i)) bytes += tree->nodes[i].bytes;
    cr_assert_eq(tree->idle_bytes, bytes);
}

static void check(const PrefixTree *tree)
{
    uint32_t n_evictable = 0;
    for (uint32_t i = 1; i < tree->n_nodes; i++) {
        const PrefixNode *n = &tree->nodes[i];
        n_evictable += is_evictable(tree, i);
        if (n->state == NODE_FREE) continue;
        cr_assert_eq(prefix_tree_find(tree, n->parent, n->tokens, n->n_tokens, NULL), i);
        if (n->after != NODE_NONE) {
            cr_assert_lt(order(n, &tree->nodes[n->after]), 0);
            cr_assert(tree->nodes[n->after].before == i && tree->nodes[n->after].parent == n->parent);
        }
        if (n->state == NODE_LIVE) cr_assert_eq(tree->nodes[n->parent].state, NODE_LIVE);
    }
    cr_assert_eq(n_evictable, tree->n_heap);
    cr_assert_eq(prefix_tree_worst(tree), worst(tree));
}

static void do_something(PrefixTree *tree, double now)
{
    uint32_t tokens[4], node = below(tree->n_nodes), n = 1 + below(4);
    PrefixNode *chosen = &tree->nodes[node];
    for (uint32_t i = 0; i < n; i++) tokens[i] = below(4);
    switch (below(12)) {
    case 0:
        node = prefix_tree_worst(tree);
        if (node == NODE_NONE) break;
        prefix_tree_weigh(tree, node, 0);
        prefix_tree_give_up(tree, node);
        break;
    case 1:
        if (chosen->state == NODE_GHOST && tree->nodes[chosen->parent].state == NODE_LIVE)
            prefix_tree_revive(tree, node);
        break;
    case 2:
        if (!is_evictable(tree, node) || chosen->children != NODE_NONE) break;
        prefix_tree_weigh(tree, node, 0);
        prefix_tree_remove(tree, node);
        break;
    case 3:
        if (chosen->state == NODE_LIVE && below(4) == 0) prefix_tree_pin(tree, node);
        break;
    case 4:
        if (chosen->state == NODE_LIVE && chosen->n_pins > (node == NODE_TOP)) prefix_tree_unpin(tree, node);
        break;
    case 5:
        if (chosen->state == NODE_LIVE && node != NODE_TOP) prefix_tree_touch(tree, node, now);
        break;
    case 6:
        if (chosen->state == NODE_LIVE && node != NODE_TOP) prefix_tree_weigh(tree, node, below(100));
        break;
    default:
        if (chosen->state != NODE_LIVE) break;
        prefix_tree_pin(tree, node);
        (void)add(tree, node, tokens, n);
        prefix_tree_unpin(tree, node);
    }
}

Test(prefix_tree, random_changes_keep_it_whole)
{
    PrefixTree tree = tree_new();
    for (uint32_t i = 0; i < 20000; i++) {
        do_something(&tree, i / 500.0);
        check(&tree);
        if (i % 16 == 0) check_idle(&tree);
    }
    prefix_tree_done(&tree);
}

/* Sorted input, the worst for a plain search tree. */
Test(prefix_tree, it_stays_flat)
{
    PrefixTree tree = tree_new();
    for (uint32_t i = 0; i < N_NODES; i++) cr_assert_neq(add(&tree, NODE_TOP, &i, 1), NODE_NONE);
    cr_assert_eq(prefix_tree_take(&tree), NODE_NONE);
    uint32_t deepest = 0;
    for (uint32_t i = 0; i < N_NODES; i++) {
        uint32_t depth = 0, at = tree.nodes[NODE_TOP].children;
        for (; tree.nodes[at].tokens[0] != i; depth++)
            at = tree.nodes[at].tokens[0] < i ? tree.nodes[at].right : tree.nodes[at].left;
        if (depth > deepest) deepest = depth;
    }
    cr_assert_leq(deepest, 24, "%u", deepest);
    prefix_tree_done(&tree);
}

Test(prefix_tree, ghosts_go_oldest_first)
{
    PrefixTree tree = tree_new();
    for (uint32_t i = 0; i < N_NODES; i++) cr_assert_neq(add(&tree, NODE_TOP, &i, 1), NODE_NONE);
    for (uint32_t i = 0; i < 10; i++) prefix_tree_give_up(&tree, prefix_tree_worst(&tree));
    for (uint32_t i = 0; i < 10; i++) {
        uint32_t token = N_NODES + i;
        cr_assert_neq(prefix_tree_find(&tree, NODE_TOP, &i, 1, NULL), NODE_NONE);
        cr_assert_neq(add(&tree, NODE_TOP, &token, 1), NODE_NONE);
        cr_assert_eq(prefix_tree_find(&tree, NODE_TOP, &i, 1, NULL), NODE_NONE);
    }
    cr_assert_eq(prefix_tree_take(&tree), NODE_NONE);
    prefix_tree_done(&tree);
}
