/* SPDX-License-Identifier: Apache-2.0 */
/* The ids and the text of one choice, gathered while it is written, for the memory of tokens. Loop thread. */
#pragma once
#include "engine/text/token_memory.h"
#include "scheduler/messages.h"

enum { ANSWER_IDS_MAX_BYTES = 1 << 20 };

/* {0}: of a choice that is not to be remembered, as one that is too long. */
typedef struct AnswerIds {
    Buffer text;
    TokenList ids;
    bool is_wanted;
    uint64_t context_hash; /* token_memory_hash of the prompt */
} AnswerIds;

void answer_ids_init(AnswerIds *answer, uint64_t context_hash);
void answer_ids_done(AnswerIds *answer);
void answer_ids_add(AnswerIds *answer, const TokensPayload *tokens);
/* The choice is complete. */
void answer_ids_keep(AnswerIds *answer, TokenMemory *memory);
