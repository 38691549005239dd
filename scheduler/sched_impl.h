/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the scheduler share: who waits, who runs, which passes are open. Private to them. Engine thread. */
#pragma once
#include "scheduler/cost.h"
#include "scheduler/job_table.h"
#include "scheduler/sched.h"

/* One sequence's rows in a pass of prefill. */
typedef struct PassMember {
    Sequence *sequence; /* NULL: it left */
    uint32_t first_row, n_rows, first_pos, first_logit_row;
    bool in_blocks; /* its rows are cut at multiples of KV_PAGE_TOKENS positions alone */
} PassMember;

/* A prefill pass on its way through the layers, suspended between two steps. */
typedef struct Pass {
    bool is_open;
    PassId id;
    PassMember *members;               /* [n_members] of max_running */
    uint32_t n_members, n_rows, depth; /* depth: largest position */
    uint32_t next_layer, next_row;     /* rows [0, next_row) of next_layer are done */
    Estimate row_layer;                /* its own cost so far */
    double last_row_layer;             /* that of the last item */
    uint32_t known_depth;              /* largest position that was among it */
    bool goes_apart;                   /* some rows go one by one: its cost says nothing about other passes */
} Pass;

struct Sched {
    SchedParams params;
    SequenceTools tools;
    SwapStore swap;
    uint32_t *end_ids;
    uint32_t n_layers, max_running;
    float *row;        /* [n_vocab] a row that several choices are drawn from */
    bool *is_audited;  /* [max_running] of decoding */
    float *audit_rows; /* [max_running, n_vocab] their dense logits; touched where audits are */

    JobTable jobs;
    Job **active;      /* [n_active] of max_live: those that have started, and those that still have events */
    uint32_t n_active; /* they are offered in this order, the first that was refused first the next time */
    uint64_t n_submitted, n_admitted;
    SchedQueue queue;

    Heap waiting, waiting_by_order; /* the same sequences, by rank and as they came */
    uint32_t n_waiting;
    Sequence **running; /* [n_running] of max_running, by rank */
    uint32_t n_running;
    bool is_blocked; /* the first of those that wait did not fit, and nothing has left since */

    BatchBuild build;
    Sequence **decoding;   /* [max_running] of this step */
    uint32_t *early;       /* [max_running] of decoding: whose token is picked before its turn */
    DigestAsk *asks;       /* [max_running] of decoding */
    SamplerSpace **spaces; /* [n_spaces] one for each thread of the engine; the first is tools.space */
    uint32_t n_spaces;
    Pass *passes; /* [n_passes] of prefill */
    uint32_t n_passes;
    CostTable cost;
    Estimate decode_usec, end_usec; /* of a decode pass; of the end of a prefill pass */
    double debt_usec;               /* of prefill time, owed to the sequence that came first */
    uint64_t last_decode_usec;      /* when the last decode pass ended */

    EngineStats stats;
    uint64_t stats_sent_usec;
    bool stats_due, idle_told, stopping, stopped;
};

/* ---- queue.c: the order of all, and who may start ---- */

void queue_init(Sched *sched);
/* The first of those that wait; NULL: nobody does. */
Sequence *queue_first(const Sched *sched);
void queue_push(Sched *sched, Sequence *sequence);
void queue_remove(Sched *sched, Sequence *sequence); /* if it is there */
void running_add(Sched *sched, Sequence *sequence);
void running_remove(Sched *sched, Sequence *sequence); /* if it is there */
/* Starts those whose turn it is while there are places and pages. */
void queue_admit(Sched *sched);

/* ---- pressure.c: pages ---- */

typedef enum PageTake { TAKE_DONE, TAKE_LOST, TAKE_FAILED } PageTake;
/* Pages for the next n rows, whatever others must give up; LOST: the sequence itself was preempted. */
PageTake pressure_reserve(Sched *sched, Sequence *sequence, uint32_t n_rows, Error *error);
PageTake pressure_restore(Sched *sched, Sequence *sequence, Error *error);
/* Back to those that wait. */
void preempt(Sched *sched, Sequence *sequence);

/* ---- passes.c, decode.c: what a step computes ---- */

void decode_step(Sched *sched);
/* until_usec: when the step should be over. */
void prefill_step(Sched *sched, uint64_t until_usec);
/* The sequence's rows in open passes are nobody's any more. */
void passes_forget(Sched *sched, Sequence *sequence);
/* Nobody waits for these passes. */
void passes_drop_empty(Sched *sched);

/* ---- audit.c: what a row would have been by dense attention ---- */

/* Before the pass of sched->decoding [n]: computes the rows that are due, as far as there is room. */
void audit_begin(Sched *sched, uint32_t n_decoding);
/* The same row as the sequence sched->decoding[index] got it. */
void audit_end(Sched *sched, uint32_t index, const float *logits);

/* ---- sched.c ---- */

/* The engine holds n_rows more of the sequence's tokens. */
void sched_advance(Sched *sched, Sequence *sequence, uint32_t n_rows, float *logits);
void sched_fail(Sched *sched, Job *job, const Error *error);
/* It leaves the queue, started or failed: its events are to be handed out from now on. */
void sched_activate(Sched *sched, Job *job);
/* It may be computed: its events are out. */
bool sched_may_run(const Sequence *sequence);
