/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/sessions/{id}/save with {prompt | messages | tokens}: the longest cached prefix of that goes to a file;
 * /restore brings it back into the cache; DELETE /v1/sessions/{id} removes the file.
 */
#include "server/api.h"
#include "server/api_ids.h"
#include "server/api_prompt.h"
#include "server/chat_prompt.h"

#include <stdlib.h>
#include <string.h>

/* A call on its way: into the pool when there is something to save, then to the engine and back. */
typedef struct SessionWait {
    InboxEntry entry;
    Server *server;
    Exchange *exchange; /* NULL: the client left */
    SessionCall *call;  /* until the engine has it */
} SessionWait;

static void fail(Exchange *exchange, const Error *error)
{
    server_reply_error(exchange, (int)error->code, error);
}

static void wait_free(SessionWait *wait)
{
    if (wait->exchange) exchange_set_owner(wait->exchange, NULL, NULL);
    session_call_free(wait->call);
    free(wait);
}

/* ---- the engine's part ---- */

static void reply(SessionWait *wait, const SessionCall *call)
{
    static const char *const done[] = {
        [SESSION_SAVE] = "saved", [SESSION_RESTORE] = "restored", [SESSION_DELETE] = "deleted"};
    Buffer body;
    JsonOut out;
    Error error;
    if (call->error.code != ERR_NONE) {
        fail(wait->exchange, &call->error);
        return;
    }
    buffer_init(&body, 1024);
    json_begin(&out, &body);
    json_raw(&out, "{\"id\":");
    json_string(&out, call->session);
    json_rawf(&out, ",\"object\":\"session\",\"%s\":true", done[call->op]);
    if (call->op != SESSION_DELETE)
        json_rawf(&out, ",\"tokens\":%u,\"bytes\":%llu", call->n_moved_tokens, (unsigned long long)call->n_moved_bytes);
    json_raw(&out, "}");
    if (json_end(&out, &error))
        server_reply_json(wait->exchange, &body);
    else
        fail(wait->exchange, &error);
    buffer_done(&body);
}

static void on_event(InboxEntry *entry, Event *event)
{
    SessionWait *wait = (SessionWait *)(void *)entry;
    if (event->kind != EVENT_SESSION) return;
    inbox_remove(&wait->server->inbox, entry);
    if (wait->exchange) reply(wait, event->session);
    wait_free(wait);
}

/* The call goes on; there is nobody to tell. */
static void on_closed(void *owner)
{
    ((SessionWait *)owner)->exchange = NULL;
}

static void send_call(SessionWait *wait)
{
    Server *server = wait->server;
    Error error;
    int refusal = server_late_refusal(server);
    if (refusal) (void)error_set(&error, ERR_BUSY, "%s", server_refusal_text(refusal));
    if (refusal || !worker_session(server->worker, wait->call, &error)) {
        server_reply_error(wait->exchange, refusal ? refusal : (int)error.code, &error);
        wait_free(wait);
        return;
    }
    wait->entry.id = wait->call->id;
    wait->entry.on_event = on_event;
    wait->call = NULL;
    inbox_add(&server->inbox, &wait->entry);
    exchange_set_owner(wait->exchange, on_closed, wait);
}

/* ---- what is to be saved ---- */

static bool read_tokens(ApiJob *job, TokenList *tokens, ApiParams *params, Error *error)
{
    static const char *const sources[] = {"messages", "prompt", "tokens"};
    const cJSON *item[3];
    uint32_t n_vocab = tok_n_vocab(job->model->tokenizer), n = 0;
    for (size_t i = 0; i < 3; i++) n += (item[i] = json_member(job->json, sources[i])) != NULL;
    if (n != 1)
        return error_set_param(error, ERR_INVALID, n ? "prompt" : "messages",
                               "one of 'messages', 'prompt' and 'tokens' is wanted, not %u", n);
    if (!api_params_read(job->json, item[0] ? API_CHAT : API_COMPLETION, n_vocab, params, error)) return false;
    if (item[0]) return chat_prompt_tokens(job, params, tokens, NULL, error);
    if (item[1]) return api_prompt_tokens(job, params, item[1], "prompt", tokens, error);
    return api_ids_read(item[2], "tokens", n_vocab, tokens, error);
}

static bool run_save(ApiJob *job, Error *error)
{
    SessionWait *wait = job->user;
    ApiParams params;
    TokenList tokens = {0};
    ApiAttention attention = {0};
    bool ok = read_tokens(job, &tokens, &params, error) &&
              api_longwave_attention(&params.longwave, &job->model->policies, &attention, error);
    api_longwave_settle(&job->model->policies, (uint32_t)tokens.n, &attention);
    wait->call->policy = attention.policy;
    wait->call->attention = attention.wish;
    if (ok && (!tokens.n || tokens.n > job->model->context))
        ok = error_set_param(error, tokens.n ? ERR_CONTEXT_LENGTH : ERR_INVALID, "prompt",
                             "there are %zu tokens; 1 to %u are possible", tokens.n, job->model->context);
    const char *salt = params.cache_salt;
    ok = ok && session_call_set_tokens(wait->call, tokens.ids, (uint32_t)tokens.n, salt,
                                       salt ? (uint32_t)strlen(salt) : 0, error);
    token_list_done(&tokens);
    return ok;
}

/* The way to attend that it was saved of, where that is none of the server's own. */
static bool run_restore(ApiJob *job, Error *error)
{
    SessionWait *wait = job->user;
    ApiParams params;
    ApiAttention attention = {0};
    if (!api_params_read(job->json, API_COMPLETION, tok_n_vocab(job->model->tokenizer), &params, error) ||
        !api_longwave_attention(&params.longwave, &job->model->policies, &attention, error))
        return false;
    wait->call->policy = attention.policy;
    wait->call->attention = attention.wish;
    return true;
}

static void on_prepared(ApiJob *job)
{
    SessionWait *wait = job->user;
    wait->exchange = job->exchange;
    if (!job->exchange) {
        wait_free(wait);
    } else if (job->failed) {
        fail(job->exchange, &job->error);
        wait_free(wait);
    } else {
        send_call(wait);
    }
}

/* ---- routes ---- */

/* NULL: answered already. */
static SessionWait *begin(Server *server, Exchange *exchange, SessionOp op, const char *id, size_t n_id)
{
    Error error;
    char name[SESSION_MAX_ID_BYTES + 2] = ""; /* one byte too many shows */
    SessionWait *wait = NULL;
    if (!server->has_sessions) {
        (void)error_set(&error, ERR_UNSUPPORTED, "sessions are off: the server was started without session_dir");
        server_reply_error(exchange, HTTP_ERR_FORBIDDEN, &error);
        return NULL;
    }
    memcpy(name, id, n_id < sizeof name ? n_id : sizeof name - 1);
    wait = calloc(1, sizeof *wait);
    bool ok = wait ? session_call_new(++server->last_id, op, name, &wait->call, &error)
                   : error_set(&error, ERR_NO_MEMORY, "no memory for a request");
    if (!ok) {
        fail(exchange, &error);
        free(wait);
        return NULL;
    }
    wait->server = server;
    wait->exchange = exchange;
    return wait;
}

static void reply_unknown(Exchange *exchange)
{
    Error error;
    (void)error_set(&error, ERR_NOT_FOUND, "unknown URL: a session has /save and /restore, and can be deleted");
    server_reply_error(exchange, HTTP_ERR_URL, &error);
}

/* tail: "{id}/save" or "{id}/restore". */
void api_session_post(Server *server, Exchange *exchange, const char *tail)
{
    size_t n_id = strcspn(tail, "/");
    bool saves = !strcmp(tail + n_id, "/save");
    if (!saves && strcmp(tail + n_id, "/restore") != 0) {
        reply_unknown(exchange);
        return;
    }
    SessionWait *wait = begin(server, exchange, saves ? SESSION_SAVE : SESSION_RESTORE, tail, n_id);
    if (!wait) return;
    if (!saves && !exchange_body(exchange)->n) {
        send_call(wait);
        return;
    }
    wait->exchange = NULL; /* the job's until it comes back */
    if (!api_job_start(server, exchange, wait, saves ? run_save : run_restore, on_prepared)) wait_free(wait);
}

void api_session_delete(Server *server, Exchange *exchange, const char *tail)
{
    if (strchr(tail, '/')) {
        reply_unknown(exchange);
        return;
    }
    SessionWait *wait = begin(server, exchange, SESSION_DELETE, tail, strlen(tail));
    if (wait) send_call(wait);
}
