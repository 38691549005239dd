/* SPDX-License-Identifier: Apache-2.0 */
#include "server/turn_hash.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_REASONING_BYTES = 64 << 20 };

/* Behind each text, so that no two texts are one. */
typedef enum Ends { END_ROLE = 1, END_CONTENT, END_NAME, END_ARGUMENTS, END_MESSAGE } Ends;

static uint64_t mix(uint64_t hash, const char *text, size_t n, Ends end)
{
    const char last = (char)end;
    return token_memory_mix(token_memory_mix(hash, text, n), &last, 1);
}

static uint64_t mix_text(uint64_t hash, const cJSON *item, Ends end)
{
    const char *text = cJSON_IsString(item) ? item->valuestring : "";
    return mix(hash, text, strlen(text), end);
}

static uint64_t mix_calls(uint64_t hash, const cJSON *calls)
{
    for (const cJSON *call = cJSON_IsArray(calls) ? calls->child : NULL; call; call = call->next) {
        const cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function");
        const cJSON *arguments = cJSON_GetObjectItemCaseSensitive(function, "arguments");
        hash = mix_text(hash, cJSON_GetObjectItemCaseSensitive(function, "name"), END_NAME);
        hash = mix_text(hash, arguments, END_ARGUMENTS);
    }
    return hash;
}

static uint64_t mix_message(uint64_t hash, const cJSON *message)
{
    hash = mix_text(hash, cJSON_GetObjectItemCaseSensitive(message, "role"), END_ROLE);
    hash = mix_text(hash, cJSON_GetObjectItemCaseSensitive(message, "content"), END_CONTENT);
    hash = mix_calls(hash, cJSON_GetObjectItemCaseSensitive(message, "tool_calls"));
    return mix(hash, "", 0, END_MESSAGE);
}

uint64_t turn_hash_messages(const TokenMemory *memory, const TokenContext *context, const cJSON *messages)
{
    uint64_t hash = token_memory_begin(memory, context);
    for (const cJSON *message = messages->child; message; message = message->next) hash = mix_message(hash, message);
    return hash;
}

static uint64_t mix_kind(uint64_t hash, const AnswerParts *answer, PartKind kind)
{
    const char *text = answer->text.data;
    for (uint32_t i = 0; i < answer->n; text += answer->items[i++].n_bytes)
        if (answer->items[i].kind == kind) hash = token_memory_mix(hash, text, answer->items[i].n_bytes);
    return hash;
}

uint64_t turn_hash_answer(uint64_t messages_hash, const AnswerParts *answer)
{
    uint64_t hash = mix(messages_hash, "assistant", strlen("assistant"), END_ROLE);
    const char *text = answer->text.data;
    hash = mix(mix_kind(hash, answer, PART_CONTENT), "", 0, END_CONTENT);
    for (uint32_t i = 0; i < answer->n; text += answer->items[i++].n_bytes) {
        uint32_t n = answer->items[i].n_bytes;
        if (answer->items[i].kind != PART_CALL) continue;
        bool has_arguments = i + 1 < answer->n && answer->items[i + 1].kind == PART_ARGUMENTS;
        hash = mix(hash, text, n, END_NAME);
        hash = mix(hash, text + n, has_arguments ? answer->items[i + 1].n_bytes : 0, END_ARGUMENTS);
    }
    return mix(hash, "", 0, END_MESSAGE);
}

static bool has_reasoning(const cJSON *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(message, names[i]);
        if (item && !cJSON_IsNull(item)) return true;
    }
    return false;
}

static bool restore(TokenMemory *memory, uint64_t hash, cJSON *message, Error *error)
{
    Buffer text;
    bool found;
    buffer_init(&text, MAX_REASONING_BYTES);
    bool ok = token_memory_note(memory, hash, &text, &found, error);
    if (ok && found) {
        cJSON_DeleteItemFromObjectCaseSensitive(message, "reasoning_content");
        ok = cJSON_AddStringToObject(message, "reasoning_content", text.data ? text.data : "") ||
             error_set(error, ERR_NO_MEMORY, "no memory for the messages");
    }
    buffer_done(&text);
    return ok;
}

static bool is_answer(const cJSON *message)
{
    const cJSON *role = cJSON_GetObjectItemCaseSensitive(message, "role");
    return cJSON_IsString(role) && !strcmp(role->valuestring, "assistant");
}

bool turn_hash_list(const TokenMemory *memory, const TokenContext *context, const cJSON *messages,
                    uint64_t **ret_hashes, size_t *ret_n, Error *error)
{
    uint64_t hash = token_memory_begin(memory, context);
    uint64_t *hashes = calloc((size_t)cJSON_GetArraySize(messages) + 1, sizeof *hashes);
    size_t n = 0;
    if (!hashes) return error_set(error, ERR_NO_MEMORY, "no memory for the messages");
    for (const cJSON *message = messages->child; message; message = message->next) {
        hash = mix_message(hash, message);
        if (is_answer(message)) hashes[n++] = hash;
    }
    *ret_hashes = hashes;
    *ret_n = n;
    return true;
}

bool turn_hash_restore(TokenMemory *memory, const TokenContext *context, cJSON *messages, Error *error)
{
    uint64_t hash = token_memory_begin(memory, context);
    for (cJSON *message = messages->child; message; message = message->next) {
        hash = mix_message(hash, message);
        if (is_answer(message) && !has_reasoning(message) && !restore(memory, hash, message, error)) return false;
    }
    return true;
}
