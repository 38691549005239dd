/* SPDX-License-Identifier: Apache-2.0 */
/* Of which kinds JSON values are, and those of an object's members by their names. Immutable; any thread. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef enum Kind {
    KIND_NULL = 1,
    KIND_FALSE = 2,
    KIND_TRUE = 4,
    KIND_NUMBER = 8,
    KIND_STRING = 16,
    KIND_ARRAY = 32,
    KIND_OBJECT = 64,
    KINDS_SCALAR = 31,
    KINDS_ALL = 127
} Kind;

typedef struct MemberKinds {
    const char *name;
    uint32_t kinds;
} MemberKinds;

typedef struct ObjectKinds {
    const MemberKinds *members; /* [n] sorted by name */
    uint32_t n;
    uint32_t others; /* of members that the list does not have */
} ObjectKinds;

/* Keys that forms without quotes around them can tell, as patterns: bare words, texts between tags. */
#define TOOL_KEY_BARE "^[A-Za-z0-9_\\u0080-\\u{10FFFF}][A-Za-z0-9_.+\\-\\u0080-\\u{10FFFF}]{0,127}$"
#define TOOL_KEY_TAGGED "^[^<>\\n]{1,128}$"

/* name [n] may hold any bytes */
uint32_t object_kinds_of(const ObjectKinds *object, const char *name, size_t n);
