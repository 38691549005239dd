/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/engine/schema/schema_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(schema, a_type_is_what_json_calls_so)
{
    schema_rig_check("{\"type\":\"integer\"}", TEXTS("0", "-7", "120"), TEXTS("1.5", "01", "\"1\"", "1e2", "", "null"));
    schema_rig_check("{\"type\":\"number\"}", TEXTS("0", "-7.25", "1e2", "1E-5"), TEXTS(".5", "1.", "+1", "NaN"));
    schema_rig_check("{\"type\":\"string\"}", TEXTS("\"\"", "\"a\"", "\"\\n\""), TEXTS("a", "\"", "\"\n\"", "\"\\x\""));
    schema_rig_check("{\"type\":\"boolean\"}", TEXTS("true", "false"), TEXTS("null", "True", "0"));
    schema_rig_check("{\"type\":\"null\"}", TEXTS("null"), TEXTS("false", "\"\""));
    schema_rig_check("{\"type\":\"array\"}", TEXTS("[]", "[1, \"a\"]", "[[],{}]"), TEXTS("[1,]", "[", "{}"));
    schema_rig_check("{\"type\":\"object\"}", TEXTS("{}", "{\"a\":{\"b\":[]}}"), TEXTS("{a:1}", "{\"a\":1,}", "[]"));
    schema_rig_check("{\"type\":[\"integer\",\"null\"]}", TEXTS("3", "null"), TEXTS("3.5", "\"\""));
    schema_rig_refuses("{\"type\":\"text\"}", "'text' is no type");
}

Test(schema, true_takes_all_and_false_nothing)
{
    schema_rig_check("true", TEXTS("1", "{\"a\":[null]}", "\"x\""), TEXTS("", "x"));
    schema_rig_check("{}", TEXTS("[1]", "false"), TEXTS("]"));
    schema_rig_refuses("false", "no value is valid");
    schema_rig_refuses("{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "no value is valid");
}

Test(schema, what_recurs_for_ever_has_no_value)
{
    schema_rig_refuses("{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
                       "no value is valid");
    schema_rig_check("{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"additionalProperties\":false}",
                     TEXTS("{}", "{\"a\":{\"a\":{}}}"), TEXTS("{\"a\":1}"));
}

Test(schema, strings_come_in_any_spelling_and_lengths_count_code_points)
{
    schema_rig_check(
        "{\"type\":\"string\",\"minLength\":2,\"maxLength\":2}",
        TEXTS("\"ab\"", "\"\xC3\xA9\xF0\x9F\x98\x80\"", "\"\\u00e9\\ud83d\\ude00\"", "\"\\n\\\"\"", "\"\\/\\\\\""),
        TEXTS("\"a\"", "\"abc\"", "\"\\ud83d\"", "\"a\\ud83d\"", "\"\\ude00\\ud83d\"", "\"\\u0000a\"", "\"\xC3\xA9\"",
              "\"a\tb\""));
}

Test(schema, values_of_enum_and_const)
{
    schema_rig_check("{\"enum\":[1,\"a\\\"b\",null,[1,{\"x\":2}],{\"k\":[],\"l\":true}]}",
                     TEXTS("1", "\"a\\\"b\"", "null", "[1, {\"x\": 2}]", "{\"l\":true,\"k\":[]}"),
                     TEXTS("2", "\"a\"", "[1]", "{\"k\":[]}", "{\"k\":[],\"l\":true,\"m\":1}", "[1,{\"x\":2},3]"));
    schema_rig_check("{\"const\":1.5}", TEXTS("1.5"), TEXTS("1", "1.50001"));
    schema_rig_check("{\"enum\":[\"red\",\"green\"],\"type\":\"string\",\"maxLength\":3}", TEXTS("\"red\""),
                     TEXTS("\"green\""));
    schema_rig_refuses("{\"const\":9007199254740994}", "beyond 2^53");
}

Test(schema, numbers_are_written_so_that_a_double_holds_them)
{
    schema_rig_check("{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}", TEXTS("1.5", "-0.25", "12345678901234.5"),
                     TEXTS("1", "1.0", "1.0000000000000000001", "123456789012345.6", "-0.00"));
    schema_rig_check("{\"type\":\"number\",\"not\":{\"enum\":[1,0,2.5]}}", TEXTS("2", "1.5", "1.01", "2.51"),
                     TEXTS("1", "1.0", "-0.0", "2.500"));
    schema_rig_check("{\"type\":\"number\",\"minimum\":0}", TEXTS("1.50", "0.0", "123456789012345678"),
                     TEXTS("0.1234567890123456"));
    schema_rig_check("{\"type\":\"number\"}", TEXTS("1.0", "0.123456789012345e-12", "1e99"),
                     TEXTS("0.1234567890123456", "1234567890.123456", "1e100"));
    /* few values are written in one way each, whatever their digits */
    schema_rig_check("{\"enum\":[1,0,0.12345678901234568]}", TEXTS("1", "0", "0.12345678901234568"),
                     TEXTS("1.0", "-0", "0.1234567890123456"));
    schema_rig_check("{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":0,\"maximum\":1}",
                     TEXTS("0", "0.5", "0.75", "1"), TEXTS("0.50", "1.0", "0.3"));
    schema_rig_check("{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1e-58}",
                     TEXTS("0.0000000000000000000000000000000000000000000000000000000001"), TEXTS("0"));
}

Test(schema, all_of_is_all_at_once)
{
    schema_rig_check("{\"allOf\":[{\"minimum\":3},{\"maximum\":5}],\"type\":\"integer\"}", TEXTS("3", "5"),
                     TEXTS("2", "6"));
    schema_rig_check("{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}],\"type\":\"string\",\"maxLength\":3}",
                     TEXTS("\"ab\"", "\"bxa\""), TEXTS("\"a\"", "\"abxx\""));
    schema_rig_check("{\"allOf\":[{\"items\":{\"minimum\":2}},{\"items\":{\"type\":\"integer\"}}],\"type\":\"array\"}",
                     TEXTS("[]", "[2,3]"), TEXTS("[1]", "[\"a\"]", "[2.5]"));
}

Test(schema, one_of_is_exact_for_scalars_and_wants_the_rest_apart)
{
    schema_rig_check("{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\",\"minimum\":2}]}", TEXTS("1", "2.5"),
                     TEXTS("3", "1.5", "\"\""));
    schema_rig_check("{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"}},\"required\":[\"k\"]},"
                     "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"b\"},\"n\":{\"type\":\"null\"}},"
                     "\"required\":[\"k\"]}]}",
                     TEXTS("{\"k\":\"a\"}", "{\"k\":\"b\",\"n\":null}", "{\"k\":\"a\",\"n\":1}"),
                     TEXTS("{\"k\":\"b\",\"n\":1}", "{\"k\":\"c\"}", "{}"));
    schema_rig_refuses(
        "{\"oneOf\":[{\"type\":\"object\",\"required\":[\"a\"]},{\"type\":\"object\",\"required\":[\"b\"]}]}", "oneOf");
}

Test(schema, not_and_if_hold_for_what_they_can_tell_apart)
{
    schema_rig_check("{\"not\":{\"type\":\"string\"}}", TEXTS("1", "[]", "{}"), TEXTS("\"a\""));
    schema_rig_check("{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"b\"]}}", TEXTS("\"c\"", "\"ab\"", "\"\""),
                     TEXTS("\"a\"", "\"b\""));
    schema_rig_check(
        "{\"type\":\"integer\",\"if\":{\"minimum\":10},\"then\":{\"multipleOf\":10},\"else\":{\"minimum\":0}}",
        TEXTS("3", "20", "0"), TEXTS("-1", "15"));
    schema_rig_refuses("{\"not\":{\"required\":[\"a\"]}}", "#/not");
}

Test(schema, what_is_not_supported_is_named_with_its_place)
{
    schema_rig_refuses("{\"properties\":{\"a/b\":{\"uniqueItems\":true}}}",
                       "schema at '#/properties/a~1b': 'uniqueItems'");
    schema_rig_refuses("{\"contains\":{}}", "'contains' is not supported");
    schema_rig_refuses("{\"items\":{\"dependentRequired\":{}}}", "schema at '#/items'");
    schema_rig_refuses("{\"format\":\"iri\"}", "'format' iri");
    schema_rig_refuses("{\"type\":\"string\",\"pattern\":\"(?=a)b\"}", "#/pattern");
    schema_rig_refuses("{\"type\":\"string\",\"minLength\":\"2\"}", "'minLength' must be");
    schema_rig_refuses("{\"type\":\"number\",\"multipleOf\":0.123457}", "#/multipleOf");
    schema_rig_refuses("[]", "a schema must be");
    schema_rig_check(
        "{\"type\":\"null\",\"title\":\"t\",\"description\":\"d\",\"default\":3,\"examples\":[],\"x-mine\":1,"
        "\"$comment\":\"c\",\"deprecated\":true,\"uniqueItems\":false}",
        TEXTS("null"), TEXTS("3"));
}

Test(schema, blanks_are_bounded)
{
    static const char schema[] = "{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}";
    schema_rig_check(schema, TEXTS("[1,2]", "[1, 2]", "[\n  1,\n  2\n]", "[ 1, 2 ]", "[\n\t1\n]"),
                     TEXTS(" [1]", "[1] ", "[1 ,2]", "[1,  2]", "[\n\n1]", "[\n                     1]"));
}

/* Each of these patterns is within all limits; what they have in common is looked for again and again. */
Test(schema, time_is_bounded, .timeout = 60)
{
    static char schema[64 << 10];
    size_t n = (size_t)sprintf(schema, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 400; i++)
        n += (size_t)sprintf(schema + n, "%s\"p%d\":{\"pattern\":\"^(a|b)*a(a|b){%d}c%d$\"}", i ? "," : "", i,
                             12 + i % 2, i);
    sprintf(schema + n, "}}");
    schema_rig_refuses(schema, "takes more than");
}
