/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/document.h"
#include "engine/sample/schema/uri.h"
#include "tests/engine/schema/arena_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(document, .init = init, .fini = done);

/* The examples of RFC 3986, section 5.4. */
Test(document, references_resolve_as_uris_do)
{
    static const char base[] = "http://a/b/c/d;p?q";
    static const struct {
        const char *reference, *uri;
    } rows[] = {{"g:h", "g:h"},
                {"g", "http://a/b/c/g"},
                {"./g", "http://a/b/c/g"},
                {"g/", "http://a/b/c/g/"},
                {"/g", "http://a/g"},
                {"//g", "http://g"},
                {"?y", "http://a/b/c/d;p?y"},
                {"g?y", "http://a/b/c/g?y"},
                {"", "http://a/b/c/d;p?q"},
                {".", "http://a/b/c/"},
                {"..", "http://a/b/"},
                {"../g", "http://a/b/g"},
                {"../..", "http://a/"},
                {"../../../g", "http://a/g"},
                {"/./g", "http://a/g"},
                {"g.", "http://a/b/c/g."},
                {"./g/.", "http://a/b/c/g/"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_str_eq(uri_resolve(base, rows[i].reference, &arena), rows[i].uri, "%s", rows[i].reference);
    cr_expect_str_eq(uri_resolve("http://a", "b", &arena), "http://a/b");
    cr_expect_str_eq(uri_resolve("", "b/c.json", &arena), "b/c.json");
    cr_expect_str_eq(uri_unescape("a%25b%2Fc%zz%", 13, &arena), "a%b/c%zz%");
}

static const char text[] =
    "{\"$id\":\"http://x.org/root.json\",\"definitions\":{\"a\":{\"title\":\"A\"},\"b/c~d%\":{\"title\":\"B\"},"
    "\"r\":{\"$id\":\"sub/other.json\",\"title\":\"R\",\"$defs\":{\"i\":{\"title\":\"I\",\"$anchor\":\"inner\"}},"
    "\"properties\":{\"p\":{\"$ref\":\"#/$defs/i\",\"title\":\"P\"}}},\"h\":{\"$id\":\"#here\",\"title\":\"H\"}},"
    "\"allOf\":[{\"title\":\"L\"}],\"const\":{\"$id\":\"http://x.org/fake.json\"},\"title\":\"T\"}";

static const cJSON *at(const cJSON *json, const char *a, const char *b, const char *c)
{
    const char *const names[] = {a, b, c};
    for (size_t i = 0; i < 3 && names[i]; i++) json = cJSON_GetObjectItemCaseSensitive(json, names[i]);
    return json;
}

Test(document, references_find_pointers_resources_and_anchors)
{
    static const struct {
        bool from_inside; /* of the resource r */
        const char *reference, *title;
    } rows[] = {{false, "#", "T"},
                {false, "#/definitions/a", "A"},
                {false, "#/definitions/b~1c~0d%25", "B"},
                {false, "#/allOf/0", "L"},
                {false, "root.json#/definitions/a", "A"},
                {false, "sub/other.json", "R"},
                {false, "http://x.org/sub/other.json#/$defs/i", "I"},
                {false, "#here", "H"},
                {true, "#", "R"},
                {true, "#/$defs/i", "I"},
                {true, "#inner", "I"},
                {true, "../root.json", "T"},
                {false, "#/allOf/1", NULL},
                {false, "#/nothing", NULL},
                {false, "#inner", NULL},
                {false, "http://x.org/fake.json", NULL},
                {false, "#/title", NULL},
                {false, "http://elsewhere.org/", NULL}};
    cJSON *json = cJSON_Parse(text);
    SchemaDocument *document;
    cr_assert(schema_document_open(json, &arena, &document, &error), "%s", error.text);
    const cJSON *inside = at(at(json, "definitions", "r", "properties"), "p", NULL, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const cJSON *target = NULL;
        bool ok =
            schema_document_resolve(document, rows[i].from_inside ? inside : json, rows[i].reference, &target, &error);
        cr_expect_eq(ok, rows[i].title != NULL, "%s", rows[i].reference);
        if (ok && rows[i].title) cr_expect_str_eq(at(target, "title", NULL, NULL)->valuestring, rows[i].title);
        if (!ok) cr_expect(error.code == ERR_SCHEMA && strstr(error.text, rows[i].reference));
    }
    cJSON_Delete(json);
}

Test(document, paths_are_pointers)
{
    cJSON *json = cJSON_Parse(text);
    char path[64];
    schema_path(json, at(json, "definitions", "b/c~d%", NULL), path, sizeof path);
    cr_expect_str_eq(path, "#/definitions/b~1c~0d%");
    schema_path(json, at(json, "allOf", NULL, NULL)->child, path, sizeof path);
    cr_expect_str_eq(path, "#/allOf/0");
    schema_path(json, json, path, 3);
    cr_expect_str_eq(path, "#");
    schema_path(json, at(json, "definitions", "a", NULL), path, 6);
    cr_expect_str_eq(path, "#/def");
    cJSON_Delete(json);
}

Test(document, depth_is_bounded)
{
    static char deep[200 * 8 + 200 + 8];
    size_t n = 0;
    for (int i = 0; i < 200; i++) n += (size_t)sprintf(deep + n, "{\"not\":");
    n += (size_t)sprintf(deep + n, "{}");
    for (int i = 0; i < 200; i++) deep[n++] = '}';
    cJSON *json = cJSON_Parse(deep);
    SchemaDocument *document;
    cr_expect_not(schema_document_open(json, &arena, &document, &error));
    cr_expect_eq(error.code, ERR_TOO_LARGE);
    cJSON_Delete(json);
}
