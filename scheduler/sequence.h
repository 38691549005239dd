/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request's progress and how it ends. Engine thread.
 *
 *   WAITING --start--> PREFILL --last prompt row--> DECODE --choice ends, more to come--> PREFILL (the last prompt row)
 *      |                  |                           '---- last choice ends --> CLOSING (DONE)
 *      '------------------'------- sequence_fail: cancel, deadline, error -----> CLOSING (FAILED)
 *
 * A CLOSING sequence holds nothing but events that have not gone out yet. Events wait here while the queue is full;
 * until they are out the sequence must not be stepped, so a few places are enough.
 */
#pragma once
#include "engine/engine.h"
#include "scheduler/answer.h"
#include "scheduler/batch_build.h"

typedef enum SequenceState { SEQUENCE_WAITING, SEQUENCE_PREFILL, SEQUENCE_DECODE, SEQUENCE_CLOSING } SequenceState;

/* A step posts at most 5 (prompt tokens, progress, tokens, choice done, done), a failure one more. */
enum { SEQUENCE_MAX_PENDING = 8 };

/* What every sequence works with; owned by the scheduler. */
typedef struct SequenceTools {
    Engine *engine;
    const Tokenizer *tokenizer;
    Sampler *sampler;        /* one sequence at a time */
    const uint32_t *end_ids; /* [n_end_ids] */
    uint32_t n_end_ids;
    uint64_t (*clock_usec)(void);
    EngineStats *stats;
} SequenceTools;

typedef struct Sequence Sequence;
struct Sequence {
    SequenceState state;
    RequestId id;
    Request *request; /* NULL when CLOSING */
    Sequence *next;   /* in the list that holds it */
    SeqId seq;
    bool has_seq, has_answer;
    uint32_t choice;
    uint32_t n_prefilled; /* prompt tokens in the cache, for this choice */
    uint32_t next_token;  /* DECODE: not yet in the cache */
    Answer answer;
    TokStream prompt_stream;
    uint64_t first_token_usec;
    uint64_t started_usec;
    RequestTimings timings;
    Event pending[SEQUENCE_MAX_PENDING]; /* [n_pending], oldest first */
    uint32_t n_pending;
};

/* WAITING, owns the request. */
void sequence_init(Sequence *sequence, Request *request);
/* Releases all it holds, unsent events too. */
void sequence_done(Sequence *sequence, const SequenceTools *tools);

/* Checks the request against the model, takes its resources, posts STARTED. After an error: sequence_fail. */
LW_CHECK bool sequence_start(Sequence *sequence, const SequenceTools *tools, Error *error);
/* The rows of its next step, at most max_rows (>= 1) of them; false: no room in the batch. */
LW_CHECK bool sequence_plan(const Sequence *sequence, const SequenceTools *tools, uint32_t max_rows, BatchBuild *build);
/*
 * The step is done: rows as planned, and the logits that were asked for. Posts events. After an error: sequence_fail.
 */
LW_CHECK bool sequence_advance(Sequence *sequence, const SequenceTools *tools, uint32_t n_rows, float *logits,
                               Error *error);
/* Ends it at once with EVENT_FAILED. */
void sequence_fail(Sequence *sequence, const SequenceTools *tools, const Error *error);

/* Hands pending events to emit until it refuses one; true: all are out. */
typedef bool (*EmitFn)(void *arg, const Event *event);
LW_CHECK bool sequence_flush(Sequence *sequence, EmitFn emit, void *arg);
