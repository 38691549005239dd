/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/engine/schema/schema_rig.h"

#include <criterion/criterion.h>
#include <string.h>

bool schema_rig_compile(const char *schema, const SchemaOptions *options, Grammar **ret_grammar, Error *error)
{
    cJSON *json = cJSON_Parse(schema);
    cr_assert(json, "not JSON: %s", schema);
    GrammarBuilder *builder;
    GrammarNode root;
    cr_assert(grammar_builder_new(&builder, error));
    bool ok = schema_compile(json, options, builder, &root, NULL, error) &&
              grammar_compile(builder, root, NULL, ret_grammar, error);
    grammar_builder_free(builder);
    cJSON_Delete(json);
    return ok;
}

bool schema_rig_accepts(Grammar *grammar, const char *text)
{
    GrammarMatcher *matcher;
    Error error = {0};
    cr_assert(matcher_new(grammar, &matcher, &error), "%s", error.text);
    bool ok = matcher_push_bytes(matcher, (const uint8_t *)text, strlen(text), &error) && matcher_may_end(matcher);
    matcher_free(matcher);
    return ok;
}

void schema_rig_check(const char *schema, const char *const *yes, const char *const *no)
{
    Grammar *grammar;
    Error error = {0};
    cr_assert(schema_rig_compile(schema, NULL, &grammar, &error), "%s: %s", schema, error.text);
    for (; *yes; yes++) cr_expect(schema_rig_accepts(grammar, *yes), "%s refuses %s", schema, *yes);
    for (; *no; no++) cr_expect_not(schema_rig_accepts(grammar, *no), "%s accepts %s", schema, *no);
    grammar_release(grammar);
}

void schema_rig_refuses(const char *schema, const char *part)
{
    Grammar *grammar;
    Error error = {0};
    cr_assert_not(schema_rig_compile(schema, NULL, &grammar, &error), "%s is not refused", schema);
    cr_expect(error.code == ERR_SCHEMA || error.code == ERR_TOO_LARGE, "code %d, '%s': %s", error.code, error.text,
              schema);
    cr_expect(strstr(error.text, part), "'%s' does not say '%s': %s", error.text, part, schema);
}
