/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine thread: drains commands, runs scheduler steps for ever, emits events. The loop thread calls everything
 * here.
 *
 * The engine never waits for the loop: when the event queue is full, events stay with their sequence and that sequence
 * is not stepped until they are out.
 */
#pragma once
#include "config/config.h"
#include "engine/engine.h"
#include "scheduler/messages.h"

typedef struct Worker Worker;

typedef struct WorkerParams {
    Engine *engine;            /* borrowed; only the engine thread touches it until worker_stop returns */
    uint32_t max_queue;        /* requests that may wait */
    uint64_t max_queue_tokens; /* their prompt tokens; 0: any number */
    uint32_t max_batch;        /* sequences that run at once; 0: 1 */
    uint32_t max_passes;       /* those of the engine; 0: 2 */
    uint32_t prefill_chunk;    /* tokens of one prefill pass */
    uint32_t max_stall_ms;     /* what prefill may add between two tokens of a sequence; 0: 100 */
    uint64_t max_swap_bytes;   /* copies of preempted pages */
    ScheduleMode schedule;
    CacheMode cache;
    uint64_t max_cache_bytes; /* that only the prefix cache holds; 0: what is free */
    const char *session_dir; /* where sessions are saved; NULL: nowhere */
    uint32_t max_events;     /* room of the event queue, rounded up to a power of two; 0: 1024 */
    void (*wake)(void *arg); /* called on the engine thread after events were pushed (uv_async_send) */
    void *wake_arg;
} WorkerParams;

LW_CHECK bool worker_start(const WorkerParams *params, Worker **ret_worker, Error *error);
/*
 * Takes the request on success; else it is still the caller's. ERR_BUSY: worker_stop was called, or, with param
 * "max_queue" or "max_queue_tokens", too much waits already. What waits has not started. While the engine has room for
 * more, so many may come beside max_queue as it takes at once; their tokens count until it has.
 */
LW_CHECK bool worker_submit(Worker *worker, Request *request, Error *error);
/* What may wait from now on; max_queue is cut to that of the params. */
void worker_set_queue(Worker *worker, uint32_t max_queue, uint64_t max_queue_tokens);
/* From the next step on; 0: the default. */
void worker_set_stall(Worker *worker, uint32_t max_stall_ms);
/* When something that waits now may have left the queue: an estimate for Retry-After, 1 to 600. */
uint32_t worker_retry_after_seconds(const Worker *worker);
/*
 * Never fails: room for one cancel per live request is kept. Takes effect before the next step; the request still gets
 * its last event. Unknown and finished ids, and a second cancel, are ignored.
 */
void worker_cancel(Worker *worker, RequestId id);
/*
 * Takes the call on success; it comes back with its result as EVENT_SESSION. ERR_BUSY: worker_stop was called, or there
 * are SESSION_QUEUE_MAX calls already. It cannot be cancelled.
 */
LW_CHECK bool worker_session(Worker *worker, SessionCall *call, Error *error);
LW_CHECK bool worker_poll(Worker *worker, Event *ret_event); /* false: no event now */
/* Monotonic time of the engine thread's last sign of life: each step, and each layer of one. Any thread. */
uint64_t worker_heartbeat_usec(const Worker *worker);
/* It has something to compute: then an old heartbeat means that a layer hangs. False while it sleeps. Any thread. */
bool worker_busy(const Worker *worker);
/* Its device has failed: whatever is submitted fails, until another engine is started. Any thread. */
bool worker_has_failed(const Worker *worker);
/* Cancels what runs and waits, joins the thread; events still queued can be polled until worker_free. */
void worker_stop(Worker *worker);
void worker_free(Worker *worker); /* stops it first; NULL is fine */
