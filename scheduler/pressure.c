/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sched_impl.h"

void preempt(Sched *sched, Sequence *sequence)
{
    passes_forget(sched, sequence);
    running_remove(sched, sequence);
    sequence_detach(sequence, &sched->tools, true);
    sequence->job->timings.n_preempted++;
    sched->stats.preempted++;
    queue_push(sched, sequence);
}

/*
 * One page or more may be free afterwards: what nobody uses goes first, then the last by rank gives way. So whoever is
 * first by rank always gets what it needs.
 */
static PageTake make_room(Sched *sched, Sequence *sequence, Error *error)
{
    if (sched->params.cache && prefix_cache_evict(sched->params.cache)) return TAKE_DONE;
    Sequence *last = sched->running[sched->n_running - 1];
    if (last == sequence && sched->n_running == 1) {
        if (sched->params.reclaim && sched->params.reclaim(sched->params.reclaim_arg)) return TAKE_DONE;
        /* Checkpoints on its way keep pages of windowed classes that it does not need itself. */
        if (sequence_leave_cache(sequence, &sched->tools)) return TAKE_DONE;
        error_set(error, ERR_NO_MEMORY, "the KV memory is too small for %u tokens", sequence->n_tokens);
        return TAKE_FAILED;
    }
    preempt(sched, last);
    return last == sequence ? TAKE_LOST : TAKE_DONE;
}

/* ask takes pages, or says ERR_BUSY: as often as it takes. */
typedef bool PageAsk(Sched *sched, Sequence *sequence, uint32_t n_rows, Error *error);

static PageTake press(Sched *sched, Sequence *sequence, PageAsk *ask, uint32_t n_rows, Error *error)
{
    PageTake taken = TAKE_DONE;
    while (taken == TAKE_DONE) {
        if (ask(sched, sequence, n_rows, error)) return TAKE_DONE;
        if (error->code != ERR_BUSY) return TAKE_FAILED;
        taken = make_room(sched, sequence, error);
    }
    return taken;
}

static bool ask_rows(Sched *sched, Sequence *sequence, uint32_t n_rows, Error *error)
{
    return engine_seq_reserve(sched->params.engine, sequence->seq, n_rows, error);
}

static bool ask_copies(Sched *sched, Sequence *sequence, uint32_t n_rows, Error *error)
{
    (void)n_rows;
    return sequence_restore(sequence, &sched->tools, error);
}

PageTake pressure_reserve(Sched *sched, Sequence *sequence, uint32_t n_rows, Error *error)
{
    return press(sched, sequence, ask_rows, n_rows, error);
}

PageTake pressure_restore(Sched *sched, Sequence *sequence, Error *error)
{
    return press(sched, sequence, ask_copies, 0, error);
}
