/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_json.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

/* A copy of exactly n bytes and a NUL, so that a sanitizer sees the first byte read too far. */
static bool parse(const char *text, size_t n, cJSON **ret_json, Error *error)
{
    char *copy = malloc(n + 1);
    cr_assert(copy != NULL);
    memcpy(copy, text, n);
    copy[n] = '\0';
    bool ok = json_parse(copy, n, ret_json, error);
    free(copy);
    return ok;
}

static void accept(const char *text)
{
    cJSON *json;
    Error error;
    cr_expect(parse(text, strlen(text), &json, &error), "%s: %s", text, error.text);
    cJSON_Delete(json);
}

static void refuse_n(const char *text, size_t n, const char *why)
{
    cJSON *json = NULL;
    Error error = {0};
    cr_expect_not(parse(text, n, &json, &error), "accepted: %s", text);
    cr_expect(strstr(error.text, why) != NULL, "'%s' does not tell '%s' of %s", error.text, why, text);
    cr_expect(eq(int, (int)error.code, ERR_INVALID));
    cJSON_Delete(json);
}

static void refuse(const char *text, const char *why)
{
    refuse_n(text, strlen(text), why);
}

Test(api_json, accepts_what_the_grammar_allows)
{
    accept("null");
    accept(" \t\r\n{ } ");
    accept("[1, -0, 0.5, 1e3, 1E-3, -12.25e+2]");
    accept("{\"a\":[true,false,null,{\"b\":\"\\u00e9\\ud83d\\ude0a\\\"\\\\\\/\\b\\f\\n\\r\\t\"}]}");
    accept("\"\xC3\xA9\xF0\x9F\x98\x8A\"");
}

Test(api_json, tells_where_a_text_breaks)
{
    refuse("", "empty");
    refuse("{:", "column 2 (byte 1)");
    refuse("{\n  \"a\" 1}", "line 2, column 7");
    refuse("{\"a\":1", "unexpected end");
    refuse("{\"a\":1}}", "text after the value");
    refuse("{\"a\":1,}", "a string is missing");
    refuse("[1 2]", "',' or ']'");
    refuse("{'a':1}", "a string is missing");
    refuse("nul", "unknown word");
    refuse("NaN", "a value is missing");
    refuse("-Infinity", "a digit is missing");
    refuse("01", "text after the value");
    refuse("1.", "unexpected end");
    refuse("+1", "a value is missing");
    refuse("\xEF\xBB\xBF{}", "a value is missing");
}

Test(api_json, refuses_strings_that_readers_disagree_about)
{
    refuse("\"\\u0000\"", "NUL");
    refuse("\"\\ud800\"", "lone surrogate");
    refuse("\"\\ud800\\u0041\"", "lone surrogate");
    refuse("\"\\udc00\"", "lone surrogate");
    refuse("\"\\ud800x\"", "lone surrogate");
    refuse("\"\\u12g4\"", "four hex digits");
    refuse("\"\\x41\"", "unknown escape");
    refuse("\"a\nb\"", "control character");
    refuse_n("\"a\0b\"", 5, "control character");
    refuse("\"\xC0\x80\"", "invalid UTF-8");
    refuse("\"\xED\xA0\x80\"", "invalid UTF-8");
    refuse("\"\xF4\x90\x80\x80\"", "invalid UTF-8");
    refuse("\"\xC3\"", "invalid UTF-8");
    refuse_n("{}\0", 3, "text after the value");
}

Test(api_json, refuses_duplicate_keys_at_every_depth)
{
    refuse("{\"a\":1,\"a\":2}", "duplicate key 'a'");
    refuse("[{\"b\":{\"x\":1,\"y\":2,\"x\":3}}]", "duplicate key 'x'");
    refuse("{\"a\":1,\"\\u0061\":2}", "duplicate key 'a'");
}

Test(api_json, bounds_depth_numbers_and_values)
{
    enum { DEEP = 60000 };
    char *deep = malloc(DEEP + 1);
    cr_assert(deep != NULL);
    memset(deep, '[', DEEP);
    deep[DEEP] = '\0';
    refuse(deep, "nesting is too deep");
    for (int i = 0; i < 128; i++) deep[i] = '[', deep[128 + i] = ']';
    deep[256] = '\0';
    accept(deep);
    free(deep);
    refuse("1e999", "beyond the range");
    refuse("0.1234567890123456789012345678901234567890123456789012345678901234567890", "too many digits");
    size_t n = 2 * (size_t)JSON_MAX_VALUES + 8;
    char *many = malloc(n);
    cr_assert(many != NULL);
    memset(many, '1', n);
    many[0] = '[';
    for (size_t i = 2; i < n; i += 2) many[i] = ',';
    refuse_n(many, n, "too many values");
    free(many);
}

static const cJSON *member(cJSON **json, const char *text)
{
    Error error;
    cr_assert(parse(text, strlen(text), json, &error));
    return json_member(*json, "x");
}

Test(api_json, getters_check_type_and_range)
{
    Error error;
    cJSON *json;
    bool flag;
    double real = 7;
    int64_t whole = 7;
    const cJSON *item = member(&json, "{\"x\":\"5\"}");
    cr_expect_not(json_get_int(item, "x", 0, 9, &whole, &error));
    cr_expect(eq(str, error.text, "'x' must be an integer, not a string"));
    cr_expect(eq(str, error.param, "x"));
    cr_expect_not(json_get_bool(item, "x", &flag, &error));
    cr_expect_not(json_get_real(item, "x", 0, 9, &real, &error));
    cJSON_Delete(json);
    item = member(&json, "{\"x\":2.5}");
    cr_expect_not(json_get_int(item, "x", 0, 9, &whole, &error));
    cr_expect_not(json_get_real(item, "x", 0, 2, &real, &error));
    cr_expect(json_get_real(item, "x", 0, 2.5, &real, &error) && real == 2.5);
    cJSON_Delete(json);
    item = member(&json, "{\"x\":1e300}");
    cr_expect_not(json_get_int(item, "x", INT64_MIN, INT64_MAX, &whole, &error));
    cJSON_Delete(json);
    item = member(&json, "{\"x\":9223372036854775807}");
    cr_expect_not(json_get_int(item, "x", INT64_MIN, INT64_MAX, &whole, &error));
    cJSON_Delete(json);
    item = member(&json, "{\"x\":-9223372036854775808}");
    cr_expect(json_get_int(item, "x", INT64_MIN, INT64_MAX, &whole, &error) && whole == INT64_MIN);
    cJSON_Delete(json);
}

Test(api_json, null_is_absent)
{
    cJSON *json;
    cr_expect_null(member(&json, "{\"x\":null}"));
    cJSON_Delete(json);
    cr_expect_null(member(&json, "{\"X\":1}"));
    cJSON_Delete(json);
}
