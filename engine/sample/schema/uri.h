/* SPDX-License-Identifier: Apache-2.0 */
/* Just enough of RFC 3986 to tell what a '$ref' or '$id' points at. Any thread. */
#pragma once
#include "base/arena.h"

/* reference against base, both without fragment, base may be ""; NULL when memory is out. */
const char *uri_resolve(const char *base, const char *reference, Arena *arena);
/* Percent escapes taken out of n bytes; NULL when memory is out. A bad escape stays as it is. */
const char *uri_unescape(const char *text, size_t n, Arena *arena);
