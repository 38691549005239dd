/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON list of token ids, each checked against the vocabulary. Pool thread. */
#pragma once
#include "engine/text/tokenizer.h"
#include "server/api_json.h"

/* Appends to *list. */
LW_CHECK bool api_ids_read(const cJSON *array, const char *path, uint32_t n_vocab, TokenList *list, Error *error);
