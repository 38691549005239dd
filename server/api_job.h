/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request body on its way through uv's pool: parsed and worked on there, answered on the loop. The client may leave
 * meanwhile. run: pool thread, touches only the job and what is immutable; done: loop thread. Jobs that compile a
 * grammar are few at a time and leave threads of the pool to the others: compile_queue.h. Who waits there is answered
 * when its time is over.
 */
#pragma once
#include "server/api_json.h"
#include "server/server_state.h"

typedef struct ApiJob ApiJob;
struct ApiJob {
    uv_work_t work;
    Server *server;
    const ServedModel *model;
    ServerLimits limits;   /* when the job began */
    uint64_t arrival_usec; /* of the whole body */
    Exchange *exchange;    /* NULL: the client left */
    void *user;
    char *body;
    size_t body_bytes;
    cJSON *json; /* a JSON object while run works */
    bool (*run)(ApiJob *job, Error *error);
    void (*done)(ApiJob *job); /* NULL: reply with the answer or the error */
    Buffer answer;             /* JSON */
    bool failed;
    int fault; /* HttpErrorKind; 0: the error's code */
    Error error;
    uint32_t unknown_fields;
    bool wants_compiler; /* run failed, since a grammar is to be compiled: it is called again, with may_compile */
    bool may_compile, has_compiled;
    CompileWait compile; /* its grammar and deadline come from run */
    atomic_bool is_left; /* by its client: compiling ends */
};

/* Takes the exchange's body. done may be NULL; on failure to start the exchange is answered and done is not called. */
LW_CHECK bool api_job_start(Server *server, Exchange *exchange, void *user, bool (*run)(ApiJob *, Error *),
                            void (*done)(ApiJob *));
