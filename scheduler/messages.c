/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/messages.h"

#include <stdlib.h>

enum { REQUEST_BLOCK_BYTES = 16 * 1024 };

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
    free(request->failure);
    free(request);
}

void event_done(Event *event)
{
    if (event->kind == EVENT_TOKENS) free(event->tokens);
    if (event->kind == EVENT_FAILED) free(event->error);
    if (event->kind == EVENT_STATS) free(event->stats);
    *event = (Event){0};
}
