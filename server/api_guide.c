/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_guide.h"

#include <stdio.h>
#include <string.h>

static bool check_choices(const cJSON *item, const char *path, Error *error)
{
    size_t n, i = 0;
    const char *text;
    if (!json_get_array(item, path, API_MAX_GUIDE_CHOICES, &n, error)) return false;
    for (const cJSON *one = item->child; one; one = one->next) {
        char at[64];
        snprintf(at, sizeof at, "%s[%zu]", path, i++);
        if (!json_get_string(one, at, &text, error)) return false;
    }
    return true;
}

bool api_guide_read(ApiGuide *guide, ApiGuideKind kind, const cJSON *item, const char *path, Error *error)
{
    const char *text = "";
    bool ok = kind == API_GUIDE_CHOICE ? check_choices(item, path, error) : json_get_string(item, path, &text, error);
    if (!ok) return false;
    if (kind == API_GUIDE_CHOICE ? !item->child : !*text) return true;
    if (guide->kind != API_GUIDE_NONE)
        return error_set_param(error, ERR_INVALID, path, "'%s' and '%s' exclude each other", path, guide->path);
    *guide = (ApiGuide){.kind = kind, .item = item};
    snprintf(guide->path, sizeof guide->path, "%s", path);
    return true;
}

bool api_guide_read_object(ApiGuide *guide, const cJSON *item, Error *error)
{
    static const struct {
        const char *name;
        ApiGuideKind kind;
    } members[] = {{"grammar", API_GUIDE_GRAMMAR}, {"regex", API_GUIDE_REGEX}, {"choice", API_GUIDE_CHOICE}};
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
