/* SPDX-License-Identifier: Apache-2.0 */
#include "server/load/load.h"
#include "base/clock.h"
#include "server/api_json.h"
#include "server/load/client.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_MODELS_BYTES = 4 << 20, MODELS_TIMEOUT_MS = 30000 };

bool load_write_head(Buffer *out, const char *method, const char *path, const char *host, const char *api_key,
                     size_t body_bytes, Error *error)
{
    bool is_unix = !strncmp(host, "unix:", 5);
    return buffer_printf(out, error, "%s %s HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\n", method, path,
                         is_unix ? "localhost" : host) &&
           (!api_key || buffer_printf(out, error, "Authorization: Bearer %s\r\n", api_key)) &&
           (!body_bytes ||
            buffer_printf(out, error, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body_bytes)) &&
           buffer_append_text(out, "\r\n", error);
}

/* ---- the model's name ---- */

typedef struct ModelCall {
    Link *link;
    Buffer answer;
    uv_timer_t limit;
    uint64_t limit_ms;
    Error error;
    bool failed;
} ModelCall;

static bool on_models_body(void *arg, const char *bytes, size_t n, Error *error)
{
    ModelCall *call = arg;
    return buffer_append(&call->answer, bytes, n, error);
}

static void on_models_end(void *arg, const Error *error)
{
    ModelCall *call = arg;
    call->failed = error != NULL;
    if (error) call->error = *error;
    if (!error && link_status(call->link) != 200) {
        call->failed = true;
        stream_event_refusal(call->answer.data, call->answer.n, link_status(call->link), &call->error);
    }
    link_drop(call->link);
    uv_timer_stop(&call->limit);
}

static void on_models_timeout(uv_timer_t *timer)
{
    ModelCall *call = timer->data;
    link_drop(call->link);
    call->failed = true;
    error_set(&call->error, ERR_IO, "no answer within %g s", (double)call->limit_ms / 1e3);
}

static bool read_model_name(const Buffer *answer, Buffer *name, Error *error)
{
    cJSON *json;
    if (!json_parse_as("the answer", answer->n ? answer->data : "", answer->n, &json, error)) return false;
    const cJSON *first = cJSON_GetArrayItem(json_member(json, "data"), 0);
    const char *id = cJSON_GetStringValue(json_member(first, "id"));
    bool ok = id ? buffer_append_text(name, id, error) : error_set(error, ERR_INVALID, "no model is listed");
    cJSON_Delete(json);
    return ok;
}

static bool ask_models(LinkPeer *peer, const Buffer *request, ModelCall *call, Buffer *name, Error *error)
{
    static const LinkEvents events = {on_models_body, on_models_end};
    if (!link_new(peer, &events, call, &call->link, error)) return false;
    uv_timer_init(peer->loop, &call->limit);
    call->limit.data = call;
    uv_timer_start(&call->limit, on_models_timeout, call->limit_ms, 0);
    bool ok = link_send(call->link, request, error);
    if (ok) uv_run(peer->loop, UV_RUN_DEFAULT);
    if (ok && call->failed) {
        *error = call->error;
        ok = false;
    }
    link_free(call->link);
    uv_close((uv_handle_t *)&call->limit, NULL);
    uv_run(peer->loop, UV_RUN_DEFAULT);
    return ok && read_model_name(&call->answer, name, error);
}

bool load_find_model(LinkPeer *peer, const char *host, const char *api_key, uint64_t timeout_usec, Buffer *name,
                     Error *error)
{
    ModelCall call = {.limit_ms = timeout_usec ? timeout_usec / 1000 : MODELS_TIMEOUT_MS};
    Buffer request;
    buffer_init(&call.answer, MAX_MODELS_BYTES);
    buffer_init(&request, MAX_MODELS_BYTES);
    bool ok = load_write_head(&request, "GET", "/v1/models", host, api_key, 0, error) &&
              (ask_models(peer, &request, &call, name, error) || error_prefix(error, "%s: /v1/models", host));
    buffer_done(&request);
    buffer_done(&call.answer);
    return ok;
}

/* ---- the load ---- */

static const Replay *replay_of(const Load *load)
{
    return load->params->workload->params.replay;
}

static bool is_open_loop(const Load *load)
{
    return load->params->rate > 0 || replay_of(load);
}

bool load_goes_on(const Load *load)
{
    return !load->failed && load->report->n_sent < load->params->n_requests &&
           clock_now_usec() - load->begin_usec < load->params->duration_usec;
}

/* Those that are in a dialogue go on after a failure, but nothing more begins. */
void load_fail(Load *load, const Error *error)
{
    if (!load->failed) load->error = *error;
    load->failed = true;
}

/* When the next dialogue is due, since the start; false: there is none. */
static bool next_due(const Load *load, uint64_t *ret_usec)
{
    const Replay *replay = replay_of(load);
    *ret_usec = replay && load->next_index < replay->n ? replay->entries[load->next_index].at_usec
                                                       : (uint64_t)load->next_due_usec;
    return load_goes_on(load) && *ret_usec < load->params->duration_usec && (!replay || load->next_index < replay->n);
}

static Client *take_client(Load *load)
{
    Client *client = load->free;
    if (client) {
        load->free = client->next_free;
        return client;
    }
    if (load->n_made == load->params->n_clients) return NULL;
    if (!client_new(load, &client, &load->error)) {
        load->failed = true;
        return NULL;
    }
    load->clients[load->n_made++] = client;
    return client;
}

static void tell_progress(const Load *load)
{
    const LoadParams *params = load->params;
    const Replay *replay = replay_of(load);
    uint64_t n = replay && replay->n < params->n_requests ? replay->n : params->n_requests;
    double by_count = (double)(load->report->n_sent - load->n_pending) / (double)n;
    double by_time = (double)(clock_now_usec() - load->begin_usec) / (double)params->duration_usec;
    double fraction = by_count > by_time ? by_count : by_time;
    if (params->progress) params->progress(params->progress_arg, fraction < 1 ? fraction : 1);
}

static void end_load(Load *load)
{
    uv_timer_stop(load->wake);
    uv_stop(load->params->peer->loop);
}

static void on_wake(uv_timer_t *timer);

/* Whole milliseconds, rounded up: a timer of 0 ms that starts itself again would keep the loop from polling. */
static void wake_at(Load *load, uint64_t at_usec)
{
    uint64_t now = clock_now_usec();
    uv_timer_start(load->wake, on_wake, at_usec > now ? (at_usec - now + 999) / 1000 : 1, 0);
}

/* Begins all that is due and has a client; the rest waits, and its time counts. */
static void begin_due(Load *load)
{
    uint64_t due_usec;
    Client *client;
    while (next_due(load, &due_usec)) {
        uint64_t now = clock_now_usec(), at = load->begin_usec + due_usec;
        if (is_open_loop(load) && at > now) {
            wake_at(load, at);
            return;
        }
        if (!(client = take_client(load))) break;
        load->n_active++;
        load->report->n_dialogues++;
        if (load->params->rate > 0) load->next_due_usec += 1e6 * lengths_draw_gap(&load->arrivals) / load->params->rate;
        client_begin(client, load->next_index++, is_open_loop(load) ? at : now);
    }
    bool goes_on = load_goes_on(load);
    if (load->n_active == 0 || (!goes_on && load->n_pending == 0))
        end_load(load); /* those that think or rest would not ask any more */
    else if (goes_on && load->params->duration_usec != UINT64_MAX)
        wake_at(load, load->begin_usec + load->params->duration_usec);
}

static void on_wake(uv_timer_t *timer)
{
    begin_due(timer->data);
}

void load_begin_request(Load *load, uint64_t now_usec)
{
    LoadReport *report = load->report;
    if (report->n_sent++ == 0) load->first_usec = now_usec;
    if (++load->n_pending > report->peak_streams) report->peak_streams = load->n_pending;
}

void load_end_request(Load *load)
{
    load->n_pending--;
    load->report->seconds = (double)(clock_now_usec() - load->first_usec) / 1e6;
}

void load_release(Load *load, Client *client)
{
    client->next_free = load->free;
    load->free = client;
    load->n_active--;
    tell_progress(load);
    begin_due(load);
}

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

static bool prepare(Load *load, Error *error)
{
    load->clients = calloc(load->params->n_clients, sizeof *load->clients);
    load->wake = malloc(sizeof *load->wake);
    if (!load->clients || !load->wake) {
        free(load->clients);
        free(load->wake);
        return error_set(error, ERR_NO_MEMORY, "no memory for %u clients", load->params->n_clients);
    }
    uv_timer_init(load->params->peer->loop, load->wake);
    load->wake->data = load;
    return true;
}

bool load_run(const LoadParams *params, LoadReport *ret_report, Error *error)
{
    LoadReport report = {0};
    Load load = {.params = params, .report = &report, .arrivals = rng_for(params->workload->params.seed, UINT64_MAX)};
    if (!prepare(&load, error)) return false;
    if (params->rate > 0) load.next_due_usec = 1e6 * lengths_draw_gap(&load.arrivals) / params->rate;
    load.begin_usec = clock_now_usec();
    uv_timer_start(load.wake, on_wake, 0, 0);
    uv_run(params->peer->loop, UV_RUN_DEFAULT);
    for (uint32_t i = 0; i < load.n_made; i++) client_free(load.clients[i]);
    uv_close((uv_handle_t *)load.wake, free_handle);
    uv_run(params->peer->loop, UV_RUN_DEFAULT);
    report.n_resent = params->peer->n_resent;
    free(load.clients);
    if (load.failed) {
        *error = load.error;
        load_report_done(&report);
        return false;
    }
    *ret_report = report;
    return true;
}

void load_report_done(LoadReport *report)
{
    samples_done(&report->first_token);
    samples_done(&report->gap);
    samples_done(&report->per_token);
    samples_done(&report->whole);
    samples_done(&report->send_delay);
}
