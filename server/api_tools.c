/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_tools.h"

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 128, MAX_CALLS = 1024, MAX_MEMBERS = 64 };

/* A member that must be there; *ret_item: it. */
static bool need(const cJSON *object, const char *path, const char *key, char field[static PATH_BYTES],
                 const cJSON **ret_item, Error *error)
{
    snprintf(field, PATH_BYTES, "%.90s.%s", path, key);
    *ret_item = json_member(object, key);
    return *ret_item || error_set_param(error, ERR_INVALID, field, "'%s' is missing", field);
}

/* Letters that no format of calls has a meaning for. */
static bool check_name(const cJSON *function, const char *path, Error *error)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:/";
    char field[PATH_BYTES];
    const cJSON *name;
    const char *text;
    if (!need(function, path, "name", field, &name, error) || !json_get_string(name, field, &text, error)) return false;
    size_t n = strlen(text);
    if (!n) return error_set_param(error, ERR_INVALID, field, "'%s' is empty", field);
    return (n < TOOL_NAME_MAX_BYTES && strspn(text, letters) == n) ||
           error_set_param(error, ERR_INVALID, field,
                           "'%s' must have fewer than %d characters, all of them a-z, A-Z, 0-9 or one of _ - . : /",
                           field, TOOL_NAME_MAX_BYTES);
}

/* Among whose members names are looked for again and again. */
static bool check_object(const cJSON *item, const char *path, Error *error)
{
    if (!json_get_object(item, path, error)) return false;
    int n = cJSON_GetArraySize(item);
    return n <= MAX_MEMBERS ||
           error_set_param(error, ERR_INVALID, path, "'%s' has %d members, more than %d", path, n, MAX_MEMBERS);
}

/* {"function": {"name": ...}}; *ret_function: the inner object. */
static bool check_function(const cJSON *item, const char *path, char field[static PATH_BYTES],
                           const cJSON **ret_function, Error *error)
{
    return check_object(item, path, error) && need(item, path, "function", field, ret_function, error) &&
           check_object(*ret_function, field, error) && check_name(*ret_function, field, error);
}

static bool check_type(const cJSON *tool, const char *path, Error *error)
{
    char field[PATH_BYTES];
    const cJSON *type;
    const char *text;
    if (!json_get_object(tool, path, error) || !need(tool, path, "type", field, &type, error) ||
        !json_get_string(type, field, &text, error))
        return false;
    return !strcmp(text, "function") ||
           error_set_param(error, ERR_UNSUPPORTED, field, "'%s' is '%.40s'; only 'function' is supported", field, text);
}

/* Arguments are an object. */
static bool check_parameters(const cJSON *parameters, const char *path, Error *error)
{
    char field[PATH_BYTES];
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(parameters, "type");
    if (!type || (cJSON_IsString(type) && !strcmp(type->valuestring, "object"))) return true;
    snprintf(field, sizeof field, "%.100s.type", path);
    return error_set_param(error, ERR_INVALID, field, "'%s' must be 'object': the arguments of a call are one", field);
}

static bool check_tool(const cJSON *tool, const char *path, Error *error)
{
    char field[PATH_BYTES];
    const cJSON *function;
    bool strict;
    if (!check_type(tool, path, error) || !check_function(tool, path, field, &function, error)) return false;
    const cJSON *parameters = json_member(function, "parameters"), *item = json_member(function, "strict");
    snprintf(field, sizeof field, "%.90s.function.parameters", path);
    if (parameters && !(json_get_object(parameters, field, error) && check_parameters(parameters, field, error)))
        return false;
    snprintf(field, sizeof field, "%.90s.function.strict", path);
    return !item || json_get_bool(item, field, &strict, error);
}

const char *api_tool_name(const cJSON *tool)
{
    return json_member(json_member(tool, "function"), "name")->valuestring;
}

static const cJSON *find_tool(const cJSON *tools, const char *name)
{
    const cJSON *tool = tools ? tools->child : NULL;
    while (tool && strcmp(api_tool_name(tool), name)) tool = tool->next;
    return tool;
}

bool api_tools_read(const cJSON *tools, ApiTools *ret_tools, Error *error)
{
    size_t n, i = 0;
    if (!json_get_array(tools, "tools", API_MAX_TOOLS, &n, error)) return false;
    for (const cJSON *tool = tools->child; tool; tool = tool->next) {
        char path[64];
        snprintf(path, sizeof path, "tools[%zu]", i++);
        if (!check_tool(tool, path, error)) return false;
        snprintf(path, sizeof path, "tools[%zu].function.name", i - 1);
        if (find_tool(tools, api_tool_name(tool)) != tool)
            return error_set_param(error, ERR_INVALID, path, "'%s' is the name of an earlier tool", path);
    }
    ret_tools->list = tools->child ? tools : NULL;
    return true;
}

static bool read_word(const char *word, const char *path, ApiTools *tools, Error *error)
{
    static const struct {
        const char *word;
        ToolChoice choice;
    } words[] = {{"auto", TOOLS_AUTO}, {"none", TOOLS_NONE}, {"required", TOOLS_REQUIRED}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(word, words[i].word)) {
            tools->choice = words[i].choice;
            return true;
        }
    return error_set_param(error, ERR_INVALID, path, "'%s' must be none, auto or required, not '%.40s'", path, word);
}

/* {"mode": "auto" or "required", "tools": [{"type": "function", "function": {"name"}}, ...]} */
static bool read_allowed(const cJSON *allowed, ApiTools *tools, Error *error)
{
    char field[PATH_BYTES], path[PATH_BYTES];
    const cJSON *mode, *list;
    const char *word;
    size_t n, i = 0;
    if (!json_get_object(allowed, "tool_choice.allowed_tools", error) ||
        !need(allowed, "tool_choice.allowed_tools", "mode", field, &mode, error) ||
        !json_get_string(mode, field, &word, error) || !read_word(word, field, tools, error) ||
        !need(allowed, "tool_choice.allowed_tools", "tools", path, &list, error) ||
        !json_get_array(list, path, API_MAX_TOOLS, &n, error))
        return false;
    if (!n) return error_set_param(error, ERR_INVALID, path, "'%s' is empty", path);
    for (const cJSON *item = list->child; item; item = item->next) {
        const cJSON *function;
        snprintf(path, sizeof path, "tool_choice.allowed_tools.tools[%zu]", i++);
        if (!check_type(item, path, error) || !check_function(item, path, field, &function, error)) return false;
    }
    tools->allowed = list;
    return true;
}

bool api_tools_read_choice(const cJSON *choice, ApiTools *tools, Error *error)
{
    char field[PATH_BYTES];
    const cJSON *type, *allowed, *function;
    const char *text;
    tools->has_choice = true;
    if (cJSON_IsString(choice)) return read_word(choice->valuestring, "tool_choice", tools, error);
    if (!cJSON_IsObject(choice))
        return error_set_param(error, ERR_INVALID, "tool_choice", "'tool_choice' must be a string or an object, not %s",
                               json_type_name(choice));
    if (!need(choice, "tool_choice", "type", field, &type, error) || !json_get_string(type, field, &text, error))
        return false;
    if (!strcmp(text, "allowed_tools"))
        return need(choice, "tool_choice", "allowed_tools", field, &allowed, error) &&
               read_allowed(allowed, tools, error);
    if (!check_type(choice, "tool_choice", error) || !check_function(choice, "tool_choice", field, &function, error))
        return false;
    tools->choice = TOOLS_NAMED;
    tools->name = json_member(function, "name")->valuestring;
    return true;
}

static bool check_known(const ApiTools *tools, const char *name, const char *param, Error *error)
{
    return find_tool(tools->list, name) ||
           error_set_param(error, ERR_INVALID, param, "'%s' names '%.64s', which is not among the tools", param, name);
}

bool api_tools_check_together(const ApiTools *tools, Error *error)
{
    bool wants_call = tools->choice == TOOLS_REQUIRED || tools->choice == TOOLS_NAMED || tools->allowed;
    if (wants_call && !tools->list)
        return error_set_param(error, ERR_INVALID, "tool_choice",
                               "'tool_choice' wants a call, but there are no 'tools'");
    if (tools->choice == TOOLS_NAMED && !check_known(tools, tools->name, "tool_choice.function.name", error))
        return false;
    for (const cJSON *item = tools->allowed ? tools->allowed->child : NULL; item; item = item->next)
        if (!check_known(tools, api_tool_name(item), "tool_choice.allowed_tools.tools", error)) return false;
    return true;
}

bool api_tools_may_call(const ApiTools *tools)
{
    return tools->list && tools->choice != TOOLS_NONE;
}

bool api_tools_allows(const ApiTools *tools, const cJSON *tool)
{
    const char *name = api_tool_name(tool);
    if (tools->choice == TOOLS_NAMED) return !strcmp(name, tools->name);
    return !tools->allowed || find_tool(tools->allowed, name);
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
