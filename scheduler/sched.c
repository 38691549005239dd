/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sched.h"

#include <stdlib.h>

enum { STATS_INTERVAL_USEC = 100 * 1000 };

/* First in, first out. */
typedef struct SequenceList {
    Sequence *head, *tail;
    uint32_t n;
} SequenceList;

struct Sched {
    SchedParams params;
    SequenceTools tools;
    SamplerSpace *space;
    uint32_t *end_ids;
    BatchBuild build;
    Sequence *slots;    /* [max_live] */
    uint32_t n_touched; /* slots that were ever used: the rest of the memory is not touched until it is needed */
    SequenceList free, waiting, closing;
    Sequence *running;
    EngineStats stats;
    uint64_t stats_sent_usec;
    bool stats_due, idle_told, stopping, stopped;
};

static void list_push(SequenceList *list, Sequence *sequence)
{
    sequence->next = NULL;
    if (list->tail)
        list->tail->next = sequence;
    else
        list->head = sequence;
    list->tail = sequence;
    list->n++;
}

static void list_insert_by_priority(SequenceList *list, Sequence *sequence)
{
    int64_t priority = sequence->request->priority;
    if (!list->tail || list->tail->request->priority <= priority) {
        list_push(list, sequence);
        return;
    }
    Sequence **link = &list->head;
    while ((*link)->request->priority <= priority) link = &(*link)->next;
    sequence->next = *link;
    *link = sequence;
    list->n++;
}

static Sequence *list_pop(SequenceList *list)
{
    Sequence *sequence = list->head;
    if (!sequence) return NULL;
    list->head = sequence->next;
    if (!list->head) list->tail = NULL;
    list->n--;
    return sequence;
}

static bool find_end_ids(Sched *sched, const Tokenizer *tokenizer, Error *error)
{
    uint32_t n_vocab = tok_n_vocab(tokenizer), n = 0;
    for (uint32_t id = 0; id < n_vocab; id++) n += tok_is_end(tokenizer, id);
    sched->end_ids = calloc((size_t)n + 1, sizeof *sched->end_ids);
    if (!sched->end_ids) return error_set(error, ERR_NO_MEMORY, "no memory for %u end tokens", n);
    sched->tools.n_end_ids = 0;
    for (uint32_t id = 0; id < n_vocab; id++)
        if (tok_is_end(tokenizer, id)) sched->end_ids[sched->tools.n_end_ids++] = id;
    sched->tools.end_ids = sched->end_ids;
    return true;
}

bool sched_new(const SchedParams *params, Sched **ret_sched, Error *error)
{
    if (params->prefill_chunk == 0) return error_set_param(error, ERR_INVALID, "prefill_chunk", "prefill_chunk is 0");
    if (params->max_live == 0) return error_set(error, ERR_INVALID, "a scheduler for no requests");
    Sched *sched = calloc(1, sizeof *sched);
    if (!sched) return error_set(error, ERR_NO_MEMORY, "no memory for the scheduler");
    const Tokenizer *tokenizer = engine_tokenizer(params->engine);
    sched->params = *params;
    sched->tools = (SequenceTools){
        .engine = params->engine, .tokenizer = tokenizer, .clock_usec = params->clock_usec, .stats = &sched->stats};
    sched->stats.kv_tokens_total = engine_context(params->engine);
    sched->idle_told = true;
    sched->slots = calloc(params->max_live, sizeof *sched->slots);
    if (!sched->slots) {
        error_set(error, ERR_NO_MEMORY, "no memory for %u requests", params->max_live);
        goto failed;
    }
    if (!sampler_space_new(tok_n_vocab(tokenizer), sampler_text_of(tokenizer), &sched->space, error) ||
        !sampler_new(sched->space, &sched->tools.sampler, error) || !find_end_ids(sched, tokenizer, error) ||
        !batch_build_init(&sched->build, engine_max_batch_rows(params->engine), 1, error))
        goto failed;
    *ret_sched = sched;
    return true;
failed:
    sched_free(sched);
    return false;
}

static void free_list(Sched *sched, SequenceList *list)
{
    for (Sequence *sequence; (sequence = list_pop(list));) sequence_done(sequence, &sched->tools);
}

void sched_free(Sched *sched)
{
    if (!sched) return;
    if (sched->running) sequence_done(sched->running, &sched->tools);
    free_list(sched, &sched->waiting);
    free_list(sched, &sched->closing);
    batch_build_done(&sched->build);
    sampler_free(sched->tools.sampler);
    sampler_space_free(sched->space);
    free(sched->end_ids);
    free(sched->slots);
    free(sched);
}

bool sched_submit(Sched *sched, Request *request, Error *error)
{
    if (sched->stopping) return error_set(error, ERR_BUSY, "the engine is stopping");
    Sequence *slot = list_pop(&sched->free);
    if (!slot) {
        if (sched->n_touched == sched->params.max_live)
            return error_set(error, ERR_BUSY, "%u requests are running or waiting", sched->n_touched);
        slot = &sched->slots[sched->n_touched++];
    }
    sequence_init(slot, request);
    list_insert_by_priority(&sched->waiting, slot);
    sched->idle_told = false;
    return true;
}

/* The sequence has left running or waiting. */
static void fail(Sched *sched, Sequence *sequence, const Error *error)
{
    sequence_fail(sequence, &sched->tools, error);
    list_push(&sched->closing, sequence);
}

typedef bool (*Condition)(const Sequence *sequence, uint64_t value);

static bool has_id(const Sequence *sequence, uint64_t id)
{
    return sequence->id == id;
}

static bool is_due(const Sequence *sequence, uint64_t now_usec)
{
    return sequence->request->deadline_usec && sequence->request->deadline_usec <= now_usec;
}

static bool always(const Sequence *sequence, uint64_t value)
{
    (void)sequence;
    (void)value;
    return true;
}

static void cancel_where(Sched *sched, Condition condition, uint64_t value, ErrorCode code, const char *text)
{
    Error error;
    error_set(&error, code, "%s", text);
    Sequence *running = sched->running;
    if (running && condition(running, value)) {
        sched->running = NULL;
        fail(sched, running, &error);
    }
    for (uint32_t n = sched->waiting.n; n > 0; n--) {
        Sequence *sequence = list_pop(&sched->waiting);
        if (condition(sequence, value))
            fail(sched, sequence, &error);
        else
            list_push(&sched->waiting, sequence);
    }
}

void sched_cancel(Sched *sched, RequestId id)
{
    cancel_where(sched, has_id, id, ERR_CANCELLED, "the request was cancelled");
}

void sched_stop(Sched *sched)
{
    cancel_where(sched, always, 0, ERR_CANCELLED, "the server is stopping");
    sched->stopping = true;
}

static void admit(Sched *sched)
{
    while (!sched->running) {
        Sequence *sequence = list_pop(&sched->waiting);
        if (!sequence) return;
        Error error;
        if (sequence_start(sequence, &sched->tools, &error))
            sched->running = sequence;
        else
            fail(sched, sequence, &error);
    }
}

static bool run_batch(Sched *sched, Sequence *sequence, Error *error)
{
    float *logits = NULL;
    batch_build_clear(&sched->build);
    if (!sequence_plan(sequence, &sched->tools, sched->params.prefill_chunk, &sched->build))
        return error_set(error, ERR_INTERNAL, "a step of request %llu has no rows", (unsigned long long)sequence->id);
    return engine_forward(sched->params.engine, &sched->build.batch, &logits, error) &&
           sequence_advance(sequence, &sched->tools, sched->build.batch.n_rows, logits, error);
}

static void run_step(Sched *sched)
{
    Sequence *sequence = sched->running;
    Error error;
    bool ok = run_batch(sched, sequence, &error);
    sched->stats.steps++;
    sched->stats.last_step_usec = sched->params.clock_usec();
    if (ok && sequence->state != SEQUENCE_CLOSING) return;
    sched->running = NULL;
    if (ok)
        list_push(&sched->closing, sequence);
    else
        fail(sched, sequence, &error);
}

static bool flush_all(Sched *sched)
{
    while (sched->closing.head && sequence_flush(sched->closing.head, sched->params.emit, sched->params.emit_arg))
        list_push(&sched->free, list_pop(&sched->closing));
    bool running_is_out = !sched->running || sequence_flush(sched->running, sched->params.emit, sched->params.emit_arg);
    return running_is_out && !sched->closing.head;
}

/* Gauges are for people: without memory or room they are late, and nothing else happens. */
static bool send_stats(Sched *sched, uint64_t now_usec)
{
    if (!sched->stats_due) return true;
    EngineStats *copy = malloc(sizeof *copy);
    if (!copy) return true;
    sched->stats.running = sched->running != NULL;
    sched->stats.waiting = sched->waiting.n;
    sched->stats.kv_tokens_used = sched->running ? engine_seq_tokens(sched->params.engine, sched->running->seq) : 0;
    *copy = sched->stats;
    if (!sched->params.emit(sched->params.emit_arg, &(Event){.kind = EVENT_STATS, .stats = copy})) {
        free(copy);
        return false;
    }
    sched->stats_due = false;
    sched->stats_sent_usec = now_usec;
    return true;
}

static SchedState settle(Sched *sched, uint64_t now_usec)
{
    bool is_out = flush_all(sched);
    bool has_work = sched->running || sched->waiting.head;
    if (has_work && now_usec - sched->stats_sent_usec >= STATS_INTERVAL_USEC) sched->stats_due = true;
    if (!has_work && !sched->idle_told) sched->idle_told = sched->stats_due = true;
    is_out &= send_stats(sched, now_usec);
    if (sched->stopping && is_out)
        sched->stopped = sched->params.emit(sched->params.emit_arg, &(Event){.kind = EVENT_STOPPED});
    if (sched->stopped) return SCHED_STOPPED;
    if (sched->running ? sched->running->n_pending == 0 : sched->waiting.head != NULL) return SCHED_READY;
    return is_out && !sched->stopping ? SCHED_IDLE : SCHED_STALLED;
}

SchedState sched_step(Sched *sched)
{
    if (sched->stopped) return SCHED_STOPPED;
    uint64_t now_usec = sched->params.clock_usec();
    cancel_where(sched, is_due, now_usec, ERR_DEADLINE, "the time limit of the request was reached");
    admit(sched);
    (void)flush_all(sched);
    if (sched->running && sched->running->n_pending == 0) run_step(sched);
    return settle(sched, now_usec);
}

uint64_t sched_next_deadline_usec(const Sched *sched)
{
    uint64_t next = sched->running ? sched->running->request->deadline_usec : 0;
    for (const Sequence *sequence = sched->waiting.head; sequence; sequence = sequence->next) {
        uint64_t deadline = sequence->request->deadline_usec;
        if (deadline && (!next || deadline < next)) next = deadline;
    }
    return next;
}
