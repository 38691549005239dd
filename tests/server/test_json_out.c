/* SPDX-License-Identifier: Apache-2.0 */
#include "server/json_out.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

static void expect_string(const char *text, size_t n, const char *wanted)
{
    Buffer buffer;
    JsonOut out;
    Error error;
    buffer_init(&buffer, 4096);
    json_begin(&out, &buffer);
    json_string_n(&out, text, n);
    cr_assert(json_end(&out, &error));
    cr_expect(eq(str, buffer.data, (char *)wanted));
    buffer_done(&buffer);
}

Test(json_out, strings_are_escaped)
{
    expect_string("", 0, "\"\"");
    expect_string("plain", 5, "\"plain\"");
    expect_string("a\"b\\c\n\r\t\b\f", 10, "\"a\\\"b\\\\c\\n\\r\\t\\b\\f\"");
    expect_string("\x00\x01\x1f\x7f", 4, "\"\\u0000\\u0001\\u001f\\u007f\"");
    expect_string("\xC3\xA9 \xF0\x9F\x98\x8A", 7, "\"\xC3\xA9 \xF0\x9F\x98\x8A\"");
}

Test(json_out, dead_bytes_become_replacement_characters)
{
    expect_string("a\xFFz", 3, "\"a\xEF\xBF\xBDz\"");
    expect_string("\xF0\x9F\x98", 3, "\"\xEF\xBF\xBD\"");
    expect_string("\xED\xA0\x80", 3, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

Test(json_out, numbers_that_json_lacks_are_null)
{
    const double values[] = {NAN, INFINITY, -INFINITY, 0.25, -3};
    Buffer buffer;
    JsonOut out;
    Error error;
    buffer_init(&buffer, 256);
    json_begin(&out, &buffer);
    for (size_t i = 0; i < 5; i++) {
        json_real(&out, values[i], 7);
        json_raw(&out, ",");
    }
    cr_assert(json_end(&out, &error));
    cr_expect(eq(str, buffer.data, "null,null,null,0.25,-3,"));
    buffer_done(&buffer);
}

Test(json_out, first_failure_sticks)
{
    Buffer buffer;
    JsonOut out;
    Error error;
    buffer_init(&buffer, 8);
    json_begin(&out, &buffer);
    json_string(&out, "longer than eight");
    json_raw(&out, "x");
    cr_assert_not(json_end(&out, &error));
    cr_expect(eq(int, (int)error.code, ERR_TOO_LARGE));
    buffer_done(&buffer);
}
