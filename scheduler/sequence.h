/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One choice of a request: its tokens, where they are in the KV cache, how the next one is made of a row of logits.
 *
 *   NEW --open--> WAITING --attach--> RUNNING --last token--> OVER
 *                    '----- detach (preempted) -----'
 *
 * It knows the tokens of prompt and answer, and the engine holds the first of them: what is missing is computed, a lone
 * generated token as a decode row, anything else as prefill. So a sequence that was preempted goes on as it began.
 * Engine thread.
 */
#pragma once
#include "scheduler/answer.h"
#include "scheduler/batch_build.h"
#include "scheduler/guide.h"
#include "scheduler/heap.h"
#include "scheduler/prefix_cache.h"
#include "scheduler/swap.h"

typedef struct Job Job;
typedef struct Sequence Sequence;
typedef enum SequenceState { SEQUENCE_NEW, SEQUENCE_WAITING, SEQUENCE_RUNNING, SEQUENCE_OVER } SequenceState;

enum { SEQUENCE_MAX_PENDING = 2 }; /* a step posts a token, and that the choice is done */

/* What all sequences work with; owned by the scheduler. */
typedef struct SequenceTools {
    Engine *engine;
    PrefixCache *cache; /* NULL: off */
    SwapStore *swap;
    const Tokenizer *tokenizer;
    SamplerSpace *space;
    const uint32_t *end_ids; /* [n_end_ids] */
    uint32_t n_end_ids;
    uint64_t (*clock_usec)(void);
    EngineStats *stats;
} SequenceTools;

/* A token that was picked before its sequence's turn. */
typedef struct EarlyPick {
    bool is_there, ok;
    bool wants_row; /* it was to be, but the row's digest was not enough */
    bool is_asked;  /* a digest was asked for, with what the guide said */
    GuideStep step;
    SampleResult sample;
    Error error; /* when not ok */
} EarlyPick;

struct Sequence {
    SequenceState state;
    Job *job;
    uint32_t choice;
    HeapLink by_rank, by_order; /* among those that wait */
    uint32_t *tokens;           /* [n_tokens] prompt and answer, from malloc */
    uint32_t n_tokens, max_tokens;
    Sampler *sampler;
    Answer answer;
    bool has_answer;
    Guide guide;
    EarlyPick early;
    /* WAITING: too few pages were free to start with what it lacked, and to say so many tokens more */
    bool was_refused;
    uint64_t refused_bytes;
    uint32_t n_refused_more;
    /* RUNNING */
    SeqId seq;
    PrefixCursor cursor; /* when there is a cache */
    bool in_pass;        /* of prefill: its rows are on their way */
    /* between preemption and return, under policies that may not recompute what was generated */
    Swapped *swapped;
    uint64_t last_token_usec; /* 0: none yet */
    Event pending[SEQUENCE_MAX_PENDING];
    uint32_t n_pending;
};

/* Checks and takes what does not change with preemption. */
LW_CHECK bool sequence_open(Sequence *sequence, Job *job, uint32_t choice, const SequenceTools *tools, Error *error);
/* Takes a place in the engine and what the prefix cache has; *ret_cached: so many tokens. ERR_BUSY: no place. */
LW_CHECK bool sequence_attach(Sequence *sequence, const SequenceTools *tools, uint32_t *ret_cached, Error *error);
/* The same by sharing all that 'from' holds, the prompt. ERR_BUSY: no place. */
LW_CHECK bool sequence_fork(Sequence *sequence, const Sequence *from, const SequenceTools *tools, Error *error);
/* Gives the place and its pages back; keep: generated KV that may not be recomputed is copied, if there is room. */
void sequence_detach(Sequence *sequence, const SequenceTools *tools, bool keep);
/* What it has published may be given up, and it publishes nothing more. false: there is nothing. */
bool sequence_leave_cache(Sequence *sequence, const SequenceTools *tools);
/* Releases everything but events. */
void sequence_close(Sequence *sequence, const SequenceTools *tools);

/* Tokens that the engine lacks. */
uint32_t sequence_missing(const Sequence *sequence, const SequenceTools *tools);
/* All that is missing is the last generated token. */
bool sequence_decodes(const Sequence *sequence, const SequenceTools *tools);
/* Rows of its answer that are computed once more go one by one, each of which reads all weights. */
bool sequence_goes_row_by_row(const Sequence *sequence, const SequenceTools *tools);
/* The generated pages in the swap store are what comes next. ERR_BUSY: too few pages are free. */
bool sequence_must_restore(const Sequence *sequence, const SequenceTools *tools);
LW_CHECK bool sequence_restore(Sequence *sequence, const SequenceTools *tools, Error *error);
/* The rows that come next, at most max_rows (>= 1). */
BatchSpan sequence_span(const Sequence *sequence, const SequenceTools *tools, uint32_t max_rows);

/* Must the rows of a prompt be cut at multiples of KV_PAGE_TOKENS positions alone? */
bool sequence_goes_in_blocks(const Sequence *sequence, const SequenceTools *tools);

/* Which of the logit rows of its last n_rows rows is that of the very last. */
uint32_t sequence_last_row(const Sequence *sequence, const SequenceTools *tools, uint32_t n_rows);
/* The engine now holds n_rows more: posts what they tell, publishes full pages, samples from logits if any are due. */
LW_CHECK bool sequence_advance(Sequence *sequence, const SequenceTools *tools, uint32_t n_rows, float *logits,
                               Error *error);
/*
 * One more token from a row of logits, which changes it; may end the choice. With those that a grammar knows ahead it
 * may be several, whose rows are then computed together.
 */
LW_CHECK bool sequence_sample(Sequence *sequence, const SequenceTools *tools, float *logits, Error *error);
/*
 * Does the next token of one that decodes depend on nothing but the row of its last token? Then it may be picked before
 * sequence_advance, which takes it; on any thread, in the thread's own space, one thread a sequence.
 */
bool sequence_may_pick_early(const Sequence *sequence);
/*
 * Before the step of one that decodes: may its token be picked of the row's digest, as far as its guide and answer go?
 * Then what has to be asked for, which is worth it unless the sampler has to see the row; on any thread, as above.
 */
bool sequence_may_ask(Sequence *sequence);
bool sequence_ask(Sequence *sequence, SamplerSpace *space, DigestAsk *ret_ask);
/*
 * digest NULL: of the row, which has what was asked for if a digest of it was not enough. With one and its list the row
 * is not looked at.
 */
void sequence_pick_early(Sequence *sequence, SamplerSpace *space, float *logits, const RowDigest *digest,
                         const DigestItem *items);
void sequence_post(Sequence *sequence, Event event);
/* The choice is over: its pages go to the prefix cache. */
void sequence_finish(Sequence *sequence, const SequenceTools *tools, FinishReason finish);
