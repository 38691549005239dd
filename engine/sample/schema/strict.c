/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/document.h"
#include "engine/sample/schema/keywords.h"
#include "engine/sample/schema/schema.h"

#include <stdlib.h>
#include <string.h>

/* The limits that OpenAI states for schemas of strict mode. */
enum { MAX_LEVELS = 10, MAX_PROPERTIES = 5000, MAX_ENUM_VALUES = 1000 };

typedef struct Check {
    const cJSON *at;
    uint32_t n_properties, n_values, level, depth;
    Error *error;
} Check;

static bool has_type(const cJSON *schema, const char *name)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(schema, "type");
    if (cJSON_IsString(type)) return !strcmp(type->valuestring, name);
    for (const cJSON *item = cJSON_IsArray(type) ? type->child : NULL; item; item = item->next)
        if (cJSON_IsString(item) && !strcmp(item->valuestring, name)) return true;
    return false;
}

static bool fail(Check *check, const cJSON *schema, const char *what, const char *name)
{
    check->at = schema;
    return error_set(check->error, ERR_SCHEMA, "with 'strict' %s%s%s%s", what, *name ? " '" : "", name,
                     *name ? "'" : "");
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* names [n]: sorted. */
static bool check_listed(Check *check, const cJSON *schema, const char *const *names, size_t n)
{
    const cJSON *properties = cJSON_GetObjectItemCaseSensitive(schema, "properties");
    for (const cJSON *item = properties ? properties->child : NULL; item; item = item->next) {
        if (!n || !bsearch(&item->string, names, n, sizeof *names, compare_names))
            return fail(check, schema, "'required' must list every property: not", item->string);
        if (++check->n_properties > MAX_PROPERTIES) return fail(check, schema, "there are too many properties", "");
    }
    return true;
}

static bool check_object(Check *check, const cJSON *schema)
{
    const cJSON *required = cJSON_GetObjectItemCaseSensitive(schema, "required");
    if (!cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(schema, "additionalProperties")))
        return fail(check, schema, "'additionalProperties' must be there and false in every object", "");
    size_t n = 0, max = cJSON_IsArray(required) ? (size_t)cJSON_GetArraySize(required) : 0;
    const char **names = malloc((max + 1) * sizeof *names);
    if (!names) return error_set(check->error, ERR_NO_MEMORY, "no memory for a schema");
    for (const cJSON *item = max ? required->child : NULL; item; item = item->next)
        if (cJSON_IsString(item)) names[n++] = item->valuestring;
    if (n) qsort(names, n, sizeof *names, compare_names);
    bool ok = check_listed(check, schema, names, n);
    free(names);
    return ok;
}

static bool visit(const cJSON *schema, void *arg)
{
    Check *check = arg;
    if (!cJSON_IsObject(schema)) return true;
    bool is_object = has_type(schema, "object") || cJSON_HasObjectItem(schema, "properties");
    const cJSON *values = cJSON_GetObjectItemCaseSensitive(schema, "enum");
    check->n_values += values ? (uint32_t)cJSON_GetArraySize(values) : 0;
    if (check->n_values > MAX_ENUM_VALUES) return fail(check, schema, "there are too many values in 'enum'", "");
    if (is_object && !check_object(check, schema)) return false;
    check->level += is_object;
    check->depth++;
    if (check->level > MAX_LEVELS || check->depth > SCHEMA_MAX_DEPTH)
        return fail(check, schema, "objects are nested too deeply", "");
    if (!keywords_walk(schema, visit, check)) return false;
    check->level -= is_object;
    check->depth--;
    return true;
}

bool schema_check_strict(const cJSON *schema, Error *error)
{
    Check check = {.error = error};
    char path[160];
    if (!cJSON_IsObject(schema) || !has_type(schema, "object") || cJSON_HasObjectItem(schema, "anyOf"))
        return error_set(error, ERR_SCHEMA, "with 'strict' the schema must be of type 'object', and no 'anyOf'");
    if (visit(schema, &check)) return true;
    if (error->code != ERR_SCHEMA) return false;
    schema_path(schema, check.at, path, sizeof path);
    return error_prefix(error, "schema at '%s'", path);
}
