/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of sessions in the order in which they came, and the events with their results. Engine thread. */
#pragma once
#include "scheduler/job.h"
#include "scheduler/session.h"

enum { SESSION_QUEUE_MAX = 16 };

typedef struct SessionQueue {
    SessionStore *store;
    SessionCall *calls[SESSION_QUEUE_MAX]; /* [n] owned */
    uint32_t n;
    bool has_begun, is_over; /* the first; is_over: its event is not out yet */
    bool is_stopped;
} SessionQueue;

typedef enum SessionTurn {
    SESSION_TURN_NONE,    /* there are no calls */
    SESSION_TURN_MORE,    /* there is something to do at once */
    SESSION_TURN_WAITING, /* for the disk */
    SESSION_TURN_STALLED, /* until emit has room again */
} SessionTurn;

/* folder of params NULL: no store, every call fails. Ends with session_queue_done; {0} is fine for that. */
LW_CHECK bool session_queue_init(SessionQueue *queue, const SessionParams *params, Error *error);
void session_queue_done(SessionQueue *queue);
/* Takes the call; there are at most SESSION_QUEUE_MAX. */
void session_queue_push(SessionQueue *queue, SessionCall *call);
SessionTurn session_queue_turn(SessionQueue *queue, EmitFn emit, void *arg);
/* From the next turn on calls are only cancelled. */
void session_queue_stop(SessionQueue *queue);
/* Memory is out for those who must have it: gives up a call that holds pages; false: none does. */
bool session_queue_reclaim(SessionQueue *queue);
