/* SPDX-License-Identifier: Apache-2.0 */
#include "server/trace.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define ID "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

Test(trace, request_ids_have_a_form)
{
    static const char *const right[] = {"a", "req_1", "8f0c-4", "a/b:c+d=e.f~g@h", "!#$%&'()*,;<>?[]^`{|}"};
    static const char *const wrong[] = {"", " ", "a b", "a\tb", "a\n", "\x7f", "\xc3\xa9", "a\"b", "a\\b"};
    char text[REQUEST_ID_BYTES + 3];
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) cr_expect(request_id_is_valid(right[i]), "%s", right[i]);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) cr_expect_not(request_id_is_valid(wrong[i]), "%zu", i);
    for (int n = REQUEST_ID_BYTES; n <= REQUEST_ID_BYTES + 2; n++) {
        memset(text, 'x', sizeof text);
        text[n] = '\0';
        cr_expect(request_id_is_valid(text) == (n == REQUEST_ID_BYTES), "%d bytes", n);
    }
}

Test(trace, made_ids_differ_and_are_valid)
{
    char a[REQUEST_ID_BYTES + 1], b[REQUEST_ID_BYTES + 1];
    request_id_make(a);
    request_id_make(b);
    cr_expect(request_id_is_valid(a) && request_id_is_valid(b) && strcmp(a, b) != 0);
    cr_expect(strlen(a) == 36 && !strncmp(a, "req_", 4));
}

Test(trace, a_parent_goes_on_in_a_span_of_our_own)
{
    static const struct {
        const char *header, *flags;
    } rows[] = {{"00-" ID "-" PARENT "-01", "01"}, {"00-" ID "-" PARENT "-00", "00"},
                {"00-" ID "-" PARENT "-fe", "00"}, {"00-" ID "-" PARENT "-ff", "01"},
                {"01-" ID "-" PARENT "-03", "01"}, {"cc-" ID "-" PARENT "-01-what-the-future-brings", "01"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Trace trace;
        char text[TRACE_PARENT_BYTES + 1];
        trace_read(rows[i].header, &trace);
        cr_assert_str_eq(trace.trace_id, ID, "%s", rows[i].header);
        cr_expect_str_neq(trace.span_id, PARENT);
        trace_write(&trace, text);
        cr_expect(strlen(text) == TRACE_PARENT_BYTES && !strncmp(text, "00-" ID "-", 36), "%s", text);
        cr_expect_str_eq(text + 53, rows[i].flags);
        Trace again; /* what we send can be read */
        trace_read(text, &again);
        cr_expect_str_eq(again.trace_id, ID);
    }
}

Test(trace, what_has_not_the_form_is_no_trace)
{
    static const char *const wrong[] = {
        "",
        "00",
        "ff-" ID "-" PARENT "-01",
        "00-" ID "-" PARENT "-01-more",
        "cc-" ID "-" PARENT "-01more",
        "00-" ID "-" PARENT "-0",
        "00-" ID "-" PARENT "-0g",
        "0x-" ID "-" PARENT "-01",
        "00_" ID "-" PARENT "-01",
        "00-" ID "_" PARENT "-01",
        "00-" ID "-" PARENT "_01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01",
        "00-00000000000000000000000000000000-" PARENT "-01",
        "00-" ID "-0000000000000000-01",
        "00-" ID "-" PARENT "\x01-01",
    };
    Trace trace;
    trace_read(NULL, &trace);
    cr_expect_str_empty(trace.trace_id);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        trace_read(wrong[i], &trace);
        cr_expect_str_empty(trace.trace_id, "%s", wrong[i]);
    }
}
