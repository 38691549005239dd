/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/engine/schema/schema_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AB "\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"}}"

Test(schema_objects, few_properties_come_in_any_order)
{
    schema_rig_check(
        "{\"type\":\"object\"," AB ",\"required\":[\"a\"],\"additionalProperties\":false}",
        TEXTS("{\"a\":1}", "{\"a\":1,\"b\":null}", "{\"b\":null,\"a\":1}", "{ \"a\": 1 }", "{\n  \"a\": 1\n}"),
        TEXTS("{}", "{\"b\":null}", "{\"a\":1,\"a\":2}", "{\"a\":null}", "{\"a\":1,}", "{\"a\":1,\"c\":1}",
              "{,\"a\":1}"));
}

Test(schema_objects, other_keys_have_their_schema_and_no_property_is_one)
{
    schema_rig_check(
        "{\"type\":\"object\"," AB ",\"additionalProperties\":{\"type\":\"string\"}}",
        TEXTS("{}", "{\"c\":\"\"}", "{\"c\":\"\",\"a\":1,\"aa\":\"\"}", "{\"\":\"\"}", "{\"A\":\"\",\"\\n\":\"\"}"),
        TEXTS("{\"c\":1}", "{\"a\":\"\"}", "{\"\\u0061\":\"\"}", "{\"b\":\"\"}"));
    schema_rig_check("{\"type\":\"object\"," AB "}", TEXTS("{\"z\":[1]}", "{\"z\":0,\"a\":1}"),
                     TEXTS("{\"z\":0,\"a\":\"\"}"));
}

Test(schema_objects, patterns_meet_each_other_and_properties)
{
    schema_rig_check(
        "{\"type\":\"object\",\"properties\":{\"ax\":{\"minimum\":5}},\"patternProperties\":{\"^a\":{\"type\":"
        "\"integer\"},"
        "\"x$\":{\"maximum\":9}},\"additionalProperties\":false}",
        TEXTS("{\"ax\":5}", "{\"a\":99}", "{\"bx\":9.0}", "{\"bx\":-1,\"ab\":3}", "{\"bx\":\"s\"}", "{\"ayx\":9}"),
        TEXTS("{\"ax\":4}", "{\"ax\":10}", "{\"a\":1.5}", "{\"ayx\":10}", "{\"c\":1}", "{\"ax\":\"s\"}"));
    schema_rig_check(
        "{\"type\":\"object\",\"propertyNames\":{\"maxLength\":2},\"properties\":{\"long\":{}},\"minProperties\":1}",
        TEXTS("{\"ab\":1}"), TEXTS("{}", "{\"abc\":1}", "{\"long\":1}"));
}

Test(schema_objects, members_are_counted)
{
    schema_rig_check("{\"type\":\"object\",\"maxProperties\":2}", TEXTS("{}", "{\"a\":1}", "{\"a\":1,\"b\":2}"),
                     TEXTS("{\"a\":1,\"b\":2,\"c\":3}"));
    schema_rig_check("{\"type\":\"object\",\"maxProperties\":0}", TEXTS("{}"), TEXTS("{\"a\":1}"));
    schema_rig_check("{\"type\":\"object\"," AB ",\"minProperties\":2,\"additionalProperties\":false}",
                     TEXTS("{\"a\":1,\"b\":null}"), TEXTS("{\"a\":1}", "{}"));
    schema_rig_check("{\"type\":\"object\"," AB ",\"minProperties\":2}",
                     TEXTS("{\"a\":1,\"z\":0}", "{\"b\":null,\"a\":1}"), TEXTS("{\"a\":1}", "{\"z\":1,\"z\":1}"));
    schema_rig_refuses("{\"type\":\"object\",\"minProperties\":2}", "#/minProperties");
    schema_rig_refuses("{\"type\":\"object\",\"required\":[\"a\",\"b\"],\"maxProperties\":1}", "no value is valid");
}

Test(schema_objects, what_no_value_fits_is_left_out)
{
    schema_rig_check(
        "{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":{\"type\":\"null\"}},\"additionalProperties\":false}",
        TEXTS("{}", "{\"b\":null}"), TEXTS("{\"a\":1}"));
    schema_rig_refuses("{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}", "no value is valid");
}

static Grammar *ordered(const char *schema)
{
    Grammar *grammar;
    Error error = {0};
    cr_assert(schema_rig_compile(schema, &(SchemaOptions){.keeps_order = true}, &grammar, &error), "%s", error.text);
    return grammar;
}

/* What grows with the square of its size, or nests with it, is found by time or by limits. */
Test(schema_objects, many_alternatives_stay_small)
{
    static char schema[64 << 10];
    size_t n = (size_t)sprintf(schema, "{\"anyOf\":[");
    for (int i = 0; i < 1500; i++) n += (size_t)sprintf(schema + n, "%s{\"const\":\"value %d\"}", i ? "," : "", i);
    sprintf(schema + n, "]}");
    schema_rig_check(schema, TEXTS("\"value 0\"", "\"value 1499\""), TEXTS("\"value 1500\"", "\"value \""));
    n = (size_t)sprintf(schema, "{\"oneOf\":[");
    for (int i = 0; i < 250; i++)
        n += (size_t)sprintf(schema + n,
                             "%s{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"k%d\"}},\"required\":[\"k\"],"
                             "\"additionalProperties\":false}",
                             i ? "," : "", i);
    sprintf(schema + n, "]}");
    schema_rig_check(schema, TEXTS("{\"k\":\"k0\"}", "{\"k\":\"k249\"}"), TEXTS("{\"k\":\"k250\"}", "{}"));
}

/* Each with each other, and the names of both: more of that than there are steps for is refused. */
Test(schema_objects, alternatives_are_compared_within_limits)
{
    enum { BRANCHES = 100, NAMES = 960 };
    char *schema = malloc((size_t)BRANCHES * (NAMES * 16 + 128));
    cr_assert(schema);
    size_t n = (size_t)sprintf(schema, "{\"oneOf\":[");
    for (int i = 0; i < BRANCHES; i++) {
        n += (size_t)sprintf(schema + n,
                             "%s{\"type\":\"object\",\"required\":[\"k\"],\"properties\":{\"k\":{\"const\":\"k%d\"}",
                             i ? "," : "", i);
        for (int k = 0; k < NAMES; k++) n += (size_t)sprintf(schema + n, ",\"n%d\":true", k);
        n += (size_t)sprintf(schema + n, "}}");
    }
    sprintf(schema + n, "]}");
    schema_rig_refuses(schema, "takes more than 2000000 steps");
    free(schema);
}

/* What a reference leads to counts as if it stood there. */
Test(schema_objects, alternatives_behind_references_are_compared_within_limits)
{
    enum { BRANCHES = 100, NAMES = 1000 };
    char *schema = malloc((size_t)NAMES * 32 + (size_t)BRANCHES * 48 + 256);
    cr_assert(schema);
    size_t n =
        (size_t)sprintf(schema, "{\"$defs\":{\"z\":{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"}");
    for (int i = 0; i < NAMES; i++) n += (size_t)sprintf(schema + n, ",\"n%d\":true", i);
    n += (size_t)sprintf(schema + n, "}}},\"oneOf\":[");
    for (int i = 0; i < BRANCHES; i++)
        n += (size_t)sprintf(schema + n, "%s{\"$ref\":\"#/$defs/z\",\"title\":\"%d\"}", i ? "," : "", i);
    sprintf(schema + n, "]}");
    schema_rig_refuses(schema, "takes more than 2000000 steps");
    free(schema);
}

Test(schema_objects, a_shape_without_a_value_leaves_the_others)
{
    schema_rig_check(
        "{\"anyOf\":[{\"type\":\"object\",\"additionalProperties\":false,\"minProperties\":1},{\"type\":\"null\"},"
        "{\"type\":\"object\",\"maxProperties\":0}]}",
        TEXTS("null", "{}"), TEXTS("{\"a\":1}"));
}

Test(schema_objects, order_is_kept_where_it_is_asked_for)
{
    Grammar *grammar = ordered("{\"type\":\"object\"," AB "}");
    cr_expect(schema_rig_accepts(grammar, "{\"a\":1,\"b\":null}") && schema_rig_accepts(grammar, "{\"b\":null}"));
    cr_expect(schema_rig_accepts(grammar, "{\"a\":1,\"z\":0}") && schema_rig_accepts(grammar, "{\"z\":0}"));
    cr_expect_not(schema_rig_accepts(grammar, "{\"b\":null,\"a\":1}") ||
                  schema_rig_accepts(grammar, "{\"z\":0,\"a\":1}"));
    grammar_release(grammar);
}

/* Fifty optional properties: every subset in order, a grammar of a size that grows with their number. */
Test(schema_objects, many_properties_take_the_order_of_the_schema)
{
    static char schema[4096], text[2048], turned[64];
    size_t n = (size_t)sprintf(
        schema, "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"k31\"],\"properties\":{");
    for (int i = 0; i < 50; i++) n += (size_t)sprintf(schema + n, "%s\"k%d\":{\"type\":\"integer\"}", i ? "," : "", i);
    sprintf(schema + n, "}}");
    Grammar *grammar = ordered(schema);
    cr_expect(schema_rig_accepts(grammar, "{\"k31\":0}") &&
              schema_rig_accepts(grammar, "{\"k3\":0,\"k31\":1,\"k49\":2}"));
    cr_expect_not(schema_rig_accepts(grammar, "{\"k3\":0}") || schema_rig_accepts(grammar, "{\"k31\":0,\"k3\":0}"));
    n = (size_t)sprintf(text, "{");
    for (int i = 0; i < 50; i++) n += (size_t)sprintf(text + n, "%s\"k%d\":%d", i ? ", " : "", i, i);
    sprintf(text + n, "}");
    cr_expect(schema_rig_accepts(grammar, text));
    cr_expect_lt(grammar_n_states(grammar), 5000);
    grammar_release(grammar);
    Error error = {0};
    cr_assert(schema_rig_compile(schema, NULL, &grammar, &error));
    sprintf(turned, "{\"k31\":0,\"k3\":0}");
    cr_expect_not(schema_rig_accepts(grammar, turned));
    grammar_release(grammar);
}

static char *text_of_properties(uint32_t n, const char *closing, bool as_values)
{
    char *text = malloc(64 * (size_t)n + 256);
    size_t at = as_values ? 1 : (size_t)sprintf(text, "{\"type\":\"object\",\"properties\":{");
    text[0] = '{';
    for (uint32_t i = 0; i < n; i++)
        at += (size_t)sprintf(text + at, as_values ? "%s\"key_%u\": true" : "%s\"key_%u\":{\"type\":\"boolean\"}",
                              i ? "," : "", i);
    sprintf(text + at, "}%s", closing);
    return text;
}

/* Any of thousands may be left out, and the grammar grows as their number does. */
Test(schema_objects, thousands_of_optional_properties)
{
    static const char *const closings[] = {",\"additionalProperties\":false}", "}",
                                           ",\"additionalProperties\":false,\"maxProperties\":3}"};
    for (uint32_t n = 1000; n <= 5000; n += 4000)
        for (size_t c = 0; c < (n == 1000 ? 3 : 2); c++) {
            char *schema = text_of_properties(n, closings[c], false), *all = text_of_properties(n, "", true);
            Grammar *grammar;
            Error error = {0};
            cr_assert(schema_rig_compile(schema, NULL, &grammar, &error), "%u: %s", n, error.text);
            cr_expect_lt(grammar_n_states(grammar), (c == 2 ? 60 : 24) * n);
            cr_expect_eq(schema_rig_accepts(grammar, all), c != 2);
            cr_expect(schema_rig_accepts(grammar, "{}"));
            cr_expect(schema_rig_accepts(grammar, "{\"key_7\":true,\"key_70\":true,\"key_999\": false}"));
            cr_expect_not(schema_rig_accepts(grammar, "{\"key_70\":true,\"key_7\":true}"));
            cr_expect_not(schema_rig_accepts(grammar, "{\"key_70\":true,\"key_70\":true}"));
            cr_expect_not(schema_rig_accepts(grammar, "{\"key_\":true,\"key_7\":1}"));
            cr_expect_eq(schema_rig_accepts(grammar, "{\"key_7\":true,\"key_\":3,\"key_00\":3}"), c == 1);
            grammar_release(grammar);
            free(schema);
            free(all);
        }
}

/* Keys in any spelling that JSON has for them, one the beginning of the other. */
Test(schema_objects, names_in_order_may_be_spelt_and_begin_alike)
{
    schema_rig_check("{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"a\\\"\"],\"properties\":{"
                     "\"a\":{},\"\":{},\"a\\\"\":{},\"a/b\":{},\"\xC3\xA9\":{},\"\xC3\xA8t\":{}}}",
                     TEXTS("{\"a\":1,\"\":2,\"a\\\"\":3,\"a\\/b\":4,\"\\u00e9\":5,\"\xC3\xA8t\":6}", "{\"a\\\"\":0}",
                           "{\"\":0,\"a\\\"\":0,\"a/b\":0}"),
                     TEXTS("{}", "{\"a\":1}", "{\"a\":1,\"\\u00e9\":5}", "{\"a\\\"\":0,\"a\":1}",
                           "{\"a\\\"\":0,\"\xC3\xA8\":0}", "{\"a\\\"\":3,\"\\u00e9\":5,\"a/b\":4}"));
}

Test(schema_objects, arrays_have_items_by_place_and_by_number)
{
    schema_rig_check("{\"type\":\"array\",\"items\":[{\"type\":\"integer\"},{\"type\":\"null\"}],\"additionalItems\":{"
                     "\"type\":\"string\"},"
                     "\"minItems\":1,\"maxItems\":4}",
                     TEXTS("[1]", "[1,null]", "[1,null,\"\"]", "[1,null,\"\",\"\"]"),
                     TEXTS("[]", "[null]", "[1,null,1]", "[1,null,\"\",\"\",\"\"]"));
    schema_rig_check("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"items\":false}",
                     TEXTS("[]", "[1]"), TEXTS("[1,2]", "[\"\"]"));
    schema_rig_check("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
                     TEXTS("[1,2]", "[1,2,3]"), TEXTS("[1]", "[1,2,3,4]", "[]"));
    schema_rig_check("{\"type\":\"array\",\"items\":[{},false,{}]}", TEXTS("[]", "[1]"), TEXTS("[1,2]", "[1,2,3]"));
    schema_rig_check("{\"type\":\"array\",\"maxItems\":0}", TEXTS("[]"), TEXTS("[1]"));
    schema_rig_refuses("{\"type\":\"array\",\"items\":false,\"minItems\":1}", "no value is valid");
}

Test(schema_objects, references_stand_alone_in_old_drafts)
{
    schema_rig_check(
        "{\"$defs\":{\"s\":{\"type\":\"string\"}},\"properties\":{\"a\":{\"$ref\":\"#/$defs/s\",\"maxLength\":1}}}",
        TEXTS("{\"a\":\"x\"}"), TEXTS("{\"a\":\"xx\"}", "{\"a\":1}"));
    schema_rig_check(
        "{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"definitions\":{\"s\":{\"type\":\"string\"}},"
        "\"properties\":{\"a\":{\"$ref\":\"#/definitions/s\",\"maxLength\":1}}}",
        TEXTS("{\"a\":\"x\"}", "{\"a\":\"xx\"}"), TEXTS("{\"a\":1}"));
    schema_rig_refuses("{\"$ref\":\"#\"}", "leads back");
    schema_rig_refuses("{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "leads back");
}

static bool strict(const char *schema, const char *part)
{
    Error error = {0};
    cJSON *json = cJSON_Parse(schema);
    bool ok = schema_check_strict(json, &error);
    if (!ok && part) cr_expect(strstr(error.text, part), "%s", error.text);
    cJSON_Delete(json);
    return ok;
}

Test(schema_objects, strict_mode_wants_closed_objects_with_all_required)
{
    cr_expect(strict("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}},\"required\":[\"a\"],"
                     "\"additionalProperties\":false}",
                     NULL));
    cr_expect_not(strict("{\"type\":\"array\"}", "of type 'object'"));
    cr_expect_not(
        strict("{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"a\"]}", "'additionalProperties'"));
    cr_expect_not(
        strict("{\"type\":\"object\",\"properties\":{\"a\":{}},\"additionalProperties\":false}", "'required'"));
    cr_expect_not(
        strict("{\"type\":\"object\",\"properties\":{\"l\":{\"items\":{\"type\":\"object\"}}},\"required\":[\"l\"],"
               "\"additionalProperties\":false}",
               "schema at '#/properties/l/items'"));
    cr_expect_not(strict("{\"type\":\"object\",\"anyOf\":[],\"additionalProperties\":false}", "anyOf"));
}

/* The largest numbers that are counted one by one; what asks for more gets as much. */
Test(schema_objects, large_numbers_are_counted_and_cut)
{
    static char text[40000];
    Grammar *grammar;
    Error error = {0};
    cr_assert(schema_rig_compile("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"maxItems\":2000000}", NULL,
                                 &grammar, &error),
              "%s", error.text);
    size_t n = (size_t)sprintf(text, "[1");
    for (int i = 1; i < 10000; i++) n += (size_t)sprintf(text + n, ",2");
    strcpy(text + n, "]");
    cr_expect(schema_rig_accepts(grammar, text));
    strcpy(text + n, ",3]");
    cr_expect_not(schema_rig_accepts(grammar, text));
    grammar_release(grammar);
    cr_assert(schema_rig_compile("{\"type\":\"string\",\"maxLength\":1000000}", NULL, &grammar, &error), "%s",
              error.text);
    text[0] = '"';
    memset(text + 1, 'x', 10001);
    strcpy(text + 10001, "\"");
    cr_expect(schema_rig_accepts(grammar, text));
    strcpy(text + 10001, "x\"");
    cr_expect_not(schema_rig_accepts(grammar, text));
    grammar_release(grammar);
    schema_rig_refuses("{\"type\":\"string\",\"minLength\":20000}", "more than");
}
