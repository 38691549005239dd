/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sched_impl.h"
#include "base/numbers.h"

#include <stdlib.h>
#include <string.h>

enum {
    STATS_INTERVAL_USEC = 100 * 1000,
    WAY_OUT_USEC = 5000, /* from a row of logits to the client, while the threads that compute hold every CPU */
    WAY_OUT_SHARE = 8,   /* but at most one part in so many of max_stall */
};

/* ---- begin and end ---- */

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

static bool check_params(const SchedParams *params, Error *error)
{
    if (params->prefill_chunk == 0) return error_set_param(error, ERR_INVALID, "prefill_chunk", "prefill_chunk is 0");
    if (params->max_batch == 0) return error_set_param(error, ERR_INVALID, "max_batch", "max_batch is 0");
    if (params->max_live == 0) return error_set(error, ERR_INVALID, "a scheduler for no requests");
    if (params->max_passes < 2)
        return error_set(error, ERR_INVALID, "%u passes: one decodes while another is suspended", params->max_passes);
    return true;
}

static bool take_memory(Sched *sched, Error *error)
{
    const SchedParams *p = &sched->params;
    sched->n_passes = p->max_passes - 1;
    sched->active = calloc(p->max_live, sizeof *sched->active);
    sched->running = calloc(sched->max_running, sizeof *sched->running);
    sched->decoding = calloc(sched->max_running, sizeof *sched->decoding);
    sched->early = calloc(sched->max_running, sizeof *sched->early);
    sched->asks = calloc(sched->max_running, sizeof *sched->asks);
    sched->passes = calloc(sched->n_passes, sizeof *sched->passes);
    sched->row = calloc(tok_n_vocab(sched->tools.tokenizer), sizeof *sched->row);
    sched->is_audited = calloc(sched->max_running, sizeof *sched->is_audited);
    sched->audit_rows =
        calloc((size_t)sched->max_running * tok_n_vocab(sched->tools.tokenizer), sizeof *sched->audit_rows);
    bool ok = sched->active && sched->running && sched->decoding && sched->early && sched->asks && sched->passes &&
              sched->row && sched->is_audited && sched->audit_rows;
    for (uint32_t i = 0; ok && i < sched->n_passes; i++) {
        sched->passes[i].members = calloc(sched->max_running, sizeof *sched->passes[i].members);
        ok = sched->passes[i].members != NULL;
    }
    if (!ok) return error_set(error, ERR_NO_MEMORY, "no memory for %u requests", p->max_live);
    return job_table_init(&sched->jobs, p->max_live, error);
}

/* Their memory is touched by those that have something to do. */
static bool make_spaces(Sched *sched, const Tokenizer *tokenizer, Error *error)
{
    uint32_t n = engine_n_threads(sched->params.engine);
    sched->spaces = calloc(n, sizeof(SamplerSpace *));
    if (!sched->spaces) return error_set(error, ERR_NO_MEMORY, "no memory for samplers of %u threads", n);
    for (; sched->n_spaces < n; sched->n_spaces++)
        if (!sampler_space_new(tok_n_vocab(tokenizer), sampler_text_of(tokenizer), &sched->spaces[sched->n_spaces],
                               error))
            return false;
    sched->tools.space = sched->spaces[0];
    return true;
}

bool sched_new(const SchedParams *params, Sched **ret_sched, Error *error)
{
    if (!check_params(params, error)) return false;
    Sched *sched = calloc(1, sizeof *sched);
    if (!sched) return error_set(error, ERR_NO_MEMORY, "no memory for the scheduler");
    Engine *engine = params->engine;
    const Tokenizer *tokenizer = engine_tokenizer(engine);
    uint32_t max_rows = engine_max_batch_rows(engine);
    sched->params = *params;
    sched->params.prefill_chunk = min_u32(params->prefill_chunk, max_rows);
    sched->max_running = min_u32(params->max_batch, min_u32(max_rows, engine_max_logit_rows(engine)));
    sched->n_layers = engine_shape(engine)->n_layers;
    sched->swap.max_bytes = params->max_swap_bytes;
    sched->idle_told = true;
    queue_init(sched);
    sched->tools = (SequenceTools){.engine = engine,
                                   .cache = params->cache,
                                   .swap = &sched->swap,
                                   .tokenizer = tokenizer,
                                   .clock_usec = params->clock_usec,
                                   .stats = &sched->stats};
    if (!take_memory(sched, error) || !make_spaces(sched, tokenizer, error) || !find_end_ids(sched, tokenizer, error) ||
        !batch_build_init(&sched->build, max_rows, sched->max_running, error)) {
        sched_free(sched);
        return false;
    }
    *ret_sched = sched;
    return true;
}

void sched_free(Sched *sched)
{
    if (!sched) return;
    job_table_done(&sched->jobs, &sched->tools);
    for (uint32_t i = 0; sched->passes && i < sched->n_passes; i++) {
        if (sched->passes[i].is_open) engine_pass_drop(sched->params.engine, sched->passes[i].id);
        free(sched->passes[i].members);
    }
    batch_build_done(&sched->build);
    for (uint32_t i = 0; i < sched->n_spaces; i++) sampler_space_free(sched->spaces[i]);
    free(sched->spaces);
    free(sched->early);
    free(sched->asks);
    free(sched->end_ids);
    free(sched->row);
    free(sched->audit_rows);
    free(sched->is_audited);
    free(sched->passes);
    free(sched->decoding);
    free(sched->running);
    free(sched->active);
    free(sched);
}

/* ---- requests come and go ---- */

bool sched_submit(Sched *sched, Request *request, Error *error)
{
    if (sched->stopping) return error_set(error, ERR_BUSY, "the engine is stopping");
    Job *job = job_table_take(&sched->jobs);
    if (!job) return error_set(error, ERR_BUSY, "%u requests are running or waiting", sched->params.max_live);
    job_init(job, request, sched->params.order == SCHEDULE_PRIORITY ? request->priority : 0, sched->n_submitted++);
    job_table_add(&sched->jobs, job);
    queue_push(sched, &job->first);
    sched->idle_told = false;
    return true;
}

void sched_activate(Sched *sched, Job *job)
{
    sched->active[sched->n_active++] = job;
    sched->queue.n_left++;
    sched->queue.left_prompt_tokens += job->request->n_prompt;
}

void sched_fail(Sched *sched, Job *job, const Error *error)
{
    Sequence *sequence;
    if (job->state == JOB_CLOSING) return;
    if (job->state == JOB_WAITING) sched_activate(sched, job);
    for (uint32_t i = 0; (sequence = job_choice(job, i)); i++) {
        passes_forget(sched, sequence);
        running_remove(sched, sequence);
        queue_remove(sched, sequence);
    }
    job_table_forget(&sched->jobs, job);
    job_fail(job, &sched->tools, error);
}

static void cancel(Sched *sched, Job *job, ErrorCode code, const char *text)
{
    Error error;
    error_set(&error, code, "%s", text);
    sched_fail(sched, job, &error);
}

void sched_cancel(Sched *sched, RequestId id)
{
    Job *job = job_table_find(&sched->jobs, id);
    if (!job) return;
    cancel(sched, job, ERR_CANCELLED, "the request was cancelled");
    passes_drop_empty(sched);
}

void sched_stop(Sched *sched)
{
    static const char text[] = "the server is stopping";
    for (uint32_t i = 0; i < sched->n_active; i++) cancel(sched, sched->active[i], ERR_CANCELLED, text);
    for (Sequence *first; (first = queue_first(sched));) cancel(sched, first->job, ERR_CANCELLED, text);
    passes_drop_empty(sched);
    sched->stopping = true;
}

uint64_t sched_next_deadline_usec(const Sched *sched)
{
    const Job *job = job_table_most_urgent(&sched->jobs);
    return job ? job->request->deadline_usec : 0;
}

static void end_overdue(Sched *sched, uint64_t now_usec)
{
    for (Job *job; (job = job_table_most_urgent(&sched->jobs)) && job->request->deadline_usec <= now_usec;)
        cancel(sched, job, ERR_DEADLINE, "the time limit of the request was reached");
    passes_drop_empty(sched);
}

/* ---- what a pass has computed ---- */

bool sched_may_run(const Sequence *sequence)
{
    return !job_has_events(sequence->job);
}

/* The choices beside the first share its prompt; those that find no place wait for one. */
static bool branch(Sched *sched, const Sequence *from, const float *row, Error *error)
{
    Job *job = from->job;
    if (!job_make_others(job, error)) return false;
    for (uint32_t choice = 1; choice <= job->n_others; choice++) {
        Sequence *sequence = job_choice(job, choice);
        if (job->request->max_tokens == 0) {
            *sequence = (Sequence){.job = job, .choice = choice};
            sequence_finish(sequence, &sched->tools, FINISH_LENGTH);
            continue;
        }
        if (!sequence_open(sequence, job, choice, &sched->tools, error)) return false;
        if (sched->n_running < sched->max_running && !sequence_fork(sequence, from, &sched->tools, error) &&
            error->code != ERR_BUSY)
            return false;
        memcpy(sched->row, row, tok_n_vocab(sched->tools.tokenizer) * sizeof *row);
        if (!sequence_sample(sequence, &sched->tools, sched->row, error)) return false;
        if (sequence->state == SEQUENCE_RUNNING) running_add(sched, sequence);
        if (sequence->state == SEQUENCE_WAITING) queue_push(sched, sequence);
    }
    return true;
}

void sched_advance(Sched *sched, Sequence *sequence, uint32_t n_rows, float *logits)
{
    Job *job = sequence->job;
    Error error;
    bool ends_prompt = engine_seq_tokens(sched->params.engine, sequence->seq) == job->request->n_prompt;
    const float *row = logits;
    if (logits) row += (size_t)sequence_last_row(sequence, &sched->tools, n_rows) * tok_n_vocab(sched->tools.tokenizer);
    if ((ends_prompt && job_is_to_branch(job) && !branch(sched, sequence, row, &error)) ||
        !sequence_advance(sequence, &sched->tools, n_rows, logits, &error)) {
        sched_fail(sched, job, &error);
        return;
    }
    if (sequence->state == SEQUENCE_OVER) running_remove(sched, sequence);
    if (n_rows > 1) sched->is_blocked = false; /* windows have left pages that one row does not need */
    if (job->n_over < job->request->n_choices) return;
    job_table_forget(&sched->jobs, job);
    job_finish(job, &sched->tools);
}

/* ---- a step ---- */

static void reverse(Job **jobs, uint32_t n)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        Job *job = jobs[i];
        jobs[i] = jobs[n - 1 - i];
        jobs[n - 1 - i] = job;
    }
}

/* The first n go behind the others. */
static void rotate_active(Sched *sched, uint32_t n)
{
    reverse(sched->active, n);
    reverse(sched->active + n, sched->n_active - n);
    reverse(sched->active, sched->n_active);
}

/* Hands out what there is room for; true: all events are out. */
static bool flush_all(Sched *sched)
{
    uint32_t n_kept = 0, i = 0;
    for (; i < sched->n_active; i++) {
        Job *job = sched->active[i];
        if (!job_flush(job, sched->params.emit, sched->params.emit_arg)) break;
        if (job->state == JOB_CLOSING) {
            job_done(job, &sched->tools);
            job_table_give(&sched->jobs, job);
        } else {
            sched->active[n_kept++] = job;
        }
    }
    bool is_out = i == sched->n_active;
    memmove(&sched->active[n_kept], &sched->active[i], (sched->n_active - i) * sizeof *sched->active);
    sched->n_active -= i - n_kept;
    if (!is_out) rotate_active(sched, n_kept); /* the next turn begins here: nobody is refused for ever */
    return is_out;
}

EngineStats sched_stats(const Sched *sched)
{
    EngineStats stats = sched->stats;
    KvUsage usage = engine_kv_usage(sched->params.engine);
    stats.running = sched->n_running;
    stats.waiting = sched->n_waiting;
    stats.kv_bytes_used = usage.used_bytes;
    stats.kv_bytes_total = usage.total_bytes;
    stats.kv_tokens_used = usage.used_tokens;
    stats.kv_tokens_total = usage.total_tokens;
    stats.kv_pages_used = usage.n_pages_used;
    for (size_t i = 0; i < STATS_KV_KINDS; i++) stats.kv_pages_of[i] = usage.n_pages_of[i];
    stats.kv_images = usage.n_images_used;
    stats.swap_bytes = sched->swap.used_bytes;
    if (sched->params.cache) {
        PrefixStats prefix = prefix_cache_stats(sched->params.cache);
        stats.prefix_pages = prefix.n_pages;
        stats.prefix_nodes = prefix.n_nodes;
        stats.prefix_evicted_pages = prefix.evicted_pages;
        stats.kv_bytes_idle = prefix_cache_idle_bytes(sched->params.cache);
    }
    return stats;
}

/* Gauges are for people: without memory or room they are late, and nothing else happens. */
static bool send_stats(Sched *sched, uint64_t now_usec)
{
    if (!sched->stats_due) return true;
    EngineStats *copy = malloc(sizeof *copy);
    if (!copy) return true;
    *copy = sched_stats(sched);
    if (!sched->params.emit(sched->params.emit_arg, &(Event){.kind = EVENT_STATS, .stats = copy})) {
        free(copy);
        return false;
    }
    sched->stats_due = false;
    sched->stats_sent_usec = now_usec;
    return true;
}

static SchedState settle(Sched *sched, uint64_t now_usec, bool has_worked)
{
    bool is_out = flush_all(sched);
    bool has_work = sched->n_running || sched->n_waiting;
    if (has_work && now_usec - sched->stats_sent_usec >= STATS_INTERVAL_USEC) sched->stats_due = true;
    if (!has_work && !sched->idle_told) sched->idle_told = sched->stats_due = true;
    if (is_out) is_out = send_stats(sched, now_usec);
    if (sched->stopping && is_out) {
        sched->stopped = sched->params.emit(sched->params.emit_arg, &(Event){.kind = EVENT_STOPPED});
        return sched->stopped ? SCHED_STOPPED : SCHED_STALLED;
    }
    if (has_work && (is_out || has_worked)) return SCHED_READY;
    return is_out ? SCHED_IDLE : SCHED_STALLED;
}

/* What of max_stall is left to the engine. */
static uint64_t stall_of_engine(const Sched *sched)
{
    uint64_t stall_usec = sched->params.max_stall_usec, way_usec = stall_usec / WAY_OUT_SHARE;
    return stall_usec - (way_usec < WAY_OUT_USEC ? way_usec : WAY_OUT_USEC);
}

/* false: nothing could be done before some events are out. */
static bool compute(Sched *sched)
{
    EngineStats *stats = &sched->stats;
    uint64_t begin_usec = sched->params.clock_usec(), stall_usec = stall_of_engine(sched);
    uint64_t n_decode = stats->decode_steps, n_prefill = stats->prefill_steps;
    decode_step(sched);
    (void)flush_all(sched);
    if (sched->params.wake) sched->params.wake(sched->params.emit_arg);
    if (stats->decode_steps > n_decode) {
        /* The others wait for their next token since this pass ended, until the next one ends. */
        uint64_t decode_usec = (uint64_t)estimate_high(&sched->decode_usec);
        prefill_step(sched, sched->last_decode_usec + (stall_usec > decode_usec ? stall_usec - decode_usec : 0));
    } else {
        prefill_step(sched, begin_usec + stall_usec);
    }
    passes_drop_empty(sched);
    if (stats->decode_steps == n_decode && stats->prefill_steps == n_prefill) return false;
    stats->steps++;
    stats->last_step_usec = sched->params.clock_usec();
    return true;
}

SchedState sched_step(Sched *sched)
{
    if (sched->stopped) return SCHED_STOPPED;
    uint64_t now_usec = sched->params.clock_usec();
    end_overdue(sched, now_usec);
    queue_admit(sched);
    (void)flush_all(sched);
    bool has_worked = compute(sched);
    return settle(sched, now_usec, has_worked);
}

void sched_set_stall(Sched *sched, uint32_t max_stall_usec)
{
    sched->params.max_stall_usec = max_stall_usec;
}

uint64_t sched_steps(const Sched *sched)
{
    return sched->stats.steps;
}

SchedQueue sched_queue(const Sched *sched)
{
    SchedQueue queue = sched->queue;
    queue.n_places = sched->n_waiting ? 0 : sched->max_running - sched->n_running;
    return queue;
}
