/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/schema.h"
#include "engine/sample/schema/emit.h"
#include "engine/sample/schema/kinds.h"
#include "engine/sample/schema/value_text.h"

#include <string.h>

enum { BLOCK_BYTES = 64 << 10, MAX_MIB = 48, MAX_BYTES = MAX_MIB << 20 };

/* Up to draft 7 a '$ref' stands alone; a schema that names its draft decides. */
static SchemaOptions options_of(const cJSON *schema, const SchemaOptions *given)
{
    SchemaOptions options = given ? *given : (SchemaOptions){0};
    const cJSON *draft = cJSON_GetObjectItemCaseSensitive(schema, "$schema");
    if (!cJSON_IsString(draft)) return options;
    static const char *const old[] = {"draft-03", "draft-04", "draft-05", "draft-06", "draft-07"};
    options.ref_stands_alone = false;
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        options.ref_stands_alone |= strstr(draft->valuestring, old[i]) != NULL;
    return options;
}

static bool compile(const cJSON *schema, const SchemaOptions *options, Arena *arena, GrammarBuilder *builder,
                    GrammarNode *ret_node, bool *ret_is_empty, Error *error)
{
    SchemaDocument *document;
    SchemaNode *root;
    static const Scalars objects = {.kinds = KIND_OBJECT};
    const Part parts[] = {{PART_SCHEMA, schema}, {PART_LIMITS, &objects}};
    const SchemaWriter *writer = options->writer;
    Nodes *nodes = arena_alloc(arena, sizeof *nodes);
    if (!nodes) return error_set(error, ERR_NO_MEMORY, "no memory for a schema");
    if (!schema_document_open(schema, arena, &document, error)) return false;
    nodes_init(nodes, document, options, builder, arena, error);
    if (!nodes_get(nodes, parts, options->is_object ? 2 : 1, &root)) return false;
    nodes->root = root;
    if (writer && writer->form == SCHEMA_TAGGED &&
        !schema_member_kinds(writer->kinds_of, writer->n_kinds_of, arena, &nodes->kinds, error))
        return false;
    if (!nodes_settle(nodes)) return false;
    if (!root->is_satisfiable) {
        if (ret_is_empty) *ret_is_empty = true;
        return error_set(error, ERR_SCHEMA, "no %s is valid against the schema",
                         options->is_object ? "object" : "value");
    }
    return emit_all(nodes, root, builder, ret_node);
}

bool schema_compile(const cJSON *schema, const SchemaOptions *options, GrammarBuilder *builder, GrammarNode *ret_node,
                    bool *ret_is_empty, Error *error)
{
    if (ret_is_empty) *ret_is_empty = false;
    if (!cJSON_IsObject(schema) && !cJSON_IsBool(schema))
        return error_set(error, ERR_SCHEMA, "a schema must be an object or a boolean");
    Arena arena;
    SchemaOptions own = options_of(schema, options);
    arena_init(&arena, BLOCK_BYTES, MAX_BYTES);
    bool ok = compile(schema, &own, &arena, builder, ret_node, ret_is_empty, error);
    if (!ok && error->code == ERR_NO_MEMORY && arena.used_bytes > MAX_BYTES / 2)
        (void)error_set(error, ERR_TOO_LARGE, "the schema takes more than %d MiB", MAX_MIB);
    arena_done(&arena);
    return ok;
}

GrammarNode schema_any_object(GrammarBuilder *builder)
{
    const ValueText text = value_text_json(builder);
    return value_text_object(&text);
}
