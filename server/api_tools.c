/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_tools.h"

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 128, MAX_CALLS = 1024 };

/* A member that must be there; *ret_item: it. */
static bool need(const cJSON *object, const char *path, const char *key, char field[static PATH_BYTES],
                 const cJSON **ret_item, Error *error)
{
    snprintf(field, PATH_BYTES, "%.90s.%s", path, key);
    *ret_item = json_member(object, key);
    return *ret_item || error_set_param(error, ERR_INVALID, field, "'%s' is missing", field);
}

static bool check_name(const cJSON *function, const char *path, Error *error)
{
    char field[PATH_BYTES];
    const cJSON *name;
    const char *text;
    if (!need(function, path, "name", field, &name, error) || !json_get_string(name, field, &text, error)) return false;
    return *text || error_set_param(error, ERR_INVALID, field, "'%s' is empty", field);
}

/* {"function": {"name": ...}}; *ret_function: the inner object. */
static bool check_function(const cJSON *item, const char *path, char field[static PATH_BYTES],
                           const cJSON **ret_function, Error *error)
{
    return json_get_object(item, path, error) && need(item, path, "function", field, ret_function, error) &&
           json_get_object(*ret_function, field, error) && check_name(*ret_function, field, error);
}

static bool check_tool(const cJSON *tool, const char *path, Error *error)
{
    char field[PATH_BYTES];
    const cJSON *type, *function;
    const char *text;
    if (!json_get_object(tool, path, error) || !need(tool, path, "type", field, &type, error) ||
        !json_get_string(type, field, &text, error))
        return false;
    if (strcmp(text, "function"))
        return error_set_param(error, ERR_UNSUPPORTED, field, "'%s' is '%.40s'; only 'function' is supported", field,
                               text);
    if (!check_function(tool, path, field, &function, error)) return false;
    const cJSON *parameters = json_member(function, "parameters");
    snprintf(field, sizeof field, "%.90s.function.parameters", path);
    return !parameters || json_get_object(parameters, field, error);
}

bool api_tools_check(const cJSON *tools, Error *error)
{
    size_t n, i = 0;
    if (!json_get_array(tools, "tools", API_MAX_TOOLS, &n, error)) return false;
    for (const cJSON *tool = tools->child; tool; tool = tool->next) {
        char path[32];
        snprintf(path, sizeof path, "tools[%zu]", i++);
        if (!check_tool(tool, path, error)) return false;
    }
    return true;
}

bool api_tools_read_choice(const cJSON *choice, bool *ret_none, Error *error)
{
    static const char *const words[] = {"none", "auto", "required"};
    bool is_known = cJSON_IsObject(choice); /* a named function */
    for (size_t i = 0; cJSON_IsString(choice) && i < sizeof words / sizeof *words; i++)
        is_known |= !strcmp(choice->valuestring, words[i]);
    if (!is_known)
        return error_set_param(error, ERR_INVALID, "tool_choice",
                               "'tool_choice' must be none, auto, required or an object");
    *ret_none = cJSON_IsString(choice) && !strcmp(choice->valuestring, "none");
    if (*ret_none || (cJSON_IsString(choice) && !strcmp(choice->valuestring, "auto"))) return true;
    return error_set_param(error, ERR_UNSUPPORTED, "tool_choice", "'tool_choice' with this value is not supported");
}

bool api_tools_check_together(const cJSON *tools, bool choice_is_none, Error *error)
{
    if (!tools || !tools->child || choice_is_none) return true;
    return error_set_param(error, ERR_UNSUPPORTED, "tools",
                           "calls of 'tools' are not supported; with 'tool_choice': \"none\" the model sees them");
}

bool api_tools_check_calls(const cJSON *calls, const char *path, Error *error)
{
    size_t n, i = 0;
    if (!json_get_array(calls, path, MAX_CALLS, &n, error)) return false;
    for (const cJSON *call = calls->child; call; call = call->next) {
        char at[PATH_BYTES], field[PATH_BYTES];
        const cJSON *function, *arguments;
        snprintf(at, sizeof at, "%.60s[%zu]", path, i++);
        if (!check_function(call, at, field, &function, error)) return false;
        snprintf(at + strlen(at), sizeof at - strlen(at), ".function");
        if (!need(function, at, "arguments", field, &arguments, error)) return false;
        if (!cJSON_IsString(arguments) && !cJSON_IsObject(arguments))
            return error_set_param(error, ERR_INVALID, field, "'%s' must be a string of JSON or an object, not %s",
                                   field, json_type_name(arguments));
    }
    return true;
}
