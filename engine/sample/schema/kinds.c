/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/kinds.h"

#include "engine/sample/schema/document.h"

#include <stdlib.h>
#include <string.h>

typedef struct Reader {
    SchemaDocument *document; /* NULL: references lead nowhere */
    Arena *arena;
    MemberKinds *members; /* [n] */
    uint32_t n, max;
    uint32_t steps, looks, nested, max_steps, max_looks;
    uint32_t n_items; /* of the schema, at most KINDS_MAX_LOOKS: looks that a reference takes */
} Reader;

static bool is_spent(const Reader *reader)
{
    return reader->steps >= reader->max_steps || reader->looks >= reader->max_looks;
}

static bool may_go_on(Reader *reader)
{
    return reader->nested < KINDS_MAX_NESTED && ++reader->steps < reader->max_steps && !is_spent(reader);
}

static const cJSON *member_of(Reader *reader, const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_IsObject(object) && !is_spent(reader) ? object->child : NULL;
    for (; item && strcmp(item->string, name) != 0; item = item->next) reader->looks++;
    return item;
}

/* What a reference stands for; NULL: there is none. */
static const cJSON *target_of(Reader *reader, const cJSON *schema)
{
    const cJSON *reference = member_of(reader, schema, "$ref"), *target;
    Error ignored;
    if (!cJSON_IsString(reference)) return NULL;
    reader->looks += reader->n_items;
    bool ok = reader->document &&
              schema_document_resolve(reader->document, schema, reference->valuestring, &target, &ignored);
    return ok ? target : reference; /* which is no schema: it says nothing */
}

/* ---- kinds of a value ---- */

static uint32_t kinds_of_type(const char *name)
{
    static const struct {
        const char *name;
        uint32_t kinds;
    } types[] = {{"null", KIND_NULL},     {"boolean", KIND_FALSE | KIND_TRUE},
                 {"number", KIND_NUMBER}, {"integer", KIND_NUMBER},
                 {"string", KIND_STRING}, {"array", KIND_ARRAY},
                 {"object", KIND_OBJECT}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, name)) return types[i].kinds;
    return KINDS_ALL;
}

static uint32_t kind_of_value(const cJSON *value)
{
    if (cJSON_IsBool(value)) return cJSON_IsTrue(value) ? KIND_TRUE : KIND_FALSE;
    if (cJSON_IsNumber(value)) return KIND_NUMBER;
    if (cJSON_IsString(value)) return KIND_STRING;
    if (cJSON_IsArray(value)) return KIND_ARRAY;
    return cJSON_IsObject(value) ? KIND_OBJECT : KIND_NULL;
}

static uint32_t kinds_of_plain(Reader *reader, const cJSON *schema)
{
    const cJSON *type = member_of(reader, schema, "type"), *list = member_of(reader, schema, "enum");
    const cJSON *one = member_of(reader, schema, "const");
    uint32_t kinds = KINDS_ALL, some = 0;
    if (cJSON_IsString(type)) kinds = kinds_of_type(type->valuestring);
    for (const cJSON *item = cJSON_IsArray(type) ? type->child : NULL; item; item = item->next, reader->looks++)
        some |= cJSON_IsString(item) ? kinds_of_type(item->valuestring) : KINDS_ALL;
    if (cJSON_IsArray(type)) kinds = some;
    some = 0;
    for (const cJSON *item = cJSON_IsArray(list) ? list->child : NULL; item; item = item->next, reader->looks++)
        some |= kind_of_value(item);
    if (cJSON_IsArray(list)) kinds &= some;
    return one ? kinds & kind_of_value(one) : kinds;
}

/* ---- what holds together, and what may be chosen ---- */

typedef uint32_t Judge(Reader *reader, const cJSON *schema, const char *name);

static uint32_t judge(Reader *reader, const cJSON *schema, const char *name, Judge *own)
{
    static const char *const choices[] = {"anyOf", "oneOf"};
    reader->looks++;
    if (cJSON_IsFalse(schema)) return 0;
    if (!cJSON_IsObject(schema) || !may_go_on(reader)) return KINDS_ALL;
    const cJSON *target = target_of(reader, schema), *all = member_of(reader, schema, "allOf");
    reader->nested++;
    uint32_t kinds = target ? judge(reader, target, name, own) : own(reader, schema, name);
    for (const cJSON *item = cJSON_IsArray(all) && !target ? all->child : NULL; item; item = item->next)
        kinds &= judge(reader, item, name, own);
    for (size_t i = 0; i < 2 && !target; i++) {
        const cJSON *list = member_of(reader, schema, choices[i]);
        uint32_t some = 0;
        if (!cJSON_IsArray(list)) continue;
        for (const cJSON *item = list->child; item; item = item->next) some |= judge(reader, item, name, own);
        kinds &= some;
    }
    reader->nested--;
    return kinds;
}

static uint32_t own_kinds(Reader *reader, const cJSON *schema, const char *name)
{
    (void)name;
    return kinds_of_plain(reader, schema);
}

/* name NULL: of a member that no 'properties' name */
static uint32_t own_member(Reader *reader, const cJSON *schema, const char *name)
{
    const cJSON *properties = member_of(reader, schema, "properties"),
                *patterns = member_of(reader, schema, "patternProperties");
    const cJSON *property = name ? member_of(reader, properties, name) : NULL;
    if (property) return judge(reader, property, NULL, own_kinds);
    if (patterns && patterns->child) return KINDS_ALL;
    return judge(reader, member_of(reader, schema, "additionalProperties"), NULL, own_kinds);
}

/* ---- all names ---- */

static bool add_names(Reader *reader, const cJSON *schema, Error *error)
{
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
    if (!cJSON_IsObject(schema) || !may_go_on(reader)) return true;
    const cJSON *target = target_of(reader, schema), *properties = member_of(reader, schema, "properties");
    uint32_t n = cJSON_IsObject(properties) && !target ? (uint32_t)cJSON_GetArraySize(properties) : 0;
    reader->looks += n;
    if (is_spent(reader)) return true;
    if (n > reader->max - reader->n) {
        uint32_t max = 2 * reader->n + n;
        MemberKinds *members = arena_array(reader->arena, max, sizeof *members);
        if (!members) return error_set(error, ERR_NO_MEMORY, "no memory for the names in a schema");
        if (reader->n) memcpy(members, reader->members, reader->n * sizeof *members);
        reader->members = members;
        reader->max = max;
    }
    for (const cJSON *item = n ? properties->child : NULL; item; item = item->next)
        reader->members[reader->n++].name = item->string;
    reader->nested++;
    bool ok = !target || add_names(reader, target, error);
    for (size_t i = 0; i < sizeof lists / sizeof *lists && !target; i++) {
        const cJSON *list = member_of(reader, schema, lists[i]);
        for (const cJSON *item = cJSON_IsArray(list) ? list->child : NULL; ok && item; item = item->next)
            ok = add_names(reader, item, error);
    }
    reader->nested--;
    return ok;
}

static int compare_members(const void *a, const void *b)
{
    return strcmp(((const MemberKinds *)a)->name, ((const MemberKinds *)b)->name);
}

static void sort_names(Reader *reader)
{
    uint32_t kept = 0;
    if (reader->n) qsort(reader->members, reader->n, sizeof *reader->members, compare_members);
    for (uint32_t i = 0; i < reader->n; i++)
        if (!kept || strcmp(reader->members[i].name, reader->members[kept - 1].name))
            reader->members[kept++] = reader->members[i];
    reader->n = kept;
}

bool schema_member_kinds(const cJSON *schema, uint32_t n_schemas, Arena *arena, ObjectKinds *ret_kinds, Error *error)
{
    uint64_t n_items = schema_count_items(schema), whole = KINDS_WHOLE_SCHEMAS;
    uint64_t n_shares = n_schemas < whole ? whole : n_schemas;
    Reader reader = {.arena = arena,
                     .n_items = n_items < KINDS_MAX_LOOKS ? (uint32_t)n_items : KINDS_MAX_LOOKS,
                     .max_steps = (uint32_t)(whole * KINDS_MAX_STEPS / n_shares),
                     .max_looks = (uint32_t)(whole * KINDS_MAX_LOOKS / n_shares)};
    Error ignored;
    if (!schema_document_open(schema, arena, &reader.document, &ignored)) {
        if (ignored.code == ERR_NO_MEMORY) return error_set(error, ERR_NO_MEMORY, "no memory for a schema");
        reader.document = NULL;
    }
    if (!add_names(&reader, schema, error)) return false;
    sort_names(&reader);
    for (uint32_t i = 0; i < reader.n; i++)
        reader.members[i].kinds = judge(&reader, schema, reader.members[i].name, own_member);
    ObjectKinds kinds = {reader.members, reader.n, judge(&reader, schema, NULL, own_member)};
    if (is_spent(&reader)) kinds = (ObjectKinds){.others = KINDS_ALL};
    *ret_kinds = kinds;
    return true;
}
