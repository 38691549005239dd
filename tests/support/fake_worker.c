/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_worker.h"
#include "base/clock.h"
#include "scheduler/answer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_EVENTS = 1 << 16 };

typedef struct Job Job;
struct Job {
    Job *next;
    Request *request;
    uint32_t choice, n_done;
    uint64_t begun_usec;
    TokStream stream;
    Answer answer; /* of a request with a plan for its answers */
    bool has_answer, started, cancelled;
};

struct Worker {
    WorkerParams params;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    Job *jobs; /* oldest first; only that one runs */
    uint32_t n_jobs;
    bool stopping;
    uint64_t beat_usec;
    Event events[MAX_EVENTS];
    size_t first_event, n_events;
};

static const Tokenizer *fake_tokenizer;
static uint32_t fake_step_usec;
static pthread_mutex_t stats_mutex = PTHREAD_MUTEX_INITIALIZER;
static FakeWorkerStats fake_stats;
static _Atomic bool fake_hangs;
static _Atomic bool fake_breaks;
static _Atomic bool fake_is_broken;
static const uint32_t *_Atomic fake_speech; /* [fake_n_speech] */
static _Atomic uint32_t fake_n_speech;

void fake_worker_configure(const Tokenizer *tokenizer, uint32_t step_usec)
{
    fake_tokenizer = tokenizer;
    fake_step_usec = step_usec;
}

void fake_worker_speak(const uint32_t *ids, uint32_t n)
{
    atomic_store(&fake_n_speech, n);
    atomic_store(&fake_speech, ids);
}

void fake_worker_break(bool breaks)
{
    atomic_store(&fake_breaks, breaks);
}

void fake_worker_hang(bool hangs)
{
    atomic_store(&fake_hangs, hangs);
}

void fake_worker_break_device(bool is_broken)
{
    atomic_store(&fake_is_broken, is_broken);
}

FakeWorkerStats fake_worker_stats(void)
{
    pthread_mutex_lock(&stats_mutex);
    FakeWorkerStats stats = fake_stats;
    pthread_mutex_unlock(&stats_mutex);
    return stats;
}

static void count(uint64_t *counter)
{
    pthread_mutex_lock(&stats_mutex);
    ++*counter;
    pthread_mutex_unlock(&stats_mutex);
}

/* The mutex is held. */
static void push(Worker *worker, Event event)
{
    if (worker->n_events == MAX_EVENTS) abort(); /* a test that needs more is wrong */
    worker->events[(worker->first_event + worker->n_events++) % MAX_EVENTS] = event;
}

/* The token goes the way that it goes in the engine. */
static AnswerState take_apart(Job *job, uint32_t id, TokensPayload *payload, Buffer *text)
{
    Error error;
    AnswerState state;
    const uint32_t end_id = tok_eos(fake_tokenizer);
    if (!job->has_answer && !answer_open(&job->answer, fake_tokenizer, job->request, &end_id, 1, &error)) abort();
    job->has_answer = true;
    if (!answer_take(&job->answer, id, false, &state, &error)) abort();
    const AnswerParts *parts = &job->answer.parts;
    payload->parts = calloc(parts->n + 1, sizeof *payload->parts);
    if (!payload->parts || !buffer_append(text, parts->text.data, parts->text.n, &error)) abort();
    if (parts->n) memcpy(payload->parts, parts->items, parts->n * sizeof *parts->items);
    payload->n_parts = parts->n;
    return state;
}

static AnswerState push_token(Worker *worker, Job *job, uint32_t id, bool is_prompt)
{
    Error error;
    TokensPayload *payload;
    Buffer text;
    AnswerState state = ANSWER_OPEN;
    buffer_init(&text, 4096);
    if (!tokens_payload_new(1, &payload, &error)) abort();
    if (!is_prompt && job->request->answer)
        state = take_apart(job, id, payload, &text);
    else if (!is_prompt && !tok_stream_push(&job->stream, fake_tokenizer, id, false, &text, &error))
        abort();
    payload->is_prompt = is_prompt;
    payload->step_usec = clock_now_usec();
    payload->gap_usec = job->n_done ? fake_step_usec : 0;
    payload->tokens[0] = (EventToken){.sample = {.id = id, .logprob = -0.5f}, .text_bytes = (uint32_t)text.n};
    uint32_t n_top = job->request->n_top_logprobs;
    payload->tokens[0].sample.n_top = n_top;
    for (uint32_t i = 0; i < n_top; i++)
        payload->tokens[0].sample.top[i] = (TokenLogprob){i + 1, i ? -1.0f / 0.0f : -0.5f};
    payload->text_bytes = (uint32_t)text.n;
    payload->text = buffer_take(&text);
    push(worker, (Event){.kind = EVENT_TOKENS, .id = job->request->id, .choice = job->choice, .tokens = payload});
    return state;
}

static void close_answer(Job *job)
{
    if (job->has_answer) answer_done(&job->answer);
    job->has_answer = false;
}

static void push_stats(Worker *worker)
{
    EngineStats *stats = calloc(1, sizeof *stats);
    FakeWorkerStats mine = fake_worker_stats();
    if (!stats) abort();
    *stats = (EngineStats){.running = worker->n_jobs ? 1 : 0,
                           .waiting = worker->n_jobs ? worker->n_jobs - 1 : 0,
                           .generated_tokens = mine.tokens,
                           .cancelled = mine.cancelled,
                           .finished = mine.finished,
                           .last_step_usec = clock_now_usec(),
                           .kv_bytes_total = 1000};
    push(worker, (Event){.kind = EVENT_STATS, .stats = stats});
}

static void job_end(Worker *worker, Job *job)
{
    worker->jobs = job->next;
    worker->n_jobs--;
    close_answer(job);
    request_free(job->request);
    free(job);
    push_stats(worker);
}

static void push_failed(Worker *worker, const Job *job, ErrorCode code, const char *text)
{
    Error *error = malloc(sizeof *error);
    if (!error) abort();
    (void)error_set(error, code, "%s", text);
    push(worker, (Event){.kind = EVENT_FAILED, .id = job->request->id, .error = error});
}

static void begin(Worker *worker, Job *job)
{
    Request *request = job->request;
    job->started = true;
    job->begun_usec = clock_now_usec();
    push(worker,
         (Event){.kind = EVENT_STARTED, .id = request->id, .progress = {.done = 1, .total = request->n_prompt}});
    if (!request->want_prompt_logprobs) return;
    for (uint32_t i = 0; i < request->n_prompt; i++) (void)push_token(worker, job, request->prompt[i], true);
}

static void finish_choice(Worker *worker, Job *job, FinishReason finish)
{
    Request *request = job->request;
    uint32_t n_reasoning = job->has_answer ? job->answer.n_reasoning : 0;
    push(worker, (Event){.kind = EVENT_CHOICE_DONE, .id = request->id, .choice = job->choice, .finish = finish});
    job->n_done = 0;
    close_answer(job);
    job->stream = (TokStream){0};
    if (++job->choice < request->n_choices) return;
    push(worker, (Event){.kind = EVENT_DONE,
                         .id = request->id,
                         .timings = {.prompt_tokens = request->n_prompt,
                                     .cached_tokens = 1,
                                     .known_tokens = 2,
                                     .cache_end = PREFIX_DIFFERS,
                                     .prefill_usec = 1000,
                                     .queue_usec = 10,
                                     .decode_usec = clock_now_usec() - job->begun_usec,
                                     .completion_tokens = request->n_choices * request->max_tokens,
                                     .reasoning_tokens = n_reasoning}});
    count(&fake_stats.finished);
    job_end(worker, job);
}

/* One step of the oldest job; the mutex is held. */
static void step(Worker *worker, Job *job)
{
    Request *request = job->request;
    if (job->cancelled) {
        push_failed(worker, job, ERR_CANCELLED, "cancelled");
        count(&fake_stats.cancelled);
        job_end(worker, job);
        return;
    }
    if (request->deadline_usec && request->deadline_usec <= clock_now_usec()) {
        push_failed(worker, job, ERR_DEADLINE, "the time is over");
        job_end(worker, job);
        return;
    }
    if (request->prompt[0] == 0 || atomic_load(&fake_breaks)) {
        if (request->n_prompt > 1 && request->prompt[1] == 0)
            push_failed(worker, job, ERR_SCHEMA, "nothing can go on with the grammar");
        else
            push_failed(worker, job, ERR_NON_FINITE, "logits are not finite");
        job_end(worker, job);
        return;
    }
    if (!job->started) begin(worker, job);
    AnswerState state = ANSWER_OPEN;
    if (job->n_done < request->max_tokens) {
        const uint32_t *speech = atomic_load(&fake_speech);
        uint32_t id = speech ? speech[job->n_done % atomic_load(&fake_n_speech)]
                             : request->prompt[job->n_done % request->n_prompt];
        state = push_token(worker, job, id, false);
        job->n_done++;
        count(&fake_stats.tokens);
    }
    if (state == ANSWER_STOPPED)
        finish_choice(worker, job, FINISH_STOP);
    else if (job->n_done == request->max_tokens)
        finish_choice(worker, job, FINISH_LENGTH);
}

static void *run(void *arg)
{
    Worker *worker = arg;
    pthread_mutex_lock(&worker->mutex);
    for (;;) {
        while (!worker->jobs && !worker->stopping) pthread_cond_wait(&worker->changed, &worker->mutex);
        if (!worker->jobs) break;
        if (atomic_load(&fake_hangs) && !worker->stopping) {
            pthread_mutex_unlock(&worker->mutex);
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            pthread_mutex_lock(&worker->mutex);
            continue;
        }
        worker->beat_usec = clock_now_usec();
        step(worker, worker->jobs);
        pthread_mutex_unlock(&worker->mutex);
        worker->params.wake(worker->params.wake_arg);
        nanosleep(&(struct timespec){.tv_sec = fake_step_usec / 1000000, .tv_nsec = fake_step_usec % 1000000 * 1000},
                  NULL);
        pthread_mutex_lock(&worker->mutex);
    }
    pthread_mutex_unlock(&worker->mutex);
    return NULL;
}

bool worker_start(const WorkerParams *params, Worker **ret_worker, Error *error)
{
    Worker *worker = calloc(1, sizeof *worker);
    if (!worker) return error_set(error, ERR_NO_MEMORY, "no memory");
    worker->params = *params;
    pthread_mutex_init(&worker->mutex, NULL);
    pthread_cond_init(&worker->changed, NULL);
    if (pthread_create(&worker->thread, NULL, run, worker)) {
        free(worker);
        return error_set(error, ERR_IO, "no thread");
    }
    *ret_worker = worker;
    return true;
}

bool worker_submit(Worker *worker, Request *request, Error *error)
{
    Job *job = calloc(1, sizeof *job);
    if (!job) return error_set(error, ERR_NO_MEMORY, "no memory");
    job->request = request;
    pthread_mutex_lock(&worker->mutex);
    uint64_t n_tokens = 0;
    for (const Job *other = worker->jobs ? worker->jobs->next : NULL; other; other = other->next)
        n_tokens += other->request->n_prompt;
    bool full =
        worker->n_jobs > worker->params.max_queue ||
        (n_tokens && worker->params.max_queue_tokens && n_tokens + request->n_prompt > worker->params.max_queue_tokens);
    if (!full) {
        Job **end = &worker->jobs;
        while (*end) end = &(*end)->next;
        *end = job;
        worker->n_jobs++;
        pthread_cond_signal(&worker->changed);
    }
    pthread_mutex_unlock(&worker->mutex);
    if (!full) count(&fake_stats.submitted);
    if (full) free(job);
    return !full || error_set(error, ERR_BUSY, "the queue is full (%u requests)", worker->params.max_queue);
}

/* Answers at once: sessions have the tokens that they were saved with, "none" is never there, "broken" fails. */
bool worker_session(Worker *worker, SessionCall *call, Error *error)
{
    (void)error;
    if (!strcmp(call->session, "none"))
        (void)error_set(&call->error, ERR_NOT_FOUND, "there is no session 'none'");
    else if (!strcmp(call->session, "broken"))
        (void)error_set(&call->error, ERR_IO, "the disk is full");
    else
        call->n_moved_tokens = call->op == SESSION_SAVE ? call->n_tokens : 5;
    call->n_moved_bytes = call->n_moved_tokens * 10;
    pthread_mutex_lock(&worker->mutex);
    push(worker, (Event){.kind = EVENT_SESSION, .id = call->id, .session = call});
    pthread_mutex_unlock(&worker->mutex);
    worker->params.wake(worker->params.wake_arg);
    return true;
}

void worker_set_queue(Worker *worker, uint32_t max_queue, uint64_t max_queue_tokens)
{
    pthread_mutex_lock(&worker->mutex);
    if (max_queue < worker->params.max_queue) worker->params.max_queue = max_queue;
    worker->params.max_queue_tokens = max_queue_tokens;
    pthread_mutex_unlock(&worker->mutex);
}

void worker_set_stall(Worker *worker, uint32_t max_stall_ms)
{
    (void)worker;
    (void)max_stall_ms;
}

uint32_t worker_retry_after_seconds(const Worker *worker)
{
    (void)worker;
    return 7;
}

void worker_cancel(Worker *worker, RequestId id)
{
    pthread_mutex_lock(&worker->mutex);
    for (Job *job = worker->jobs; job; job = job->next)
        if (job->request->id == id) job->cancelled = true;
    pthread_mutex_unlock(&worker->mutex);
}

bool worker_poll(Worker *worker, Event *ret_event)
{
    pthread_mutex_lock(&worker->mutex);
    bool any = worker->n_events > 0;
    if (any) {
        *ret_event = worker->events[worker->first_event];
        worker->first_event = (worker->first_event + 1) % MAX_EVENTS;
        worker->n_events--;
    }
    pthread_mutex_unlock(&worker->mutex);
    return any;
}

uint64_t worker_heartbeat_usec(const Worker *worker)
{
    Worker *mine = (Worker *)worker;
    pthread_mutex_lock(&mine->mutex);
    uint64_t beat_usec = mine->beat_usec;
    pthread_mutex_unlock(&mine->mutex);
    return beat_usec;
}

bool worker_has_failed(const Worker *worker)
{
    (void)worker;
    return atomic_load(&fake_is_broken);
}

bool worker_busy(const Worker *worker)
{
    Worker *mine = (Worker *)worker;
    pthread_mutex_lock(&mine->mutex);
    bool is_busy = mine->n_jobs > 0;
    pthread_mutex_unlock(&mine->mutex);
    return is_busy;
}

void worker_stop(Worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    for (Job *job = worker->jobs; job; job = job->next) job->cancelled = true;
    worker->stopping = true;
    pthread_cond_signal(&worker->changed);
    pthread_mutex_unlock(&worker->mutex);
    pthread_join(worker->thread, NULL);
}

void worker_free(Worker *worker)
{
    Event event;
    while (worker_poll(worker, &event)) event_done(&event);
    pthread_cond_destroy(&worker->changed);
    pthread_mutex_destroy(&worker->mutex);
    free(worker);
}
