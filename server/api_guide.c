/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_guide.h"

#include <stdio.h>
#include <string.h>

static bool says_nothing(const char *path, Error *error)
{
    return error_set_param(error, ERR_INVALID, path, "'%s' must not be empty", path);
}

static bool check_choices(const cJSON *item, const char *path, Error *error)
{
    size_t n, i = 0;
    const char *text;
    if (!json_get_array(item, path, API_MAX_GUIDE_CHOICES, &n, error)) return false;
    if (n == 0) return says_nothing(path, error);
    for (const cJSON *one = item->child; one; one = one->next) {
        char at[64];
        snprintf(at, sizeof at, "%s[%zu]", path, i++);
        if (!json_get_string(one, at, &text, error)) return false;
    }
    return true;
}

static bool check_schema(const cJSON *item, const char *path, Error *error)
{
    if (!cJSON_IsString(item)) return json_get_object(item, path, error);
    return *item->valuestring || says_nothing(path, error);
}

static bool check_text(const cJSON *item, const char *path, Error *error)
{
    const char *text;
    return json_get_string(item, path, &text, error);
}

static bool check_switch(const cJSON *item, const char *path, Error *error)
{
    bool on;
    return json_get_bool(item, path, &on, error);
}

static bool (*const checks[])(const cJSON *item, const char *path, Error *error) = {
    [API_GUIDE_GRAMMAR] = check_text,  [API_GUIDE_REGEX] = check_text,         [API_GUIDE_CHOICE] = check_choices,
    [API_GUIDE_SCHEMA] = check_schema, [API_GUIDE_JSON_OBJECT] = check_switch,
};

/* Clients send an empty pattern or grammar for none. */
static bool asks_for_nothing(const cJSON *item)
{
    return cJSON_IsFalse(item) || (cJSON_IsString(item) && !*item->valuestring);
}

static bool set_guide(ApiGuide *guide, ApiGuideKind kind, const cJSON *item, const char *path, Error *error)
{
    if (guide->kind != API_GUIDE_NONE)
        return error_set_param(error, ERR_INVALID, path, "'%s' and '%s' exclude each other", path, guide->path);
    *guide = (ApiGuide){.kind = kind, .item = item};
    snprintf(guide->path, sizeof guide->path, "%s", path);
    return true;
}

bool api_guide_read(ApiGuide *guide, ApiGuideKind kind, const cJSON *item, const char *path, Error *error)
{
    return checks[kind](item, path, error) && (asks_for_nothing(item) || set_guide(guide, kind, item, path, error));
}

/* ---- response_format ---- */

#define SCHEMA_PATH "response_format.json_schema"

static bool missing(const char *path, Error *error)
{
    return error_set_param(error, ERR_INVALID, path, "'%s' is missing", path);
}

static bool check_name(const cJSON *item, Error *error)
{
    static const char path[] = SCHEMA_PATH ".name";
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    const char *name;
    if (!item) return missing(path, error);
    if (!json_get_string(item, path, &name, error)) return false;
    size_t n = strlen(name);
    if (n && n <= API_MAX_SCHEMA_NAME && strspn(name, allowed) == n) return true;
    return error_set_param(error, ERR_INVALID, path, "'%s' must have 1 to %d of the characters a-z, A-Z, 0-9, _ and -",
                           path, API_MAX_SCHEMA_NAME);
}

static bool read_schema_format(ApiGuide *guide, const cJSON *item, Error *error)
{
    static const char schema_path[] = SCHEMA_PATH ".schema";
    const char *description;
    bool is_strict = false;
    if (!item) return missing(SCHEMA_PATH, error);
    if (!json_get_object(item, SCHEMA_PATH, error) || !check_name(json_member(item, "name"), error)) return false;
    const cJSON *about = json_member(item, "description"), *strict = json_member(item, "strict");
    const cJSON *schema = json_member(item, "schema");
    if (about && !json_get_string(about, SCHEMA_PATH ".description", &description, error)) return false;
    if (strict && !json_get_bool(strict, SCHEMA_PATH ".strict", &is_strict, error)) return false;
    if (!schema) return missing(schema_path, error);
    if (!json_get_object(schema, schema_path, error) || !set_guide(guide, API_GUIDE_SCHEMA, schema, schema_path, error))
        return false;
    guide->is_strict = is_strict;
    return true;
}

bool api_guide_read_format(ApiGuide *guide, const cJSON *item, Error *error)
{
    const char *type;
    if (!json_get_object(item, "response_format", error)) return false;
    if (!json_member(item, "type")) return missing("response_format.type", error);
    if (!json_get_string(json_member(item, "type"), "response_format.type", &type, error)) return false;
    if (!strcmp(type, "text")) return true;
    if (!strcmp(type, "json_schema")) return read_schema_format(guide, json_member(item, "json_schema"), error);
    const cJSON *schema = json_member(item, "schema"); /* llama.cpp's way */
    if (!strcmp(type, "json_object"))
        return schema ? api_guide_read(guide, API_GUIDE_SCHEMA, schema, "response_format.schema", error)
                      : set_guide(guide, API_GUIDE_JSON_OBJECT, item, "response_format", error);
    return error_set_param(error, ERR_INVALID, "response_format.type",
                           "'response_format.type' must be 'text', 'json_object' or 'json_schema'");
}

/* ---- structured_outputs ---- */

bool api_guide_read_object(ApiGuide *guide, const cJSON *item, Error *error)
{
    static const struct {
        const char *name;
        ApiGuideKind kind;
    } members[] = {{"grammar", API_GUIDE_GRAMMAR},
                   {"regex", API_GUIDE_REGEX},
                   {"choice", API_GUIDE_CHOICE},
                   {"json", API_GUIDE_SCHEMA},
                   {"json_object", API_GUIDE_JSON_OBJECT}};
    enum { N_MEMBERS = sizeof members / sizeof *members };
    if (!json_get_object(item, "structured_outputs", error)) return false;
    for (const cJSON *one = item->child; one; one = one->next) {
        char path[48];
        size_t i = 0;
        if (cJSON_IsNull(one)) continue;
        snprintf(path, sizeof path, "structured_outputs.%.24s", one->string);
        while (i < N_MEMBERS && strcmp(members[i].name, one->string)) i++;
        if (i == N_MEMBERS) return error_set_param(error, ERR_UNSUPPORTED, path, "'%s' is not supported", path);
        if (!api_guide_read(guide, members[i].kind, one, path, error)) return false;
    }
    return true;
}
