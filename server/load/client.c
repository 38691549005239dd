/* SPDX-License-Identifier: Apache-2.0 */
#include "server/load/client.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_REQUEST_BYTES = 1 << 30, MAX_ANSWER_BYTES = 64 << 20, MAX_REFUSAL_BYTES = 64 << 10 };
/* In closed loop a refusal is not asked away in a busy loop. */
enum { REST_MS = 100, MAX_REST_MS = 5000 };

static void send_turn(Client *client);

static void free_timer(uv_handle_t *handle)
{
    free(handle);
}

/* ---- the end of a turn ---- */

static void count_error(LoadReport *report, const Error *error)
{
    uint32_t i = 0;
    while (i < report->n_errors && strcmp(report->errors[i].error.text, error->text) != 0) i++;
    if (i == LOAD_MAX_ERRORS) return;
    if (i == report->n_errors) report->errors[report->n_errors++].error = *error;
    report->errors[i].count++;
}

static void on_rested(uv_timer_t *timer)
{
    Client *client = timer->data;
    load_release(client->load, client);
}

/* The dialogue ends here. Also in open loop the loop polls before the next one begins. */
static void rest(Client *client)
{
    const LoadParams *params = client->load->params;
    bool is_open = params->rate > 0 || params->workload->params.replay;
    uint64_t ms = link_retry_after_s(client->link) * UINT64_C(1000);
    if (ms < REST_MS) ms = REST_MS;
    if (ms > MAX_REST_MS) ms = MAX_REST_MS;
    uv_timer_start(client->timer, on_rested, is_open || !load_goes_on(client->load) ? 0 : ms, 0);
}

static void fail_turn(Client *client, const Error *error)
{
    LoadReport *report = client->load->report;
    int status = link_status(client->link);
    load_end_request(client->load);
    if (status == 429 || status == 503)
        report->n_rejected++;
    else
        report->n_failed++;
    count_error(report, error);
    rest(client);
}

static bool add_sample(Client *client, Samples *samples, uint64_t from_usec, uint64_t to_usec)
{
    Error error;
    if (samples_add(samples, to_usec > from_usec ? to_usec - from_usec : 0)) return true;
    error_set(&error, ERR_NO_MEMORY, "no memory for measured times");
    load_fail(client->load, &error);
    return false;
}

static void count_answer(Client *client, uint64_t now_usec)
{
    LoadReport *report = client->load->report;
    uint64_t n_tokens = client->usage.has_usage ? client->usage.answer_tokens : client->n_events;
    report->n_answered++;
    report->n_without_usage += !client->usage.has_usage;
    report->prompt_tokens += client->usage.prompt_tokens;
    report->cached_tokens += client->usage.cached_tokens;
    report->answer_tokens += n_tokens;
    bool ok = add_sample(client, &report->send_delay, client->due_usec, client->sent_usec) &&
              add_sample(client, &report->whole, client->due_usec, now_usec);
    if (client->n_events == 0) return;
    ok = ok && add_sample(client, &report->first_token, client->due_usec, client->first_usec);
    for (uint32_t i = 0; ok && i < client->gaps.n; i++) ok = add_sample(client, &report->gap, 0, client->gaps.usec[i]);
    if (ok && n_tokens > 1 && client->n_events > 1)
        add_sample(client, &report->per_token, 0, (client->last_usec - client->first_usec) / (n_tokens - 1));
}

static void on_thought(uv_timer_t *timer)
{
    Client *client = timer->data;
    if (load_goes_on(client->load))
        send_turn(client);
    else
        load_release(client->load, client);
}

static void end_turn(Client *client)
{
    const Workload *workload = client->load->params->workload;
    uint64_t now = clock_now_usec();
    Error error;
    load_end_request(client->load);
    count_answer(client, now);
    if (dialogue_is_last(&client->dialogue) || !load_goes_on(client->load)) {
        load_release(client->load, client);
        return;
    }
    if (!dialogue_answer(&client->dialogue, workload, &client->answer, &error)) {
        load_fail(client->load, &error);
        load_release(client->load, client);
        return;
    }
    uint64_t think_ms = dialogue_think_ms(&client->dialogue, workload);
    client->due_usec = now + think_ms * 1000;
    uv_timer_start(client->timer, on_thought, think_ms, 0);
}

/* ---- the answer ---- */

static bool on_event(void *arg, const char *data, size_t n, Error *error)
{
    Client *client = arg;
    StreamEvent event;
    bool keeps_text = !dialogue_is_last(&client->dialogue);
    if (client->is_ended) return error_set(error, ERR_INVALID, "an event behind [DONE]");
    if (!stream_event_read(data, n, keeps_text ? &client->answer : NULL, &event, error)) return false;
    client->is_ended = event.is_end;
    if (event.has_usage) client->usage = event;
    if (!event.has_tokens) return true;
    uint64_t now = clock_now_usec();
    if (client->n_events++ == 0)
        client->first_usec = now;
    else if (!samples_add(&client->gaps, now - client->last_usec))
        return error_set(error, ERR_NO_MEMORY, "no memory for the times of an answer");
    client->last_usec = now;
    return true;
}

static bool on_body(void *arg, const char *bytes, size_t n, Error *error)
{
    Client *client = arg;
    if (link_status(client->link) == 200) return sse_reader_feed(&client->sse, bytes, n, on_event, client, error);
    size_t room = MAX_REFUSAL_BYTES - client->answer.n;
    return buffer_append(&client->answer, bytes, n < room ? n : room, error);
}

static void on_end(void *arg, const Error *error)
{
    Client *client = arg;
    Error problem;
    int status = link_status(client->link);
    uv_timer_stop(client->timer);
    if (error)
        fail_turn(client, error);
    else if (status != 200) {
        stream_event_refusal(client->answer.data, client->answer.n, status, &problem);
        fail_turn(client, &problem);
    } else if (!client->is_ended) {
        error_set(&problem, ERR_IO, "the answer ends without [DONE]");
        fail_turn(client, &problem);
    } else
        end_turn(client);
}

static void on_timeout(uv_timer_t *timer)
{
    Client *client = timer->data;
    link_drop(client->link);
    load_end_request(client->load);
    client->load->report->n_timed_out++;
    rest(client);
}

/* ---- a turn ---- */

static bool write_turn(Client *client, Error *error)
{
    const LoadParams *params = client->load->params;
    Buffer body;
    buffer_init(&body, MAX_REQUEST_BYTES);
    buffer_clear(&client->request);
    const char *path = params->workload->params.is_chat ? "/v1/chat/completions" : "/v1/completions";
    bool ok = dialogue_write(&client->dialogue, params->workload, &body, error) &&
              load_write_head(&client->request, "POST", path, params->host, params->api_key, body.n, error) &&
              buffer_append(&client->request, body.data, body.n, error);
    buffer_done(&body);
    return ok;
}

static void send_turn(Client *client)
{
    Load *load = client->load;
    Error error;
    buffer_clear(&client->answer);
    sse_reader_restart(&client->sse);
    client->n_events = 0;
    samples_clear(&client->gaps);
    client->usage = (StreamEvent){0};
    client->is_ended = false;
    if (!write_turn(client, &error)) {
        load_fail(load, &error);
        rest(client);
        return;
    }
    client->sent_usec = clock_now_usec();
    load_begin_request(load, client->sent_usec);
    if (!link_send(client->link, &client->request, &error)) {
        fail_turn(client, &error);
        return;
    }
    uint64_t limit_ms = load->params->timeout_usec / 1000;
    if (limit_ms) uv_timer_start(client->timer, on_timeout, limit_ms, 0);
}

void client_begin(Client *client, uint64_t index, uint64_t due_usec)
{
    Error error;
    client->due_usec = due_usec;
    if (dialogue_begin(&client->dialogue, client->load->params->workload, index, &error)) {
        send_turn(client);
        return;
    }
    load_fail(client->load, &error);
    rest(client);
}

bool client_new(Load *load, Client **ret_client, Error *error)
{
    static const LinkEvents events = {on_body, on_end};
    Client *client = calloc(1, sizeof *client);
    uv_timer_t *timer = malloc(sizeof *timer);
    if (!client || !timer || !link_new(load->params->peer, &events, client, &client->link, error)) {
        free(client);
        free(timer);
        return error_set(error, ERR_NO_MEMORY, "no memory for a client");
    }
    client->load = load;
    client->timer = timer;
    uv_timer_init(load->params->peer->loop, timer);
    timer->data = client;
    dialogue_init(&client->dialogue);
    sse_reader_init(&client->sse);
    buffer_init(&client->request, MAX_REQUEST_BYTES);
    buffer_init(&client->answer, MAX_ANSWER_BYTES);
    *ret_client = client;
    return true;
}

void client_free(Client *client)
{
    uv_close((uv_handle_t *)client->timer, free_timer);
    link_free(client->link);
    dialogue_done(&client->dialogue);
    sse_reader_done(&client->sse);
    samples_done(&client->gaps);
    buffer_done(&client->request);
    buffer_done(&client->answer);
    free(client);
}
