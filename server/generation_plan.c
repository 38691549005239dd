/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "server/api_grammar.h"
#include "server/generation.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { COMPLETION_DEFAULT_TOKENS = 16, REQUEST_SLACK_BYTES = 4 << 20 };

static bool find_model(ApiJob *job, const char *name, const char **ret_name, Error *error)
{
    for (size_t i = 0; i < job->model->n_names; i++)
        if (!name || !strcmp(job->model->names[i], name)) {
            *ret_name = job->model->names[i];
            return true;
        }
    job->fault = HTTP_ERR_MODEL;
    return error_set_param(error, ERR_NOT_FOUND, "model",
                           "the model '%.100s' does not exist here; this server has '%.100s'", name,
                           job->model->names[0]);
}

static uint64_t deadline_of(const ApiJob *job, const ApiParams *params)
{
    uint64_t timeout_ms = (uint64_t)(params->timeout_s * 1e3), limit_ms = job->limits.request_timeout_ms;
    if (limit_ms && (!timeout_ms || timeout_ms > limit_ms)) timeout_ms = limit_ms;
    return timeout_ms ? job->arrival_usec + timeout_ms * 1000 : 0;
}

/* Nothing is begun for a client whose time is over. */
static bool check_deadline(const GenerationPlan *plan, Error *error)
{
    if (!plan->deadline_usec || clock_now_usec() < plan->deadline_usec) return true;
    return error_set(error, ERR_DEADLINE, "the request's time was over before its prompt was read");
}

bool generation_read(ApiJob *job, ApiRoute route, ApiParams *ret_params, Error *error)
{
    GenerationPlan *plan = job->user;
    if (!api_params_read(job->json, route, tok_n_vocab(job->model->tokenizer), ret_params, error)) return false;
    if (!find_model(job, ret_params->model, &plan->model, error)) return false;
    if (!api_longwave_attention(&ret_params->longwave, &job->model->policies, &plan->attention, error)) return false;
    job->unknown_fields = ret_params->unknown_fields;
    plan->progress = ret_params->longwave.progress;
    plan->stream = ret_params->stream;
    plan->include_usage = ret_params->include_usage;
    plan->want_logprobs = ret_params->logprobs;
    plan->n_top_logprobs = (uint32_t)ret_params->top_logprobs;
    plan->n_choices = (uint32_t)ret_params->n;
    if (ret_params->request_id) snprintf(plan->request_id, sizeof plan->request_id, "%s", ret_params->request_id);
    plan->deadline_usec = deadline_of(job, ret_params);
    if (!check_deadline(plan, error)) return false;
    return route == API_CHAT || api_grammar_read(job, &ret_params->guide, error); /* chat_grammar_read */
}

bool generation_check_bytes(const ApiJob *job, size_t n, const char *param, Error *error)
{
    size_t piece = tok_max_piece_bytes(job->model->tokenizer), least = piece ? n / piece : 0;
    if (least <= job->model->context) return true;
    return error_set_param(error, ERR_CONTEXT_LENGTH, param,
                           "the prompt has %zu bytes, so at least %zu tokens, but this model's maximum context length "
                           "is %u tokens",
                           n, least, job->model->context);
}

/* The answer's length limit; both counts are in the error's text. */
static bool fit(const ApiJob *job, const ApiParams *params, size_t n_prompt, const char *param, uint32_t *ret_max,
                Error *error)
{
    GenerationPlan *plan = job->user;
    uint32_t context = job->model->context;
    api_longwave_settle(&job->model->policies, (uint32_t)n_prompt, &plan->attention);
    if (plan->attention.reach < context) context = plan->attention.reach;
    uint32_t limit = job->limits.max_output_tokens ? job->limits.max_output_tokens : context;
    int64_t wanted = api_params_max_tokens(params);
    if (n_prompt + (wanted != 0) > context)
        return error_set_param(error, ERR_CONTEXT_LENGTH, param,
                               "the prompt has %zu tokens, but this model's maximum context length is %u tokens%s",
                               n_prompt, context, n_prompt == context ? ", answer included" : "");
    if (wanted > limit && limit < context)
        return error_set_param(error, ERR_INVALID, "max_tokens", "'max_tokens' must be at most %u, not %lld", limit,
                               (long long)wanted);
    uint32_t room = context - (uint32_t)n_prompt;
    if (wanted > room)
        return error_set_param(error, ERR_CONTEXT_LENGTH, "max_tokens",
                               "the prompt has %zu tokens and max_tokens asks for %lld more, but this model's maximum "
                               "context length is %u tokens",
                               n_prompt, (long long)wanted, context);
    if (wanted < 0) wanted = plan->kind == ANSWER_COMPLETION ? COMPLETION_DEFAULT_TOKENS : room;
    if (wanted > room) wanted = room;
    *ret_max = wanted > limit ? limit : (uint32_t)wanted;
    return true;
}

static uint64_t random_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed) seed = clock_now_usec();
    return seed;
}

/* The request outlives the body's tree. */
static bool copy_breakers(Request *request, const ApiParams *params, Error *error)
{
    uint32_t n = params->n_breakers;
    const char **breakers = arena_array(&request->arena, n, sizeof *breakers);
    if (!breakers) return error_set(error, ERR_NO_MEMORY, "no memory for sequence breakers");
    for (uint32_t i = 0; i < n; i++) {
        breakers[i] = arena_strdup(&request->arena, params->breakers[i]);
        if (!breakers[i]) return error_set(error, ERR_NO_MEMORY, "no memory for sequence breakers");
    }
    request->sampling.dry_breakers = breakers;
    request->sampling.n_dry_breakers = n;
    return true;
}

static bool fill_sampling(Request *request, const ApiParams *params, uint32_t n_vocab, Error *error)
{
    SamplingParams *sampling = &request->sampling;
    *sampling = params->sampling;
    sampling->top_p = params->top_p > 0 ? (float)params->top_p : 1;
    sampling->top_k = params->top_k > 0 ? (uint32_t)params->top_k : 0;
    if (params->top_p <= 0) sampling->top_k = 1; /* a nucleus of nothing still holds the best token */
    sampling->seed = params->has_seed ? (uint64_t)params->seed : random_seed();
    LogitBias *bias;
    if (!api_params_bias(params, n_vocab, &request->arena, &bias, &sampling->n_bias, error)) return false;
    sampling->bias = bias;
    return !params->has_breakers || copy_breakers(request, params, error);
}

static bool fill_stops(Request *request, const ApiParams *params, Error *error)
{
    uint32_t n = params->n_stops;
    const char **text = arena_array(&request->arena, n, sizeof *text);
    size_t *n_bytes = arena_array(&request->arena, n, sizeof *n_bytes);
    uint32_t *ids = arena_array(&request->arena, params->n_stop_ids, sizeof *ids);
    if (!text || !n_bytes || !ids) return error_set(error, ERR_NO_MEMORY, "no memory for stop strings");
    for (uint32_t i = 0; i < n; i++) {
        text[i] = arena_strdup(&request->arena, params->stops[i]);
        if (!text[i]) return error_set(error, ERR_NO_MEMORY, "no memory for stop strings");
        n_bytes[i] = strlen(text[i]);
    }
    if (params->n_stop_ids) memcpy(ids, params->stop_ids, params->n_stop_ids * sizeof *ids);
    request->stop = (StopStrings){.text = text, .n_bytes = n_bytes, .n = n, .include = params->include_stop};
    request->stop_ids = ids;
    request->n_stop_ids = params->n_stop_ids;
    return true;
}

static bool fill_salt(Request *request, const ApiParams *params, Error *error)
{
    if (!params->cache_salt) return true;
    request->cache_salt = arena_strdup(&request->arena, params->cache_salt);
    if (!request->cache_salt) return error_set(error, ERR_NO_MEMORY, "no memory for cache_salt");
    request->n_cache_salt = (uint32_t)strlen(params->cache_salt);
    return true;
}

static bool fill_request(Request *request, const ApiJob *job, const ApiParams *params, const TokenList *tokens,
                         Error *error)
{
    const GenerationPlan *plan = job->user;
    uint32_t *prompt = arena_array(&request->arena, tokens->n, sizeof *prompt);
    if (!prompt) return error_set(error, ERR_NO_MEMORY, "no memory for a prompt of %zu tokens", tokens->n);
    memcpy(prompt, tokens->ids, tokens->n * sizeof *prompt);
    request->prompt = prompt;
    request->n_prompt = (uint32_t)tokens->n;
    request->min_tokens = (uint32_t)params->min_tokens;
    if (request->min_tokens > request->max_tokens) request->min_tokens = request->max_tokens;
    request->n_choices = plan->n_choices;
    request->ignore_eos = params->ignore_eos;
    request->want_logprobs = params->logprobs;
    request->n_top_logprobs = plan->n_top_logprobs;
    request->want_prompt_logprobs = params->echo && params->logprobs;
    request->grammar = plan->grammar ? grammar_take(plan->grammar) : NULL;
    request->policy = plan->attention.policy;
    request->attention = plan->attention.wish;
    request->priority = params->priority;
    request->arrival_usec = job->arrival_usec;
    request->deadline_usec = plan->deadline_usec;
    return fill_salt(request, params, error) &&
           fill_sampling(request, params, tok_n_vocab(job->model->tokenizer), error) &&
           fill_stops(request, params, error);
}

static bool decode_echo(const ApiJob *job, const TokenList *tokens, Buffer *echo, Error *error)
{
    TokStream stream = {0};
    for (size_t i = 0; i < tokens->n; i++)
        if (!tok_stream_push(&stream, job->model->tokenizer, tokens->ids[i], false, echo, error)) return false;
    return tok_stream_flush(&stream, echo, error);
}

bool generation_add_prompt(ApiJob *job, const ApiParams *params, const TokenList *tokens, const char *param,
                           const cJSON *messages, Error *error)
{
    GenerationPlan *plan = job->user;
    uint32_t max_tokens = 0;
    if (!tokens->n) return error_set_param(error, ERR_INVALID, param, "'%s' is empty", param);
    if ((plan->n_requests + 1) * plan->n_choices > GENERATION_MAX_PROMPTS)
        return error_set_param(error, ERR_INVALID, param, "more than %d answers in one request",
                               GENERATION_MAX_PROMPTS);
    if (!fit(job, params, tokens->n, param, &max_tokens, error)) return false;
    if (!plan->map && !prompt_map_new(job->model->tokenizer, tokens, messages, &plan->map, error)) return false;
    Request *request = request_new(0, tokens->n * sizeof(uint32_t) + REQUEST_SLACK_BYTES);
    if (!request) return error_set(error, ERR_NO_MEMORY, "no memory for a request");
    request->max_tokens = max_tokens;
    Buffer *echo = &plan->echo[plan->n_requests];
    buffer_init(echo, job->server->params.max_body_bytes * 4 + 4096);
    if (!fill_request(request, job, params, tokens, error) ||
        (params->echo && !decode_echo(job, tokens, echo, error)) || !check_deadline(plan, error)) {
        buffer_done(echo);
        request_free(request);
        return false;
    }
    plan->requests[plan->n_requests++] = request;
    return true;
}
