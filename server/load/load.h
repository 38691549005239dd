/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts load on a server and measures what its clients feel. Closed loop: so many clients, each of which asks again when
 * it has its answer. Open loop: dialogues begin at times that do not depend on the server; latencies count from the
 * intended time, also of those that had to wait for a free connection. One thread, which runs a uv loop of its own.
 */
#pragma once
#include "server/load/dialogue.h"
#include "server/load/link.h"
#include "server/load/samples.h"

enum { LOAD_MAX_CLIENTS = 16384, LOAD_MAX_ERRORS = 16 };

typedef struct LoadParams {
    LinkPeer *peer;
    const Workload *workload;
    const char *host;       /* for the Host header */
    const char *api_key;    /* NULL: none */
    uint32_t n_clients;     /* streams at once; in open loop the most */
    double rate;            /* dialogues that begin in a second; 0: closed loop, or as a replay says */
    uint64_t n_requests;    /* UINT64_MAX: no limit */
    uint64_t duration_usec; /* after which no request begins; UINT64_MAX: no limit */
    uint64_t timeout_usec;  /* of one request; 0: none */
    void (*progress)(void *arg, double fraction);
    void *progress_arg;
} LoadParams;

typedef struct LoadError {
    Error error;
    uint64_t count;
} LoadError;

typedef struct LoadReport {
    uint64_t n_sent, n_answered;
    uint64_t n_rejected; /* status 429 or 503 */
    uint64_t n_failed;   /* other statuses, broken streams and connections */
    uint64_t n_timed_out;
    uint64_t n_without_usage; /* answers whose tokens are counted by their events */
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
    uint32_t n_dialogues, peak_streams; /* peak: requests under way at once */
    uint64_t n_resent;                  /* on a new connection, see link.h */
    double seconds;                     /* from the first request to the end of the last */
    Samples first_token;                /* from the intended time; of whole answers, as all of these */
    Samples gap;                        /* between two events with tokens of an answer */
    Samples per_token;                  /* mean of an answer from its first to its last token */
    Samples whole;                      /* from the intended time to the end */
    Samples send_delay;                 /* from the intended time until the request goes out */
    LoadError errors[LOAD_MAX_ERRORS];  /* [n_errors] the first different ones */
    uint32_t n_errors;
} LoadReport;

/* Name of the first model that the server lists, into name; also tells whether server and key are there.
 * timeout_usec: 0: 30 s. */
LW_CHECK bool load_find_model(LinkPeer *peer, const char *host, const char *api_key, uint64_t timeout_usec,
                              Buffer *name, Error *error);

/* Fails only if the load cannot be made; what the server does wrong is in the report. */
LW_CHECK bool load_run(const LoadParams *params, LoadReport *ret_report, Error *error);
void load_report_done(LoadReport *report);
