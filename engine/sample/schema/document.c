/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/document.h"
#include "engine/sample/schema/keywords.h"
#include "engine/sample/schema/uri.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A schema object with the URI that its references are resolved against. */
typedef struct Place {
    const cJSON *schema;
    const char *base;
    const char *anchor; /* NULL: none */
    bool is_resource;   /* the URI is its own */
} Place;

struct SchemaDocument {
    const cJSON *root;
    Arena *arena;
    Place *places; /* [n_places] by address once it is open */
    uint32_t n_places;
};

typedef struct Walk {
    SchemaDocument *document;
    const char *base;
    unsigned depth;
    Error *error;
} Walk;

static bool no_memory(Error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory for a schema");
}

static const char *text_member(const cJSON *schema, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(schema, name);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

/* '$id' names a resource, or in old drafts, with a fragment alone, an anchor. */
static bool read_names(Walk *walk, const cJSON *schema, Place *place)
{
    const char *id = text_member(schema, "$id");
    place->anchor = text_member(schema, "$anchor");
    if (id && *id == '#') {
        if (!place->anchor) place->anchor = id + 1;
    } else if (id && *id) {
        const char *uri = arena_copy(walk->document->arena, id, strcspn(id, "#"));
        if (uri) uri = uri_resolve(walk->base, uri, walk->document->arena);
        if (!uri) return no_memory(walk->error);
        place->base = uri;
        place->is_resource = true;
    }
    return true;
}

static bool visit(const cJSON *schema, void *arg)
{
    Walk *walk = arg;
    SchemaDocument *document = walk->document;
    if (!cJSON_IsObject(schema)) return true;
    if (walk->depth >= SCHEMA_MAX_DEPTH)
        return error_set(walk->error, ERR_TOO_LARGE, "the schema is nested deeper than %d", SCHEMA_MAX_DEPTH);
    if (document->n_places >= SCHEMA_MAX_SCHEMAS)
        return error_set(walk->error, ERR_TOO_LARGE, "the schema has more than %d parts", SCHEMA_MAX_SCHEMAS);
    Place *place = &document->places[document->n_places++];
    *place = (Place){.schema = schema, .base = walk->base};
    if (!read_names(walk, schema, place)) return false;
    Walk below = {document, place->base, walk->depth + 1, walk->error};
    return keywords_walk(schema, visit, &below);
}

static int compare_places(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const Place *)a)->schema, y = (uintptr_t)((const Place *)b)->schema;
    return (x > y) - (x < y);
}

static uint32_t count_objects(const cJSON *item)
{
    uint32_t n = cJSON_IsObject(item);
    for (const cJSON *child = item->child; child; child = child->next) n += count_objects(child);
    return n;
}

bool schema_document_open(const cJSON *root, Arena *arena, SchemaDocument **ret_document, Error *error)
{
    SchemaDocument *document = arena_alloc(arena, sizeof *document);
    uint32_t n = count_objects(root);
    if (n > SCHEMA_MAX_SCHEMAS) n = SCHEMA_MAX_SCHEMAS;
    if (!document) return no_memory(error);
    *document = (SchemaDocument){.root = root, .arena = arena, .places = arena_array(arena, n, sizeof(Place))};
    if (!document->places) return no_memory(error);
    Walk walk = {document, "", 0, error};
    if (!visit(root, &walk)) return false;
    if (document->n_places) qsort(document->places, document->n_places, sizeof(Place), compare_places);
    *ret_document = document;
    return true;
}

/* ---- references ---- */

static const char *base_of(const SchemaDocument *document, const cJSON *schema)
{
    Place key = {.schema = schema};
    const Place *place = bsearch(&key, document->places, document->n_places, sizeof key, compare_places);
    if (!place) {
        key.schema = document->root;
        place = bsearch(&key, document->places, document->n_places, sizeof key, compare_places);
    }
    return place ? place->base : "";
}

/* The document's root answers to the URI that it has, be it none. */
static const cJSON *find_resource(const SchemaDocument *document, const char *uri)
{
    if (!strcmp(uri, base_of(document, document->root))) return document->root;
    for (uint32_t i = 0; i < document->n_places; i++)
        if (document->places[i].is_resource && !strcmp(document->places[i].base, uri))
            return document->places[i].schema;
    return NULL;
}

static const cJSON *find_anchor(const SchemaDocument *document, const char *uri, const char *anchor)
{
    for (uint32_t i = 0; i < document->n_places; i++) {
        const Place *place = &document->places[i];
        if (place->anchor && !strcmp(place->anchor, anchor) && !strcmp(place->base, uri)) return place->schema;
    }
    return NULL;
}

/* In place: ~1 is a slash, ~0 a tilde. */
static void untilde(char *token)
{
    char *out = token;
    for (const char *in = token; *in; in++) {
        bool escape = *in == '~' && (in[1] == '0' || in[1] == '1');
        *out++ = escape ? (in[1] == '0' ? '~' : '/') : *in;
        in += escape;
    }
    *out = 0;
}

static const cJSON *item_at(const cJSON *item, const char *token)
{
    if (cJSON_IsObject(item)) return cJSON_GetObjectItemCaseSensitive(item, token);
    if (!cJSON_IsArray(item) || !*token || strlen(token) > 6 || strspn(token, "0123456789") != strlen(token))
        return NULL;
    return cJSON_GetArrayItem(item, (int)strtol(token, NULL, 10));
}

/* pointer: begins with a slash; is taken apart. */
static const cJSON *follow(const cJSON *item, char *pointer)
{
    while (item && *pointer == '/') {
        char *token = pointer + 1;
        pointer = token + strcspn(token, "/");
        char end = *pointer;
        *pointer = 0;
        untilde(token);
        item = item_at(item, token);
        *pointer = end;
    }
    return item;
}

bool schema_document_resolve(SchemaDocument *document, const cJSON *schema, const char *reference,
                             const cJSON **ret_target, Error *error)
{
    size_t n = strcspn(reference, "#");
    const char *uri = base_of(document, schema);
    const char *fragment = reference + n + (reference[n] == '#');
    char *decoded = (char *)uri_unescape(fragment, strlen(fragment), document->arena);
    if (n) {
        const char *outer = arena_copy(document->arena, reference, n);
        uri = outer ? uri_resolve(uri, outer, document->arena) : NULL;
    }
    if (!decoded || !uri) return no_memory(error);
    const cJSON *target;
    if (*decoded && *decoded != '/')
        target = find_anchor(document, uri, decoded);
    else
        target = follow(find_resource(document, uri), decoded);
    if (!target || !(cJSON_IsObject(target) || cJSON_IsBool(target)))
        return error_set(error, ERR_SCHEMA, "'$ref' points at '%.120s', which is no schema within this one", reference);
    *ret_target = target;
    return true;
}

/* ---- paths ---- */

static void put(char *out, size_t n, size_t *at, char c)
{
    if (*at + 1 < n) out[(*at)++] = c;
    out[*at] = 0;
}

static void put_token(char *out, size_t n, size_t *at, const char *token)
{
    put(out, n, at, '/');
    for (; *token; token++) {
        bool escape = *token == '~' || *token == '/';
        put(out, n, at, escape ? '~' : *token);
        if (escape) put(out, n, at, *token == '~' ? '0' : '1');
    }
}

static bool find_path(const cJSON *from, const cJSON *item, char *out, size_t n, size_t at)
{
    if (from == item) return true;
    uint32_t index = 0;
    for (const cJSON *child = from->child; child; child = child->next, index++) {
        char number[12];
        size_t here = at;
        snprintf(number, sizeof number, "%u", index);
        put_token(out, n, &here, cJSON_IsObject(from) ? child->string : number);
        if (find_path(child, item, out, n, here)) return true;
    }
    return false;
}

void schema_path(const cJSON *root, const cJSON *item, char *out, size_t n)
{
    snprintf(out, n, "#");
    if (!find_path(root, item, out, n, 1)) snprintf(out, n, "#");
}

uint64_t schema_count_items(const cJSON *item)
{
    uint64_t n = 1;
    for (const cJSON *child = item->child; child; child = child->next) n += schema_count_items(child);
    return n;
}

const cJSON *schema_document_root(const SchemaDocument *document)
{
    return document->root;
}
