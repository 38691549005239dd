/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a schema object says, keyword by keyword, each checked for its form. Keywords that would change which values are
 * valid and are not supported are refused; annotations and what no draft of JSON Schema knows are passed over.
 * Immutable; borrowed from the schema's tree.
 */
#pragma once
#include "base/error.h"
#include <cjson/cJSON.h>
#include <stdint.h>

typedef enum Keyword {
    KEY_REF,
    KEY_ALL_OF,
    KEY_ANY_OF,
    KEY_ONE_OF,
    KEY_NOT,
    KEY_IF,
    KEY_THEN,
    KEY_ELSE,
    KEY_TYPE,
    KEY_ENUM,
    KEY_CONST,
    KEY_MINIMUM,
    KEY_MAXIMUM,
    KEY_EXCLUSIVE_MINIMUM,
    KEY_EXCLUSIVE_MAXIMUM,
    KEY_MULTIPLE_OF,
    KEY_MIN_LENGTH,
    KEY_MAX_LENGTH,
    KEY_PATTERN,
    KEY_FORMAT,
    KEY_ITEMS,
    KEY_PREFIX_ITEMS,
    KEY_ADDITIONAL_ITEMS,
    KEY_MIN_ITEMS,
    KEY_MAX_ITEMS,
    KEY_PROPERTIES,
    KEY_PATTERN_PROPERTIES,
    KEY_ADDITIONAL_PROPERTIES,
    KEY_PROPERTY_NAMES,
    KEY_REQUIRED,
    KEY_MIN_PROPERTIES,
    KEY_MAX_PROPERTIES,
    KEY_COUNT
} Keyword;

typedef struct Keywords {
    const cJSON *schema;         /* an object */
    const cJSON *key[KEY_COUNT]; /* NULL: absent */
} Keywords;

/* The error names the keyword, not where the schema is. */
LW_CHECK bool keywords_read(const cJSON *schema, Keywords *ret_keywords, Error *error);
/* A count: absent is the default given. */
uint32_t keywords_count(const Keywords *keywords, Keyword key, uint32_t absent);

/* Which schemas stand below a schema object, for walking: calls visit for each. */
typedef bool KeywordsVisit(const cJSON *schema, void *arg);
LW_CHECK bool keywords_walk(const cJSON *schema, KeywordsVisit *visit, void *arg);
