/* SPDX-License-Identifier: Apache-2.0 */
/* Models, health, metrics, and ending a request by its id. */
#include "base/clock.h"
#include "base/log.h"
#include "server/api.h"
#include "server/api_json.h"
#include "server/caller.h"
#include "server/generation.h"
#include "server/heartbeat.h"

#include <string.h>

enum { MAX_PAGE_BYTES = 4 << 20, MAX_ABORT_BYTES = 16 << 10 };

static void write_policy(const ServedPolicy *policy, JsonOut *out)
{
    json_raw(out, "{\"preset\":");
    json_string(out, policy->preset);
    json_raw(out, ",\"roles\":");
    if (policy->roles)
        json_string(out, policy->roles);
    else
        json_raw(out, "null");
    json_raw(out, "}");
}

/* What a request may ask for as longwave.attention. */
static void write_attention(const ServedPolicies *policies, JsonOut *out)
{
    ServedPolicy policy;
    json_raw(out, ",\"attention\":{\"default\":");
    write_policy(&policies->list[policies->fallback], out);
    if (policies->certified_tokens)
        json_rawf(out, ",\"certified_tokens\":%u,\"policies\":[", policies->certified_tokens);
    else
        json_raw(out, ",\"certified_tokens\":null,\"policies\":[");
    for (size_t i = 0; api_longwave_policy(policies, i, &policy); i++) {
        if (i) json_raw(out, ",");
        write_policy(&policy, out);
    }
    json_raw(out, "]}");
}

static void write_model(const ServedModel *model, const char *name, JsonOut *out)
{
    json_raw(out, "{\"id\":");
    json_string(out, name);
    json_rawf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"longwave\",\"max_model_len\":%u",
              (long long)model->created_unix, model->context);
    json_rawf(out, ",\"longwave\":{\"max_model_len\":%u,\"size_bytes\":%llu,\"architecture\":", model->context,
              (unsigned long long)model->size_bytes);
    json_string(out, model->architecture);
    write_attention(&model->policies, out);
    json_raw(out, "}}");
}

static void reply_written(Exchange *exchange, const JsonOut *out)
{
    Error error;
    if (json_end(out, &error))
        server_reply_json(exchange, out->buffer);
    else
        server_reply_error(exchange, (int)error.code, &error);
    buffer_done(out->buffer);
}

void api_models(Server *server, Exchange *exchange, const char *tail)
{
    (void)tail;
    Buffer body;
    JsonOut out;
    buffer_init(&body, MAX_PAGE_BYTES);
    json_begin(&out, &body);
    json_raw(&out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < server->model->n_names; i++) {
        if (i) json_raw(&out, ",");
        write_model(server->model, server->model->names[i], &out);
    }
    json_raw(&out, "]}");
    reply_written(exchange, &out);
}

void api_model(Server *server, Exchange *exchange, const char *tail)
{
    for (size_t i = 0; i < server->model->n_names; i++) {
        if (strcmp(server->model->names[i], tail)) continue;
        Buffer body;
        JsonOut out;
        buffer_init(&body, MAX_PAGE_BYTES);
        json_begin(&out, &body);
        write_model(server->model, tail, &out);
        reply_written(exchange, &out);
        return;
    }
    Error error;
    (void)error_set_param(&error, ERR_NOT_FOUND, "model", "the model '%.100s' does not exist here", tail);
    server_reply_error(exchange, HTTP_ERR_MODEL, &error);
}

static void reply_health(Exchange *exchange, int refusal)
{
    Error error;
    Buffer body;
    JsonOut out;
    if (refusal) {
        (void)error_set(&error, ERR_BUSY, "%s", server_refusal_text(refusal));
        server_reply_error(exchange, refusal, &error);
        return;
    }
    buffer_init(&body, 64);
    json_begin(&out, &body);
    json_raw(&out, "{\"status\":\"ok\"}");
    reply_written(exchange, &out);
}

void api_livez(Server *server, Exchange *exchange, const char *tail)
{
    (void)tail;
    int refusal = server_refusal(server);
    if (refusal != HTTP_ERR_DEVICE_FAILED) refusal = heartbeat_is_alive(server) ? 0 : HTTP_ERR_UNHEALTHY;
    reply_health(exchange, refusal);
}

void api_readyz(Server *server, Exchange *exchange, const char *tail)
{
    (void)tail;
    int refusal = server_refusal(server);
    if (!refusal && !heartbeat_is_alive(server)) refusal = HTTP_ERR_UNHEALTHY;
    reply_health(exchange, refusal);
}

void api_metrics(Server *server, Exchange *exchange, const char *tail)
{
    (void)tail;
    Buffer body;
    Error error;
    buffer_init(&body, MAX_PAGE_BYTES);
    const ServedModel *model = server->model;
    MetricsInfo info = {.model = "", .kv_type = "", .device = ""};
    if (model)
        info = (MetricsInfo){.model = model->names[0],
                             .kv_type = model->kv_type,
                             .device = model->device,
                             .kv_on_gpu = model->kv_on_gpu,
                             .weight_bytes = model->weight_bytes,
                             .buffer_bytes = model->buffer_bytes,
                             .memory_bytes = model->memory_bytes,
                             .page_tokens = model->kv_page_tokens,
                             .n_pages = model->n_kv_pages};
    info.unix_seconds = clock_unix_seconds();
    info.start_unix = server->start_unix;
    info.n_preparing = server->n_jobs;
    info.log_lines_lost = log_lost();
    process_stats_read(&info.process);
    if (exchange_caller(exchange)->rights & RIGHT_WATCH) info.auth = server->auth;
    if (metrics_write(&server->metrics, &info, clock_now_usec(), &body, &error))
        exchange_reply(
            exchange,
            &(HttpReply){.status = 200, .body = &body, .content_type = "text/plain; version=0.0.4; charset=utf-8"});
    else
        server_reply_error(exchange, (int)error.code, &error);
    buffer_done(&body);
}

static bool read_abort(const Buffer *body, cJSON **ret_json, const char **ret_id, Error *error)
{
    cJSON *json;
    if (body->n > MAX_ABORT_BYTES) /* it is parsed on the loop */
        return error_set(error, ERR_TOO_LARGE, "the request body has more than %d bytes", MAX_ABORT_BYTES);
    if (!json_parse(body->data ? body->data : "", body->n, &json, error)) return false;
    const cJSON *item = cJSON_IsObject(json) ? json_member(json, "request_id") : NULL;
    bool ok = item ? json_get_string(item, "request_id", ret_id, error)
                   : error_set_param(error, ERR_INVALID, "request_id", "'request_id' is missing");
    /* Requests without an id of their own have the empty one. */
    if (ok && !**ret_id) ok = error_set_param(error, ERR_INVALID, "request_id", "'request_id' is empty");
    if (ok)
        *ret_json = json;
    else
        cJSON_Delete(json);
    return ok;
}

void api_abort(Server *server, Exchange *exchange, const char *tail)
{
    (void)tail;
    Error error;
    cJSON *json = NULL;
    const char *id;
    if (!read_abort(exchange_body(exchange), &json, &id, &error)) {
        server_reply_error(exchange, (int)error.code, &error);
        return;
    }
    Buffer body;
    JsonOut out;
    buffer_init(&body, 64);
    json_begin(&out, &body);
    json_rawf(&out, "{\"aborted\":%u}", generation_abort(server, exchange_caller(exchange), id));
    cJSON_Delete(json);
    reply_written(exchange, &out);
}
