/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/joined_server.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

struct JoinedServer {
    JoinedParams params;
    pthread_t thread;
    uv_loop_t loop;
    uv_async_t command;
    atomic_bool drains, stops;
    _Atomic int state; /* 0: starting, 1: ready, 2: failed */
    Server *server;
    uint16_t port;
    Error error;
    bool has_left_handles;
};

static const char *const names[] = {"tiny"};
static const ServedPolicy policies[] = {{"dense", NULL, NULL}};

static void set_defaults(ServedModel *model)
{
    if (!model->names) {
        model->names = names;
        model->n_names = 1;
    }
    if (!model->policies.n) model->policies = (ServedPolicies){policies, 1, 0, false};
    if (!model->architecture) model->architecture = "llama";
    if (!model->fingerprint) model->fingerprint = "fp_test";
    if (!model->kv_type) model->kv_type = "f16";
}

static void on_command(uv_async_t *async)
{
    JoinedServer *joined = async->data;
    if (atomic_load(&joined->stops))
        uv_stop(&joined->loop);
    else if (atomic_load(&joined->drains))
        server_drain(joined->server);
}

static bool open_server(JoinedServer *joined)
{
    JoinedParams *params = &joined->params;
    params->server.loop = &joined->loop;
    params->server.port = 0;
    if (!server_start(&params->server, &joined->server, &joined->error)) return false;
    joined->port = server_port(joined->server);
    return server_attach(joined->server, &params->model, &params->worker, &joined->error);
}

static void *serve(void *arg)
{
    JoinedServer *joined = arg;
    uv_async_init(&joined->loop, &joined->command, on_command);
    joined->command.data = joined;
    bool ok = open_server(joined);
    atomic_store(&joined->state, ok ? 1 : 2);
    if (ok) uv_run(&joined->loop, UV_RUN_DEFAULT);
    /* A drain that was complete has ended the loop: the command to stop is still to come. */
    while (ok && !atomic_load(&joined->stops)) nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    uv_close((uv_handle_t *)&joined->command, NULL);
    server_free(joined->server);
    uv_run(&joined->loop, UV_RUN_NOWAIT);
    joined->has_left_handles = uv_loop_close(&joined->loop) != 0;
    return NULL;
}

bool joined_start(const JoinedParams *params, JoinedServer **ret_joined, Error *error)
{
    JoinedServer *joined = calloc(1, sizeof *joined);
    if (!joined) return error_set(error, ERR_NO_MEMORY, "no memory for a server");
    joined->params = *params;
    set_defaults(&joined->params.model);
    if (uv_loop_init(&joined->loop) != 0) abort();
    if (pthread_create(&joined->thread, NULL, serve, joined)) {
        if (uv_loop_close(&joined->loop)) abort();
        free(joined);
        return error_set(error, ERR_IO, "no thread for a server");
    }
    while (!atomic_load(&joined->state)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    if (atomic_load(&joined->state) == 1) {
        *ret_joined = joined;
        return true;
    }
    pthread_join(joined->thread, NULL);
    *error = joined->error;
    free(joined);
    return false;
}

uint16_t joined_port(const JoinedServer *joined)
{
    return joined->port;
}

void joined_drain(JoinedServer *joined)
{
    atomic_store(&joined->drains, true);
    uv_async_send(&joined->command);
}

int joined_stop(JoinedServer *joined)
{
    atomic_store(&joined->stops, true);
    uv_async_send(&joined->command);
    pthread_join(joined->thread, NULL);
    int has_left_handles = joined->has_left_handles;
    free(joined);
    return has_left_handles;
}
