/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_longwave.h"

#include <stdio.h>
#include <string.h>

#define ATTENTION "longwave.attention"

/* Every member changes something, so an unknown one is no detail to pass over. */
static bool refuse_member(const char *object, const cJSON *item, Error *error)
{
    char path[96];
    snprintf(path, sizeof path, "%s.%.40s", object, item->string);
    return error_set_param(error, ERR_UNSUPPORTED, path, "'%s' is not supported", path);
}

static bool read_attention_member(const cJSON *item, ApiLongwave *longwave, Error *error)
{
    if (cJSON_IsNull(item)) return true;
    if (!strcmp(item->string, "preset")) return json_get_string(item, ATTENTION ".preset", &longwave->preset, error);
    if (!strcmp(item->string, "roles")) return json_get_string(item, ATTENTION ".roles", &longwave->roles, error);
    return refuse_member(ATTENTION, item, error);
}

static bool read_attention(const cJSON *item, ApiLongwave *longwave, Error *error)
{
    if (cJSON_IsString(item)) return json_get_string(item, ATTENTION, &longwave->preset, error);
    if (!cJSON_IsObject(item))
        return error_set_param(error, ERR_INVALID, ATTENTION, "'" ATTENTION "' must be a string or an object, not %s",
                               json_type_name(item));
    for (const cJSON *member = item->child; member; member = member->next)
        if (!read_attention_member(member, longwave, error)) return false;
    return true;
}

bool api_longwave_read(const cJSON *item, ApiLongwave *ret_longwave, Error *error)
{
    ApiLongwave longwave = {0};
    if (!json_get_object(item, "longwave", error)) return false;
    for (const cJSON *member = item->child; member; member = member->next) {
        if (cJSON_IsNull(member)) continue;
        if (!strcmp(member->string, "attention")) {
            if (!read_attention(member, &longwave, error)) return false;
        } else if (!strcmp(member->string, "progress")) {
            if (!json_get_bool(member, "longwave.progress", &longwave.progress, error)) return false;
        } else {
            return refuse_member("longwave", member, error);
        }
    }
    *ret_longwave = longwave;
    return true;
}

static bool same(const char *a, const char *b)
{
    return !a || !b ? a == b : !strcmp(a, b);
}

/* "'dense', 'dense' with roles 'a'" into text, as far as there is room. */
static void list_policies(const ServedPolicy *policies, uint32_t n_policies, char *text, size_t room)
{
    size_t n = 0;
    for (uint32_t i = 0; i < n_policies && n < room; i++) {
        const char *comma = i ? ", " : "", *roles = policies[i].roles;
        int more = roles
                       ? snprintf(text + n, room - n, "%s'%.40s' with roles '%.40s'", comma, policies[i].preset, roles)
                       : snprintf(text + n, room - n, "%s'%.40s'", comma, policies[i].preset);
        n += more > 0 ? (size_t)more : 0;
    }
}

bool api_longwave_policy(const ApiLongwave *longwave, const ServedPolicy *policies, uint32_t n, uint32_t *ret_policy,
                         Error *error)
{
    const char *preset = longwave->preset && strcmp(longwave->preset, "auto") ? longwave->preset : policies[0].preset;
    char known[256] = "";
    for (uint32_t i = 0; i < n; i++)
        if (same(policies[i].preset, preset) && same(policies[i].roles, longwave->roles)) {
            *ret_policy = i;
            return true;
        }
    list_policies(policies, n, known, sizeof known);
    if (longwave->roles)
        return error_set_param(error, ERR_INVALID, ATTENTION,
                               "'" ATTENTION "' asks for '%.40s' with roles '%.40s'; "
                               "this server has %s",
                               preset, longwave->roles, known);
    return error_set_param(error, ERR_INVALID, ATTENTION, "'" ATTENTION "' asks for '%.40s'; this server has %s",
                           preset, known);
}
