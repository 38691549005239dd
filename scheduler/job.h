/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request over time: its choices, what it cost, its events until they go out. WAITING until its first choice begins,
 * RUNNING until the last one is over or something fails, CLOSING while events are left; then its place is FREE.
 * A job is computed only while it has no events left: so a few places for them are enough. Engine thread.
 */
#pragma once
#include "scheduler/sequence.h"

typedef enum JobState { JOB_FREE, JOB_WAITING, JOB_RUNNING, JOB_CLOSING } JobState;

enum { JOB_MAX_EARLY = 3 }; /* started, prompt tokens, progress */

struct Job {
    JobState state;
    Job *next; /* of the free ones, or of those whose ids share a chain */
    HeapLink by_deadline;
    RequestId id;
    Request *request;    /* NULL when CLOSING */
    bool has_own_policy; /* the engine keeps request->policy for it */
    int64_t priority;    /* lower comes first, then what came first */
    uint64_t order;
    Sequence first;        /* choice 0 */
    Sequence *others;      /* [n_choices - 1] once the prompt is computed; NULL before */
    uint32_t n_others;     /* made */
    uint32_t n_over;       /* choices */
    uint32_t *checkpoints; /* [n_checkpoints] behind the messages of the prompt */
    uint32_t n_checkpoints;
    uint32_t n_posted_prompt, n_progress; /* prompt tokens whose log-probabilities, whose progress was told */
    TokStream prompt_stream;
    RequestTimings timings;
    uint64_t started_usec, first_token_usec;
    Event early[JOB_MAX_EARLY]; /* [n_early] before those of the choices */
    uint32_t n_early;
    Event last; /* behind all others */
    bool has_last;
};

typedef bool (*EmitFn)(void *arg, const Event *event);

/* WAITING; owns the request. */
void job_init(Job *job, Request *request, int64_t priority, uint64_t order);
/* Checks the request against the model. After an error: job_fail. */
LW_CHECK bool job_open(Job *job, const SequenceTools *tools, Error *error);
/* It has left the queue: RUNNING. */
void job_start(Job *job, const SequenceTools *tools, uint32_t n_cached);
/* Places for the other choices. */
LW_CHECK bool job_make_others(Job *job, Error *error);
Sequence *job_choice(Job *job, uint32_t choice); /* NULL: not made */
/* Does the prompt's last row start choices beside the first? */
bool job_is_to_branch(const Job *job);
void job_post_early(Job *job, Event event);
/* All choices are over: CLOSING, DONE last. */
void job_finish(Job *job, const SequenceTools *tools);
/* Ends it at once: CLOSING, FAILED last. Its sequences are in no list and no pass. */
void job_fail(Job *job, const SequenceTools *tools, const Error *error);
bool job_has_events(const Job *job);
/* Hands events to emit until it refuses one; true: all are out. */
LW_CHECK bool job_flush(Job *job, EmitFn emit, void *arg);
/* Releases all it holds, unsent events too. */
void job_done(Job *job, const SequenceTools *tools);
