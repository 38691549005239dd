/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every message between the loop thread and the engine thread, and who owns what after sending. Commands go down
 * (loop -> engine), events come up (engine -> loop), each over one bounded SpscQueue. A payload changes owner when the
 * push succeeds: the receiver frees it.
 */
#pragma once
#include "base/arena.h"
#include "engine/sample/grammar/grammar.h"
#include "engine/sample/sampler.h"
#include "engine/sample/stop.h"
#include "engine/select/attention_stats.h"
#include "engine/select/presets.h"
#include "engine/text/answer_parser.h"
#include "scheduler/prefix_end.h"

typedef uint64_t RequestId; /* never reused in a process; 0 is none */

/* Everything the engine needs to know of one request; what it points to lives in its own arena, which request_free
 * ends. */
typedef struct Request {
    RequestId id;
    Arena arena; /* owns all that is below but 'grammar' and 'failure' */
    const uint32_t *prompt;
    uint32_t n_prompt; /* >= 1 */
    uint32_t
        max_tokens; /* 0: the prompt is read, into the cache too, and that is all; n_prompt + max_tokens <= context */
    uint32_t min_tokens;
    uint32_t n_choices; /* n, >= 1 */
    SamplingParams sampling;
    StopStrings stop;
    const AnswerPlan *answer; /* what the answers are taken apart into; NULL: all is content */
    /* With a plan: after so many tokens of reasoning these ids [n_reasoning_end] come, which end it. */
    uint32_t reasoning_budget;
    const uint32_t *reasoning_end;
    uint32_t n_reasoning_end; /* 0: no budget */
    const uint32_t *stop_ids; /* [n_stop_ids] besides the model's own end tokens */
    uint32_t n_stop_ids;
    bool ignore_eos;
    bool want_logprobs;
    uint32_t n_top_logprobs;   /* 0..20 */
    bool want_prompt_logprobs; /* completions with echo and logprobs */
    Grammar *grammar;          /* what every answer must be, a reference; NULL: any text */
    uint32_t policy;           /* PolicyId: how it attends; 0 is dense */
    AttnWish attention;        /* what it wants beyond that; not plain: policy is what roles it has */
    const char *cache_salt;    /* [n_cache_salt]; requests share prefixes only with those of the same salt */
    uint32_t n_cache_salt;
    int64_t priority;       /* lower ones are served earlier (schedule = priority); equal ones first come first */
    uint64_t deadline_usec; /* monotonic; 0: none */
    uint64_t arrival_usec;
    Error *failure; /* made with the request, so that its EVENT_FAILED needs no memory; the engine's business */
} Request;

/* One choice, plain sampling, the rest zero; NULL when memory is out. */
LW_CHECK Request *request_new(RequestId id, size_t max_arena_bytes);
void request_free(Request *request); /* NULL is fine */

typedef enum SessionOp { SESSION_SAVE, SESSION_RESTORE, SESSION_DELETE } SessionOp;
enum { SESSION_MAX_ID_BYTES = 128 };

/* What is to be done with a saved prefix, and then how that went. */
typedef struct SessionCall {
    RequestId id;
    SessionOp op;
    char session[SESSION_MAX_ID_BYTES + 1];
    Arena arena;        /* owns tokens and salt */
    uint32_t policy;    /* PolicyId: one of the engine's own */
    AttnWish attention; /* what requests want beyond that; to restore, only where they do */
    /* SESSION_SAVE: the longest cached prefix of these is meant */
    const uint32_t *tokens;
    uint32_t n_tokens;
    const char *salt; /* [n_salt] */
    uint32_t n_salt;
    /* with the event */
    Error error;             /* code ERR_NONE: it is done, else nothing has changed */
    uint32_t n_moved_tokens; /* saved or restored */
    uint64_t n_moved_bytes;  /* of the file */
} SessionCall;

/* ERR_INVALID with param "id": not 1 to 128 of A-Z a-z 0-9 _ - */
LW_CHECK bool session_call_new(RequestId id, SessionOp op, const char *session, SessionCall **ret_call, Error *error);
/* Copies both. */
LW_CHECK bool session_call_set_tokens(SessionCall *call, const uint32_t *tokens, uint32_t n_tokens, const char *salt,
                                      uint32_t n_salt, Error *error);
void session_call_free(SessionCall *call); /* NULL is fine */

typedef enum CommandKind { COMMAND_SUBMIT, COMMAND_CANCEL, COMMAND_SESSION, COMMAND_STOP } CommandKind;

typedef struct Command {
    CommandKind kind;
    RequestId id;
    union {
        Request *request;     /* SUBMIT: now the engine's */
        SessionCall *session; /* SESSION: now the engine's */
    };
} Command;

typedef enum FinishReason {
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_GRAMMAR,    /* cut: the grammar could not be followed any further */
    FINISH_TOOL_CALLS, /* stopped after calls; the loop's name for it */
    FINISH_REASONS
} FinishReason;

/* One generated (or, before the first, one prompt) token. */
typedef struct EventToken {
    SampleResult sample; /* logprob and top only when asked for; a prompt's first token has logprob NAN and no top */
    uint32_t text_bytes; /* how much of the event's text this token released: also what earlier ones held back */
} EventToken;

/*
 * Per request: STARTED, PROGRESS..., [TOKENS of the prompt,] then per choice TOKENS..., CHOICE_DONE, the choices mixed,
 * and last exactly one of DONE or FAILED, whatever happens: DONE when all choices are done, else FAILED. A cancelled
 * request, waiting or begun, ends with FAILED and ERR_CANCELLED, one whose deadline passed with ERR_DEADLINE (unless
 * DONE was already under way). A request that is preempted for want of pages is silent meanwhile.
 */
typedef enum EventKind {
    EVENT_STARTED,  /* left the queue: prefill begins */
    EVENT_PROGRESS, /* prefill of the prompt went on */
    EVENT_TOKENS,   /* tokens of one choice; text may be empty while bytes are held back */
    EVENT_CHOICE_DONE,
    EVENT_DONE,
    EVENT_FAILED,
    EVENT_SESSION, /* a session's call, with its result; the only event of its id */
    EVENT_STATS,   /* about every 100 ms while busy, and when going idle */
    EVENT_STOPPED, /* last event of all, after COMMAND_STOP */
} EventKind;

typedef struct TokensPayload {
    bool is_prompt; /* prompt tokens with their log-probabilities, for echo; with choice 0, once for all choices */
    uint32_t n_tokens;
    EventToken *tokens; /* [n_tokens]; an end token is among them, with no text */
    char *text;         /* [text_bytes] whole UTF-8 code points, U+0000 among them; NULL when empty */
    uint32_t text_bytes;
    AnswerPart *parts; /* [n_parts] of the text, in order; NULL: all is content */
    uint32_t n_parts;
    uint64_t step_usec; /* monotonic: when the step that gave them ended */
    uint64_t gap_usec;  /* since the choice's token before; 0 for its first */
} TokensPayload;

/* Zeroed, without text. */
LW_CHECK bool tokens_payload_new(uint32_t n_tokens, TokensPayload **ret_payload, Error *error);
void tokens_payload_free(TokensPayload *payload); /* and its text and parts; NULL is fine */

/* What one request cost. */
typedef struct RequestTimings {
    uint64_t queue_usec, prefill_usec, decode_usec; /* until it started, until its first token, from there on */
    uint32_t n_preempted;                           /* times, over all choices */
    uint32_t prompt_tokens, cached_tokens, completion_tokens; /* completion: over all choices, end tokens too */
    uint32_t reasoning_tokens;                                /* of these, within the reasoning */
    uint32_t known_tokens;                                    /* of the prompt, to the cache, usable or not */
    PrefixEnd cache_end;                                      /* why the cached tokens ended where they do */
    AttentionStats attention;                                 /* of the decoded rows of all choices */
    uint32_t n_audited;                                       /* rows that were computed dense too */
    double audited_kl;                                        /* of the dense ones from theirs, nats, added up */
} RequestTimings;

enum { STATS_KV_KINDS = 3 };

/* Counters since start; gauges of the moment. */
typedef struct EngineStats {
    uint64_t steps, last_step_usec; /* monotonic time of the last finished step */
    uint64_t prompt_tokens, generated_tokens, cancelled, failed, refused, finished, non_finite;
    uint64_t preempted, swapped_out_bytes, swapped_in_bytes; /* preempted: sequences, as often as it happened */
    uint64_t prefix_queried_tokens, prefix_hit_tokens;       /* of prompts, when they started */
    uint64_t prefill_steps, prefill_usec, prefill_rows;      /* work items, their time; rows of finished passes */
    uint64_t decode_steps, decode_usec, decode_rows;
    uint64_t digested_rows;    /* of decode_rows: their logits stayed on the device */
    uint32_t running, waiting; /* sequences: each choice of a request that has begun counts by itself */
    uint64_t kv_bytes_used, kv_bytes_total, kv_tokens_used, kv_tokens_total, swap_bytes;
    uint64_t kv_bytes_idle; /* of those used: what the prefix cache gives up as soon as it is wanted */
    uint32_t kv_pages_used, prefix_pages, prefix_nodes; /* of the pages, the prefix tree owns so many */
    uint64_t prefix_evicted_pages;
    uint32_t kv_pages_of[STATS_KV_KINDS]; /* used, by kind of class: full, stream, window */
    uint32_t kv_images;                   /* of open pages, used */
} EngineStats;

/* Part of the KV memory that nobody else could have now, 0 to 1. */
static inline double engine_stats_kv_usage(const EngineStats *stats)
{
    uint64_t used = stats->kv_bytes_used > stats->kv_bytes_idle ? stats->kv_bytes_used - stats->kv_bytes_idle : 0;
    return stats->kv_bytes_total ? (double)used / (double)stats->kv_bytes_total : 0;
}

typedef struct Event {
    EventKind kind;
    RequestId id;
    uint32_t choice;
    union {
        TokensPayload *tokens; /* EVENT_TOKENS: now the loop's */
        FinishReason finish;   /* EVENT_CHOICE_DONE */
        struct {
            uint32_t done, total;
        } progress;             /* EVENT_STARTED (done: found in the cache) and EVENT_PROGRESS, tokens of the prompt */
        RequestTimings timings; /* EVENT_DONE */
        Error *error;           /* EVENT_FAILED: now the loop's */
        EngineStats *stats;     /* EVENT_STATS: now the loop's */
        SessionCall *session;   /* EVENT_SESSION: now the loop's */
    };
} Event;

/* Frees the payload of an event that was popped. */
void event_done(Event *event);
