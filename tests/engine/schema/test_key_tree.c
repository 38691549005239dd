/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/key_tree.h"
#include "tests/engine/schema/arena_rig.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(key_tree, .init = init, .fini = done);

static const char *const names[] = {"b", "abc", "\xC3\xA9t\xC3\xA9", "ab", "\xC3\xA8", "abd", ""};
enum { N_NAMES = sizeof names / sizeof *names };

/* The node that a name ends in, by going down. */
static const KeyNode *find(const KeyTree *tree, const char *name)
{
    const KeyNode *node = &tree->nodes[0];
    for (;;) {
        if (node->word != KEY_NONE && !strcmp(names[node->word], name)) return node;
        const KeyNode *next = NULL;
        for (uint32_t i = 0; i < node->n_children; i++) {
            const KeyNode *child = &tree->nodes[node->child + i];
            cr_assert_leq(node->end, child->begin);
            if (!strncmp(names[child->names[0]], name, child->begin)) next = child;
        }
        if (!next) return NULL;
        node = next;
    }
}

Test(key_tree, each_name_has_its_node_and_nodes_know_their_names)
{
    KeyTree tree;
    cr_assert(key_tree_make(names, N_NAMES, &arena, &tree, &error), "%s", error.text);
    for (uint32_t i = 0; i < N_NAMES; i++) {
        const KeyNode *node = find(&tree, names[i]);
        cr_assert(node, "'%s'", names[i]);
        cr_expect_eq(node->word, i);
    }
    cr_expect_eq(tree.nodes[0].n, N_NAMES);
    for (uint32_t i = 0; i <= N_NAMES; i++) cr_expect_eq(key_node_next(&tree.nodes[0], i), i < N_NAMES ? i : KEY_NONE);
    const KeyNode *ab = find(&tree, "ab");
    cr_expect_eq(ab->n, 3);
    cr_expect(key_node_next(ab, 0) == 1 && key_node_next(ab, 2) == 3 && key_node_next(ab, 4) == 5);
    cr_expect_eq(key_node_next(ab, 6), KEY_NONE);
}

/* Two letters that begin with one byte part before it. */
Test(key_tree, names_part_between_code_points)
{
    KeyTree tree;
    cr_assert(key_tree_make(names, N_NAMES, &arena, &tree, &error), "%s", error.text);
    for (uint32_t i = 0; i < tree.n_nodes; i++) {
        const KeyNode *node = &tree.nodes[i];
        for (uint32_t j = 0; j < node->n; j++) {
            cr_expect_neq((unsigned char)names[node->names[j]][node->begin] & 0xC0, 0x80);
            cr_expect_neq((unsigned char)names[node->names[j]][node->end] & 0xC0, 0x80);
        }
    }
    cr_assert(key_tree_make(names, 0, &arena, &tree, &error));
    cr_expect_eq(tree.n_nodes, 0);
}
