/* SPDX-License-Identifier: Apache-2.0 */
#include "server/name_list.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool add(NameList *names, const NameListKind *kind, const char *text, Error *error)
{
    if (!strcmp(text, "*")) {
        names->all = true;
        return true;
    }
    if (!kind->is_one(text))
        return error_set_param(error, ERR_INVALID, kind->option, "%s: '%.100s' is no %s such as %s, and not *",
                               kind->option, text, kind->one, kind->such_as);
    if (names->n == NAME_LIST_MAX)
        return error_set_param(error, ERR_TOO_LARGE, kind->option, "%s has more than %d %ss", kind->option,
                               NAME_LIST_MAX, kind->one);
    names->names[names->n++] = text;
    return true;
}

bool name_list_read(NameList *names, const NameListKind *kind, const char *list, Error *error)
{
    *names = (NameList){.text = strdup(list ? list : "")};
    if (!names->text) return error_set(error, ERR_NO_MEMORY, "no memory for %s", kind->option);
    char *rest = NULL;
    for (char *one = strtok_r(names->text, ", ", &rest); one; one = strtok_r(NULL, ", ", &rest))
        if (!add(names, kind, one, error)) return false;
    return true;
}

void name_list_done(NameList *names)
{
    free(names->text);
}

bool name_list_has(const NameList *names, const char *name)
{
    if (names->all) return true;
    for (size_t i = 0; i < names->n; i++)
        if (!strcasecmp(names->names[i], name)) return true;
    return false;
}
