/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy: which request is computed next, and when one ends from outside. One request runs at a time; of those that
 * wait the lowest priority is next, first in, first out. No threads and no clock of its own, so that tests can drive it
 * step by step. Engine thread.
 */
#pragma once
#include "scheduler/sequence.h"

typedef struct Sched Sched;

typedef struct SchedParams {
    Engine *engine;               /* borrowed */
    uint32_t max_live;            /* requests that wait, run, or have events that are not out yet */
    uint32_t prefill_chunk;       /* tokens of one prefill step */
    uint64_t (*clock_usec)(void); /* monotonic */
    EmitFn emit;                  /* takes an event with its payload; false: no room now, it will be offered again */
    void *emit_arg;
} SchedParams;

typedef enum SchedState {
    SCHED_READY,   /* work is there: step again */
    SCHED_IDLE,    /* nothing to do until something is submitted */
    SCHED_STALLED, /* nothing to do until emit has room again */
    SCHED_STOPPED, /* EVENT_STOPPED is out: never step again */
} SchedState;

LW_CHECK bool sched_new(const SchedParams *params, Sched **ret_sched, Error *error);
void sched_free(Sched *sched); /* NULL is fine */

/* Takes the request on success; ERR_BUSY when max_live are there, or after sched_stop. */
LW_CHECK bool sched_submit(Sched *sched, Request *request, Error *error);
/* Ends a waiting or running request before the next step; other ids are ignored. */
void sched_cancel(Sched *sched, RequestId id);
/* Cancels all; from then on steps only hand out events, EVENT_STOPPED last. */
void sched_stop(Sched *sched);

/* Ends what is past its deadline, then at most one prefill chunk or one decode row, then events. */
SchedState sched_step(Sched *sched);
/* Earliest deadline of all that live, 0: none. */
uint64_t sched_next_deadline_usec(const Sched *sched);
