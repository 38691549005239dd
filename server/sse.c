/* SPDX-License-Identifier: Apache-2.0 */
#include "server/sse.h"

void sse_data_begin(JsonOut *out)
{
    json_raw(out, "data: ");
}

void sse_data_end(JsonOut *out)
{
    json_raw(out, "\n\n");
}

void sse_failure(JsonOut *out, int kind, const Error *error)
{
    sse_data_begin(out);
    http_error_write(out, kind, error);
    sse_data_end(out);
    json_raw(out, SSE_DONE);
}
