/* SPDX-License-Identifier: Apache-2.0 */
/* POST /tokenize, /detokenize, /apply-template */
#include "server/api.h"
#include "server/api_ids.h"
#include "server/chat_prompt.h"
#include "server/generation.h"

#include <string.h>

enum { MAX_TEXT_BYTES = 64 << 20 };

/* A boolean member, or the default when it is absent. */
static bool option(const cJSON *json, const char *key, bool *value, Error *error)
{
    const cJSON *item = json_member(json, key);
    return !item || json_get_bool(item, key, value, error);
}

static bool encode_content(ApiJob *job, TokenList *tokens, Error *error)
{
    const cJSON *item = json_member(job->json, "content");
    const char *name = item ? "content" : "prompt", *text;
    bool add_special = false, parse_special = true;
    if (!item) item = json_member(job->json, name);
    if (!item) return error_set_param(error, ERR_INVALID, "content", "'content' is missing");
    if (!json_get_string(item, name, &text, error) || !option(job->json, "add_special", &add_special, error) ||
        !option(job->json, "parse_special", &parse_special, error))
        return false;
    TextRange all = {0, strlen(text)};
    if (!generation_check_bytes(job, all.end, name, error)) return false;
    TokEncode encode = {
        .text = text, .n = all.end, .trusted = &all, .n_trusted = parse_special && all.end, .add_special = add_special};
    return tok_encode(job->model->tokenizer, &encode, tokens, error);
}

static bool encode_messages(ApiJob *job, TokenList *tokens, Error *error)
{
    ApiParams params;
    return api_params_read(job->json, API_CHAT, tok_n_vocab(job->model->tokenizer), &params, error) &&
           chat_prompt_tokens(job, &params, tokens, NULL, error);
}

static bool run_tokenize(ApiJob *job, Error *error)
{
    TokenList tokens = {0};
    JsonOut out;
    bool ok =
        json_member(job->json, "messages") ? encode_messages(job, &tokens, error) : encode_content(job, &tokens, error);
    json_begin(&out, &job->answer);
    json_raw(&out, "{\"tokens\":[");
    for (size_t i = 0; ok && i < tokens.n; i++) json_rawf(&out, i ? ",%u" : "%u", tokens.ids[i]);
    json_rawf(&out, "],\"count\":%zu,\"max_model_len\":%u}", tokens.n, job->model->context);
    token_list_done(&tokens);
    return ok && json_end(&out, error);
}

static bool decode_tokens(const ApiJob *job, const TokenList *tokens, bool special, Buffer *text, Error *error)
{
    TokStream stream = {0};
    for (size_t i = 0; i < tokens->n; i++)
        if (!tok_stream_push(&stream, job->model->tokenizer, tokens->ids[i], special, text, error)) return false;
    return tok_stream_flush(&stream, text, error);
}

static bool run_detokenize(ApiJob *job, Error *error)
{
    const cJSON *item = json_member(job->json, "tokens");
    TokenList tokens = {0};
    bool special = true;
    if (!item) return error_set_param(error, ERR_INVALID, "tokens", "'tokens' is missing");
    Buffer text;
    buffer_init(&text, MAX_TEXT_BYTES);
    JsonOut out;
    bool ok = option(job->json, "special", &special, error) &&
              api_ids_read(item, "tokens", tok_n_vocab(job->model->tokenizer), &tokens, error) &&
              decode_tokens(job, &tokens, special, &text, error);
    json_begin(&out, &job->answer);
    json_raw(&out, "{\"content\":");
    json_string_n(&out, text.data ? text.data : "", text.n);
    json_raw(&out, "}");
    buffer_done(&text);
    token_list_done(&tokens);
    return ok && json_end(&out, error);
}

static bool run_apply_template(ApiJob *job, Error *error)
{
    ApiParams params;
    ChatPrompt prompt;
    JsonOut out;
    if (!api_params_read(job->json, API_CHAT, tok_n_vocab(job->model->tokenizer), &params, error)) return false;
    if (!chat_prompt_render(job, &params, &prompt, error)) return false;
    json_begin(&out, &job->answer);
    json_raw(&out, "{\"prompt\":");
    json_string_n(&out, prompt.text.data ? prompt.text.data : "", prompt.text.n);
    json_raw(&out, "}");
    chat_prompt_done(&prompt);
    return json_end(&out, error);
}

void api_tokenize(Server *server, Exchange *exchange, const char *tail)
{
    (void)tail;
    (void)!api_job_start(server, exchange, NULL, run_tokenize, NULL);
}

void api_detokenize(Server *server, Exchange *exchange, const char *tail)
{
    (void)tail;
    (void)!api_job_start(server, exchange, NULL, run_detokenize, NULL);
}

void api_apply_template(Server *server, Exchange *exchange, const char *tail)
{
    (void)tail;
    (void)!api_job_start(server, exchange, NULL, run_apply_template, NULL);
}
