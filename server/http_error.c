/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http_error.h"

#define BAD_REQUEST "invalid_request_error"

static const HttpErrorRow rows[HTTP_ERR_COUNT] = {
    [ERR_NONE] = {500, "server_error", "internal_error", 0, OUTCOME_FAILURE},
    [ERR_INVALID] = {400, BAD_REQUEST, "invalid_value", 0, OUTCOME_BAD_REQUEST},
    [ERR_UNSUPPORTED] = {400, BAD_REQUEST, "unsupported", 0, OUTCOME_BAD_REQUEST},
    [ERR_NOT_FOUND] = {404, BAD_REQUEST, "not_found", 0, OUTCOME_BAD_REQUEST},
    [ERR_TOO_LARGE] = {400, BAD_REQUEST, "too_large", 0, OUTCOME_BAD_REQUEST},
    [ERR_CONTEXT_LENGTH] = {400, BAD_REQUEST, "context_length_exceeded", 0, OUTCOME_BAD_REQUEST},
    [ERR_TEMPLATE] = {400, BAD_REQUEST, "template_error", 0, OUTCOME_BAD_REQUEST},
    [ERR_SCHEMA] = {400, BAD_REQUEST, "invalid_schema", 0, OUTCOME_BAD_REQUEST},
    [ERR_BUSY] = {429, "rate_limit_error", "queue_full", 1, OUTCOME_REFUSED},
    [ERR_CANCELLED] = {499, BAD_REQUEST, "cancelled", 0, OUTCOME_CANCELLED}, /* 499: none to be retried */
    [ERR_DEADLINE] = {504, "server_error", "timeout", -1, OUTCOME_TIMEOUT},  /* and trying again would take it again */
    [ERR_NO_MEMORY] = {503, "unavailable_error", "out_of_memory", 5, OUTCOME_FAILURE},
    [ERR_IO] = {500, "server_error", "internal_error", 0, OUTCOME_FAILURE},
    [ERR_DEVICE] = {500, "server_error", "internal_error", 0, OUTCOME_FAILURE},
    [ERR_NON_FINITE] = {500, "server_error", "non_finite_logits", 0, OUTCOME_FAILURE},
    [ERR_INTERNAL] = {500, "server_error", "internal_error", 0, OUTCOME_FAILURE},
    [HTTP_ERR_MODEL] = {404, BAD_REQUEST, "model_not_found", 0, OUTCOME_BAD_REQUEST},
    [HTTP_ERR_URL] = {404, BAD_REQUEST, "unknown_url", 0, OUTCOME_BAD_REQUEST},
    [HTTP_ERR_METHOD] = {405, BAD_REQUEST, "method_not_allowed", 0, OUTCOME_BAD_REQUEST},
    [HTTP_ERR_KEY] = {401, "authentication_error", "invalid_api_key", 0, OUTCOME_BAD_REQUEST},
    [HTTP_ERR_FORBIDDEN] = {403, "permission_error", "forbidden", 0, OUTCOME_BAD_REQUEST},
    [HTTP_ERR_HOST] = {403, "permission_error", "host_not_allowed", 0, OUTCOME_BAD_REQUEST},
    [HTTP_ERR_RATE] = {429, "rate_limit_error", "rate_limit_exceeded", 1, OUTCOME_REFUSED},
    [HTTP_ERR_BODY_SIZE] = {413, BAD_REQUEST, "request_too_large", 0, OUTCOME_BAD_REQUEST},
    [HTTP_ERR_MEDIA_TYPE] = {415, BAD_REQUEST, "unsupported_media_type", 0, OUTCOME_BAD_REQUEST},
    [HTTP_ERR_FRAMING] = {400, BAD_REQUEST, "invalid_framing", 0, OUTCOME_BAD_REQUEST},
    [HTTP_ERR_TRANSFER_CODING] = {501, BAD_REQUEST, "unsupported_transfer_encoding", 0, OUTCOME_BAD_REQUEST},
    [HTTP_ERR_LOADING] = {503, "unavailable_error", "loading", 2, OUTCOME_REFUSED},
    [HTTP_ERR_DRAINING] = {503, "unavailable_error", "draining", 5, OUTCOME_REFUSED},
    [HTTP_ERR_UNHEALTHY] = {503, "unavailable_error", "engine_stalled", 5, OUTCOME_FAILURE},
    [HTTP_ERR_DEVICE_FAILED] = {503, "unavailable_error", "device_failed", 5, OUTCOME_FAILURE},
};

const HttpErrorRow *http_error_row(int kind)
{
    return &rows[kind > 0 && kind < HTTP_ERR_COUNT && rows[kind].status ? kind : ERR_INTERNAL];
}

static void write_nullable(JsonOut *out, const char *text)
{
    if (text && *text)
        json_string(out, text);
    else
        json_raw(out, "null");
}

void http_error_write(JsonOut *out, int kind, const Error *error)
{
    const HttpErrorRow *row = http_error_row(kind);
    json_raw(out, "{\"error\":{\"message\":");
    json_string(out, error->text);
    json_rawf(out, ",\"type\":\"%s\",\"param\":", row->type);
    write_nullable(out, error->param);
    json_raw(out, ",\"code\":");
    write_nullable(out, row->code);
    json_raw(out, "}}");
}
