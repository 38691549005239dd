/* SPDX-License-Identifier: Apache-2.0 */
#include "server/chat_messages.h"
#include "base/buffer.h"
#include "server/api_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 128, MAX_CONTENT_BYTES = 1 << 30 };

static bool no_memory(Error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory for the messages");
}

static bool check_role(cJSON *message, const char *path, Error *error)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const char *role;
    cJSON *item = cJSON_GetObjectItemCaseSensitive(message, "role");
    if (!item) return error_set_param(error, ERR_INVALID, path, "'%s' is missing", path);
    if (!json_get_string(item, path, &role, error)) return false;
    if (!strcmp(role, "developer")) return cJSON_SetValuestring(item, "system") ? true : no_memory(error);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(role, roles[i])) return true;
    return error_set_param(error, ERR_INVALID, path,
                           "'%s' must be one of system, developer, user, assistant and tool, not '%.40s'", path, role);
}

/* One text part, appended on a line of its own. */
static bool append_part(Buffer *text, const cJSON *part, const char *path, Error *error)
{
    const char *type, *piece;
    char field[PATH_BYTES];
    if (!json_get_object(part, path, error)) return false;
    const cJSON *item = json_member(part, "type");
    snprintf(field, sizeof field, "%.100s.type", path);
    if (!item) return error_set_param(error, ERR_INVALID, field, "'%s' is missing", field);
    if (!json_get_string(item, field, &type, error)) return false;
    if (strcmp(type, "text"))
        return error_set_param(error, ERR_UNSUPPORTED, field, "'%s' is '%.40s'; only 'text' is supported", field, type);
    item = json_member(part, "text");
    snprintf(field, sizeof field, "%.100s.text", path);
    if (!item) return error_set_param(error, ERR_INVALID, field, "'%s' is missing", field);
    if (!json_get_string(item, field, &piece, error)) return false;
    return (!text->n || buffer_append(text, "\n", 1, error)) && buffer_append_text(text, piece, error);
}

static bool join_parts(cJSON *message, cJSON *content, const char *path, Error *error)
{
    Buffer text;
    size_t i = 0;
    buffer_init(&text, MAX_CONTENT_BYTES);
    bool ok = buffer_reserve(&text, 0, error);
    for (const cJSON *part = content->child; part && ok; part = part->next) {
        char field[PATH_BYTES];
        snprintf(field, sizeof field, "%.64s[%zu]", path, i++);
        ok = append_part(&text, part, field, error);
    }
    cJSON *joined = ok ? cJSON_CreateString(text.data) : NULL;
    buffer_done(&text);
    if (!ok) return false;
    if (!joined) return no_memory(error);
    /* It inherits the key: cJSON's own replacement by key makes an item without one when memory is out. */
    joined->string = content->string;
    content->string = NULL;
    return cJSON_ReplaceItemViaPointer(message, content, joined) || no_memory(error);
}

/* What a template would stumble over. */
static bool check_calls(const cJSON *message, size_t i, Error *error)
{
    char path[PATH_BYTES];
    const cJSON *calls = json_member(message, "tool_calls"), *id = json_member(message, "tool_call_id");
    const char *text;
    snprintf(path, sizeof path, "messages[%zu].tool_calls", i);
    if (calls && !api_tools_check_calls(calls, path, error)) return false;
    snprintf(path, sizeof path, "messages[%zu].tool_call_id", i);
    return !id || json_get_string(id, path, &text, error);
}

static bool check_content(cJSON *message, const char *path, Error *error)
{
    cJSON *content = cJSON_GetObjectItemCaseSensitive(message, "content");
    if (!content || cJSON_IsNull(content)) {
        if (json_member(message, "tool_calls")) return true; /* an assistant's turn that only calls tools */
        return error_set_param(error, ERR_INVALID, path, "'%s' is missing", path);
    }
    if (cJSON_IsString(content)) return true;
    if (cJSON_IsArray(content)) return join_parts(message, content, path, error);
    return error_set_param(error, ERR_INVALID, path, "'%s' must be a string or an array of parts, not %s", path,
                           json_type_name(content));
}

bool chat_messages_normalise(cJSON *body, Error *error)
{
    cJSON *messages = cJSON_GetObjectItemCaseSensitive(body, "messages");
    size_t n, i = 0;
    if (!messages || cJSON_IsNull(messages))
        return error_set_param(error, ERR_INVALID, "messages", "'messages' is missing");
    if (!json_get_array(messages, "messages", CHAT_MAX_MESSAGES, &n, error)) return false;
    if (!n) return error_set_param(error, ERR_INVALID, "messages", "'messages' is empty");
    for (cJSON *message = messages->child, *next; message; message = next) {
        char path[PATH_BYTES];
        next = message->next;
        snprintf(path, sizeof path, "messages[%zu]", i);
        if (!json_get_object(message, path, error)) return false;
        snprintf(path, sizeof path, "messages[%zu].role", i);
        if (!check_role(message, path, error)) return false;
        snprintf(path, sizeof path, "messages[%zu].content", i);
        if (!check_content(message, path, error) || !check_calls(message, i++, error)) return false;
    }
    return true;
}
