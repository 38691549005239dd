/* SPDX-License-Identifier: Apache-2.0 */
/* The value of an option that lists names, with commas or blanks between; '*' is all of them. Case does not count. */
#pragma once
#include "base/error.h"

#include <stddef.h>

enum { NAME_LIST_MAX = 64 };

typedef struct NameListKind {
    const char *option, *one, *such_as; /* "cors_origins", "origin" and an example of one, for messages */
    bool (*is_one)(const char *text);
} NameListKind;

typedef struct NameList {
    bool all;
    size_t n;
    char *text; /* what the names point into */
    const char *names[NAME_LIST_MAX];
} NameList;

/* list NULL: an empty one. After a failure too name_list_done. */
LW_CHECK bool name_list_read(NameList *names, const NameListKind *kind, const char *list, Error *error);
void name_list_done(NameList *names);
bool name_list_has(const NameList *names, const char *name);
