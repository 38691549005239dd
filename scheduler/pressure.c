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

PageTake pressure_reserve(Sched *sched, Sequence *sequence, uint32_t n_rows, Error *error)
{
    PageTake taken = TAKE_DONE;
    while (taken == TAKE_DONE) {
        if (engine_seq_reserve(sched->params.engine, sequence->seq, n_rows, error)) return TAKE_DONE;
        if (error->code != ERR_BUSY) return TAKE_FAILED;
        taken = make_room(sched, sequence, error);
    }
    return taken;
}

PageTake pressure_restore(Sched *sched, Sequence *sequence, Error *error)
{
    PageTake taken = TAKE_DONE;
    while (taken == TAKE_DONE) {
        if (sequence_restore(sequence, &sched->tools, error)) return TAKE_DONE;
        if (error->code != ERR_BUSY) return TAKE_FAILED;
        taken = make_room(sched, sequence, error);
    }
    return taken;
}
