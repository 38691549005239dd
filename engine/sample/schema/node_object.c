/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one way to satisfy a node leaves of objects: named properties, classes of other keys by the patterns that they
 * match, how many.
 */
#include "engine/sample/schema/node.h"

#include <stdlib.h>
#include <string.h>

static const cJSON never = {.type = cJSON_False};
#define ANY_KEY (UINT64_C(1) << 63)

typedef struct PatternRule {
    const char *text;
    const Dfa *keys; /* label: its bit */
} PatternRule;

/* A leaf says something of a name. */
typedef struct Mention {
    const char *name;
    uint32_t order; /* declared ones first, then those that are only required */
    const Leaf *leaf;
    const cJSON *declared; /* a schema, or the value; NULL: it is required, or it has kinds of its own */
} Mention;

typedef struct Maker {
    Nodes *nodes;
    const Leaf *leaves;
    ObjectShape *shape;
    bool is_root;
    Mention *mentions; /* [n_mentions] by name; of one name in order */
    uint32_t n_mentions;
    const Mention **firsts; /* [n_names] of each name, in order */
    uint32_t n_names;
    PatternRule patterns[NODE_MAX_PATTERNS];
    uint32_t n_patterns;
    Part *parts;     /* [max_parts] scratch */
    const Dfa *keys; /* that propertyNames allow; NULL: all */
} Maker;

/* ---- names ---- */

static int compare_u(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

static int compare_mentions(const void *a, const void *b)
{
    const Mention *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : compare_u(x->order, y->order);
}

static int compare_firsts(const void *a, const void *b)
{
    return compare_u((*(const Mention *const *)a)->order, (*(const Mention *const *)b)->order);
}

static const cJSON *declares(const Leaf *leaf)
{
    if (leaf->part.kind == PART_VALUE) return leaf->part.item;
    return leaf->part.kind == PART_PLAIN ? ((const Keywords *)leaf->part.item)->key[KEY_PROPERTIES] : NULL;
}

static const cJSON *requires(const Leaf *leaf)
{
    return leaf->part.kind == PART_PLAIN ? ((const Keywords *)leaf->part.item)->key[KEY_REQUIRED] : NULL;
}

/* mentions NULL: counts alone. */
static uint32_t list_mentions(const Maker *maker, Mention *mentions)
{
    uint32_t n = 0;
    for (const Leaf *leaf = maker->leaves; leaf; leaf = leaf->next) {
        const cJSON *list = declares(leaf);
        for (const cJSON *item = list ? list->child : NULL; item; item = item->next, n++)
            if (mentions) mentions[n] = (Mention){item->string, n, leaf, item};
    }
    for (const Leaf *leaf = maker->leaves; leaf; leaf = leaf->next) {
        const cJSON *list = requires(leaf);
        for (const cJSON *item = list ? list->child : NULL; item; item = item->next, n++)
            if (mentions) mentions[n] = (Mention){item->valuestring, n, leaf, NULL};
    }
    return n;
}

/* Names that have kinds of their own are properties of the root in each of its ways, whether it has them or not. */
static bool add_kinds(Maker *maker, Mention *mentions, uint32_t *n)
{
    const ObjectKinds *kinds = &maker->nodes->kinds;
    const Dfa *bare;
    if (!maker->is_root || !kinds->n) return true;
    if (!nodes_bare_keys(maker->nodes, &bare)) return false;
    for (uint32_t i = 0; i < kinds->n; i++)
        if (dfa_label(bare, kinds->members[i].name))
            mentions[*n] = (Mention){.name = kinds->members[i].name, .order = *n}, ++*n;
    return true;
}

static bool collect_names(Maker *maker)
{
    uint32_t n = list_mentions(maker, NULL) + maker->nodes->kinds.n;
    maker->mentions = arena_array(maker->nodes->arena, n, sizeof *maker->mentions);
    maker->firsts = arena_array(maker->nodes->arena, n, sizeof *maker->firsts);
    if (!maker->mentions || !maker->firsts) return nodes_no_memory(maker->nodes);
    n = list_mentions(maker, maker->mentions);
    if (!add_kinds(maker, maker->mentions, &n)) return false;
    maker->n_mentions = n;
    if (n) qsort(maker->mentions, n, sizeof *maker->mentions, compare_mentions);
    for (uint32_t i = 0; i < n; i++)
        if (!i || strcmp(maker->mentions[i - 1].name, maker->mentions[i].name))
            maker->firsts[maker->n_names++] = &maker->mentions[i];
    if (n) qsort(maker->firsts, maker->n_names, sizeof *maker->firsts, compare_firsts);
    return true;
}

/* The next mention of the same name, or NULL. */
static const Mention *next_mention(const Maker *maker, const Mention *mention)
{
    const Mention *next = mention + 1;
    return next < maker->mentions + maker->n_mentions && !strcmp(next->name, mention->name) ? next : NULL;
}

/* ---- patterns ---- */

static bool add_pattern(Maker *maker, const cJSON *item)
{
    Nodes *nodes = maker->nodes;
    const Dfa *keys;
    for (uint32_t i = 0; i < maker->n_patterns; i++)
        if (!strcmp(maker->patterns[i].text, item->string)) return true;
    if (maker->n_patterns == NODE_MAX_PATTERNS)
        return nodes_fail(nodes, item, "more than %d different 'patternProperties' meet", NODE_MAX_PATTERNS);
    if (!nodes_pattern(nodes, item, item->string, &keys) ||
        !dfa_relabel(keys, UINT64_C(1) << maker->n_patterns, nodes->arena, &keys, nodes->error))
        return false;
    maker->patterns[maker->n_patterns++] = (PatternRule){item->string, keys};
    return true;
}

static bool collect_patterns(Maker *maker)
{
    for (const Leaf *leaf = maker->leaves; leaf; leaf = leaf->next) {
        if (leaf->part.kind != PART_PLAIN) continue;
        const cJSON *patterns = ((const Keywords *)leaf->part.item)->key[KEY_PATTERN_PROPERTIES];
        for (const cJSON *item = patterns ? patterns->child : NULL; item; item = item->next)
            if (!add_pattern(maker, item)) return false;
    }
    return true;
}

static uint64_t label_of_name(const Maker *maker, const char *name)
{
    uint64_t label = 0;
    for (uint32_t i = 0; i < maker->n_patterns; i++) label |= dfa_label(maker->patterns[i].keys, name);
    return label;
}

static uint64_t bit_of_pattern(const Maker *maker, const char *text)
{
    uint32_t i = 0;
    while (strcmp(maker->patterns[i].text, text)) i++;
    return UINT64_C(1) << i;
}

/* ---- what is asked of a key ---- */

/* What the leaf declares of the name, or NULL. */
static const cJSON *declared_by(const Maker *maker, const Leaf *leaf, const Mention *name)
{
    for (; name; name = next_mention(maker, name))
        if (name->leaf == leaf) return name->declared;
    return NULL;
}

/* name NULL: of any key that no property has; label: the patterns that the key matches. Adds to maker->parts. */
static uint32_t parts_of_leaf(Maker *maker, const Leaf *leaf, const Mention *name, uint64_t label, uint32_t n)
{
    const cJSON *own = declared_by(maker, leaf, name);
    if (leaf->part.kind == PART_VALUE) {
        maker->parts[n++] = own ? (Part){PART_VALUE, own} : (Part){PART_SCHEMA, &never};
        return n;
    }
    if (leaf->part.kind != PART_PLAIN) return n;
    const Keywords *keywords = leaf->part.item;
    const cJSON *patterns = keywords->key[KEY_PATTERN_PROPERTIES];
    uint32_t before = n;
    if (own) maker->parts[n++] = (Part){PART_SCHEMA, own};
    for (const cJSON *item = patterns ? patterns->child : NULL; item; item = item->next)
        if (label & bit_of_pattern(maker, item->string)) maker->parts[n++] = (Part){PART_SCHEMA, item};
    if (n == before && keywords->key[KEY_ADDITIONAL_PROPERTIES])
        maker->parts[n++] = (Part){PART_SCHEMA, keywords->key[KEY_ADDITIONAL_PROPERTIES]};
    return n;
}

static bool node_of_key(Maker *maker, const Mention *name, uint64_t label, SchemaNode **ret_node)
{
    uint32_t n = 0;
    for (const Leaf *leaf = maker->leaves; leaf; leaf = leaf->next) n = parts_of_leaf(maker, leaf, name, label, n);
    if (name && maker->keys && !dfa_label(maker->keys, name->name)) maker->parts[n++] = (Part){PART_SCHEMA, &never};
    return nodes_get(maker->nodes, maker->parts, n, ret_node);
}

static bool add_properties(Maker *maker)
{
    ObjectShape *shape = maker->shape;
    shape->properties = arena_array(maker->nodes->arena, maker->n_names, sizeof *shape->properties);
    if (!shape->properties) return nodes_no_memory(maker->nodes);
    for (uint32_t i = 0; i < maker->n_names; i++) {
        Property *property = &shape->properties[shape->n_properties++];
        const Mention *name = maker->firsts[i];
        uint64_t n_mentions = 0;
        *property = (Property){.name = name->name};
        if (!node_of_key(maker, name, label_of_name(maker, name->name), &property->value)) return false;
        for (; name; name = next_mention(maker, name), n_mentions++)
            property->is_required |= name->leaf && (!name->declared || name->leaf->part.kind == PART_VALUE);
        if (!nodes_spend(maker->nodes, n_mentions)) return false;
    }
    return true;
}

/* ---- other keys ---- */

/* Every key that no property has, labelled with the patterns that it matches. */
static bool other_keys(Maker *maker, const Dfa **ret_keys)
{
    Nodes *nodes = maker->nodes;
    const Dfa *all, *named;
    if (!sets_all_strings(&nodes->sets, &all)) return false;
    if (maker->keys) all = maker->keys;
    const char **names = arena_array(nodes->arena, maker->n_names, sizeof *names);
    if (!names) return nodes_no_memory(nodes);
    for (uint32_t i = 0; i < maker->n_names; i++) names[i] = maker->firsts[i]->name;
    if (maker->n_names && !(dfa_words(names, maker->n_names, nodes->arena, &named, nodes->error) &&
                            dfa_combine(all, named, DFA_MINUS, nodes->arena, &all, nodes->error)))
        return false;
    if (!dfa_relabel(all, ANY_KEY, nodes->arena, &all, nodes->error)) return false;
    for (uint32_t i = 0; i < maker->n_patterns; i++)
        if (!dfa_combine(all, maker->patterns[i].keys, DFA_LABELS, nodes->arena, &all, nodes->error)) return false;
    *ret_keys = all;
    return true;
}

static bool add_class(Maker *maker, const Dfa *keys, uint64_t label)
{
    KeyClass *key_class = &maker->shape->classes[maker->shape->n_classes];
    const Dfa *own;
    if (!node_of_key(maker, NULL, label & ~ANY_KEY, &key_class->value)) return false;
    if (!dfa_with_label(keys, label, UINT64_MAX, maker->nodes->arena, &own, maker->nodes->error)) return false;
    maker->shape->n_classes++;
    return dfa_minimize(own, maker->nodes->arena, &key_class->keys, maker->nodes->error);
}

/* No other key is left over by any of the leaves: the usual closed object needs no automaton. */
static bool are_keys_closed(const Maker *maker)
{
    bool closed = false;
    for (const Leaf *leaf = maker->leaves; leaf; leaf = leaf->next) {
        if (leaf->part.kind == PART_VALUE) closed = true;
        if (leaf->part.kind != PART_PLAIN) continue;
        const Keywords *keywords = leaf->part.item;
        const cJSON *patterns = keywords->key[KEY_PATTERN_PROPERTIES], *more = keywords->key[KEY_ADDITIONAL_PROPERTIES];
        closed |= more && cJSON_IsFalse(more) && !(patterns && patterns->child);
    }
    return closed;
}

static bool add_classes(Maker *maker)
{
    enum { MAX_CLASSES = 64 };
    const Dfa *keys = NULL;
    uint64_t labels[MAX_CLASSES];
    uint32_t n = 0;
    if (are_keys_closed(maker)) return true;
    if (!other_keys(maker, &keys)) return false;
    for (uint32_t s = 0; s < keys->n_states; s++) {
        uint32_t i = 0;
        if (!(keys->labels[s] & ANY_KEY)) continue;
        while (i < n && labels[i] != keys->labels[s]) i++;
        if (i < n) continue;
        if (n == MAX_CLASSES)
            return error_set(maker->nodes->error, ERR_TOO_LARGE, "'patternProperties' overlap in more than %d ways",
                             MAX_CLASSES);
        labels[n++] = keys->labels[s];
    }
    maker->shape->classes = arena_array(maker->nodes->arena, n, sizeof *maker->shape->classes);
    if (!maker->shape->classes) return nodes_no_memory(maker->nodes);
    for (uint32_t i = 0; i < n; i++)
        if (!add_class(maker, keys, labels[i])) return false;
    return true;
}

/* ---- all of it ---- */

static bool cut_keys(Maker *maker, const cJSON *schema)
{
    Nodes *nodes = maker->nodes;
    SchemaNode *node;
    Scalars scalars;
    if (!nodes_get(nodes, &(Part){PART_SCHEMA, schema}, 1, &node) || !nodes_fill(nodes, node) ||
        !nodes_scalars(nodes, node, &scalars))
        return false;
    const Dfa *names = scalars.strings;
    if (!(scalars.kinds & KIND_STRING) && !dfa_words(NULL, 0, nodes->arena, &names, nodes->error)) return false;
    Strings keys = {maker->keys, 0, UINT32_MAX};
    if (!sets_cut_words(&nodes->sets, &keys, names)) return false;
    maker->keys = keys.words;
    return true;
}

static bool read_leaves(Maker *maker)
{
    ObjectShape *shape = maker->shape;
    uint32_t max_parts = 1;
    for (const Leaf *leaf = maker->leaves; leaf; leaf = leaf->next, max_parts += 2 + NODE_MAX_PATTERNS) {
        if (leaf->part.kind != PART_PLAIN) continue;
        const Keywords *keywords = leaf->part.item;
        uint32_t min = keywords_count(keywords, KEY_MIN_PROPERTIES, 0);
        uint32_t max = keywords_count(keywords, KEY_MAX_PROPERTIES, UINT32_MAX);
        if (shape->min < min) {
            shape->min = min;
            shape->min_from = keywords->key[KEY_MIN_PROPERTIES];
        }
        if (shape->max > max) shape->max = max;
        if (keywords->key[KEY_PROPERTY_NAMES] && !cut_keys(maker, keywords->key[KEY_PROPERTY_NAMES])) return false;
    }
    maker->parts = arena_array(maker->nodes->arena, max_parts, sizeof *maker->parts);
    return maker->parts || nodes_no_memory(maker->nodes);
}

static void find_out_any(const Maker *maker)
{
    ObjectShape *shape = maker->shape;
    bool one_class = shape->n_classes == 1 && !shape->classes[0].value->n_parts && !maker->keys;
    bool free_properties = true;
    for (uint32_t i = 0; i < shape->n_properties; i++)
        free_properties &= !shape->properties[i].is_required && !shape->properties[i].value->n_parts;
    shape->is_any = one_class && free_properties && !shape->min && shape->max == UINT32_MAX;
}

bool nodes_add_object(Nodes *nodes, SchemaNode *node, const Leaf *leaves)
{
    Maker maker = {.nodes = nodes,
                   .leaves = leaves,
                   .shape = arena_alloc(nodes->arena, sizeof(ObjectShape)),
                   .is_root = node == nodes->root};
    if (!maker.shape) return nodes_no_memory(nodes);
    maker.shape->max = UINT32_MAX;
    if (!read_leaves(&maker) || !collect_names(&maker) || !collect_patterns(&maker) || !add_properties(&maker) ||
        !add_classes(&maker))
        return false;
    find_out_any(&maker);
    node->kinds |= KIND_OBJECT;
    *node->objects_end = maker.shape;
    node->objects_end = &maker.shape->next;
    return true;
}
