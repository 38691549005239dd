/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/messages.h"

#include <stdlib.h>

enum { REQUEST_BLOCK_BYTES = 480 }; /* a thousand may wait: what most need, and no more */

Request *request_new(RequestId id, size_t max_arena_bytes)
{
    Request *request = calloc(1, sizeof *request);
    Error *failure = calloc(1, sizeof *failure);
    if (!request || !failure) {
        free(request);
        free(failure);
        return NULL;
    }
    request->id = id;
    request->n_choices = 1;
    request->failure = failure;
    arena_init(&request->arena, REQUEST_BLOCK_BYTES, max_arena_bytes);
    sampling_defaults(&request->sampling);
    return request;
}

void request_free(Request *request)
{
    if (!request) return;
    arena_done(&request->arena);
    grammar_release(request->grammar);
    free(request->failure);
    free(request);
}

bool tokens_payload_new(uint32_t n_tokens, TokensPayload **ret_payload, Error *error)
{
    typedef struct Block {
        TokensPayload payload;
        EventToken tokens[];
    } Block;
    Block *block = calloc(1, sizeof *block + (size_t)n_tokens * sizeof *block->tokens);
    if (!block) return error_set(error, ERR_NO_MEMORY, "no memory for an event of %u tokens", n_tokens);
    block->payload.n_tokens = n_tokens;
    block->payload.tokens = block->tokens;
    *ret_payload = &block->payload;
    return true;
}

void tokens_payload_free(TokensPayload *payload)
{
    if (!payload) return;
    free(payload->text);
    free(payload->parts);
    free(payload);
}

void event_done(Event *event)
{
    if (event->kind == EVENT_TOKENS) tokens_payload_free(event->tokens);
    if (event->kind == EVENT_FAILED) free(event->error);
    if (event->kind == EVENT_STATS) free(event->stats);
    if (event->kind == EVENT_SESSION) session_call_free(event->session);
    *event = (Event){0};
}
