/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/key_tree.h"

#include "base/array.h"
#include "base/numbers.h"

#include <stdlib.h>
#include <string.h>

typedef struct Key {
    const char *name;
    uint32_t number;
} Key;

typedef struct Maker {
    Arena *arena;
    Key *keys; /* [n] by name */
    KeyNode *nodes;
    uint32_t *first; /* of each node's keys */
    uint32_t n_nodes, max_nodes, max_first;
    Error *error;
} Maker;

static bool no_memory(Error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory for the names of properties");
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const Key *)a)->name, ((const Key *)b)->name);
}

static bool is_inside(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

/* Bytes that the first and the last of sorted names have in common, and so have all between: whole code points. */
static uint32_t common_bytes(const char *first, const char *last)
{
    uint32_t n = 0;
    while (first[n] && first[n] == last[n]) n++;
    while (n && (is_inside(first[n]) || is_inside(last[n]))) n--;
    return n;
}

static bool add_node(Maker *maker, uint32_t first, uint32_t n, uint32_t begin)
{
    uint32_t *names = arena_array(maker->arena, n, sizeof *names);
    if (!names ||
        !array_reserve(&maker->nodes, &maker->max_nodes, (uint64_t)maker->n_nodes + 1, KEY_NONE, sizeof(KeyNode)) ||
        !array_reserve(&maker->first, &maker->max_first, (uint64_t)maker->n_nodes + 1, KEY_NONE, sizeof(uint32_t)))
        return no_memory(maker->error);
    for (uint32_t i = 0; i < n; i++) names[i] = maker->keys[first + i].number;
    qsort(names, n, sizeof *names, compare_u32);
    uint32_t end = common_bytes(maker->keys[first].name, maker->keys[first + n - 1].name);
    maker->first[maker->n_nodes] = first;
    maker->nodes[maker->n_nodes++] = (KeyNode){begin, end, n, names, 0, 0, KEY_NONE};
    return true;
}

/* The names of a node, divided by the code point behind what they have in common. UTF-8 sorts as its code points do. */
static bool add_children(Maker *maker, uint32_t id)
{
    uint32_t i = maker->first[id], after = i + maker->nodes[id].n, end = maker->nodes[id].end;
    maker->nodes[id].child = maker->n_nodes;
    if (!maker->keys[i].name[end]) maker->nodes[id].word = maker->keys[i++].number;
    while (i < after) {
        const char *at = maker->keys[i].name + end;
        uint32_t n = 1, first = i;
        while (is_inside(at[n])) n++;
        while (i < after && !strncmp(maker->keys[i].name + end, at, n)) i++;
        if (!add_node(maker, first, i - first, end + n)) return false;
    }
    maker->nodes[id].n_children = maker->n_nodes - maker->nodes[id].child;
    return true;
}

bool key_tree_make(const char *const *names, uint32_t n, Arena *arena, KeyTree *ret_tree, Error *error)
{
    Maker maker = {.arena = arena, .error = error, .keys = arena_array(arena, n, sizeof *maker.keys)};
    if (!maker.keys) return no_memory(error);
    for (uint32_t i = 0; i < n; i++) maker.keys[i] = (Key){names[i], i};
    if (n) qsort(maker.keys, n, sizeof *maker.keys, compare_keys);
    bool ok = !n || add_node(&maker, 0, n, 0);
    for (uint32_t id = 0; ok && id < maker.n_nodes; id++) ok = add_children(&maker, id);
    KeyNode *nodes = ok ? arena_array(arena, maker.n_nodes, sizeof *nodes) : NULL;
    if (nodes && maker.n_nodes) memcpy(nodes, maker.nodes, maker.n_nodes * sizeof *nodes);
    *ret_tree = (KeyTree){nodes, maker.n_nodes};
    free(maker.nodes);
    free(maker.first);
    return nodes || (ok ? no_memory(error) : false);
}

uint32_t key_node_next(const KeyNode *node, uint32_t from)
{
    uint32_t low = 0, high = node->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (node->names[middle] < from)
            low = middle + 1;
        else
            high = middle;
    }
    return low < node->n ? node->names[low] : KEY_NONE;
}
