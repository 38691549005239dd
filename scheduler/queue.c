/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sched_impl.h"
#include "base/numbers.h"

#include <string.h>

/* One in so many that start is the one that came first, whatever its priority. */
enum { AGEING_PERIOD = 8 };

static bool rank_before(const Sequence *a, const Sequence *b)
{
    if (a->job->priority != b->job->priority) return a->job->priority < b->job->priority;
    if (a->job->order != b->job->order) return a->job->order < b->job->order;
    return a->choice < b->choice;
}

static bool link_rank_before(const HeapLink *a, const HeapLink *b)
{
    return rank_before(HEAP_CONST_OWNER(a, Sequence, by_rank), HEAP_CONST_OWNER(b, Sequence, by_rank));
}

static bool link_came_before(const HeapLink *a, const HeapLink *b)
{
    const Sequence *x = HEAP_CONST_OWNER(a, Sequence, by_order), *y = HEAP_CONST_OWNER(b, Sequence, by_order);
    return x->job->order != y->job->order ? x->job->order < y->job->order : x->choice < y->choice;
}

void queue_init(Sched *sched)
{
    sched->waiting.comes_before = link_rank_before;
    sched->waiting_by_order.comes_before = link_came_before;
}

Sequence *queue_first(const Sched *sched)
{
    HeapLink *top = sched->waiting.top;
    return top ? HEAP_OWNER(top, Sequence, by_rank) : NULL;
}

void queue_push(Sched *sched, Sequence *sequence)
{
    heap_push(&sched->waiting, &sequence->by_rank);
    heap_push(&sched->waiting_by_order, &sequence->by_order);
    sched->n_waiting++;
    if (queue_first(sched) == sequence) sched->is_blocked = false;
}

void queue_remove(Sched *sched, Sequence *sequence)
{
    if (queue_first(sched) == sequence) sched->is_blocked = false;
    if (!heap_remove(&sched->waiting, &sequence->by_rank)) return;
    (void)heap_remove(&sched->waiting_by_order, &sequence->by_order);
    sched->n_waiting--;
}

void running_add(Sched *sched, Sequence *sequence)
{
    uint32_t at = sched->n_running++;
    for (; at > 0 && rank_before(sequence, sched->running[at - 1]); at--) sched->running[at] = sched->running[at - 1];
    sched->running[at] = sequence;
}

void running_remove(Sched *sched, Sequence *sequence)
{
    uint32_t at = 0;
    while (at < sched->n_running && sched->running[at] != sequence) at++;
    if (at == sched->n_running) return;
    sched->n_running--;
    memmove(&sched->running[at], &sched->running[at + 1], (sched->n_running - at) * sizeof *sched->running);
    sched->is_blocked = false;
}

/* Before all others from now on, with all its choices. */
static void promote(Sched *sched, Job *job)
{
    Sequence *choice;
    for (uint32_t i = 0; (choice = job_choice(job, i)); i++) {
        running_remove(sched, choice);
        queue_remove(sched, choice);
    }
    job->priority = INT64_MIN;
    for (uint32_t i = 0; (choice = job_choice(job, i)); i++) {
        if (choice->state == SEQUENCE_RUNNING) running_add(sched, choice);
        if (choice->state == SEQUENCE_NEW || choice->state == SEQUENCE_WAITING) queue_push(sched, choice);
    }
}

/* The first by rank; now and then the first that came. */
static Sequence *whose_turn(Sched *sched)
{
    Sequence *first = queue_first(sched);
    if ((sched->n_admitted + 1) % AGEING_PERIOD != 0) return first;
    Sequence *oldest = HEAP_OWNER(sched->waiting_by_order.top, Sequence, by_order);
    if (oldest->job == first->job) return first;
    promote(sched, oldest->job);
    return queue_first(sched);
}

/* What it lacks of all its tokens and of n_more, as far as it may say so many; of a window, what a pass writes too. */
static void add_missing(const Sched *sched, const Sequence *sequence, uint32_t n_more, KvNeed *need)
{
    const Request *request = sequence->job->request;
    uint32_t n_left = request->n_prompt + request->max_tokens - sequence->n_tokens;
    uint32_t n_rows = sequence_missing(sequence, &sched->tools);
    engine_seq_add_missing(sched->params.engine, sequence->seq, sequence->n_tokens + min_u32(n_more, n_left),
                           n_rows ? n_rows : 1, need);
}

/*
 * What each should be able to say before one gives way: a page. Who was preempted comes back when it may say as much as
 * is computed again for it, else most of the work would be that.
 */
static uint32_t fair_stretch(const Sequence *sequence, uint32_t n_cached)
{
    uint32_t n_again = sequence->job->state == JOB_WAITING ? 0 : sequence->n_tokens - n_cached;
    return n_again > KV_PAGE_TOKENS ? n_again : KV_PAGE_TOKENS;
}

/* What the others have to find free when one starts beside them: each may say n_more. */
static void add_running(const Sched *sched, uint32_t n_more, KvNeed *need)
{
    for (uint32_t i = 0; i < sched->n_running; i++) add_missing(sched, sched->running[i], n_more, need);
}

static uint64_t idle_bytes(const Sched *sched)
{
    return sched->params.cache ? prefix_cache_idle_bytes(sched->params.cache) : 0;
}

/*
 * Attached: are there pages for all that it needs beside what the others need? Pages of the cache give way, unless even
 * all of them would not do: who has to wait anyhow takes nothing from those that come back. That is told by their
 * bytes, so that they give way in vain where a device lacks pages of one class and they are of another.
 */
static bool has_memory(Sched *sched, KvNeed need, uint32_t n_more)
{
    Engine *engine = sched->params.engine;
    PrefixCache *cache = sched->params.cache;
    const uint64_t idle = idle_bytes(sched);
    add_running(sched, n_more, &need);
    while (!engine_kv_meets(engine, &need)) {
        KvUsage usage = engine_kv_usage(engine);
        if (usage.used_bytes + need.bytes > usage.total_bytes + idle) return false;
        if (!cache || !prefix_cache_evict(cache)) return false;
    }
    return true;
}

/*
 * It was refused with what it lacked then: could it start with that now? Cheaper than to look for a prefix of millions
 * of tokens whenever somebody leaves; what the cache has gained since is found when the others have made room.
 */
static bool may_fit(const Sched *sched, const Sequence *sequence)
{
    if (!sequence->was_refused || sched->n_running == 0) return true;
    KvUsage usage = engine_kv_usage(sched->params.engine);
    KvNeed need = {.bytes = sequence->refused_bytes};
    add_running(sched, sequence->n_refused_more, &need);
    return usage.used_bytes + need.bytes <= usage.total_bytes + idle_bytes(sched);
}

/* false: it has to wait, or, as long as it is new, it has failed: a table is full that others hold. */
static bool start(Sched *sched, Sequence *sequence, Error *error)
{
    Job *job = sequence->job;
    uint32_t n_cached;
    if (sequence->state == SEQUENCE_NEW && !job_open(job, &sched->tools, error)) return false;
    if (!may_fit(sched, sequence)) return error_set(error, ERR_BUSY, "too few pages are free");
    if (!sequence_attach(sequence, &sched->tools, &n_cached, error)) return false;
    /* Alone it fits: that was checked when it was opened. */
    uint32_t n_more = fair_stretch(sequence, n_cached);
    KvNeed missing = {0};
    add_missing(sched, sequence, n_more, &missing);
    sequence->was_refused = sched->n_running > 0 && !has_memory(sched, missing, n_more);
    if (sequence->was_refused) {
        sequence->refused_bytes = missing.bytes;
        sequence->n_refused_more = n_more;
        sequence_detach(sequence, &sched->tools, false);
        return error_set(error, ERR_BUSY, "too few pages are free");
    }
    if (job->state == JOB_WAITING) {
        job_start(job, &sched->tools, n_cached);
        sched_activate(sched, job);
    }
    return true;
}

void queue_admit(Sched *sched)
{
    while (sched->n_waiting && !sched->is_blocked && sched->n_running < sched->max_running) {
        Sequence *sequence = whose_turn(sched);
        Error error;
        queue_remove(sched, sequence);
        if (start(sched, sequence, &error)) {
            running_add(sched, sequence);
            sched->n_admitted++;
        } else if (error.code == ERR_BUSY && sched->n_running > 0 && sequence->state != SEQUENCE_NEW) {
            queue_push(sched, sequence);
            sched->is_blocked = true;
        } else {
            sched_fail(sched, sequence->job, &error);
        }
    }
}
