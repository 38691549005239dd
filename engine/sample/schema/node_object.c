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

typedef struct Maker {
    Nodes *nodes;
    const Leaf *leaves;
    ObjectShape *shape;
    const char **names; /* [n_names] in order */
    uint32_t n_names, max_names;
    PatternRule patterns[NODE_MAX_PATTERNS];
    uint32_t n_patterns;
    Part *parts;     /* [max_parts] scratch */
    const Dfa *keys; /* that propertyNames allow; NULL: all */
} Maker;

/* ---- names ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(**(const char *const *const *)a, **(const char *const *const *)b);
}

static uint32_t count_names(const Leaf *leaf)
{
    if (leaf->part.kind == PART_VALUE) return (uint32_t)cJSON_GetArraySize((const cJSON *)leaf->part.item);
    if (leaf->part.kind != PART_PLAIN) return 0;
    const Keywords *keywords = leaf->part.item;
    const cJSON *properties = keywords->key[KEY_PROPERTIES], *required = keywords->key[KEY_REQUIRED];
    return (properties ? (uint32_t)cJSON_GetArraySize(properties) : 0) +
           (required ? (uint32_t)cJSON_GetArraySize(required) : 0);
}

static void add_names(Maker *maker, const cJSON *object)
{
    if (!object) return;
    for (const cJSON *item = object->child; item; item = item->next)
        maker->names[maker->n_names++] = cJSON_IsArray(object) ? item->valuestring : item->string;
}

/* Keeps the first of equal names; the order stays. */
static bool drop_doubles(Maker *maker)
{
    const char ***sorted = arena_array(maker->nodes->arena, maker->n_names, sizeof *sorted);
    if (!sorted) return nodes_no_memory(maker->nodes);
    for (uint32_t i = 0; i < maker->n_names; i++) sorted[i] = &maker->names[i];
    if (maker->n_names) qsort(sorted, maker->n_names, sizeof *sorted, compare_names);
    for (uint32_t i = 0, first = 0; i < maker->n_names; i++) {
        bool same = i && !strcmp(*sorted[i], *sorted[first]);
        if (!same) {
            first = i;
        } else if (sorted[i] < sorted[first]) {
            *sorted[first] = NULL;
            first = i;
        } else {
            *sorted[i] = NULL;
            sorted[i] = sorted[first];
        }
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < maker->n_names; i++)
        if (maker->names[i]) maker->names[kept++] = maker->names[i];
    maker->n_names = kept;
    return true;
}

/* Declared ones first, then those that are only required. */
static bool collect_names(Maker *maker)
{
    uint32_t n = 0;
    for (const Leaf *leaf = maker->leaves; leaf; leaf = leaf->next) n += count_names(leaf);
    maker->names = arena_array(maker->nodes->arena, n, sizeof *maker->names);
    if (!maker->names) return nodes_no_memory(maker->nodes);
    for (const Leaf *leaf = maker->leaves; leaf; leaf = leaf->next) {
        if (leaf->part.kind == PART_VALUE) add_names(maker, leaf->part.item);
        if (leaf->part.kind == PART_PLAIN) add_names(maker, ((const Keywords *)leaf->part.item)->key[KEY_PROPERTIES]);
    }
    for (const Leaf *leaf = maker->leaves; leaf; leaf = leaf->next)
        if (leaf->part.kind == PART_PLAIN) add_names(maker, ((const Keywords *)leaf->part.item)->key[KEY_REQUIRED]);
    return drop_doubles(maker);
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

/* name NULL: of any key that no property has; label: the patterns that the key matches. Adds to maker->parts. */
static uint32_t parts_of_leaf(Maker *maker, const Leaf *leaf, const char *name, uint64_t label, uint32_t n)
{
    if (leaf->part.kind == PART_VALUE) {
        const cJSON *item = name ? cJSON_GetObjectItemCaseSensitive(leaf->part.item, name) : NULL;
        maker->parts[n++] = item ? (Part){PART_VALUE, item} : (Part){PART_SCHEMA, &never};
        return n;
    }
    if (leaf->part.kind != PART_PLAIN) return n;
    const Keywords *keywords = leaf->part.item;
    const cJSON *properties = keywords->key[KEY_PROPERTIES], *patterns = keywords->key[KEY_PATTERN_PROPERTIES];
    const cJSON *own = name && properties ? cJSON_GetObjectItemCaseSensitive(properties, name) : NULL;
    uint32_t before = n;
    if (own) maker->parts[n++] = (Part){PART_SCHEMA, own};
    for (const cJSON *item = patterns ? patterns->child : NULL; item; item = item->next)
        if (label & bit_of_pattern(maker, item->string)) maker->parts[n++] = (Part){PART_SCHEMA, item};
    if (n == before && keywords->key[KEY_ADDITIONAL_PROPERTIES])
        maker->parts[n++] = (Part){PART_SCHEMA, keywords->key[KEY_ADDITIONAL_PROPERTIES]};
    return n;
}

static bool node_of_key(Maker *maker, const char *name, uint64_t label, SchemaNode **ret_node)
{
    uint32_t n = 0;
    for (const Leaf *leaf = maker->leaves; leaf; leaf = leaf->next) n = parts_of_leaf(maker, leaf, name, label, n);
    if (name && maker->keys && !dfa_label(maker->keys, name)) maker->parts[n++] = (Part){PART_SCHEMA, &never};
    return nodes_get(maker->nodes, maker->parts, n, ret_node);
}

static bool leaf_requires(const Leaf *leaf, const char *name)
{
    if (leaf->part.kind == PART_VALUE) return cJSON_GetObjectItemCaseSensitive(leaf->part.item, name) != NULL;
    if (leaf->part.kind != PART_PLAIN) return false;
    const cJSON *required = ((const Keywords *)leaf->part.item)->key[KEY_REQUIRED];
    for (const cJSON *item = required ? required->child : NULL; item; item = item->next)
        if (!strcmp(item->valuestring, name)) return true;
    return false;
}

static bool add_properties(Maker *maker)
{
    ObjectShape *shape = maker->shape;
    shape->properties = arena_array(maker->nodes->arena, maker->n_names, sizeof *shape->properties);
    if (!shape->properties) return nodes_no_memory(maker->nodes);
    for (uint32_t i = 0; i < maker->n_names; i++) {
        Property *property = &shape->properties[shape->n_properties++];
        property->name = maker->names[i];
        if (!node_of_key(maker, property->name, label_of_name(maker, property->name), &property->value)) return false;
        for (const Leaf *leaf = maker->leaves; leaf; leaf = leaf->next)
            property->is_required |= leaf_requires(leaf, property->name);
        if (!nodes_spend(maker->nodes, 1 + maker->n_names / 64)) return false;
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
    if (maker->n_names && !(dfa_words(maker->names, maker->n_names, nodes->arena, &named, nodes->error) &&
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
    const Dfa *keys;
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
    Maker maker = {.nodes = nodes, .leaves = leaves, .shape = arena_alloc(nodes->arena, sizeof(ObjectShape))};
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
