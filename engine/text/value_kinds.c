/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/value_kinds.h"

#include <stdlib.h>
#include <string.h>

typedef struct Name {
    const char *text;
    size_t n;
} Name;

static int compare(const void *key, const void *item)
{
    const Name *name = key;
    const char *other = ((const MemberKinds *)item)->name;
    size_t n_other = strlen(other);
    int order = memcmp(name->text, other, name->n < n_other ? name->n : n_other);
    return order ? order : (name->n > n_other) - (name->n < n_other);
}

uint32_t object_kinds_of(const ObjectKinds *object, const char *name, size_t n)
{
    const Name key = {name, n};
    const MemberKinds *found =
        object->n && n ? bsearch(&key, object->members, object->n, sizeof *found, compare) : NULL;
    return found ? found->kinds : object->others;
}
