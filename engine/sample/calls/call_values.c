/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/calls/calls_impl.h"
#include "engine/sample/grammar/regex.h"
#include "engine/sample/schema/schema.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 32, MAX_ALTERNATIVES = 4096 };

static const cJSON *member_of(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static bool no_memory(const CallWriter *writer)
{
    return error_set(writer->error, ERR_NO_MEMORY, "no memory for the schemas of tools");
}

/* ---- JSON ---- */

/* What a part refers to is defined in the whole. */
static bool copy_definitions(const cJSON *root, cJSON *copy)
{
    static const char *const keys[] = {"$defs", "definitions"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const cJSON *definitions = member_of(root, keys[i]);
        if (!definitions || member_of(copy, keys[i])) continue;
        cJSON *own = cJSON_Duplicate(definitions, 1);
        if (!own) return false;
        if (cJSON_AddItemToObject(copy, keys[i], own)) continue;
        cJSON_Delete(own);
        return false;
    }
    return true;
}

bool call_value_json(const CallWriter *writer, const cJSON *schema, const cJSON *root, GrammarNode *ret_node)
{
    const SchemaOptions options = {.keeps_order = true};
    if (schema == root || !cJSON_IsObject(schema))
        return schema_compile(schema, &options, writer->builder, ret_node, NULL, writer->error);
    cJSON *copy = cJSON_Duplicate(schema, 1);
    bool ok = copy && copy_definitions(root, copy) ? true : no_memory(writer);
    ok = ok && schema_compile(copy, &options, writer->builder, ret_node, NULL, writer->error);
    cJSON_Delete(copy);
    return ok;
}

/* ---- texts without JSON's quotes ---- */

static bool all_texts(const cJSON *list)
{
    for (const cJSON *item = list->child; item; item = item->next)
        if (!cJSON_IsString(item)) return false;
    return list->child;
}

static bool is_text(const cJSON *schema)
{
    const cJSON *type = member_of(schema, "type"), *list = member_of(schema, "enum");
    if (type) return cJSON_IsString(type) && !strcmp(type->valuestring, "string");
    return cJSON_IsString(member_of(schema, "const")) || (cJSON_IsArray(list) && all_texts(list));
}

static bool unsupported(const CallWriter *writer, const char *keyword)
{
    return error_set(writer->error, ERR_SCHEMA,
                     "'%.64s' is not supported here in the form that this model writes calls in", keyword);
}

static bool write_list(const CallWriter *writer, const cJSON *list, GrammarNode *ret_node)
{
    size_t n = (size_t)cJSON_GetArraySize(list), i = 0;
    if (n > MAX_ALTERNATIVES) return error_set(writer->error, ERR_TOO_LARGE, "an enum of %zu values", n);
    GrammarNode *nodes = calloc(n + 1, sizeof *nodes);
    if (!nodes) return no_memory(writer);
    for (const cJSON *item = list->child; item; item = item->next)
        if (cJSON_IsString(item)) nodes[i++] = grammar_text(writer->builder, item->valuestring);
    *ret_node = grammar_choice(writer->builder, nodes, i);
    free(nodes);
    return true;
}

static uint32_t count_of(const cJSON *schema, const char *key, uint32_t fallback)
{
    const cJSON *item = member_of(schema, key);
    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 1e9 ? (uint32_t)item->valuedouble
                                                                                     : fallback;
}

/* A text that a keyword bounds; *ret_bounded false: any text will do. */
static bool write_text(const CallWriter *writer, const cJSON *schema, GrammarNode *ret_node, bool *ret_bounded)
{
    static const char *const annotations[] = {"type",     "title",      "description", "default",   "examples",
                                              "enum",     "const",      "pattern",     "minLength", "maxLength",
                                              "$comment", "deprecated", "readOnly",    "writeOnly", "nullable"};
    const cJSON *list = member_of(schema, "enum"), *one = member_of(schema, "const");
    const cJSON *pattern = member_of(schema, "pattern");
    bool has_length = member_of(schema, "minLength") || member_of(schema, "maxLength");
    for (const cJSON *item = schema->child; item; item = item->next) {
        size_t i = 0, n = sizeof annotations / sizeof *annotations;
        while (i < n && strcmp(annotations[i], item->string)) i++;
        if (i == n) return unsupported(writer, item->string);
    }
    *ret_bounded = list || one || pattern || has_length;
    if (cJSON_IsString(one)) {
        *ret_node = grammar_text(writer->builder, one->valuestring);
    } else if (cJSON_IsArray(list)) {
        return write_list(writer, list, ret_node);
    } else if (cJSON_IsString(pattern)) {
        const RegexDialect dialect = {.searches = true};
        const char *text = pattern->valuestring;
        if (has_length) return unsupported(writer, "pattern");
        return regex_parse(writer->builder, text, strlen(text), &dialect, ret_node, writer->error);
    } else if (has_length) {
        *ret_node = grammar_repeat(writer->builder, grammar_class(writer->builder, NULL, 0, true),
                                   count_of(schema, "minLength", 0), count_of(schema, "maxLength", GRAMMAR_UNBOUNDED));
    }
    return true;
}

bool call_value_xml(const CallWriter *writer, const cJSON *schema, const cJSON *root, GrammarNode *ret_node)
{
    static const char *const end[] = {"</parameter>"};
    GrammarNode value;
    bool is_bounded = true;
    if (!is_text(schema) && !call_value_json(writer, schema, root, &value)) return false;
    if (is_text(schema) && !write_text(writer, schema, &value, &is_bounded)) return false;
    *ret_node = is_bounded ? grammar_seq(writer->builder, value, grammar_text(writer->builder, "\n</parameter>"))
                           : grammar_until(writer->builder, end, 1, 0);
    return true;
}

/* ---- members ---- */

static bool is_required(const cJSON *object, const char *key)
{
    const cJSON *required = member_of(object, "required");
    for (const cJSON *item = cJSON_IsArray(required) ? required->child : NULL; item; item = item->next)
        if (cJSON_IsString(item) && !strcmp(item->valuestring, key)) return true;
    return false;
}

/* Only what says which members there are; all others would have to be followed. */
static bool check_object(const CallWriter *writer, const cJSON *object, size_t *ret_n)
{
    static const char *const known[] = {"type",     "properties",  "required", "additionalProperties",
                                        "title",    "description", "$schema",  "$id",
                                        "$defs",    "definitions", "default",  "examples",
                                        "$comment", "strict"};
    const cJSON *properties = member_of(object, "properties"), *required = member_of(object, "required");
    for (const cJSON *item = object->child; item; item = item->next) {
        size_t i = 0, n = sizeof known / sizeof *known;
        while (i < n && strcmp(known[i], item->string)) i++;
        if (i == n) return unsupported(writer, item->string);
    }
    if (properties && !cJSON_IsObject(properties)) return unsupported(writer, "properties");
    for (const cJSON *item = cJSON_IsArray(required) ? required->child : NULL; item; item = item->next)
        if (!cJSON_IsString(item) || !member_of(properties, item->valuestring)) return unsupported(writer, "required");
    *ret_n = properties ? (size_t)cJSON_GetArraySize(properties) : 0;
    return true;
}

/* State 2 i + k: the next member is i, and k tells whether there was one already. */
bool call_members(const CallWriter *writer, const cJSON *object, const cJSON *root, CallMember *member,
                  const char *between, GrammarNode *ret_node)
{
    GrammarBuilder *builder = writer->builder;
    size_t n = 0, n_edges = 0;
    uint32_t i = 0;
    if (!check_object(writer, object, &n)) return false;
    GrammarEdge *edges = calloc(4 * n + 2, sizeof *edges);
    if (!edges) return no_memory(writer);
    const cJSON *properties = member_of(object, "properties");
    bool ok = true;
    for (const cJSON *one = n ? properties->child : NULL; ok && one; one = one->next, i++) {
        GrammarNode node;
        ok = member(writer, one->string, one, root, &node);
        if (!ok) break;
        edges[n_edges++] = (GrammarEdge){2 * i, 2 * i + 3, node};
        edges[n_edges++] =
            (GrammarEdge){2 * i + 1, 2 * i + 3, grammar_seq(builder, grammar_text(builder, between), node)};
        if (is_required(object, one->string)) continue;
        edges[n_edges++] = (GrammarEdge){2 * i, 2 * i + 2, grammar_empty(builder)};
        edges[n_edges++] = (GrammarEdge){2 * i + 1, 2 * i + 3, grammar_empty(builder)};
    }
    edges[n_edges++] = (GrammarEdge){2 * i, GRAMMAR_MACHINE_END, grammar_empty(builder)};
    edges[n_edges++] = (GrammarEdge){2 * i + 1, GRAMMAR_MACHINE_END, grammar_empty(builder)};
    if (ok) *ret_node = grammar_machine(builder, edges, n_edges, 2 * i + 2);
    free(edges);
    return ok;
}

/* ---- Gemma ---- */

static bool write_gemma(const CallWriter *writer, const cJSON *schema, const cJSON *root, uint32_t depth,
                        GrammarNode *ret_node);

static bool gemma_text(const CallWriter *writer, const cJSON *schema, GrammarNode *ret_node)
{
    GrammarBuilder *builder = writer->builder;
    const AnswerMarker *quote = &writer->style->marks[MARK_QUOTE];
    const char *const ends[] = {quote->text};
    GrammarNode text, mark = call_mark(writer, MARK_QUOTE);
    bool is_bounded;
    if (!write_text(writer, schema, &text, &is_bounded)) return false;
    if (is_bounded)
        *ret_node = grammar_seq(builder, mark, text, mark);
    else if (quote->is_control)
        *ret_node = grammar_seq(builder, mark, grammar_without(builder, NULL, 0), mark);
    else
        *ret_node = grammar_seq(builder, mark, grammar_until(builder, ends, 1, 0));
    return true;
}

typedef struct GemmaDepth {
    CallWriter writer;
    uint32_t depth;
} GemmaDepth;

static bool gemma_member(const CallWriter *writer, const char *key, const cJSON *schema, const cJSON *root,
                         GrammarNode *ret_node)
{
    const GemmaDepth *at = (const GemmaDepth *)(const void *)writer;
    GrammarBuilder *builder = writer->builder;
    GrammarNode value;
    if (!write_gemma(writer, schema, root, at->depth + 1, &value)) return false;
    *ret_node = grammar_seq(builder, grammar_text(builder, key), grammar_text(builder, ":"), value);
    return true;
}

static bool gemma_object(const CallWriter *writer, const cJSON *schema, const cJSON *root, uint32_t depth,
                         GrammarNode *ret_node)
{
    GrammarBuilder *builder = writer->builder;
    const GemmaDepth at = {*writer, depth};
    GrammarNode members;
    if (!call_members(&at.writer, schema, root, gemma_member, ",", &members)) return false;
    *ret_node = grammar_seq(builder, grammar_text(builder, "{"), members, grammar_text(builder, "}"));
    return true;
}

static bool gemma_array(const CallWriter *writer, const cJSON *schema, const cJSON *root, uint32_t depth,
                        GrammarNode *ret_node)
{
    GrammarBuilder *builder = writer->builder;
    const cJSON *items = member_of(schema, "items");
    uint32_t min = count_of(schema, "minItems", 0), max = count_of(schema, "maxItems", GRAMMAR_UNBOUNDED);
    GrammarNode item, list = grammar_empty(builder);
    if (!cJSON_IsObject(items)) return unsupported(writer, "items");
    if (!write_gemma(writer, items, root, depth + 1, &item)) return false;
    if (max) {
        GrammarNode more = grammar_repeat(builder, grammar_seq(builder, grammar_text(builder, ","), item),
                                          min ? min - 1 : 0, max == GRAMMAR_UNBOUNDED ? max : max - 1);
        list = grammar_seq(builder, item, more);
        if (!min) list = grammar_optional(builder, list);
    }
    *ret_node = grammar_seq(builder, grammar_text(builder, "["), list, grammar_text(builder, "]"));
    return true;
}

static bool write_gemma(const CallWriter *writer, const cJSON *schema, const cJSON *root, uint32_t depth,
                        GrammarNode *ret_node)
{
    const cJSON *type = member_of(schema, "type");
    const char *name = cJSON_IsString(type) ? type->valuestring : "";
    if (depth > MAX_DEPTH) return error_set(writer->error, ERR_TOO_LARGE, "a schema of more than %d levels", MAX_DEPTH);
    if (is_text(schema)) return gemma_text(writer, schema, ret_node);
    if (!strcmp(name, "object")) return gemma_object(writer, schema, root, depth, ret_node);
    if (!strcmp(name, "array")) return gemma_array(writer, schema, root, depth, ret_node);
    if (!*name) return unsupported(writer, "type");
    return call_value_json(writer, schema, root, ret_node); /* numbers and words are JSON's */
}

bool call_value_gemma(const CallWriter *writer, const cJSON *schema, const cJSON *root, GrammarNode *ret_node)
{
    return write_gemma(writer, schema, root, 0, ret_node);
}
