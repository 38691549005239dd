/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <criterion/criterion.h>
#include <string.h>

Test(error, set_returns_false_and_formats)
{
    Error error;
    cr_assert_not(error_set(&error, ERR_IO, "%s at %d", "short read", 7));
    cr_expect_eq(error.code, ERR_IO);
    cr_expect_str_eq(error.text, "short read at 7");
    cr_expect_str_eq(error.param, "");
    cr_assert_not(error_set_param(&error, ERR_INVALID, "top_p", "must be %d", 1));
    cr_expect_str_eq(error.param, "top_p");
    cr_expect_str_eq(error.text, "must be 1");
}

Test(error, prefix_keeps_code_and_param)
{
    Error error;
    error_set_param(&error, ERR_TOO_LARGE, "max_body", "too big");
    cr_assert_not(error_prefix(&error, "line %d", 3));
    cr_expect_str_eq(error.text, "line 3: too big");
    cr_expect_eq(error.code, ERR_TOO_LARGE);
    cr_expect_str_eq(error.param, "max_body");
}

Test(error, arguments_may_point_into_the_error_itself)
{
    Error error;
    error_set_param(&error, ERR_INVALID, "key", "inner");
    error_set_param(&error, ERR_INTERNAL, error.param, "outer(%s)", error.text);
    cr_expect_str_eq(error.text, "outer(inner)");
    cr_expect_str_eq(error.param, "key");
}

Test(error, long_text_is_cut_at_a_code_point)
{
    /* One to four bytes of a four-byte character lie before the cut: never a torn one. */
    for (size_t lead = 0; lead < 4; lead++) {
        Error error;
        char text[sizeof error.text + 64];
        memset(text, 'a', lead);
        for (size_t i = lead; i + 4 < sizeof text; i += 4) memcpy(text + i, "\xF0\x9F\x98\x8A", 5);
        error_set(&error, ERR_INVALID, "%s", text);
        size_t n = strlen(error.text);
        cr_expect(n < sizeof error.text && n >= sizeof error.text - 5);
        cr_expect_eq((n - lead) % 4, 0, "%zu bytes after %zu", n, lead);
    }
}
