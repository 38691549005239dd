/* SPDX-License-Identifier: Apache-2.0 */
/* The ids and the text of one choice, gathered while it is written, for the memory of tokens. Loop thread. */
#pragma once
#include "engine/text/answer_parts.h"
#include "engine/text/token_memory.h"
#include "scheduler/messages.h"

enum { ANSWER_IDS_MAX_BYTES = 1 << 20 };

/* What a prompt is known by. */
typedef struct PromptHashes {
    bool is_turn;  /* its answers are turns: they may be more than content */
    uint64_t text; /* token_memory_text_hash */
    uint64_t messages;
} PromptHashes;

/* {0}: of a choice that is not to be remembered, as one that is too long. */
typedef struct AnswerIds {
    AnswerParts parts;
    TokenList ids;
    bool is_wanted;
    PromptHashes hashes;
    uint64_t context_hash; /* token_memory_hash of the prompt */
} AnswerIds;

void answer_ids_init(AnswerIds *answer, uint64_t context_hash, const PromptHashes *hashes);
void answer_ids_done(AnswerIds *answer);
void answer_ids_add(AnswerIds *answer, const TokensPayload *tokens);
/* The choice is complete. */
void answer_ids_keep(AnswerIds *answer, TokenMemory *memory);
