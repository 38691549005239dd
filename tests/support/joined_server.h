/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole server on a thread of its own, with the real engine thread on any engine: nothing between socket and engine
 * is a stand-in. Test code.
 */
#pragma once
#include "server/server.h"

typedef struct JoinedServer JoinedServer;

typedef struct JoinedParams {
    ServerParams server; /* from server_defaults; loop and port are set here */
    WorkerParams worker;
    ServedModel model; /* names, policies, architecture, fingerprint and kv_type may be missing */
} JoinedParams;

/* Ready when it returns. The engine is the worker's. */
LW_CHECK bool joined_start(const JoinedParams *params, JoinedServer **ret_joined, Error *error);
uint16_t joined_port(const JoinedServer *joined);
void joined_drain(JoinedServer *joined); /* as SIGTERM; returns at once */
/* Ends the loop, whatever is open, and frees all; how many handles were left in the loop, 0 or 1: some. */
int joined_stop(JoinedServer *joined);
