/* SPDX-License-Identifier: Apache-2.0 */
#include "server/load/stream_event.h"
#include "server/api_json.h"

#include <string.h>

static uint64_t count_of(const cJSON *object, const char *key)
{
    const cJSON *item = json_member(object, key);
    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 1e12 ? (uint64_t)item->valuedouble : 0;
}

static const char *text_of(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(json_member(object, key));
    return text ? text : "";
}

static void read_usage(const cJSON *usage, StreamEvent *event)
{
    event->has_usage = true;
    event->prompt_tokens = count_of(usage, "prompt_tokens");
    event->answer_tokens = count_of(usage, "completion_tokens");
    event->cached_tokens = count_of(json_member(usage, "prompt_tokens_details"), "cached_tokens");
}

static bool read_choice(const cJSON *choice, Buffer *ret_content, StreamEvent *event, Error *error)
{
    const cJSON *delta = json_member(choice, "delta");
    const char *content = delta ? text_of(delta, "content") : text_of(choice, "text");
    event->has_tokens |= *content || *text_of(delta, "reasoning_content") || *text_of(delta, "reasoning") ||
                         cJSON_GetArraySize(json_member(delta, "tool_calls")) > 0;
    return !ret_content || buffer_append_text(ret_content, content, error);
}

static bool fail_in_band(const cJSON *problem, Error *error)
{
    const char *message = cJSON_IsString(problem) ? problem->valuestring : text_of(problem, "message");
    return error_set(error, ERR_IO, "in the stream: %s", *message ? message : "an error without a message");
}

static bool read_object(const cJSON *json, Buffer *ret_content, StreamEvent *event, Error *error)
{
    const cJSON *problem = json_member(json, "error"), *usage = json_member(json, "usage"), *choice;
    if (!json_get_object(json, "an event", error)) return false;
    if (problem) return fail_in_band(problem, error);
    if (cJSON_IsObject(usage)) read_usage(usage, event);
    cJSON_ArrayForEach(choice,
                       json_member(json, "choices")) if (!read_choice(choice, ret_content, event, error)) return false;
    return true;
}

bool stream_event_read(const char *data, size_t n, Buffer *ret_content, StreamEvent *ret_event, Error *error)
{
    StreamEvent event = {.is_end = n == 6 && !memcmp(data, "[DONE]", 6)};
    cJSON *json;
    if (!event.is_end) {
        if (!json_parse_as("an event of the stream", data, n, &json, error)) return false;
        bool ok = read_object(json, ret_content, &event, error);
        cJSON_Delete(json);
        if (!ok) return false;
    }
    *ret_event = event;
    return true;
}

void stream_event_refusal(const char *body, size_t n, int status, Error *ret_error)
{
    Error ignored;
    cJSON *json = NULL;
    if (n && json_parse_as("the answer", body, n, &json, &ignored) && cJSON_IsObject(json)) {
        const cJSON *problem = json_member(json, "error");
        const char *message = cJSON_IsString(problem) ? problem->valuestring : text_of(problem, "message");
        error_set(ret_error, ERR_IO, "status %d: %s", status, message);
    } else {
        error_set(ret_error, ERR_IO, "status %d: %.*s", status, (int)(n < 100 ? n : 100), n ? body : "");
    }
    cJSON_Delete(json);
}
