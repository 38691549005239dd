/* SPDX-License-Identifier: Apache-2.0 */
/* What one way to satisfy a node leaves of arrays: schemas for the first items, one for all others, how many. */
#include "engine/sample/schema/node.h"

static const cJSON never = {.type = cJSON_False};

/* Items that have a schema of their own. */
static const cJSON *tuple_of(const Keywords *keywords)
{
    const cJSON *items = keywords->key[KEY_ITEMS];
    if (keywords->key[KEY_PREFIX_ITEMS]) return keywords->key[KEY_PREFIX_ITEMS];
    return items && cJSON_IsArray(items) ? items : NULL;
}

static const cJSON *rest_of(const Keywords *keywords)
{
    const cJSON *items = keywords->key[KEY_ITEMS];
    return items && cJSON_IsArray(items) ? keywords->key[KEY_ADDITIONAL_ITEMS] : items;
}

static uint32_t length_of(const Leaf *leaf)
{
    if (leaf->part.kind == PART_VALUE) return (uint32_t)cJSON_GetArraySize((const cJSON *)leaf->part.item);
    const cJSON *tuple = leaf->part.kind == PART_PLAIN ? tuple_of(leaf->part.item) : NULL;
    return tuple ? (uint32_t)cJSON_GetArraySize(tuple) : 0;
}

/* What a leaf asks of the item with this index, or, behind all prefixes, of every other one; item NULL: nothing. */
static Part part_at(const Leaf *leaf, uint32_t index)
{
    if (leaf->part.kind == PART_VALUE) {
        const cJSON *item = cJSON_GetArrayItem(leaf->part.item, (int)index);
        return item ? (Part){PART_VALUE, item} : (Part){PART_SCHEMA, &never};
    }
    if (leaf->part.kind != PART_PLAIN) return (Part){PART_SCHEMA, NULL};
    const cJSON *tuple = tuple_of(leaf->part.item);
    const cJSON *item = tuple ? cJSON_GetArrayItem(tuple, (int)index) : NULL;
    return (Part){PART_SCHEMA, item ? item : rest_of(leaf->part.item)};
}

static bool node_at(Nodes *nodes, const Leaf *leaves, uint32_t index, Part *parts, SchemaNode **ret_node)
{
    uint32_t n = 0;
    for (const Leaf *leaf = leaves; leaf; leaf = leaf->next) {
        Part part = part_at(leaf, index);
        if (part.item) parts[n++] = part;
    }
    return nodes_get(nodes, parts, n, ret_node);
}

static void limit_length(const Leaf *leaf, ArrayShape *shape)
{
    uint32_t min = 0, max = UINT32_MAX;
    if (leaf->part.kind == PART_VALUE) {
        min = max = length_of(leaf);
    } else if (leaf->part.kind == PART_PLAIN) {
        min = keywords_count(leaf->part.item, KEY_MIN_ITEMS, 0);
        max = keywords_count(leaf->part.item, KEY_MAX_ITEMS, UINT32_MAX);
    }
    if (shape->min < min) shape->min = min;
    if (shape->max > max) shape->max = max;
}

bool nodes_add_array(Nodes *nodes, SchemaNode *node, const Leaf *leaves)
{
    ArrayShape *shape = arena_alloc(nodes->arena, sizeof *shape);
    uint32_t n_leaves = 0;
    if (!shape) return nodes_no_memory(nodes);
    *shape = (ArrayShape){.max = UINT32_MAX};
    for (const Leaf *leaf = leaves; leaf; leaf = leaf->next, n_leaves++) {
        uint32_t n = length_of(leaf);
        if (shape->n_prefix < n) shape->n_prefix = n;
        limit_length(leaf, shape);
    }
    if (shape->min > shape->max) return true;
    if (shape->n_prefix > shape->max) shape->n_prefix = shape->max;
    Part *parts = arena_array(nodes->arena, n_leaves, sizeof *parts);
    shape->prefix = arena_array(nodes->arena, shape->n_prefix, sizeof *shape->prefix);
    if (!parts || !shape->prefix) return nodes_no_memory(nodes);
    for (uint32_t i = 0; i < shape->n_prefix; i++)
        if (!node_at(nodes, leaves, i, parts, &shape->prefix[i])) return false;
    if (shape->n_prefix < shape->max && !node_at(nodes, leaves, shape->n_prefix, parts, &shape->rest)) return false;
    node->kinds |= KIND_ARRAY;
    *node->arrays_end = shape;
    node->arrays_end = &shape->next;
    return true;
}
