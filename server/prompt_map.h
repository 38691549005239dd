/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a token of a prompt stands in what the client sent: in which message, at which of its characters. Messages are
 * found in the prompt's text by their contents, in order; a template that changes them leaves gaps. Immutable once
 * made; any thread.
 */
#pragma once
#include "engine/text/tokenizer.h"
#include <cjson/cJSON.h>

typedef struct PromptMap PromptMap;

#define PROMPT_MAP_NONE UINT32_MAX

typedef struct PromptPlace {
    uint32_t message;   /* PROMPT_MAP_NONE: in none, and then the character is one of the whole prompt */
    uint32_t character; /* code points */
} PromptPlace;

/* messages: the array of a chat, contents as strings, or NULL. */
LW_CHECK bool prompt_map_new(const Tokenizer *tokenizer, const TokenList *tokens, const cJSON *messages,
                             PromptMap **ret_map, Error *error);
void prompt_map_free(PromptMap *map); /* NULL is fine */
PromptPlace prompt_map_find(const PromptMap *map, uint32_t token);
