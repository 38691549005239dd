/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes have any value at all: a least fixed point, so that what recurs for ever has none. */
#include "engine/sample/schema/node.h"

static bool array_has_value(const ArrayShape *shape)
{
    if (shape->min > shape->n_prefix && !shape->rest->is_satisfiable) return false;
    for (uint32_t i = 0; i < shape->n_prefix && i < shape->min; i++)
        if (!shape->prefix[i]->is_satisfiable) return false;
    return true;
}

bool nodes_object_has_value(const ObjectShape *shape)
{
    uint64_t most = 0, required = 0;
    for (uint32_t i = 0; i < shape->n_properties; i++) {
        bool has = shape->properties[i].value->is_satisfiable;
        if (shape->properties[i].is_required && !has) return false;
        most += has;
        required += shape->properties[i].is_required;
    }
    for (uint32_t i = 0; i < shape->n_classes; i++)
        if (shape->classes[i].value->is_satisfiable) most = UINT32_MAX;
    return required <= shape->max && shape->min <= most && shape->min <= shape->max;
}

static bool has_value(const SchemaNode *node)
{
    if (node->kinds & KINDS_SCALAR) return true;
    for (const ArrayShape *shape = node->arrays; shape; shape = shape->next)
        if (array_has_value(shape)) return true;
    for (const ObjectShape *shape = node->objects; shape; shape = shape->next)
        if (nodes_object_has_value(shape)) return true;
    return false;
}

static bool find_values(Nodes *nodes)
{
    bool changed = true;
    while (changed) {
        changed = false;
        /* from the last one: what is referred to mostly comes later */
        for (uint32_t i = nodes->n_nodes; i-- > 0;) {
            SchemaNode *node = nodes->list[i];
            if (node->is_satisfiable || !has_value(node)) continue;
            node->is_satisfiable = true;
            changed = true;
        }
        if (!nodes_spend(nodes, nodes->n_nodes / 8)) return false;
    }
    return true;
}

bool nodes_settle(Nodes *nodes)
{
    for (uint32_t i = 0; i < nodes->n_nodes; i++)
        if (!nodes_fill(nodes, nodes->list[i])) return false;
    if (!find_values(nodes)) return false;
    for (const Apart *apart = nodes->apart; apart; apart = apart->next)
        if (apart->both->is_satisfiable)
            return nodes_fail(nodes, apart->where,
                              "a value may match two branches of this 'oneOf', which is not "
                              "supported: use 'anyOf', or a property that tells them apart");
    return true;
}
