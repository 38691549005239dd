/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/messages.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 4096 };

static bool is_valid(const char *session)
{
    size_t n = strlen(session);
    for (size_t i = 0; i < n; i++) {
        char c = session[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_letter && !(c >= '0' && c <= '9') && c != '_' && c != '-') return false;
    }
    return n >= 1 && n <= SESSION_MAX_ID_BYTES;
}

bool session_call_new(RequestId id, SessionOp op, const char *session, SessionCall **ret_call, Error *error)
{
    if (!is_valid(session))
        return error_set_param(error, ERR_INVALID, "id", "a session's id is 1 to %d of the characters A-Z a-z 0-9 _ -",
                               SESSION_MAX_ID_BYTES);
    SessionCall *call = calloc(1, sizeof *call);
    if (!call) return error_set(error, ERR_NO_MEMORY, "no memory for a session");
    call->id = id;
    call->op = op;
    memcpy(call->session, session, strlen(session));
    arena_init(&call->arena, BLOCK_BYTES, SIZE_MAX);
    *ret_call = call;
    return true;
}

bool session_call_set_tokens(SessionCall *call, const uint32_t *tokens, uint32_t n_tokens, const char *salt,
                             uint32_t n_salt, Error *error)
{
    uint32_t *ids = arena_array(&call->arena, n_tokens, sizeof *ids);
    char *copy = arena_copy(&call->arena, n_salt ? salt : "", n_salt);
    if (!ids || !copy) return error_set(error, ERR_NO_MEMORY, "no memory for a session of %u tokens", n_tokens);
    if (n_tokens) memcpy(ids, tokens, n_tokens * sizeof *ids);
    call->tokens = ids;
    call->n_tokens = n_tokens;
    call->salt = copy;
    call->n_salt = n_salt;
    return true;
}

void session_call_free(SessionCall *call)
{
    if (!call) return;
    arena_done(&call->arena);
    free(call);
}
