/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/prefix_tree.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const PageSet NO_PAGES = {{PAGE_NONE, PAGE_NONE, PAGE_NONE}};

/* ---- places ---- */

static void put_free(PrefixTree *tree, uint32_t node)
{
    tree->nodes[node].state = NODE_FREE;
    tree->nodes[node].newer = tree->free;
    tree->free = node;
}

bool prefix_tree_init(PrefixTree *tree, uint32_t max_nodes, Error *error)
{
    if (max_nodes == 0 || max_nodes >= NODE_NONE - 1)
        return error_set(error, ERR_INVALID, "a prefix cache of %u nodes", max_nodes);
    uint32_t n = max_nodes + 1;
    PrefixTree made = {.nodes = calloc(n, sizeof *made.nodes),
                       .heap = calloc(n, sizeof *made.heap),
                       .n_nodes = n,
                       .n_touched = NODE_TOP + 1,
                       .free = NODE_NONE,
                       .oldest_ghost = NODE_NONE,
                       .newest_ghost = NODE_NONE,
                       .random = 0x9e3779b97f4a7c15};
    if (!made.nodes || !made.heap) {
        prefix_tree_done(&made);
        return error_set(error, ERR_NO_MEMORY, "no memory for a prefix cache of %u nodes", max_nodes);
    }
    made.nodes[NODE_TOP] = (PrefixNode){.state = NODE_LIVE,
                                        .pages = NO_PAGES,
                                        .n_pins = 1,
                                        .parent = NODE_NONE,
                                        .children = NODE_NONE,
                                        .left = NODE_NONE,
                                        .right = NODE_NONE,
                                        .before = NODE_NONE,
                                        .after = NODE_NONE,
                                        .heap_at = NODE_NONE};
    *tree = made;
    return true;
}

void prefix_tree_done(PrefixTree *tree)
{
    free(tree->nodes);
    free(tree->heap);
    *tree = (PrefixTree){0};
}

/* ---- siblings, in order ---- */

/* < 0, 0, > 0; *ret_common: leading tokens that are equal. A beginning of something stands before it. */
static int compare(const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b, uint32_t *ret_common)
{
    uint32_t i = 0, n = n_a < n_b ? n_a : n_b;
    while (i < n && a[i] == b[i]) i++;
    *ret_common = i;
    if (i < n) return a[i] < b[i] ? -1 : 1;
    return n_a == n_b ? 0 : n_a < n_b ? -1 : 1;
}

static int compare_node(const PrefixTree *tree, uint32_t node, const uint32_t *tokens, uint32_t n)
{
    uint32_t common;
    return compare(tree->nodes[node].tokens, tree->nodes[node].n_tokens, tokens, n, &common);
}

uint32_t prefix_tree_common(const PrefixTree *tree, uint32_t node, const uint32_t *tokens, uint32_t n)
{
    uint32_t common;
    (void)compare(tree->nodes[node].tokens, tree->nodes[node].n_tokens, tokens, n, &common);
    return common;
}

uint32_t prefix_tree_find(const PrefixTree *tree, uint32_t parent, const uint32_t *tokens, uint32_t n,
                          PrefixNear *ret_near)
{
    PrefixNear near = {NODE_NONE, NODE_NONE};
    uint32_t at = tree->nodes[parent].children, found = NODE_NONE;
    while (at != NODE_NONE && found == NODE_NONE) {
        int order = compare_node(tree, at, tokens, n);
        if (order < 0) {
            near.before = at;
            at = tree->nodes[at].right;
        } else {
            near.after = at;
            if (order == 0) found = at;
            at = tree->nodes[at].left;
        }
    }
    if (found != NODE_NONE) near.before = tree->nodes[found].before;
    if (ret_near) *ret_near = near;
    return found;
}

/* Children of a treap's root that stand before and behind some tokens, as two treaps. */
static void split(PrefixTree *tree, uint32_t root, const PrefixNode *key, uint32_t *ret_before, uint32_t *ret_after)
{
    uint32_t *before = ret_before, *after = ret_after;
    while (root != NODE_NONE) {
        PrefixNode *node = &tree->nodes[root];
        if (compare_node(tree, root, key->tokens, key->n_tokens) < 0) {
            *before = root;
            before = &node->right;
            root = node->right;
        } else {
            *after = root;
            after = &node->left;
            root = node->left;
        }
    }
    *before = *after = NODE_NONE;
}

static uint32_t join(PrefixTree *tree, uint32_t before, uint32_t after)
{
    uint32_t root, *to = &root;
    while (before != NODE_NONE && after != NODE_NONE) {
        if (tree->nodes[before].weight > tree->nodes[after].weight) {
            *to = before;
            to = &tree->nodes[before].right;
            before = *to;
        } else {
            *to = after;
            to = &tree->nodes[after].left;
            after = *to;
        }
    }
    *to = before == NODE_NONE ? after : before;
    return root;
}

/* Where the number of a child is written down: of this node, or (NODE_NONE) of the one whose place a weight takes. */
static uint32_t *find_slot(PrefixTree *tree, uint32_t parent, const PrefixNode *key, uint32_t node, uint32_t weight)
{
    uint32_t *slot = &tree->nodes[parent].children;
    while (*slot != node && (node != NODE_NONE || tree->nodes[*slot].weight >= weight)) {
        PrefixNode *at = &tree->nodes[*slot];
        slot = compare_node(tree, *slot, key->tokens, key->n_tokens) < 0 ? &at->right : &at->left;
    }
    return slot;
}

static uint32_t next_weight(PrefixTree *tree)
{
    tree->random ^= tree->random << 13;
    tree->random ^= tree->random >> 7;
    tree->random ^= tree->random << 17;
    return (uint32_t)(tree->random >> 32);
}

static void link_sibling(PrefixTree *tree, uint32_t parent, uint32_t node)
{
    PrefixNode *made = &tree->nodes[node];
    PrefixNear near;
    uint32_t same = prefix_tree_find(tree, parent, made->tokens, made->n_tokens, &near);
    assert(same == NODE_NONE);
    (void)same;
    made->before = near.before;
    made->after = near.after;
    if (near.before != NODE_NONE) tree->nodes[near.before].after = node;
    if (near.after != NODE_NONE) tree->nodes[near.after].before = node;
    made->weight = next_weight(tree);
    uint32_t *slot = find_slot(tree, parent, made, NODE_NONE, made->weight);
    split(tree, *slot, made, &made->left, &made->right);
    *slot = node;
}

static void unlink_sibling(PrefixTree *tree, uint32_t node)
{
    PrefixNode *gone = &tree->nodes[node];
    assert(gone->children == NODE_NONE);
    if (gone->before != NODE_NONE) tree->nodes[gone->before].after = gone->after;
    if (gone->after != NODE_NONE) tree->nodes[gone->after].before = gone->before;
    uint32_t *slot = find_slot(tree, gone->parent, gone, node, 0);
    *slot = join(tree, gone->left, gone->right);
}

/* ---- the heap ---- */

static bool is_worse(const PrefixTree *tree, uint32_t a, uint32_t b)
{
    const PrefixNode *x = &tree->nodes[a], *y = &tree->nodes[b];
    return x->worth < y->worth || (x->worth == y->worth && x->stamp < y->stamp);
}

static void heap_put(PrefixTree *tree, uint32_t at, uint32_t node)
{
    tree->heap[at] = node;
    tree->nodes[node].heap_at = at;
}

static void sift(PrefixTree *tree, uint32_t at, uint32_t node)
{
    while (at > 0 && is_worse(tree, node, tree->heap[(at - 1) / 2])) {
        heap_put(tree, at, tree->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (uint32_t child = 2 * at + 1; child < tree->n_heap; child = 2 * at + 1) {
        if (child + 1 < tree->n_heap && is_worse(tree, tree->heap[child + 1], tree->heap[child])) child++;
        if (!is_worse(tree, tree->heap[child], node)) break;
        heap_put(tree, at, tree->heap[child]);
        at = child;
    }
    heap_put(tree, at, node);
}

static void heap_remove(PrefixTree *tree, uint32_t node)
{
    uint32_t at = tree->nodes[node].heap_at, last = tree->heap[--tree->n_heap];
    tree->nodes[node].heap_at = NODE_NONE;
    if (last != node) sift(tree, at, last);
}

/* In the heap are the live leaves that nobody stands on. */
static void settle(PrefixTree *tree, uint32_t node)
{
    const PrefixNode *n = &tree->nodes[node];
    bool belongs = n->state == NODE_LIVE && n->n_pins == 0 && n->n_live_children == 0;
    if (belongs == (n->heap_at != NODE_NONE)) return;
    if (belongs) {
        uint32_t at = tree->n_heap++;
        sift(tree, at, node);
    } else {
        heap_remove(tree, node);
    }
}

uint32_t prefix_tree_worst(const PrefixTree *tree)
{
    return tree->n_heap ? tree->heap[0] : NODE_NONE;
}

void prefix_tree_touch(PrefixTree *tree, uint32_t node, double now)
{
    PrefixNode *used = &tree->nodes[node];
    used->worth = now + log2(1 + exp2(used->worth - now));
    used->stamp = ++tree->stamp;
    if (used->heap_at != NODE_NONE) sift(tree, used->heap_at, node);
}

/* ---- who is held ---- */

static bool is_held(const PrefixNode *node)
{
    return node->n_pins || node->n_held_children;
}

/* The node has become held: so are those above it, up to one that was before. */
static void hold(PrefixTree *tree, uint32_t at)
{
    for (bool was_held = false; !was_held;) {
        tree->idle_bytes -= tree->nodes[at].bytes;
        at = tree->nodes[at].parent;
        was_held = is_held(&tree->nodes[at]);
        tree->nodes[at].n_held_children++;
    }
}

/* The top is always held. */
static void let_go(PrefixTree *tree, uint32_t at)
{
    for (bool stays_held = false; !stays_held;) {
        tree->idle_bytes += tree->nodes[at].bytes;
        at = tree->nodes[at].parent;
        tree->nodes[at].n_held_children--;
        stays_held = is_held(&tree->nodes[at]);
    }
}

void prefix_tree_weigh(PrefixTree *tree, uint32_t node, uint64_t bytes)
{
    PrefixNode *weighed = &tree->nodes[node];
    if (!is_held(weighed)) tree->idle_bytes = tree->idle_bytes - weighed->bytes + bytes;
    weighed->bytes = bytes;
}

void prefix_tree_pin(PrefixTree *tree, uint32_t node)
{
    bool was_held = is_held(&tree->nodes[node]);
    tree->nodes[node].n_pins++;
    if (!was_held) hold(tree, node);
    settle(tree, node);
}

void prefix_tree_unpin(PrefixTree *tree, uint32_t node)
{
    assert(tree->nodes[node].n_pins > 0);
    tree->nodes[node].n_pins--;
    if (!is_held(&tree->nodes[node])) let_go(tree, node);
    settle(tree, node);
}

/* ---- states ---- */

static void unlink_ghost(PrefixTree *tree, uint32_t node)
{
    PrefixNode *ghost = &tree->nodes[node];
    *(ghost->older == NODE_NONE ? &tree->oldest_ghost : &tree->nodes[ghost->older].newer) = ghost->newer;
    *(ghost->newer == NODE_NONE ? &tree->newest_ghost : &tree->nodes[ghost->newer].older) = ghost->older;
}

static void count_live(PrefixTree *tree, uint32_t parent, int change)
{
    tree->nodes[parent].n_live_children += (uint32_t)change;
    tree->n_live += (uint32_t)change;
    settle(tree, parent);
}

uint32_t prefix_tree_take(PrefixTree *tree)
{
    uint32_t node = tree->free;
    if (node != NODE_NONE) {
        tree->free = tree->nodes[node].newer;
        return node;
    }
    if (tree->n_touched < tree->n_nodes) return tree->n_touched++;
    node = tree->oldest_ghost;
    if (node == NODE_NONE) return NODE_NONE;
    unlink_ghost(tree, node);
    unlink_sibling(tree, node);
    tree->nodes[node].state = NODE_FREE;
    return node;
}

void prefix_tree_insert(PrefixTree *tree, uint32_t parent, uint32_t node)
{
    PrefixNode *made = &tree->nodes[node];
    made->pages = NO_PAGES;
    made->keep = 0;
    made->is_decoded = false;
    made->n_pins = made->n_live_children = made->n_held_children = 0;
    made->bytes = 0;
    made->parent = parent;
    made->children = NODE_NONE;
    made->heap_at = NODE_NONE;
    made->worth = -INFINITY;
    made->stamp = ++tree->stamp;
    made->state = NODE_LIVE;
    link_sibling(tree, parent, node);
    count_live(tree, parent, 1);
    settle(tree, node);
}

void prefix_tree_remove(PrefixTree *tree, uint32_t node)
{
    assert(tree->nodes[node].state == NODE_LIVE && tree->nodes[node].n_pins == 0);
    if (tree->nodes[node].heap_at != NODE_NONE) heap_remove(tree, node);
    unlink_sibling(tree, node);
    count_live(tree, tree->nodes[node].parent, -1);
    put_free(tree, node);
}

void prefix_tree_give_up(PrefixTree *tree, uint32_t node)
{
    PrefixNode *ghost = &tree->nodes[node];
    assert(ghost->heap_at != NODE_NONE);
    heap_remove(tree, node);
    assert(ghost->bytes == 0);
    ghost->state = NODE_GHOST;
    ghost->pages = NO_PAGES;
    ghost->keep = 0;
    ghost->older = tree->newest_ghost;
    ghost->newer = NODE_NONE;
    *(ghost->older == NODE_NONE ? &tree->oldest_ghost : &tree->nodes[ghost->older].newer) = node;
    tree->newest_ghost = node;
    count_live(tree, ghost->parent, -1);
}

void prefix_tree_revive(PrefixTree *tree, uint32_t node)
{
    assert(tree->nodes[node].state == NODE_GHOST);
    unlink_ghost(tree, node);
    tree->nodes[node].state = NODE_LIVE;
    count_live(tree, tree->nodes[node].parent, 1);
    settle(tree, node);
}
