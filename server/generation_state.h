/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of a generation, shared by its files: generation (events and frames), generation_start (submission) and
 * generation_end (failure, departure, the line in the log). Loop thread.
 */
#pragma once
#include "server/caller.h"
#include "server/generation.h"

/* One Request of a generation, as the inbox sees it. */
typedef struct Part {
    InboxEntry entry;
    Generation *generation;
    uint32_t index;
    uint32_t n_prompt;
    uint32_t n_cached;
    uint64_t started_usec;
    bool open, started;
} Part;

struct Generation {
    Server *server;
    Exchange *exchange; /* NULL: over for the client */
    Generation *next, **link;
    ApiAnswer answer;
    Account *account; /* of the key; NULL: none */
    char request_id[130];
    uint32_t n_choices; /* of one part */
    PromptHashes hashes;
    uint32_t n_parts, n_open, n_choices_left;
    Part *parts;      /* [n_parts] */
    PromptMap *map;   /* of the first prompt */
    Grammar *grammar; /* a reference; NULL: none */
    char grammar_field[sizeof((GenerationPlan){0}.grammar_field)];
    AnswerIds *ids;       /* [answer.n_choices]; NULL: the answers are not remembered */
    uint32_t last_choice; /* its finish frame waits for the timings */
    uint64_t arrival_usec, last_write_usec;
    bool progress;             /* is wanted */
    uint64_t first_token_usec; /* of all parts, as seen here; 0: not yet */
    uint32_t n_written;        /* tokens of all choices so far */
};

/* generation.c: what the inbox delivers. */
void generation_on_event(InboxEntry *entry, Event *event);
void generation_begin_frames(JsonOut *out, Buffer *frames);

/* generation_end.c */
void generation_plan_free(GenerationPlan *plan);
void generation_part_close(Part *part);
/* The generation is the exchange's owner from here on: it ends when the client leaves. */
void generation_link(Generation *generation, Exchange *exchange);
/* Whatever still runs is cancelled; nobody waits for its events. */
void generation_free(Generation *generation);
/* With an error, which is in band when the headers are out; frees it. */
void generation_fail(Generation *generation, int kind, const Error *error);
/* The request's line in the log. code: the API's name of what went wrong, or NULL. */
void generation_log(const Generation *generation, const char *end, unsigned status, const char *code);
