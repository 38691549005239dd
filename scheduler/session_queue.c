/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/session_queue.h"

#include <assert.h>
#include <string.h>

bool session_queue_init(SessionQueue *queue, const SessionParams *params, Error *error)
{
    *queue = (SessionQueue){0};
    return !params->folder || session_store_new(params, &queue->store, error);
}

void session_queue_done(SessionQueue *queue)
{
    session_store_free(queue->store);
    for (uint32_t i = 0; i < queue->n; i++) session_call_free(queue->calls[i]);
    *queue = (SessionQueue){0};
}

void session_queue_push(SessionQueue *queue, SessionCall *call)
{
    assert(queue->n < SESSION_QUEUE_MAX);
    queue->calls[queue->n++] = call;
}

void session_queue_stop(SessionQueue *queue)
{
    queue->is_stopped = true;
}

bool session_queue_reclaim(SessionQueue *queue)
{
    Error error;
    if (!queue->has_begun || queue->is_over || !session_holds_pages(queue->store)) return false;
    (void)error_set(&error, ERR_BUSY, "the memory of the session is needed by requests; try again later");
    session_give_up(queue->store, &error);
    return true;
}

/* The first call is over without more work. */
static void cancel(SessionQueue *queue, SessionCall *call)
{
    Error error;
    (void)error_set(&error, ERR_CANCELLED, "the engine is stopping");
    if (queue->has_begun) {
        session_give_up(queue->store, &error);
        (void)session_step(queue->store);
    } else {
        call->error = error;
    }
}

/* One slice of the first call's work. */
static SessionState work(SessionQueue *queue, SessionCall *call)
{
    if (!queue->store) {
        (void)error_set_param(&call->error, ERR_UNSUPPORTED, "session_dir",
                              "sessions are off: there is no session_dir");
        return SESSION_OVER;
    }
    if (!queue->has_begun) session_begin(queue->store, call);
    queue->has_begun = true;
    return session_step(queue->store);
}

SessionTurn session_queue_turn(SessionQueue *queue, EmitFn emit, void *arg)
{
    if (queue->n == 0) return SESSION_TURN_NONE;
    SessionCall *call = queue->calls[0];
    if (!queue->is_over && queue->is_stopped) {
        cancel(queue, call);
        queue->is_over = true;
    }
    if (!queue->is_over) {
        SessionState state = work(queue, call);
        if (state == SESSION_WAITING) return SESSION_TURN_WAITING;
        if (state != SESSION_OVER) return SESSION_TURN_MORE;
        queue->is_over = true;
    }
    if (!emit(arg, &(Event){.kind = EVENT_SESSION, .id = call->id, .session = call})) return SESSION_TURN_STALLED;
    memmove(queue->calls, queue->calls + 1, --queue->n * sizeof *queue->calls);
    queue->has_begun = queue->is_over = false;
    return queue->n ? SESSION_TURN_MORE : SESSION_TURN_NONE;
}
