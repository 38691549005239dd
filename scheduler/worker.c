/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/worker.h"

#include "base/clock.h"
#include "base/spsc_queue.h"
#include "scheduler/live_set.h"
#include "scheduler/sched.h"
#include "scheduler/session_queue.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_MAX_EVENTS = 1024,
    DEFAULT_STALL_MS = 100,
    MAX_QUEUE = 1 << 20,
    MAX_BATCH = 1 << 12,
    MAX_PREFIX_NODES = 1 << 20,
    PREFIX_NODES_A_PAGE = 4, /* room for what was given up, too */
    MIN_PREFIX_NODES = 1024,
    MAX_RETRY_SECONDS = 600,
};

struct Worker {
    WorkerParams params;
    SpscQueue *commands, *events;
    pthread_t thread;
    bool has_thread, has_lock;

    /* loop thread */
    LiveSet live;
    uint32_t n_sessions;                    /* calls whose event was not polled yet */
    uint64_t n_submitted, submitted_tokens; /* tokens: of prompts */
    double run_usec;                        /* mean time from start to end of a request; 0: none has ended */
    bool is_stopped;

    /* engine thread; the loop's after the join */
    PrefixCache *cache;
    SessionQueue sessions;
    Sched *sched;
    bool has_pushed; /* events since the last wake of the loop */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_woken; /* under lock */

    /*
     * Whether the engine thread waits for room among the events. Both sides only ever exchange it: whichever comes
     * second sees what the first one did, so either the engine finds the room or the loop knows that it must wake it.
     */
    _Atomic bool is_stalled;
    _Atomic uint64_t heartbeat_usec;
    _Atomic uint32_t max_stall_ms;
    _Atomic bool is_busy;
    _Atomic bool has_failed;

    /*
     * What of that has left the queue, and how many more it takes at once. The engine writes places last and the loop
     * reads them first: so the loop may take what waits for less than it is, never for more.
     */
    _Atomic uint64_t n_left, left_tokens;
    _Atomic uint32_t n_places;
};

static void tell_queue(Worker *worker)
{
    SchedQueue queue = sched_queue(worker->sched);
    atomic_store(&worker->n_left, queue.n_left);
    atomic_store(&worker->left_tokens, queue.left_prompt_tokens);
    atomic_store(&worker->n_places, queue.n_places);
}

static bool emit_event(void *arg, const Event *event)
{
    Worker *worker = arg;
    /* Whoever sees the event must see what it means for the queue; and what comes next may take long. */
    if (event->kind == EVENT_STARTED || event->kind == EVENT_DONE || event->kind == EVENT_FAILED) tell_queue(worker);
    if (!spsc_push(worker->events, event)) return false;
    worker->has_pushed = true;
    return true;
}

static void wake_loop(void *arg)
{
    Worker *worker = arg;
    if (!worker->has_pushed) return;
    worker->has_pushed = false;
    if (worker->params.wake) worker->params.wake(worker->params.wake_arg);
}

/* true: go on. */
static bool take_command(Worker *worker, const Command *command)
{
    Error error;
    switch (command->kind) {
    case COMMAND_SUBMIT:
        /* There are as many slots as requests that may live. */
        if (!sched_submit(worker->sched, command->request, &error)) abort();
        return true;
    case COMMAND_CANCEL:
        sched_cancel(worker->sched, command->id);
        return true;
    case COMMAND_SESSION:
        session_queue_push(&worker->sessions, command->session);
        return true;
    case COMMAND_STOP:
        session_queue_stop(&worker->sessions);
        sched_stop(worker->sched);
        return false;
    }
    return true;
}

static bool take_commands(Worker *worker)
{
    Command command;
    bool goes_on = true;
    while (goes_on && spsc_pop(worker->commands, &command)) goes_on = take_command(worker, &command);
    return goes_on;
}

/* Also called by the engine, within a step. */
static void show_life(void *arg)
{
    Worker *worker = arg;
    atomic_store(&worker->heartbeat_usec, clock_now_usec());
}

/* Any thread. */
static void wake_engine(void *arg)
{
    Worker *worker = arg;
    pthread_mutex_lock(&worker->lock);
    worker->is_woken = true;
    pthread_cond_signal(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
}

static void sleep_until_woken(Worker *worker, uint64_t deadline_usec)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_usec / 1000000),
                             .tv_nsec = (long)(deadline_usec % 1000000) * 1000};
    atomic_store(&worker->is_busy, false);
    pthread_mutex_lock(&worker->lock);
    int rc = 0;
    while (!worker->is_woken && rc != ETIMEDOUT) {
        if (deadline_usec)
            rc = pthread_cond_timedwait(&worker->changed, &worker->lock, &until);
        else
            pthread_cond_wait(&worker->changed, &worker->lock);
    }
    worker->is_woken = false;
    pthread_mutex_unlock(&worker->lock);
    show_life(worker);
    atomic_store(&worker->is_busy, true);
}

static bool reclaim(void *arg)
{
    Worker *worker = arg;
    return session_queue_reclaim(&worker->sessions);
}

/* After the stop: what finds room goes out, EVENT_STOPPED last. */
static void flush(Worker *worker)
{
    SessionTurn turn;
    do {
        turn = session_queue_turn(&worker->sessions, emit_event, worker);
    } while (turn == SESSION_TURN_MORE);
    if (turn == SESSION_TURN_NONE) (void)sched_step(worker->sched);
}

static void note_device(Worker *worker)
{
    Error ignored;
    if (!engine_check_device(worker->params.engine, &ignored)) atomic_store(&worker->has_failed, true);
}

static void *worker_main(void *arg)
{
    Worker *worker = arg;
    bool announced = false; /* is_stalled is set, and the step after it still found no room */
    uint64_t n_steps = 0;
    atomic_store(&worker->is_busy, true);
    while (take_commands(worker)) {
        sched_set_stall(worker->sched, atomic_load(&worker->max_stall_ms) * 1000);
        SchedState state = sched_step(worker->sched);
        /* To turn in a circle, with work but without a step, is no life. */
        if (state != SCHED_READY || sched_steps(worker->sched) != n_steps) show_life(worker);
        n_steps = sched_steps(worker->sched);
        tell_queue(worker);
        SessionTurn sessions = session_queue_turn(&worker->sessions, emit_event, worker);
        note_device(worker);
        wake_loop(worker);
        bool has_work = state == SCHED_READY || sessions == SESSION_TURN_MORE;
        bool is_stalled = state == SCHED_STALLED || sessions == SESSION_TURN_STALLED;
        if (!has_work && is_stalled && !announced) {
            atomic_exchange(&worker->is_stalled, true);
            announced = true;
            continue;
        }
        announced = false;
        if (!has_work) sleep_until_woken(worker, sched_next_deadline_usec(worker->sched));
    }
    /* What finds no room now goes out from worker_poll: nobody else uses the scheduler any more. */
    flush(worker);
    atomic_store(&worker->is_busy, false);
    wake_loop(worker);
    return NULL;
}

static bool start_thread(Worker *worker, Error *error)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    worker->has_lock = true;
    /* Signals are the loop thread's business. */
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* a thread that faults while it blocks the signal ends the process (gguf_guard) */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&worker->thread, NULL, worker_main, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) return error_set(error, ERR_IO, "cannot start the engine thread: %s", strerror(rc));
    worker->has_thread = true;
    return true;
}

static uint32_t prefix_nodes(const Engine *engine)
{
    uint64_t n = engine_kv_usage(engine).total_tokens / KV_PAGE_TOKENS * PREFIX_NODES_A_PAGE + MIN_PREFIX_NODES;
    return n < MAX_PREFIX_NODES ? (uint32_t)n : MAX_PREFIX_NODES;
}

static bool open_sched(Worker *worker, Error *error)
{
    const WorkerParams *params = &worker->params;
    const PrefixParams cache = {.engine = params->engine,
                                .max_nodes = prefix_nodes(params->engine),
                                .max_idle_bytes = params->max_cache_bytes,
                                .exact = params->cache == CACHE_EXACT,
                                .clock_usec = clock_now_usec};
    if (params->cache != CACHE_OFF && !prefix_cache_new(&cache, &worker->cache, error)) return false;
    const SchedParams sched = {.engine = params->engine,
                               .cache = worker->cache,
                               .order = params->schedule,
                               .max_live = worker->live.max,
                               .max_batch = params->max_batch,
                               .max_passes = params->max_passes,
                               .prefill_chunk = params->prefill_chunk,
                               .max_stall_usec = params->max_stall_ms * 1000,
                               .max_swap_bytes = params->max_swap_bytes,
                               .clock_usec = clock_now_usec,
                               .reclaim = reclaim,
                               .reclaim_arg = worker,
                               .emit = emit_event,
                               .emit_arg = worker,
                               .wake = wake_loop};
    const SessionParams sessions = {params->engine, worker->cache, params->session_dir, wake_engine, worker};
    if (!session_queue_init(&worker->sessions, &sessions, error) || !sched_new(&sched, &worker->sched, error))
        return false;
    tell_queue(worker);
    return true;
}

static bool open_worker(Worker *worker, Error *error)
{
    uint32_t max_live = worker->params.max_queue + worker->params.max_batch;
    if (!live_set_init(&worker->live, max_live, error)) return false;
    /*
     * Every live request may have a submit and a cancel on the way, and the request before it in its place a cancel
     * that came too late: before that cancel is taken, the new submit is not taken either. Then there are the
     * sessions, and one stop.
     */
    size_t max_commands = 3 * (size_t)max_live + SESSION_QUEUE_MAX + 1;
    return spsc_new(sizeof(Command), max_commands, &worker->commands, error) &&
           spsc_new(sizeof(Event), worker->params.max_events, &worker->events, error) && open_sched(worker, error) &&
           start_thread(worker, error);
}

static void set_defaults(WorkerParams *params)
{
    if (!params->max_batch) params->max_batch = 1;
    if (!params->max_passes) params->max_passes = 2;
    if (!params->max_stall_ms) params->max_stall_ms = DEFAULT_STALL_MS;
    if (!params->max_events) params->max_events = DEFAULT_MAX_EVENTS;
}

bool worker_start(const WorkerParams *params, Worker **ret_worker, Error *error)
{
    if (params->max_queue > MAX_QUEUE)
        return error_set_param(error, ERR_INVALID, "max_queue", "max_queue is %u, at most %d", params->max_queue,
                               MAX_QUEUE);
    if (params->max_batch > MAX_BATCH)
        return error_set_param(error, ERR_INVALID, "max_batch", "max_batch is %u, at most %d", params->max_batch,
                               MAX_BATCH);
    Worker *worker = calloc(1, sizeof *worker);
    if (!worker) return error_set(error, ERR_NO_MEMORY, "no memory for the worker");
    worker->params = *params;
    set_defaults(&worker->params);
    atomic_store(&worker->max_stall_ms, worker->params.max_stall_ms);
    show_life(worker);
    engine_set_pulse(params->engine, show_life, worker);
    if (!open_worker(worker, error)) {
        worker_free(worker);
        return false;
    }
    *ret_worker = worker;
    return true;
}

static void send(Worker *worker, Command command)
{
    bool has_room = spsc_push(worker->commands, &command);
    assert(has_room);
    (void)has_room;
    wake_engine(worker);
}

/* As many as may wait, and as many more as the engine takes at once. */
static bool check_queue(const Worker *worker, const Request *request, Error *error)
{
    const WorkerParams *params = &worker->params;
    uint32_t n_places = atomic_load(&worker->n_places);
    uint64_t n_waiting = worker->n_submitted - atomic_load(&worker->n_left);
    uint64_t n_tokens = worker->submitted_tokens - atomic_load(&worker->left_tokens);
    if (worker->live.n == worker->live.max || n_waiting >= (uint64_t)params->max_queue + n_places)
        return error_set_param(error, ERR_BUSY, "max_queue", "the queue is full: %llu requests wait",
                               (unsigned long long)n_waiting);
    if (params->max_queue_tokens && n_waiting && n_tokens + request->n_prompt > params->max_queue_tokens)
        return error_set_param(error, ERR_BUSY, "max_queue_tokens", "the queue is full: %llu prompt tokens wait",
                               (unsigned long long)n_tokens);
    return true;
}

bool worker_submit(Worker *worker, Request *request, Error *error)
{
    if (worker->is_stopped) return error_set(error, ERR_BUSY, "the engine is stopping");
    if (!check_queue(worker, request, error)) return false;
    live_set_add(&worker->live, request->id);
    worker->n_submitted++;
    worker->submitted_tokens += request->n_prompt;
    send(worker, (Command){.kind = COMMAND_SUBMIT, .id = request->id, .request = request});
    return true;
}

void worker_set_queue(Worker *worker, uint32_t max_queue, uint64_t max_queue_tokens)
{
    uint32_t most = worker->live.max - worker->params.max_batch;
    worker->params.max_queue = max_queue < most ? max_queue : most;
    worker->params.max_queue_tokens = max_queue_tokens;
}

void worker_set_stall(Worker *worker, uint32_t max_stall_ms)
{
    atomic_store(&worker->max_stall_ms, max_stall_ms ? max_stall_ms : DEFAULT_STALL_MS);
}

uint32_t worker_retry_after_seconds(const Worker *worker)
{
    double n_waiting = (double)(worker->n_submitted - atomic_load(&worker->n_left));
    double n_running = worker->live.n > n_waiting ? worker->live.n - n_waiting : 1;
    double usec = worker->run_usec * (n_waiting + 1) / n_running;
    return usec > MAX_RETRY_SECONDS * 1e6 ? MAX_RETRY_SECONDS : 1 + (uint32_t)(usec / 1e6);
}

void worker_cancel(Worker *worker, RequestId id)
{
    Live *live = live_set_find(&worker->live, id);
    if (worker->is_stopped || !live || live->is_cancelled) return;
    live->is_cancelled = true;
    send(worker, (Command){.kind = COMMAND_CANCEL, .id = id});
}

bool worker_session(Worker *worker, SessionCall *call, Error *error)
{
    if (worker->is_stopped) return error_set(error, ERR_BUSY, "the engine is stopping");
    if (worker->n_sessions == SESSION_QUEUE_MAX)
        return error_set(error, ERR_BUSY, "%d sessions are being saved or restored", SESSION_QUEUE_MAX);
    worker->n_sessions++;
    send(worker, (Command){.kind = COMMAND_SESSION, .id = call->id, .session = call});
    return true;
}

static void note_end(Worker *worker, const Event *event)
{
    live_set_remove(&worker->live, event->id);
    if (event->kind != EVENT_DONE) return;
    double usec = (double)(event->timings.prefill_usec + event->timings.decode_usec);
    worker->run_usec += (usec - worker->run_usec) / (worker->run_usec > 0 ? 8 : 1);
}

bool worker_poll(Worker *worker, Event *ret_event)
{
    Event event;
    if (!spsc_pop(worker->events, &event)) {
        if (!worker->is_stopped) return false;
        flush(worker);
        if (!spsc_pop(worker->events, &event)) return false;
    }
    if (atomic_exchange(&worker->is_stalled, false)) wake_engine(worker);
    if (event.kind == EVENT_DONE || event.kind == EVENT_FAILED) note_end(worker, &event);
    if (event.kind == EVENT_SESSION) worker->n_sessions--;
    *ret_event = event;
    return true;
}

uint64_t worker_heartbeat_usec(const Worker *worker)
{
    return atomic_load(&worker->heartbeat_usec);
}

bool worker_busy(const Worker *worker)
{
    return atomic_load(&worker->is_busy);
}

bool worker_has_failed(const Worker *worker)
{
    return atomic_load(&worker->has_failed);
}

void worker_stop(Worker *worker)
{
    if (worker->is_stopped) return;
    send(worker, (Command){.kind = COMMAND_STOP});
    pthread_join(worker->thread, NULL);
    worker->is_stopped = true;
}

void worker_free(Worker *worker)
{
    if (!worker) return;
    if (worker->has_thread) worker_stop(worker);
    engine_set_pulse(worker->params.engine, NULL, NULL);
    Event event;
    while (worker->events && spsc_pop(worker->events, &event)) event_done(&event);
    sched_free(worker->sched);
    session_queue_done(&worker->sessions);
    prefix_cache_free(worker->cache);
    spsc_free(worker->events);
    spsc_free(worker->commands);
    if (worker->has_lock) {
        pthread_cond_destroy(&worker->changed);
        pthread_mutex_destroy(&worker->lock);
    }
    live_set_done(&worker->live);
    free(worker);
}
