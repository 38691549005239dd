/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversations as numbers: roles, contents and calls of tools, whether reasoning is told or not. What is known of an
 * answer by this number is its reasoning, for clients that do not send it back. Any thread.
 */
#pragma once
#include "engine/text/answer_parts.h"
#include "engine/text/token_memory.h"
#include <cjson/cJSON.h>

/* Of messages as chat_messages_normalise leaves them. */
uint64_t turn_hash_messages(const TokenMemory *memory, const TokenContext *context, const cJSON *messages);
/* The same with an answer behind them. */
uint64_t turn_hash_answer(uint64_t messages_hash, const AnswerParts *answer);
/* Of each assistant's message, with all before it. *ret_hashes: [*ret_n], for free(). */
LW_CHECK bool turn_hash_list(const TokenMemory *memory, const TokenContext *context, const cJSON *messages,
                             uint64_t **ret_hashes, size_t *ret_n, Error *error);
/* Adds the reasoning that is known of assistants' messages without any. */
LW_CHECK bool turn_hash_restore(TokenMemory *memory, const TokenContext *context, cJSON *messages, Error *error);
