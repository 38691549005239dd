/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields that say what an answer must be: response_format, grammar, regex, choice, json_schema, and vLLM's names of
 * them. A request has one of them at most. Pool thread; the item is borrowed from the body's tree.
 */
#pragma once
#include "server/api_json.h"

enum { API_MAX_GUIDE_CHOICES = 4096, API_MAX_SCHEMA_NAME = 64 };

typedef enum ApiGuideKind {
    API_GUIDE_NONE,
    API_GUIDE_GRAMMAR,
    API_GUIDE_REGEX,
    API_GUIDE_CHOICE,
    API_GUIDE_SCHEMA,
    API_GUIDE_JSON_OBJECT, /* any object */
} ApiGuideKind;

typedef struct ApiGuide {
    ApiGuideKind kind;
    char path[48];     /* the field */
    const cJSON *item; /* a string, an array of strings; of a schema an object, or a string that has one */
    bool is_strict;    /* a schema by OpenAI's strict mode */
} ApiGuide;

/* A field of that kind; empty ones ask for nothing. ERR_INVALID: there is another already. */
LW_CHECK bool api_guide_read(ApiGuide *guide, ApiGuideKind kind, const cJSON *item, const char *path, Error *error);
/* response_format: text asks for nothing, json_object, json_schema. */
LW_CHECK bool api_guide_read_format(ApiGuide *guide, const cJSON *item, Error *error);
/* structured_outputs: an object of such fields. */
LW_CHECK bool api_guide_read_object(ApiGuide *guide, const cJSON *item, Error *error);
