/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client of a load: a connection, and the dialogue that it is in. Shared by load.c and client.c. Loop thread.
 */
#pragma once
#include "server/load/load.h"
#include "server/load/sse_reader.h"
#include "server/load/stream_event.h"

typedef struct Load Load;
typedef struct Client Client;

struct Client {
    Load *load;
    Link *link;
    uv_timer_t *timer; /* thinks, rests, or limits the request */
    Dialogue dialogue;
    SseReader sse;
    Buffer request, answer; /* answer: content that the dialogue needs, or the body of a refusal */
    uint64_t due_usec;
    uint64_t sent_usec, first_usec, last_usec; /* of this turn */
    uint32_t n_events;                         /* with tokens */
    StreamEvent usage;                         /* has_usage: the server's counts */
    Samples gaps;                              /* of this turn */
    bool is_ended;                             /* [DONE] has come */
    Client *next_free;
};

struct Load {
    const LoadParams *params;
    LoadReport *report;
    Client **clients; /* [n_made], of at most params->n_clients */
    uint32_t n_made;
    uint32_t n_active;  /* clients in a dialogue, also those that think or rest */
    uint32_t n_pending; /* requests under way */
    Client *free;
    Rng arrivals;
    double next_due_usec; /* since the start */
    uint64_t begin_usec, next_index;
    uint64_t first_usec; /* when the first request went out */
    uv_timer_t *wake;    /* at the next arrival, or when the duration is over */
    Error error;
    bool failed; /* no memory: nothing more begins */
};

LW_CHECK bool client_new(Load *load, Client **ret_client, Error *error);
void client_free(Client *client); /* a request that is under way is dropped */
/* A dialogue whose first request is due at due_usec (clock_now_usec), which has come. */
void client_begin(Client *client, uint64_t index, uint64_t due_usec);

/* May one more request go out? */
bool load_goes_on(const Load *load);
/* A request goes out at now_usec (clock_now_usec); it is over, however it went: the rates' time ends here. */
void load_begin_request(Load *load, uint64_t now_usec);
void load_end_request(Load *load);
/* The client's dialogue is over. */
void load_release(Load *load, Client *client);
void load_fail(Load *load, const Error *error);

/* The head of a request, body_bytes to follow. */
LW_CHECK bool load_write_head(Buffer *out, const char *method, const char *path, const char *host, const char *api_key,
                              size_t body_bytes, Error *error);
