/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/kinds.h"
#include "tests/engine/schema/arena_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(schema_kinds, .init = init, .fini = done);

/* {"properties": {"n000000": VALUE, ...}, TAIL} */
static ObjectKinds kinds_of_many(uint32_t n_schemas, unsigned n, const char *value, const char *tail)
{
    size_t room = n * (strlen(value) + 16) + strlen(tail) + 64, at = 0;
    char *text = malloc(room);
    cr_assert(text);
    at += (size_t)sprintf(text, "{\"properties\":{");
    for (unsigned i = 0; i < n; i++) at += (size_t)sprintf(text + at, "%s\"n%06u\":%s", i ? "," : "", i, value);
    sprintf(text + at, "}%s}", tail);
    cJSON *schema = cJSON_Parse(text);
    ObjectKinds kinds = {0};
    cr_assert(schema);
    cr_assert(schema_member_kinds(schema, n_schemas, &arena, &kinds, &error), "%s", error.text);
    cJSON_Delete(schema); /* the names go with it: only kinds and counts are looked at */
    free(text);
    return kinds;
}

Test(schema_kinds, members_are_of_the_kinds_that_keywords_say)
{
    static const char tail[] = ",\"additionalProperties\":false,\"$defs\":{\"s\":{\"type\":\"string\"}}";
    ObjectKinds kinds = kinds_of_many(1, 1000, "{\"$ref\":\"#/$defs/s\"}", tail);
    cr_expect_eq(kinds.n, 1000);
    cr_expect_eq(kinds.members[999].kinds, KIND_STRING);
    cr_expect_eq(kinds.others, 0);
}

/* Whose search would take too long is of any kind, as with everything beyond the limits. */
Test(schema_kinds, looking_for_names_and_references_ends)
{
    ObjectKinds kinds = kinds_of_many(1, 5000, "true", ",\"additionalProperties\":false");
    cr_expect_eq(kinds.n, 0);
    cr_expect_eq(kinds.others, KINDS_ALL);
    kinds = kinds_of_many(1, 2500, "{\"$ref\":\"#/$defs/s\"}", ",\"$defs\":{\"s\":{\"type\":\"string\"}}");
    cr_expect_eq(kinds.n, 0);
    cr_expect_eq(kinds.others, KINDS_ALL);
}

/* Together they take no longer than sixteen that go to the limit, and what each may take is known beforehand. */
Test(schema_kinds, many_schemas_of_a_request_share_what_sixteen_may_take)
{
    static const char value[] = "{\"type\":\"string\"}", tail[] = ",\"additionalProperties\":false";
    cr_expect_eq(kinds_of_many(KINDS_WHOLE_SCHEMAS, 1000, value, tail).n, 1000);
    cr_expect_eq(kinds_of_many(1024, 100, value, tail).n, 100);
    ObjectKinds kinds = kinds_of_many(1024, 1000, value, tail);
    cr_expect_eq(kinds.n, 0);
    cr_expect_eq(kinds.others, KINDS_ALL);
    cr_expect_eq(kinds_of_many(UINT32_MAX, 1, value, tail).others, KINDS_ALL);
}
