/* SPDX-License-Identifier: Apache-2.0 */
#include "server/answer_ids.h"
#include "server/turn_hash.h"

void answer_ids_init(AnswerIds *answer, uint64_t context_hash, const PromptHashes *hashes)
{
    *answer = (AnswerIds){.is_wanted = true, .context_hash = context_hash, .hashes = *hashes};
    answer_parts_init(&answer->parts, ANSWER_IDS_MAX_BYTES);
}

void answer_ids_done(AnswerIds *answer)
{
    answer_parts_done(&answer->parts);
    token_list_done(&answer->ids);
    answer->is_wanted = false;
}

void answer_ids_add(AnswerIds *answer, const TokensPayload *tokens)
{
    Error error;
    const char *text = tokens->text;
    if (!answer->is_wanted) return;
    for (uint32_t i = 0; i < tokens->n_parts; text += tokens->parts[i++].n_bytes)
        answer_parts_add(&answer->parts, tokens->parts[i].kind, text, tokens->parts[i].n_bytes);
    if (!tokens->n_parts) answer_parts_add(&answer->parts, PART_CONTENT, tokens->text, tokens->text_bytes);
    bool ok = answer_parts_end(&answer->parts, &error);
    for (uint32_t i = 0; ok && i < tokens->n_tokens; i++)
        ok = token_list_push(&answer->ids, tokens->tokens[i].sample.id, &error);
    if (!ok) answer_ids_done(answer);
}

static void keep_reasoning(const AnswerIds *answer, uint64_t hash, TokenMemory *memory)
{
    Buffer reasoning;
    Error ignored;
    const char *text = answer->parts.text.data;
    bool ok = true;
    buffer_init(&reasoning, ANSWER_IDS_MAX_BYTES);
    for (uint32_t i = 0; i < answer->parts.n; text += answer->parts.items[i++].n_bytes)
        if (answer->parts.items[i].kind == PART_REASONING)
            ok = ok && buffer_append(&reasoning, text, answer->parts.items[i].n_bytes, &ignored);
    if (ok && reasoning.n) token_memory_keep_note(memory, hash, reasoning.data, reasoning.n);
    buffer_done(&reasoning);
}

void answer_ids_keep(AnswerIds *answer, TokenMemory *memory)
{
    const AnswerParts *parts = &answer->parts;
    if (answer->is_wanted && answer->hashes.is_turn) {
        const TokenTurn turn = {.context_hash = answer->context_hash,
                                .text_hash = answer->hashes.text,
                                .answer_hash = turn_hash_answer(answer->hashes.messages, parts)};
        token_memory_keep_turn(memory, &turn, answer->ids.ids, answer->ids.n);
        keep_reasoning(answer, turn.answer_hash, memory);
    } else if (answer->is_wanted) {
        token_memory_keep(memory, answer->context_hash, parts->text.data, parts->text.n, answer->ids.ids,
                          answer->ids.n);
    }
    answer_ids_done(answer);
}
