/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/keywords.h"

#include <math.h>
#include <string.h>

typedef enum Form {
    FORM_SCHEMA,
    FORM_SCHEMAS,    /* a list, not empty */
    FORM_SCHEMA_MAP, /* by name */
    FORM_ITEMS,      /* a schema or a list of them */
    FORM_COUNT,      /* a whole number >= 0 */
    FORM_NUMBER,
    FORM_LIMIT,    /* a number; in draft 4 a boolean */
    FORM_POSITIVE, /* a number > 0 */
    FORM_TEXT,
    FORM_TYPE,  /* a name or a list of names */
    FORM_NAMES, /* a list of strings */
    FORM_VALUES,
    FORM_VALUE,
    FORM_DEFINITIONS, /* ignored where it stands; has schemas below */
    FORM_FALSE,       /* refused unless it is false */
    FORM_REFUSED,
} Form;

static const struct {
    const char *name;
    Form form;
    int key; /* Keyword; -1: none */
} rows[] = {
    {"$ref", FORM_TEXT, KEY_REF},
    {"allOf", FORM_SCHEMAS, KEY_ALL_OF},
    {"anyOf", FORM_SCHEMAS, KEY_ANY_OF},
    {"oneOf", FORM_SCHEMAS, KEY_ONE_OF},
    {"not", FORM_SCHEMA, KEY_NOT},
    {"if", FORM_SCHEMA, KEY_IF},
    {"then", FORM_SCHEMA, KEY_THEN},
    {"else", FORM_SCHEMA, KEY_ELSE},
    {"type", FORM_TYPE, KEY_TYPE},
    {"enum", FORM_VALUES, KEY_ENUM},
    {"const", FORM_VALUE, KEY_CONST},
    {"minimum", FORM_NUMBER, KEY_MINIMUM},
    {"maximum", FORM_NUMBER, KEY_MAXIMUM},
    {"exclusiveMinimum", FORM_LIMIT, KEY_EXCLUSIVE_MINIMUM},
    {"exclusiveMaximum", FORM_LIMIT, KEY_EXCLUSIVE_MAXIMUM},
    {"multipleOf", FORM_POSITIVE, KEY_MULTIPLE_OF},
    {"minLength", FORM_COUNT, KEY_MIN_LENGTH},
    {"maxLength", FORM_COUNT, KEY_MAX_LENGTH},
    {"pattern", FORM_TEXT, KEY_PATTERN},
    {"format", FORM_TEXT, KEY_FORMAT},
    {"items", FORM_ITEMS, KEY_ITEMS},
    {"prefixItems", FORM_SCHEMAS, KEY_PREFIX_ITEMS},
    {"additionalItems", FORM_SCHEMA, KEY_ADDITIONAL_ITEMS},
    {"minItems", FORM_COUNT, KEY_MIN_ITEMS},
    {"maxItems", FORM_COUNT, KEY_MAX_ITEMS},
    {"properties", FORM_SCHEMA_MAP, KEY_PROPERTIES},
    {"patternProperties", FORM_SCHEMA_MAP, KEY_PATTERN_PROPERTIES},
    {"additionalProperties", FORM_SCHEMA, KEY_ADDITIONAL_PROPERTIES},
    {"propertyNames", FORM_SCHEMA, KEY_PROPERTY_NAMES},
    {"required", FORM_NAMES, KEY_REQUIRED},
    {"minProperties", FORM_COUNT, KEY_MIN_PROPERTIES},
    {"maxProperties", FORM_COUNT, KEY_MAX_PROPERTIES},
    {"definitions", FORM_DEFINITIONS, -1},
    {"$defs", FORM_DEFINITIONS, -1},
    {"uniqueItems", FORM_FALSE, -1},
    {"contains", FORM_REFUSED, -1},
    {"minContains", FORM_REFUSED, -1},
    {"maxContains", FORM_REFUSED, -1},
    {"dependencies", FORM_REFUSED, -1},
    {"dependentRequired", FORM_REFUSED, -1},
    {"dependentSchemas", FORM_REFUSED, -1},
    {"unevaluatedItems", FORM_REFUSED, -1},
    {"unevaluatedProperties", FORM_REFUSED, -1},
    {"$dynamicRef", FORM_REFUSED, -1},
    {"$recursiveRef", FORM_REFUSED, -1},
    {"divisibleBy", FORM_REFUSED, -1},
    {"disallow", FORM_REFUSED, -1},
    {"extends", FORM_REFUSED, -1},
};

enum { N_ROWS = sizeof rows / sizeof *rows };

static bool is_schema(const cJSON *item)
{
    return cJSON_IsObject(item) || cJSON_IsBool(item);
}

static bool are_all(const cJSON *list, bool (*test)(const cJSON *))
{
    for (const cJSON *item = list->child; item; item = item->next)
        if (!test(item)) return false;
    return true;
}

static bool is_text(const cJSON *item)
{
    return cJSON_IsString(item);
}

static bool is_number(const cJSON *item)
{
    return cJSON_IsNumber(item) && isfinite(item->valuedouble);
}

/* What the form wants, for a message; NULL: it has it. */
static const char *misses(const cJSON *item, Form form)
{
    bool is_list = cJSON_IsArray(item);
    switch (form) {
    case FORM_SCHEMA:
        return is_schema(item) ? NULL : "a schema";
    case FORM_SCHEMAS:
        return is_list && item->child && are_all(item, is_schema) ? NULL : "a list of schemas";
    case FORM_DEFINITIONS:
    case FORM_SCHEMA_MAP:
        return cJSON_IsObject(item) && are_all(item, is_schema) ? NULL : "an object of schemas";
    case FORM_ITEMS:
        return is_schema(item) || (is_list && are_all(item, is_schema)) ? NULL : "a schema or a list of schemas";
    case FORM_COUNT:
        return is_number(item) && item->valuedouble >= 0 && item->valuedouble == floor(item->valuedouble)
                   ? NULL
                   : "a whole number that is not negative";
    case FORM_NUMBER:
        return is_number(item) ? NULL : "a number";
    case FORM_LIMIT:
        return is_number(item) || cJSON_IsBool(item) ? NULL : "a number";
    case FORM_POSITIVE:
        return is_number(item) && item->valuedouble > 0 ? NULL : "a number above 0";
    case FORM_TEXT:
        return is_text(item) ? NULL : "a string";
    case FORM_TYPE:
        return is_text(item) || (is_list && item->child && are_all(item, is_text)) ? NULL : "a type or a list of types";
    case FORM_NAMES:
        return is_list && are_all(item, is_text) ? NULL : "a list of strings";
    case FORM_VALUES:
        return is_list && item->child ? NULL : "a list that is not empty";
    default:
        return NULL;
    }
}

static bool read_keyword(const cJSON *item, size_t row, Keywords *keywords, Error *error)
{
    Form form = rows[row].form;
    const char *wanted = misses(item, form);
    if (wanted) return error_set(error, ERR_SCHEMA, "'%s' must be %s", item->string, wanted);
    if (form == FORM_REFUSED || (form == FORM_FALSE && !cJSON_IsFalse(item)))
        return error_set(error, ERR_SCHEMA, "'%s' is not supported", item->string);
    if (rows[row].key >= 0) keywords->key[rows[row].key] = item;
    return true;
}

static size_t find_row(const char *name)
{
    size_t row = 0;
    while (row < N_ROWS && strcmp(rows[row].name, name)) row++;
    return row;
}

bool keywords_read(const cJSON *schema, Keywords *ret_keywords, Error *error)
{
    Keywords keywords = {.schema = schema};
    for (const cJSON *item = schema->child; item; item = item->next) {
        size_t row = find_row(item->string);
        if (row < N_ROWS && !read_keyword(item, row, &keywords, error)) return false;
    }
    *ret_keywords = keywords;
    return true;
}

uint32_t keywords_count(const Keywords *keywords, Keyword key, uint32_t absent)
{
    const cJSON *item = keywords->key[key];
    if (!item) return absent;
    return item->valuedouble < UINT32_MAX ? (uint32_t)item->valuedouble : UINT32_MAX;
}

/* ---- walking ---- */

static bool visit_all(const cJSON *list, KeywordsVisit *visit, void *arg)
{
    for (const cJSON *item = list->child; item; item = item->next)
        if (is_schema(item) && !visit(item, arg)) return false;
    return true;
}

bool keywords_walk(const cJSON *schema, KeywordsVisit *visit, void *arg)
{
    for (const cJSON *item = schema->child; item; item = item->next) {
        size_t row = find_row(item->string);
        if (row == N_ROWS) continue;
        Form form = rows[row].form;
        bool one = form == FORM_SCHEMA || form == FORM_ITEMS;
        bool map = (form == FORM_SCHEMA_MAP || form == FORM_DEFINITIONS) && cJSON_IsObject(item);
        bool list = (form == FORM_SCHEMAS || form == FORM_ITEMS) && cJSON_IsArray(item);
        if (one && is_schema(item) && !visit(item, arg)) return false;
        if ((map || list) && !visit_all(item, visit, arg)) return false;
    }
    return true;
}
