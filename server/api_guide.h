/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields that say what an answer must be: grammar, regex, choice, and vLLM's names of them. A request has one of them
 * at most. Pool thread; the item is borrowed from the body's tree.
 */
#pragma once
#include "server/api_json.h"

enum { API_MAX_GUIDE_CHOICES = 4096 };

typedef enum ApiGuideKind { API_GUIDE_NONE, API_GUIDE_GRAMMAR, API_GUIDE_REGEX, API_GUIDE_CHOICE } ApiGuideKind;

typedef struct ApiGuide {
    ApiGuideKind kind;
    char path[48];     /* the field */
    const cJSON *item; /* a string, or an array of strings */
} ApiGuide;

/* A field of that kind; empty ones ask for nothing. ERR_INVALID: there is another already. */
LW_CHECK bool api_guide_read(ApiGuide *guide, ApiGuideKind kind, const cJSON *item, const char *path, Error *error);
/* structured_outputs: an object of such fields. */
LW_CHECK bool api_guide_read_object(ApiGuide *guide, const cJSON *item, Error *error);
