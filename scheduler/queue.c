/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sched_impl.h"

#include <string.h>

/* One in so many that start is the one that came first, whatever its priority. */
enum { AGEING_PERIOD = 8 };

bool rank_before(const Sequence *a, const Sequence *b)
{
    if (a->job->priority != b->job->priority) return a->job->priority < b->job->priority;
    if (a->job->order != b->job->order) return a->job->order < b->job->order;
    return a->choice < b->choice;
}

void queue_push(Sched *sched, Sequence *sequence)
{
    Sequence **link = &sched->waiting;
    while (*link && rank_before(*link, sequence)) link = &(*link)->next;
    if (link == &sched->waiting) sched->is_blocked = false;
    sequence->next = *link;
    *link = sequence;
    sched->n_waiting++;
}

void queue_remove(Sched *sched, Sequence *sequence)
{
    Sequence **link = &sched->waiting;
    while (*link && *link != sequence) link = &(*link)->next;
    if (!*link) return;
    if (link == &sched->waiting) sched->is_blocked = false;
    *link = sequence->next;
    sequence->next = NULL;
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

/* The first by rank; now and then the first that came, which ranks before all others from then on. */
static Sequence *whose_turn(Sched *sched)
{
    Sequence *oldest = sched->waiting;
    if ((sched->n_admitted + 1) % AGEING_PERIOD != 0) return sched->waiting;
    for (Sequence *s = sched->waiting; s; s = s->next)
        if (s->job->order < oldest->job->order) oldest = s;
    if (oldest == sched->waiting) return oldest;
    /* Its other choices that wait or run keep their places until they are put somewhere else. */
    queue_remove(sched, oldest);
    oldest->job->priority = INT64_MIN;
    queue_push(sched, oldest);
    return sched->waiting;
}

/* What those that run will still take of what they are known to need, and a page each for what they say next. */
static uint64_t promised_bytes(const Sched *sched)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const Sequence *sequence = sched->running[i];
        PolicyId policy = sequence->job->request->policy;
        uint32_t n_held = engine_seq_tokens(sched->params.engine, sequence->seq);
        bytes += engine_need_bytes(sched->params.engine, policy, sequence->n_tokens + KV_PAGE_TOKENS) -
                 engine_need_bytes(sched->params.engine, policy, n_held);
    }
    return bytes;
}

/*
 * Attached: are there pages for all that it needs beside what the others need? Pages of the cache give way, unless even
 * all of them would not do: who has to wait anyhow takes nothing from those that come back.
 */
static bool has_memory(Sched *sched, const Sequence *sequence, uint32_t n_cached)
{
    Engine *engine = sched->params.engine;
    PolicyId policy = sequence->job->request->policy;
    uint64_t need = engine_need_bytes(engine, policy, sequence->n_tokens + KV_PAGE_TOKENS) -
                    engine_need_bytes(engine, policy, n_cached / KV_PAGE_TOKENS * KV_PAGE_TOKENS) +
                    promised_bytes(sched);
    PrefixCache *cache = sched->params.cache;
    uint64_t idle = cache ? prefix_cache_idle_bytes(cache) : 0;
    for (;;) {
        KvUsage usage = engine_kv_usage(engine);
        if (usage.used_bytes + need <= usage.total_bytes) return true;
        if (usage.used_bytes + need > usage.total_bytes + idle || !prefix_cache_evict(cache)) return false;
    }
}

/* false: it has to wait, or it has failed. */
static bool start(Sched *sched, Sequence *sequence, Error *error)
{
    Job *job = sequence->job;
    uint32_t n_cached;
    if (sequence->state == SEQUENCE_NEW && !job_open(job, &sched->tools, error)) return false;
    if (!sequence_attach(sequence, &sched->tools, &n_cached, error)) return false;
    /* Alone it fits: that was checked when it was opened. */
    if (sched->n_running > 0 && !has_memory(sched, sequence, n_cached)) {
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
    while (sched->waiting && !sched->is_blocked && sched->n_running < sched->max_running) {
        Sequence *sequence = whose_turn(sched);
        Error error;
        queue_remove(sched, sequence);
        if (start(sched, sequence, &error)) {
            running_add(sched, sequence);
            sched->n_admitted++;
        } else if (error.code == ERR_BUSY && sched->n_running > 0) {
            queue_push(sched, sequence);
            sched->is_blocked = true;
        } else {
            sched_fail(sched, sequence->job, &error);
        }
    }
}
