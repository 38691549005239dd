/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/node.h"
#include "engine/sample/schema/format.h"
#include "engine/sample/schema/pattern.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void nodes_init(Nodes *nodes, SchemaDocument *document, const SchemaOptions *options, const GrammarBuilder *builder,
                Arena *arena, Error *error)
{
    *nodes = (Nodes){.arena = arena, .document = document, .options = options, .error = error};
    sets_init(&nodes->sets, builder, arena, error);
}

/* ---- errors and limits ---- */

bool nodes_say_where(Nodes *nodes, const cJSON *where)
{
    char path[160];
    schema_path(schema_document_root(nodes->document), where, path, sizeof path);
    return error_prefix(nodes->error, "schema at '%s'", path);
}

bool nodes_fail(Nodes *nodes, const cJSON *where, const char *fmt, ...)
{
    char text[240];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)error_set(nodes->error, ERR_SCHEMA, "%s", text);
    return nodes_say_where(nodes, where);
}

bool nodes_no_memory(Nodes *nodes)
{
    return error_set(nodes->error, ERR_NO_MEMORY, "no memory for a schema, or it takes more than is allowed");
}

bool nodes_spend(Nodes *nodes, uint64_t steps)
{
    bool looks_up = nodes->steps / 256 != (nodes->steps + steps) / 256;
    nodes->steps += steps;
    if (nodes->steps <= NODE_MAX_STEPS) return !looks_up || sets_in_time(&nodes->sets);
    return error_set(nodes->error, ERR_TOO_LARGE, "the schema takes more than %d steps", NODE_MAX_STEPS);
}

/* ---- what is known already ---- */

static uint32_t bucket_of(const void *item)
{
    uint64_t hash = (uint64_t)(uintptr_t)item * 0x9E3779B97F4A7C15u;
    return (uint32_t)(hash >> 40) % NODE_BUCKETS;
}

bool nodes_keywords(Nodes *nodes, const cJSON *schema, const Keywords **ret_keywords)
{
    KnownKeywords **bucket = &nodes->keywords[bucket_of(schema)], *known = *bucket;
    while (known && known->schema != schema) known = known->next;
    if (!known) {
        known = arena_alloc(nodes->arena, sizeof *known);
        if (!known) return nodes_no_memory(nodes);
        if (!keywords_read(schema, &known->keywords, nodes->error)) return nodes_say_where(nodes, schema);
        known->schema = schema;
        known->next = *bucket;
        *bucket = known;
    }
    *ret_keywords = &known->keywords;
    return true;
}

static bool known_dfa(Nodes *nodes, KnownPattern **list, const cJSON *where, const char *text,
                      bool (*compile)(const char *text, Arena *arena, const Dfa **ret_dfa, Error *error),
                      const Dfa **ret_dfa)
{
    KnownPattern *known = *list;
    while (known && strcmp(known->text, text)) known = known->next;
    if (!known) {
        known = arena_alloc(nodes->arena, sizeof *known);
        if (!known) return nodes_no_memory(nodes);
        if (!sets_in_time(&nodes->sets)) return false;
        if (!compile(text, nodes->arena, &known->dfa, nodes->error)) return nodes_say_where(nodes, where);
        known->text = text;
        known->next = *list;
        *list = known;
    }
    *ret_dfa = known->dfa;
    return true;
}

bool nodes_pattern(Nodes *nodes, const cJSON *where, const char *text, const Dfa **ret_dfa)
{
    return known_dfa(nodes, &nodes->patterns, where, text, pattern_compile, ret_dfa);
}

bool nodes_bare_keys(Nodes *nodes, const Dfa **ret_dfa)
{
    SchemaForm form = nodes->options->writer ? nodes->options->writer->form : SCHEMA_JSON;
    return nodes_pattern(nodes, NULL, form == SCHEMA_TAGGED ? TOOL_KEY_TAGGED : TOOL_KEY_BARE, ret_dfa);
}

bool nodes_format(Nodes *nodes, const cJSON *where, const char *name, const Dfa **ret_dfa)
{
    return known_dfa(nodes, &nodes->formats, where, name, format_compile, ret_dfa);
}

/* ---- nodes by their parts ---- */

static int compare_parts(const void *a, const void *b)
{
    const Part *x = a, *y = b;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    uintptr_t p = (uintptr_t)x->item, q = (uintptr_t)y->item;
    return (p > q) - (p < q);
}

/* Sorted, each once, and none that says nothing. */
static uint32_t tidy_parts(Part *parts, uint32_t n)
{
    uint32_t kept = 0;
    if (n) qsort(parts, n, sizeof *parts, compare_parts);
    for (uint32_t i = 0; i < n; i++) {
        const cJSON *schema = parts[i].item;
        if (parts[i].kind == PART_SCHEMA && (cJSON_IsTrue(schema) || (cJSON_IsObject(schema) && !schema->child)))
            continue;
        if (!kept || compare_parts(&parts[kept - 1], &parts[i])) parts[kept++] = parts[i];
    }
    return kept;
}

static bool has_parts(const SchemaNode *node, const Part *parts, uint32_t n)
{
    if (node->n_parts != n) return false;
    for (uint32_t i = 0; i < n; i++)
        if (compare_parts(&node->parts[i], &parts[i])) return false;
    return true;
}

static bool add_node(Nodes *nodes, SchemaNode *node)
{
    if (nodes->n_nodes >= NODE_MAX_NODES)
        return error_set(nodes->error, ERR_TOO_LARGE, "the schema has more than %d different places", NODE_MAX_NODES);
    if (nodes->n_nodes == nodes->max_nodes) {
        uint32_t max = nodes->max_nodes ? nodes->max_nodes * 2 : 64;
        SchemaNode **list = arena_array(nodes->arena, max, sizeof *list);
        if (!list) return nodes_no_memory(nodes);
        if (nodes->n_nodes) memcpy(list, nodes->list, nodes->n_nodes * sizeof *list);
        nodes->list = list;
        nodes->max_nodes = max;
    }
    nodes->list[nodes->n_nodes++] = node;
    return true;
}

bool nodes_get(Nodes *nodes, const Part *parts, uint32_t n, SchemaNode **ret_node)
{
    Part *own = arena_array(nodes->arena, n, sizeof *own);
    if (!own) return nodes_no_memory(nodes);
    if (n) memcpy(own, parts, n * sizeof *own);
    const Part *given = parts;
    uint32_t n_given = n;
    n = tidy_parts(own, n);
    uint32_t bucket = n ? (bucket_of(own[0].item) + 7 * bucket_of(own[n - 1].item) + n) % NODE_BUCKETS : 0;
    SchemaNode *node = nodes->buckets[bucket];
    while (node && !has_parts(node, own, n)) node = node->next;
    if (!node) {
        node = arena_alloc(nodes->arena, sizeof *node);
        Part *kept = arena_array(nodes->arena, n_given, sizeof *kept);
        if (!node || !kept) return nodes_no_memory(nodes);
        if (n_given) memcpy(kept, given, n_given * sizeof *kept);
        *node = (SchemaNode){.parts = own, .n_parts = n, .given = kept, .n_given = n_given};
        node->next = nodes->buckets[bucket];
        node->arrays_end = &node->arrays;
        node->objects_end = &node->objects;
        if (!add_node(nodes, node)) return false;
        nodes->buckets[bucket] = node;
    }
    *ret_node = node;
    return nodes_spend(nodes, 1 + n);
}

/* ---- sets of a node ---- */

bool nodes_scalars(Nodes *nodes, SchemaNode *node, Scalars *ret_scalars)
{
    Scalars all = {.kinds = node->kinds & (KIND_NULL | KIND_FALSE | KIND_TRUE)};
    if (node->kinds & KIND_NUMBER) {
        all.kinds |= KIND_NUMBER;
        all.numbers = node->has_all_numbers ? NULL : node->numbers;
    }
    for (const StringsList *item = node->strings; item; item = item->next) {
        Scalars more = {.kinds = KIND_STRING};
        bool is_all = !item->strings.words && !item->strings.min && item->strings.max == UINT32_MAX;
        if (!is_all && !sets_words(&nodes->sets, item->strings, &more.strings)) return false;
        if (!scalars_join(&nodes->sets, all, more, &all)) return false;
    }
    *ret_scalars = all;
    return true;
}
