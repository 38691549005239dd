/* SPDX-License-Identifier: Apache-2.0 */
#include "server/answer_ids.h"

void answer_ids_init(AnswerIds *answer, uint64_t context_hash)
{
    *answer = (AnswerIds){.is_wanted = true, .context_hash = context_hash};
    buffer_init(&answer->text, ANSWER_IDS_MAX_BYTES);
}

void answer_ids_done(AnswerIds *answer)
{
    buffer_done(&answer->text);
    token_list_done(&answer->ids);
    answer->is_wanted = false;
}

void answer_ids_add(AnswerIds *answer, const TokensPayload *tokens)
{
    Error error;
    bool ok = answer->is_wanted && buffer_append(&answer->text, tokens->text, tokens->text_bytes, &error);
    for (uint32_t i = 0; ok && i < tokens->n_tokens; i++)
        ok = token_list_push(&answer->ids, tokens->tokens[i].sample.id, &error);
    if (!ok) answer_ids_done(answer);
}

void answer_ids_keep(AnswerIds *answer, TokenMemory *memory)
{
    if (answer->is_wanted)
        token_memory_keep(memory, answer->context_hash, answer->text.data, answer->text.n, answer->ids.ids,
                          answer->ids.n);
    answer_ids_done(answer);
}
