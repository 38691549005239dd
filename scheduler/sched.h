/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Continuous batching: which requests run, and what each step computes. A step is one decode pass over all sequences
 * that decode, and one work item of prefill, as large as the gap between two tokens of the others allows. No threads
 * and no clock of its own, so that tests can drive it step by step. Engine thread.
 */
#pragma once
#include "config/config.h"
#include "scheduler/job.h"

typedef struct Sched Sched;

typedef struct SchedParams {
    Engine *engine;               /* borrowed */
    PrefixCache *cache;           /* borrowed; NULL: off */
    ScheduleMode order;           /* priority: every eighth is the one that came first, so that nothing starves */
    uint32_t max_live;            /* requests that wait, run, or have events that are not out yet */
    uint32_t max_batch;           /* sequences that run at once */
    uint32_t max_passes;          /* those of the engine, 2 at least: a decode pass runs while prefill is suspended */
    uint32_t prefill_chunk;       /* rows of one prefill pass */
    uint32_t max_stall_usec;      /* what prefill may add to the time between two tokens of a sequence */
    uint64_t max_swap_bytes;      /* copies of preempted pages */
    uint64_t (*clock_usec)(void); /* monotonic */
    bool (*reclaim)(void *arg);   /* gives up pages that nobody waits for; false: there are none. May be NULL */
    void *reclaim_arg;
    EmitFn emit; /* takes an event with its payload; false: no room now, it will be offered again */
    void *emit_arg;
    void (*wake)(void *emit_arg); /* events were handed out, and what comes next may take long; may be NULL */
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

SchedState sched_step(Sched *sched);
void sched_set_stall(Sched *sched, uint32_t max_stall_usec); /* for the steps to come */
uint64_t sched_steps(const Sched *sched);                    /* that computed something */
/* Earliest deadline of all that live, 0: none. */
uint64_t sched_next_deadline_usec(const Sched *sched);

/* Of all requests that were submitted, those that have left the queue, and how many more would leave it at once. */
typedef struct SchedQueue {
    uint64_t n_left, left_prompt_tokens;
    uint32_t n_places;
} SchedQueue;
SchedQueue sched_queue(const Sched *sched);
EngineStats sched_stats(const Sched *sched);
