/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One chat or completion call from its body to its last byte: prepared in the pool, submitted as one Request a prompt,
 * answered as a stream or as one object. The client's departure, an abort, a failure and the drain end it. Loop thread,
 * but for the plan, which the pool fills.
 */
#pragma once
#include "server/api_answer.h"
#include "server/api_job.h"
#include "server/answer_ids.h"
#include "server/api_params.h"
#include "server/prompt_map.h"

/* PING_PARTS: calls of generation_ping_all in the time of a ping. */
enum { GENERATION_MAX_PROMPTS = 256, GENERATION_PING_PARTS = 64 };

/* What the pool makes of a request body. */
typedef struct GenerationPlan {
    AnswerKind kind;
    uint32_t n_requests, n_choices;            /* choices of one request */
    Request *requests[GENERATION_MAX_PROMPTS]; /* owned until submitted; ids are given then */
    Buffer echo[GENERATION_MAX_PROMPTS];       /* text of the prompt, where it is to be repeated */
    Grammar *grammar;                          /* a reference; NULL: any text */
    char grammar_field[48];                    /* that asked for it */
    const struct ChatGuide *chat_guide;        /* while a chat's grammar is made */
    ApiAttention attention;
    bool stream, include_usage, want_logprobs, progress;
    uint32_t n_top_logprobs;
    bool short_call_ids;
    PromptHashes hashes; /* of a chat */
    PromptMap *map;      /* of the first prompt */
    const char *model;   /* one of the served names */
    char request_id[130];
    uint64_t deadline_usec; /* 0: none */
} GenerationPlan;

/* Starts the job; run fills job->user, a GenerationPlan that is zeroed before. */
void generation_start(Server *server, Exchange *exchange, AnswerKind kind, bool (*run)(ApiJob *job, Error *error));

/* Pool thread. Reads the shared fields; refuses a model that is not served. */
LW_CHECK bool generation_read(ApiJob *job, ApiRoute route, ApiParams *ret_params, Error *error);
/* Pool thread. Refuses a text of n bytes that cannot fit the context, before any work is put into it. */
LW_CHECK bool generation_check_bytes(const ApiJob *job, size_t n, const char *param, Error *error);
/*
 * Pool thread. Adds one prompt, checks that it fits; param: the field that an error names; messages: those of a chat,
 * or NULL; takes nothing.
 */
LW_CHECK bool generation_add_prompt(ApiJob *job, const ApiParams *params, const TokenList *tokens, const char *param,
                                    const cJSON *messages, Error *error);

/*
 * For /v1/abort: id of the answer, the client's request_id or its x-request-id. How many ended: of others only an
 * administrator ends any. Those that are being prepared end when that is done, and are not among them.
 */
uint32_t generation_abort(Server *server, const Caller *caller, const char *id);
void generation_fail_all(Server *server, int kind, const Error *error);
/* Sends comments on silent streams, some at a time. */
void generation_ping_all(Server *server, uint64_t now_usec);
