/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"
#include "tests/support/token_cases.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *bytes;
    Utf8Kind kind;
    size_t len;
} steps[] = {
    {"a", UTF8_WHOLE, 1},
    {"\x7F"
     "a",
     UTF8_WHOLE, 1},
    {"\xC2\x80", UTF8_WHOLE, 2},
    {"\xDF\xBF"
     "a",
     UTF8_WHOLE, 2},
    {"\xE0\xA0\x80", UTF8_WHOLE, 3},
    {"\xED\x9F\xBF", UTF8_WHOLE, 3},
    {"\xEF\xBF\xBF", UTF8_WHOLE, 3},
    {"\xF0\x90\x80\x80", UTF8_WHOLE, 4},
    {"\xF4\x8F\xBF\xBF", UTF8_WHOLE, 4},
    {"\x80", UTF8_DEAD, 1},
    {"\xC0\xAF", UTF8_DEAD, 1},
    {"\xC1\xBF", UTF8_DEAD, 1},
    {"\xE0\x9F\xBF", UTF8_DEAD, 1},
    {"\xED\xA0\x80", UTF8_DEAD, 1},
    {"\xF0\x8F\xBF\xBF", UTF8_DEAD, 1},
    {"\xF4\x90\x80\x80", UTF8_DEAD, 1},
    {"\xF5\x80\x80\x80", UTF8_DEAD, 1},
    {"\xE2\x82(", UTF8_DEAD, 2},
    {"\xF0\x9F\x98(", UTF8_DEAD, 3},
    {"\xF0\x9F(", UTF8_DEAD, 2},
    {"\xC2", UTF8_CUT, 1},
    {"\xE2\x82", UTF8_CUT, 2},
    {"\xF0\x9F\x98", UTF8_CUT, 3},
};

Test(utf8, steps)
{
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        size_t len = 99;
        Utf8Kind kind = utf8_step((const uint8_t *)steps[i].bytes, strlen(steps[i].bytes), &len);
        cr_assert_eq(kind, steps[i].kind, "row %zu: kind %d", i, kind);
        cr_assert_eq(len, steps[i].len, "row %zu: %zu bytes", i, len);
        cr_assert_eq(utf8_valid((const uint8_t *)steps[i].bytes, strlen(steps[i].bytes)), steps[i].kind == UTF8_WHOLE,
                     "row %zu", i);
    }
}

Test(utf8, valid_sees_every_position)
{
    uint8_t text[40];
    for (size_t n = 1; n <= sizeof text; n++) {
        for (size_t at = 0; at < n; at++) {
            memset(text, 'x', sizeof text);
            cr_assert(utf8_valid(text, n));
            text[at] = 0xFF;
            cr_assert(!utf8_valid(text, n), "%zu of %zu", at, n);
        }
    }
    cr_assert(utf8_valid(text, 0));
}

Test(utf8, repairs_as_python_does)
{
    cJSON *golden = golden_load("tokens.json");
    const cJSON *item;
    int checked = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(golden, "replaced"))
    {
        size_t n, expected_n, cut;
        uint8_t *bytes = hex_bytes(cJSON_GetArrayItem(item, 0)->valuestring, &n);
        uint8_t *expected = hex_bytes(cJSON_GetArrayItem(item, 1)->valuestring, &expected_n);
        char out[64];
        cr_assert_eq(utf8_repair(bytes, n, true, NULL, &cut), expected_n, "row %d", checked);
        cr_assert_leq(expected_n, sizeof out);
        cr_assert_eq(utf8_repair(bytes, n, true, out, &cut), expected_n, "row %d", checked);
        cr_assert(!memcmp(out, expected, expected_n), "row %d", checked);
        free(bytes);
        free(expected);
        checked++;
    }
    cr_assert_gt(checked, 200);
    cJSON_Delete(golden);
}
