/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buffer.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

Test(buffer, grows_and_stays_terminated)
{
    Buffer buffer;
    Error error;
    buffer_init(&buffer, 1 << 20);
    cr_assert_null(buffer.data);
    for (int i = 0; i < 10000; i++) {
        cr_assert(buffer_append(&buffer, "xyz", 3, &error));
        cr_assert_eq(buffer.data[buffer.n], '\0');
    }
    cr_expect_eq(buffer.n, 30000);
    cr_assert(buffer_printf(&buffer, &error, "%d-%s", 42, "end"));
    cr_expect_str_eq(buffer.data + 30000, "42-end");
    buffer_done(&buffer);
    cr_expect_null(buffer.data);
    cr_expect_eq(buffer.max, 1u << 20, "the maximum survives");
}

Test(buffer, maximum_is_exact_and_refusal_changes_nothing)
{
    Buffer buffer;
    Error error;
    buffer_init(&buffer, 10);
    cr_assert(buffer_append_text(&buffer, "0123456789", &error), "the maximum itself fits");
    cr_assert_not(buffer_append(&buffer, "x", 1, &error));
    cr_expect_eq(error.code, ERR_TOO_LARGE);
    cr_assert_not(buffer_append(&buffer, "x", SIZE_MAX, &error), "no overflow");
    cr_assert_not(buffer_printf(&buffer, &error, "%d", 1));
    cr_expect_str_eq(buffer.data, "0123456789");
    cr_assert(buffer_append(&buffer, NULL, 0, &error), "nothing always fits");
    buffer_done(&buffer);
    buffer_init(&buffer, 0);
    cr_assert(buffer_append(&buffer, "", 0, &error));
    cr_expect_str_eq(buffer.data, "");
    cr_assert_not(buffer_append(&buffer, "x", 1, &error));
    buffer_done(&buffer);
}

Test(buffer, no_maximum_wraps)
{
    Buffer buffer;
    Error error;
    buffer_init(&buffer, SIZE_MAX);
    cr_assert(buffer_append(&buffer, "abc", 3, &error), "the smallest size plus one would be 0");
    cr_expect_str_eq(buffer.data, "abc");
    cr_assert_not(buffer_reserve(&buffer, SIZE_MAX - 3, &error));
    cr_expect_eq(error.code, ERR_TOO_LARGE);
    cr_expect_str_eq(buffer.data, "abc");
    buffer_done(&buffer);
}

Test(buffer, consume_from_the_front)
{
    Buffer buffer;
    Error error;
    buffer_init(&buffer, 100);
    buffer_consume(&buffer, 5);
    cr_assert(buffer_append_text(&buffer, "abcdef", &error));
    buffer_consume(&buffer, 0);
    buffer_consume(&buffer, 2);
    cr_expect_str_eq(buffer.data, "cdef");
    cr_expect_eq(buffer.n, 4);
    buffer_consume(&buffer, 4);
    cr_expect_str_eq(buffer.data, "");
    cr_assert(buffer_append_text(&buffer, "gh", &error));
    buffer_consume(&buffer, 99);
    cr_expect_eq(buffer.n, 0);
    buffer_done(&buffer);
}

Test(buffer, reserve_adds_room_but_no_bytes)
{
    Buffer buffer;
    Error error;
    buffer_init(&buffer, 1000);
    cr_assert(buffer_reserve(&buffer, 1000, &error));
    cr_expect_eq(buffer.n, 0);
    cr_expect_str_eq(buffer.data, "");
    const char *before = buffer.data;
    for (int i = 0; i < 1000; i++) cr_assert(buffer_append(&buffer, "b", 1, &error));
    cr_expect_eq(buffer.data, before, "no move inside the reserve");
    buffer_done(&buffer);
}

Test(buffer, take_hands_over)
{
    Buffer buffer;
    Error error;
    buffer_init(&buffer, 100);
    char *nothing = buffer_take(&buffer);
    cr_expect_str_eq(nothing, "");
    free(nothing);
    cr_assert(buffer_append_text(&buffer, "mine", &error));
    char *taken = buffer_take(&buffer);
    cr_expect_str_eq(taken, "mine");
    cr_expect_null(buffer.data);
    cr_expect_eq(buffer.n, 0);
    free(taken);
}

Test(buffer, clean_text_drives_no_terminal)
{
    static const char bytes[] = "a\x1b[31m\n\0\xff\u00e9\xc2\x85\u202e";
    Buffer buffer;
    Error error;
    buffer_init(&buffer, 100);
    cr_assert(buffer_append_clean(&buffer, bytes, sizeof bytes - 1, &error));
    cr_expect_str_eq(buffer.data, "a\\x1b[31m\\n\uFFFD\uFFFD\u00e9\\xc2\\x85\\xe2\\x80\\xae");
    buffer_done(&buffer);
}

Test(buffer, clear_keeps_memory)
{
    Buffer buffer;
    Error error;
    buffer_init(&buffer, 100);
    buffer_clear(&buffer);
    cr_assert(buffer_append_text(&buffer, "old", &error));
    size_t capacity = buffer.capacity;
    buffer_clear(&buffer);
    cr_expect_str_eq(buffer.data, "");
    cr_expect_eq(buffer.capacity, capacity);
    buffer_done(&buffer);
}
