/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine thread: drains commands, runs scheduler steps for ever, emits events. The loop thread calls everything
 * here.
 *
 * The engine never waits for the loop: when the event queue is full, events stay with their sequence and that sequence
 * is not stepped until they are out.
 */
#pragma once
#include "engine/engine.h"
#include "scheduler/messages.h"

typedef struct Worker Worker;

typedef struct WorkerParams {
    Engine *engine;          /* borrowed; only the engine thread touches it until worker_stop returns */
    uint32_t max_queue;      /* waiting requests, besides the running one */
    uint32_t prefill_chunk;  /* tokens of one prefill step */
    uint32_t max_events;     /* room of the event queue, rounded up to a power of two; 0: 1024 */
    void (*wake)(void *arg); /* called on the engine thread after events were pushed (uv_async_send) */
    void *wake_arg;
} WorkerParams;

LW_CHECK bool worker_start(const WorkerParams *params, Worker **ret_worker, Error *error);
/*
 * Takes the request on success. ERR_BUSY: max_queue requests wait besides the running one (one counts until its last
 * event was polled), or worker_stop was called; the request is still the caller's.
 */
LW_CHECK bool worker_submit(Worker *worker, Request *request, Error *error);
/*
 * Never fails: room for one cancel per live request is kept. Takes effect before the next step; the request still gets
 * its last event. Unknown and finished ids, and a second cancel, are ignored.
 */
void worker_cancel(Worker *worker, RequestId id);
LW_CHECK bool worker_poll(Worker *worker, Event *ret_event); /* false: no event now */
/* Monotonic time of the engine thread's last sign of life: each turn, and each layer of a step. Any thread. */
uint64_t worker_heartbeat_usec(const Worker *worker);
/* It has something to compute: then an old heartbeat means that a layer hangs. False while it sleeps. Any thread. */
bool worker_busy(const Worker *worker);
/* Cancels what runs and waits, joins the thread; events still queued can be polled until worker_free. */
void worker_stop(Worker *worker);
void worker_free(Worker *worker); /* stops it first; NULL is fine */
