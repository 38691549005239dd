/* SPDX-License-Identifier: Apache-2.0 */
#include "server/sse.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

Test(http_error, every_kind_has_a_row)
{
    for (int kind = 0; kind < HTTP_ERR_COUNT; kind++) {
        const HttpErrorRow *row = http_error_row(kind);
        cr_expect(row->status >= 400 && row->status < 600, "kind %d", kind);
        cr_expect_not_null(row->type);
        bool busy = row->status == 429 || row->status == 503;
        cr_expect_eq(busy, row->retry_after_s > 0, "kind %d", kind);
        cr_expect_neq(row->outcome, OUTCOME_DONE, "kind %d", kind);
        if (kind < ERR_COUNT)
            cr_expect_eq(row->outcome == OUTCOME_FAILURE, error_is_own((ErrorCode)kind), "kind %d", kind);
    }
    cr_expect_eq(http_error_row(-1)->status, 500);
    cr_expect_eq(http_error_row(HTTP_ERR_COUNT)->status, 500);
}

static void expect_body(int kind, const char *param, const char *text, const char *wanted)
{
    Buffer buffer;
    JsonOut out;
    Error error;
    (void)error_set_param(&error, ERR_INVALID, param, "%s", text);
    buffer_init(&buffer, 4096);
    json_begin(&out, &buffer);
    http_error_write(&out, kind, &error);
    cr_assert(json_end(&out, &error));
    cr_expect(eq(str, buffer.data, (char *)wanted));
    buffer_done(&buffer);
}

Test(http_error, objects_have_openais_members)
{
    expect_body(ERR_INVALID, "n", "'n' is \"bad\"",
                "{\"error\":{\"message\":\"'n' is \\\"bad\\\"\",\"type\":\"invalid_request_error\",\"param\":\"n\","
                "\"code\":\"invalid_value\"}}");
    expect_body(HTTP_ERR_KEY, "", "no",
                "{\"error\":{\"message\":\"no\",\"type\":\"authentication_error\",\"param\":null,"
                "\"code\":\"invalid_api_key\"}}");
}

Test(http_error, failures_in_a_stream_end_with_done)
{
    Buffer buffer;
    JsonOut out;
    Error error;
    (void)error_set(&error, ERR_NON_FINITE, "NaN");
    buffer_init(&buffer, 4096);
    json_begin(&out, &buffer);
    sse_failure(&out, ERR_NON_FINITE, &error);
    cr_assert(json_end(&out, &error));
    cr_expect(eq(str, buffer.data,
                 "data: {\"error\":{\"message\":\"NaN\",\"type\":\"server_error\",\"param\":null,"
                 "\"code\":\"non_finite_logits\"}}\n\ndata: [DONE]\n\n"));
    buffer_done(&buffer);
}
