/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From tokens to OpenAI's answer objects, as one object or as stream frames; knows no HTTP and no worker. The same
 * state serves both, so joined deltas equal the whole answer. Loop thread.
 */
#pragma once
#include "engine/sample/grammar/grammar.h"
#include "engine/text/tokenizer.h"
#include "scheduler/messages.h"
#include "server/api_longwave.h"
#include "server/json_out.h"
#include "server/prompt_map.h"

typedef enum AnswerKind { ANSWER_CHAT, ANSWER_COMPLETION } AnswerKind;

enum { ANSWER_LOGPROB_PARTS = 4, ANSWER_ID_BYTES = 48 };

typedef struct ApiChoice {
    AnswerParts parts;                     /* not yet written */
    uint32_t n_calls, n_written_calls;     /* of tools: so far, and those whose deltas are out */
    Buffer logprobs[ANSWER_LOGPROB_PARTS]; /* items without brackets; chat uses the first only */
    uint64_t offset_chars;                 /* code points that all tokens so far show, for text_offset */
    TokStream shown;                       /* what of those tokens is no whole code point yet */
    bool any_token, any_generated;         /* with a log-probability */
    bool done;
    FinishReason finish;
} ApiChoice;

/* Where and why a prompt was not in the cache any more. */
typedef struct ApiDivergence {
    const char *reason; /* NULL: it was, as far as could be */
    uint32_t token;
    PromptPlace place;
} ApiDivergence;

/* Of the reading of a prompt, tokens. */
typedef struct ApiProgress {
    uint32_t prompt, total, cached, processed; /* prompt: which one; processed: cached ones too */
    double ms;                                 /* since it began */
} ApiProgress;

typedef struct ApiAnswer {
    AnswerKind kind;
    char id[ANSWER_ID_BYTES];
    int64_t created_unix;
    const char *model, *fingerprint; /* borrowed */
    const Tokenizer *tokenizer;
    bool want_logprobs, include_usage, stream;
    bool short_call_ids; /* ids of calls have 9 letters */
    uint32_t n_top_logprobs;
    uint32_t n_choices;
    ApiChoice *choices;
    RequestTimings timings;   /* summed over the requests that are done */
    ApiDivergence divergence; /* of the first prompt */
    ServedPolicy attention;   /* borrowed */
    const GrammarNote *notes; /* [n_notes] borrowed: tools whose schemas are not followed, and why */
    uint32_t n_notes;
} ApiAnswer;

/* The caller has filled the plain fields. */
LW_CHECK bool api_answer_init(ApiAnswer *answer, Error *error);
void api_answer_done(ApiAnswer *answer);

LW_CHECK bool api_answer_add_text(ApiAnswer *answer, uint32_t choice, const char *text, size_t n, Error *error);
/* Text and, when wanted, log-probabilities. */
LW_CHECK bool api_answer_add_tokens(ApiAnswer *answer, uint32_t choice, const TokensPayload *tokens, Error *error);

static inline double api_per_second(uint64_t tokens, uint64_t usec)
{
    return usec ? (double)tokens * 1e6 / (double)usec : 0;
}

/* "stop", "length", "tool_calls" */
const char *api_finish_name(FinishReason finish);
/* Is there anything to write for this choice? */
bool api_answer_has_delta(const ApiAnswer *answer, uint32_t choice);

/* Stream frames. role: chat's first one; delta: what was added since; finish: the last one, final: of all choices. */
void api_answer_write_role(const ApiAnswer *answer, uint32_t choice, JsonOut *out);
void api_answer_write_delta(ApiAnswer *answer, uint32_t choice, JsonOut *out);
void api_answer_write_finish(const ApiAnswer *answer, uint32_t choice, bool final, JsonOut *out);
void api_answer_write_usage_frame(const ApiAnswer *answer, JsonOut *out);
void api_answer_write_progress(const ApiAnswer *answer, const ApiProgress *progress, JsonOut *out);
/* The whole answer. */
void api_answer_write_object(const ApiAnswer *answer, JsonOut *out);
