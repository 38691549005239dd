/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOTH (API_CHAT | API_COMPLETION)
#define MAX_TOKENS 1e9
#define MAX_SAFE_SEED 9.3e18 /* all of int64; beyond 2^53 neighbours share a seed */

typedef enum FieldKind { FIELD_BOOL, FIELD_REAL, FIELD_FLOAT, FIELD_INT, FIELD_INT32 } FieldKind;

typedef struct PlainField {
    const char *name;
    unsigned routes;
    FieldKind kind;
    size_t offset;
    double min, max;
} PlainField;

#define AT(member) offsetof(ApiParams, member)
#define SAMPLING(member) offsetof(ApiParams, sampling.member)

static const PlainField plain_fields[] = {
    {"temperature", BOTH, FIELD_FLOAT, SAMPLING(temperature), 0, 2},
    {"top_p", BOTH, FIELD_REAL, AT(top_p), 0, 1},
    {"min_p", BOTH, FIELD_FLOAT, SAMPLING(min_p), 0, 1},
    {"top_k", BOTH, FIELD_INT, AT(top_k), -1, INT32_MAX},
    {"typical_p", BOTH, FIELD_FLOAT, SAMPLING(typical_p), 0, 1},
    {"top_n_sigma", BOTH, FIELD_FLOAT, SAMPLING(top_n_sigma), -1, 1000},
    {"presence_penalty", BOTH, FIELD_FLOAT, SAMPLING(presence_penalty), -2, 2},
    {"frequency_penalty", BOTH, FIELD_FLOAT, SAMPLING(frequency_penalty), -2, 2},
    {"repetition_penalty", BOTH, FIELD_FLOAT, SAMPLING(repetition_penalty), 0.01, 100},
    {"repeat_penalty", BOTH, FIELD_FLOAT, AT(repeat_penalty), 0.01, 100},
    {"repeat_last_n", BOTH, FIELD_INT32, SAMPLING(repeat_last_n), -1, SAMPLE_MAX_WINDOW},
    {"xtc_probability", BOTH, FIELD_FLOAT, SAMPLING(xtc_probability), 0, 1},
    {"xtc_threshold", BOTH, FIELD_FLOAT, SAMPLING(xtc_threshold), 0, 1},
    {"dynatemp_range", BOTH, FIELD_FLOAT, SAMPLING(dynatemp_range), 0, 100},
    {"dynatemp_exponent", BOTH, FIELD_FLOAT, SAMPLING(dynatemp_exponent), 0, 100},
    {"mirostat", BOTH, FIELD_INT32, SAMPLING(mirostat), 0, 2},
    {"mirostat_tau", BOTH, FIELD_FLOAT, SAMPLING(mirostat_tau), 0, 1000},
    {"mirostat_eta", BOTH, FIELD_FLOAT, SAMPLING(mirostat_eta), 0, 1},
    {"dry_multiplier", BOTH, FIELD_FLOAT, SAMPLING(dry_multiplier), 0, 1000},
    {"dry_base", BOTH, FIELD_FLOAT, SAMPLING(dry_base), 0, 1000},
    {"dry_allowed_length", BOTH, FIELD_INT32, SAMPLING(dry_allowed_length), 0, SAMPLE_MAX_WINDOW},
    {"dry_penalty_last_n", BOTH, FIELD_INT32, SAMPLING(dry_penalty_last_n), -1, SAMPLE_MAX_WINDOW},
    {"seed", BOTH, FIELD_INT, AT(seed), -MAX_SAFE_SEED, MAX_SAFE_SEED},
    {"max_tokens", BOTH, FIELD_INT, AT(max_tokens), 0, MAX_TOKENS},
    {"max_completion_tokens", BOTH, FIELD_INT, AT(max_completion_tokens), 0, MAX_TOKENS},
    {"min_tokens", BOTH, FIELD_INT, AT(min_tokens), 0, MAX_TOKENS},
    {"n", BOTH, FIELD_INT, AT(n), 1, API_MAX_CHOICES},
    {"stream", BOTH, FIELD_BOOL, AT(stream), 0, 0},
    {"logprobs", API_CHAT, FIELD_BOOL, AT(logprobs), 0, 0},
    {"logprobs", API_COMPLETION, FIELD_INT, AT(top_logprobs), 0, 20},
    {"top_logprobs", API_CHAT, FIELD_INT, AT(top_logprobs), 0, 20},
    {"echo", API_COMPLETION, FIELD_BOOL, AT(echo), 0, 0},
    {"parse_special", API_COMPLETION, FIELD_BOOL, AT(parse_special), 0, 0},
    {"ignore_eos", BOTH, FIELD_BOOL, AT(ignore_eos), 0, 0},
    {"include_stop_str_in_output", BOTH, FIELD_BOOL, AT(include_stop), 0, 0},
    {"timeout_s", BOTH, FIELD_REAL, AT(timeout_s), 0.001, 86400},
    {"add_generation_prompt", API_CHAT, FIELD_BOOL, AT(add_generation_prompt), 0, 0},
    {"continue_final_message", API_CHAT, FIELD_BOOL, AT(continue_final_message), 0, 0},
    {"priority", BOTH, FIELD_INT, AT(priority), -1e6, 1e6},
    {"reasoning_budget", API_CHAT, FIELD_INT, AT(reasoning_budget), -1, MAX_TOKENS},
    {"thinking_budget", API_CHAT, FIELD_INT, AT(reasoning_budget), -1, MAX_TOKENS},
};

static bool read_plain(const PlainField *field, const cJSON *item, ApiParams *params, Error *error)
{
    void *at = (char *)params + field->offset;
    int64_t min = field->min < -9e18 ? INT64_MIN : (int64_t)field->min, whole;
    int64_t max = field->max > 9e18 ? INT64_MAX : (int64_t)field->max;
    double real;
    switch (field->kind) {
    case FIELD_BOOL:
        return json_get_bool(item, field->name, at, error);
    case FIELD_REAL:
        return json_get_real(item, field->name, field->min, field->max, at, error);
    case FIELD_INT:
        return json_get_int(item, field->name, min, max, at, error);
    case FIELD_FLOAT:
        if (!json_get_real(item, field->name, field->min, field->max, &real, error)) return false;
        *(float *)at = (float)real;
        return true;
    case FIELD_INT32:
        break;
    }
    if (!json_get_int(item, field->name, min, max, &whole, error)) return false;
    *(int32_t *)at = (int32_t)whole;
    return true;
}

/* ---- fields with a form of their own ---- */

typedef struct Reader {
    ApiParams *params;
    uint32_t n_vocab;
    Error *error;
} Reader;

static bool read_text(const Reader *reader, const cJSON *item, const char **ret_text)
{
    return json_get_string(item, item->string, ret_text, reader->error);
}

static bool read_model(const Reader *reader, const cJSON *item)
{
    return read_text(reader, item, &reader->params->model);
}

static bool read_request_id(const Reader *reader, const cJSON *item)
{
    if (!read_text(reader, item, &reader->params->request_id)) return false;
    size_t n = strlen(reader->params->request_id);
    return (n >= 1 && n <= 128) || error_set_param(reader->error, ERR_INVALID, "request_id",
                                                   "'request_id' must have 1 to 128 bytes, not %zu", n);
}

static bool read_reasoning_effort(const Reader *reader, const cJSON *item)
{
    return read_text(reader, item, &reader->params->reasoning_effort);
}

static bool read_ignored_text(const Reader *reader, const cJSON *item)
{
    const char *text;
    return read_text(reader, item, &text);
}

static bool read_ignored_object(const Reader *reader, const cJSON *item)
{
    return json_get_object(item, item->string, reader->error);
}

static bool read_ignored_bool(const Reader *reader, const cJSON *item)
{
    bool value;
    return json_get_bool(item, item->string, &value, reader->error);
}

static bool read_kwargs(const Reader *reader, const cJSON *item)
{
    reader->params->chat_template_kwargs = item;
    return json_get_object(item, "chat_template_kwargs", reader->error);
}

static bool read_bias(const Reader *reader, const cJSON *item)
{
    reader->params->logit_bias = item;
    return json_get_object(item, "logit_bias", reader->error);
}

static bool read_stream_options(const Reader *reader, const cJSON *item)
{
    if (!json_get_object(item, "stream_options", reader->error)) return false;
    reader->params->has_stream_options = true;
    const cJSON *usage = json_member(item, "include_usage");
    return !usage ||
           json_get_bool(usage, "stream_options.include_usage", &reader->params->include_usage, reader->error);
}

static bool read_short_text(const Reader *reader, const cJSON *item, const char *path, size_t max_bytes,
                            const char **ret_text)
{
    if (!json_get_string(item, path, ret_text, reader->error)) return false;
    size_t n = strlen(*ret_text);
    return (n >= 1 && n <= max_bytes) || error_set_param(reader->error, ERR_INVALID, path,
                                                         "'%s' must have 1 to %zu bytes, not %zu", path, max_bytes, n);
}

static bool read_one_stop(const Reader *reader, const cJSON *item, const char *path)
{
    return read_short_text(reader, item, path, API_MAX_STOP_BYTES, &reader->params->stops[reader->params->n_stops++]);
}

static bool read_stop(const Reader *reader, const cJSON *item)
{
    if (cJSON_IsString(item)) return read_one_stop(reader, item, "stop");
    size_t n, i = 0;
    if (!cJSON_IsArray(item))
        return error_set_param(reader->error, ERR_INVALID, "stop",
                               "'stop' must be a string or an array of strings, not %s", json_type_name(item));
    if (!json_get_array(item, "stop", API_MAX_STOPS, &n, reader->error)) return false;
    for (const cJSON *one = item->child; one; one = one->next) {
        char path[32];
        snprintf(path, sizeof path, "stop[%zu]", i++);
        if (!read_one_stop(reader, one, path)) return false;
    }
    return true;
}

static bool read_stop_ids(const Reader *reader, const cJSON *item)
{
    size_t n, i = 0;
    if (!json_get_array(item, "stop_token_ids", API_MAX_STOP_IDS, &n, reader->error)) return false;
    for (const cJSON *one = item->child; one; one = one->next) {
        char path[48];
        int64_t id;
        snprintf(path, sizeof path, "stop_token_ids[%zu]", i);
        if (!json_get_int(one, path, 0, (int64_t)reader->n_vocab - 1, &id, reader->error)) return false;
        reader->params->stop_ids[i++] = (uint32_t)id;
    }
    reader->params->n_stop_ids = (uint32_t)n;
    return true;
}

static bool read_breakers(const Reader *reader, const cJSON *item)
{
    ApiParams *params = reader->params;
    size_t n;
    if (!json_get_array(item, "dry_sequence_breakers", SAMPLE_MAX_BREAKERS, &n, reader->error)) return false;
    params->has_breakers = true;
    for (const cJSON *one = item->child; one; one = one->next) {
        char path[48];
        snprintf(path, sizeof path, "dry_sequence_breakers[%u]", params->n_breakers);
        if (!read_short_text(reader, one, path, SAMPLE_MAX_BREAKER_BYTES, &params->breakers[params->n_breakers]))
            return false;
        params->n_breakers++;
    }
    return true;
}

static bool read_longwave(const Reader *reader, const cJSON *item)
{
    return api_longwave_read(item, &reader->params->longwave, reader->error);
}

static bool read_cache_salt(const Reader *reader, const cJSON *item)
{
    return read_short_text(reader, item, "cache_salt", API_MAX_SALT_BYTES, &reader->params->cache_salt);
}

static bool read_grammar(const Reader *reader, const cJSON *item)
{
    return api_guide_read(&reader->params->guide, API_GUIDE_GRAMMAR, item, item->string, reader->error);
}

static bool read_regex(const Reader *reader, const cJSON *item)
{
    return api_guide_read(&reader->params->guide, API_GUIDE_REGEX, item, item->string, reader->error);
}

static bool read_choice(const Reader *reader, const cJSON *item)
{
    return api_guide_read(&reader->params->guide, API_GUIDE_CHOICE, item, item->string, reader->error);
}

static bool read_schema(const Reader *reader, const cJSON *item)
{
    return api_guide_read(&reader->params->guide, API_GUIDE_SCHEMA, item, item->string, reader->error);
}

static bool read_response_format(const Reader *reader, const cJSON *item)
{
    return api_guide_read_format(&reader->params->guide, item, reader->error);
}

static bool read_structured_outputs(const Reader *reader, const cJSON *item)
{
    return api_guide_read_object(&reader->params->guide, item, reader->error);
}

static bool read_tools(const Reader *reader, const cJSON *item)
{
    return api_tools_read(item, &reader->params->tools, reader->error);
}

static bool read_tool_choice(const Reader *reader, const cJSON *item)
{
    return api_tools_read_choice(item, &reader->params->tools, reader->error);
}

static bool read_parallel(const Reader *reader, const cJSON *item)
{
    bool parallel;
    if (!json_get_bool(item, item->string, &parallel, reader->error)) return false;
    reader->params->tools.one_call = !parallel;
    return true;
}

/* "messages" and "prompt" are read by their endpoints. */
static bool read_elsewhere(const Reader *reader, const cJSON *item)
{
    (void)reader;
    (void)item;
    return true;
}

static const struct {
    const char *name;
    unsigned routes;
    bool (*read)(const Reader *reader, const cJSON *item);
} special_fields[] = {
    {"model", BOTH, read_model},
    {"messages", API_CHAT, read_elsewhere},
    {"prompt", API_COMPLETION, read_elsewhere},
    {"stop", BOTH, read_stop},
    {"stop_token_ids", BOTH, read_stop_ids},
    {"logit_bias", BOTH, read_bias},
    {"dry_sequence_breakers", BOTH, read_breakers},
    {"stream_options", BOTH, read_stream_options},
    {"longwave", BOTH, read_longwave},
    {"request_id", BOTH, read_request_id},
    {"chat_template_kwargs", API_CHAT, read_kwargs},
    {"reasoning_effort", API_CHAT, read_reasoning_effort},
    {"user", BOTH, read_ignored_text},
    {"cache_salt", BOTH, read_cache_salt},
    {"grammar", BOTH, read_grammar},
    {"guided_grammar", BOTH, read_grammar},
    {"regex", BOTH, read_regex},
    {"guided_regex", BOTH, read_regex},
    {"choice", BOTH, read_choice},
    {"guided_choice", BOTH, read_choice},
    {"response_format", BOTH, read_response_format},
    {"json_schema", BOTH, read_schema},
    {"guided_json", BOTH, read_schema},
    {"structured_outputs", BOTH, read_structured_outputs},
    {"tools", API_CHAT, read_tools},
    {"tool_choice", API_CHAT, read_tool_choice},
    {"safety_identifier", BOTH, read_ignored_text},
    {"prompt_cache_key", BOTH, read_ignored_text},
    {"service_tier", BOTH, read_ignored_text},
    {"metadata", BOTH, read_ignored_object},
    {"prediction", API_CHAT, read_ignored_object},
    {"parallel_tool_calls", API_CHAT, read_parallel},
    {"store", API_CHAT, read_ignored_bool},
};

/* ---- fields that would change the answer and are not supported: only their neutral value passes ---- */

typedef enum Neutral { NEUTRAL_NONE, NEUTRAL_EMPTY, NEUTRAL_NUMBER, NEUTRAL_TEXT, NEUTRAL_FORMAT } Neutral;

static const struct {
    const char *name;
    unsigned routes;
    Neutral neutral;
    double number;
    const char *text; /* alternatives, separated by '|' */
} unsupported_fields[] = {
    {"functions", API_CHAT, NEUTRAL_EMPTY, 0, NULL},
    {"function_call", API_CHAT, NEUTRAL_TEXT, 0, "|none|auto|"},
    {"modalities", API_CHAT, NEUTRAL_FORMAT, 0, NULL},
    {"audio", API_CHAT, NEUTRAL_NONE, 0, NULL},
    {"web_search_options", API_CHAT, NEUTRAL_NONE, 0, NULL},
    {"suffix", API_COMPLETION, NEUTRAL_EMPTY, 0, NULL},
    {"best_of", BOTH, NEUTRAL_NUMBER, 1, NULL},
    {"use_beam_search", BOTH, NEUTRAL_NUMBER, 0, NULL},
    {"bad_words", BOTH, NEUTRAL_EMPTY, 0, NULL},
    {"allowed_token_ids", BOTH, NEUTRAL_EMPTY, 0, NULL},
    {"prompt_logprobs", BOTH, NEUTRAL_NONE, 0, NULL},
    {"truncate_prompt_tokens", BOTH, NEUTRAL_NONE, 0, NULL},
};

static bool is_neutral_text(const cJSON *item, const char *alternatives)
{
    char word[32];
    if (!cJSON_IsString(item) || strchr(item->valuestring, '|')) return false;
    int n = snprintf(word, sizeof word, "|%s|", item->valuestring);
    return n > 2 && (size_t)n < sizeof word && strstr(alternatives, word);
}

/* {"type": "text"} and ["text"] */
static bool is_text_format(const cJSON *item)
{
    const cJSON *type = cJSON_IsObject(item) ? json_member(item, "type") : item->child;
    return cJSON_IsString(type) && !strcmp(type->valuestring, "text") && (cJSON_IsObject(item) || !type->next);
}

static bool is_neutral(const cJSON *item, Neutral neutral, double number, const char *text)
{
    switch (neutral) {
    case NEUTRAL_EMPTY:
        return (cJSON_IsArray(item) && !item->child) || (cJSON_IsString(item) && !*item->valuestring);
    case NEUTRAL_NUMBER:
        return (cJSON_IsNumber(item) && item->valuedouble == number) || (cJSON_IsFalse(item) && !number);
    case NEUTRAL_TEXT:
        return is_neutral_text(item, text);
    case NEUTRAL_FORMAT:
        return is_text_format(item);
    case NEUTRAL_NONE:
        break;
    }
    return false;
}

/* ---- one field ---- */

#define COUNT(table) (sizeof(table) / sizeof *(table))

static bool check_unsupported(const cJSON *item, ApiRoute route, bool *ret_known, Error *error)
{
    *ret_known = true;
    for (size_t i = 0; i < COUNT(unsupported_fields); i++) {
        if (!(unsupported_fields[i].routes & route) || strcmp(unsupported_fields[i].name, item->string)) continue;
        if (is_neutral(item, unsupported_fields[i].neutral, unsupported_fields[i].number, unsupported_fields[i].text))
            return true;
        return error_set_param(error, ERR_UNSUPPORTED, item->string, "'%s' with this value is not supported",
                               item->string);
    }
    *ret_known = false;
    return true;
}

static bool read_field(const Reader *reader, const cJSON *item, ApiRoute route)
{
    for (size_t i = 0; i < COUNT(plain_fields); i++)
        if ((plain_fields[i].routes & route) && !strcmp(plain_fields[i].name, item->string)) {
            reader->params->has_seed |= plain_fields[i].offset == AT(seed);
            reader->params->has_generation_prompt |= plain_fields[i].offset == AT(add_generation_prompt);
            reader->params->logprobs |= route == API_COMPLETION && plain_fields[i].offset == AT(top_logprobs);
            return read_plain(&plain_fields[i], item, reader->params, reader->error);
        }
    for (size_t i = 0; i < COUNT(special_fields); i++)
        if ((special_fields[i].routes & route) && !strcmp(special_fields[i].name, item->string))
            return special_fields[i].read(reader, item);
    bool known;
    if (!check_unsupported(item, route, &known, reader->error)) return false;
    reader->params->unknown_fields += !known;
    return true;
}

/* ---- all of them ---- */

static bool conflict(Error *error, const char *param, const char *text)
{
    return error_set_param(error, ERR_INVALID, param, "%s", text);
}

static bool check_together(ApiParams *params, ApiRoute route, Error *error)
{
    int64_t max = api_params_max_tokens(params);
    if (params->max_tokens >= 0 && params->max_completion_tokens >= 0 &&
        params->max_tokens != params->max_completion_tokens)
        return conflict(error, "max_tokens", "'max_tokens' and 'max_completion_tokens' differ; give one of them");
    if (max >= 0 && params->min_tokens > max)
        return conflict(error, "min_tokens", "'min_tokens' is larger than 'max_tokens'");
    SamplingParams *sampling = &params->sampling;
    if (params->repeat_penalty != 0 && sampling->repetition_penalty != 0 &&
        params->repeat_penalty != sampling->repetition_penalty)
        return conflict(error, "repeat_penalty", "'repeat_penalty' and 'repetition_penalty' differ; give one of them");
    if (sampling->repetition_penalty == 0)
        sampling->repetition_penalty = params->repeat_penalty != 0 ? params->repeat_penalty : 1;
    if (params->has_stream_options && !params->stream)
        return conflict(error, "stream_options", "'stream_options' is only for requests with 'stream': true");
    if (route == API_CHAT && params->top_logprobs >= 0 && !params->logprobs)
        return conflict(error, "top_logprobs", "'top_logprobs' needs 'logprobs': true");
    if (params->continue_final_message && params->has_generation_prompt && params->add_generation_prompt)
        return conflict(error, "continue_final_message",
                        "'continue_final_message' and 'add_generation_prompt' exclude each other");
    if (params->continue_final_message) params->add_generation_prompt = false;
    if (params->longwave.progress && !params->stream)
        return conflict(error, "longwave.progress", "'longwave.progress' is only for requests with 'stream': true");
    return api_tools_check_together(&params->tools, error);
}

bool api_params_read(const cJSON *body, ApiRoute route, uint32_t n_vocab, ApiParams *ret_params, Error *error)
{
    ApiParams params = {
        .top_p = 1,
        .n = 1,
        .max_tokens = -1,
        .max_completion_tokens = -1,
        .top_logprobs = -1,
        .reasoning_budget = -1,
        .parse_special = true,
        .add_generation_prompt = true,
    };
    sampling_defaults(&params.sampling);
    params.sampling.repetition_penalty = 0; /* absent, until its other name has been looked for */
    Reader reader = {&params, n_vocab, error};
    for (const cJSON *item = body->child; item; item = item->next)
        if (!cJSON_IsNull(item) && !read_field(&reader, item, route)) return false;
    if (!check_together(&params, route, error)) return false;
    if (params.top_logprobs < 0) params.top_logprobs = 0;
    *ret_params = params;
    return true;
}

bool api_params_field(size_t i, ApiField *ret_field)
{
    static const ApiFieldType types[] = {[FIELD_BOOL] = API_FIELD_BOOL,
                                         [FIELD_REAL] = API_FIELD_NUMBER,
                                         [FIELD_FLOAT] = API_FIELD_NUMBER,
                                         [FIELD_INT] = API_FIELD_INTEGER,
                                         [FIELD_INT32] = API_FIELD_INTEGER};
    if (i < COUNT(plain_fields)) {
        const PlainField *field = &plain_fields[i];
        *ret_field = (ApiField){field->name, field->routes, types[field->kind], field->min, field->max};
        return true;
    }
    i -= COUNT(plain_fields);
    if (i < COUNT(special_fields)) {
        *ret_field = (ApiField){special_fields[i].name, special_fields[i].routes, API_FIELD_OTHER, 0, 0};
        return true;
    }
    i -= COUNT(special_fields);
    if (i >= COUNT(unsupported_fields)) return false;
    *ret_field = (ApiField){unsupported_fields[i].name, unsupported_fields[i].routes, API_FIELD_UNSUPPORTED, 0, 0};
    return true;
}

int64_t api_params_max_tokens(const ApiParams *params)
{
    return params->max_completion_tokens >= 0 ? params->max_completion_tokens : params->max_tokens;
}

static bool read_bias_pair(const cJSON *item, uint32_t n_vocab, LogitBias *ret_bias, Error *error)
{
    char *end;
    const char *key = item->string;
    size_t n = strlen(key);
    unsigned long id = n >= 1 && n <= 9 && key[strspn(key, "0123456789")] == '\0' ? strtoul(key, &end, 10) : n_vocab;
    if (id >= n_vocab)
        return error_set_param(error, ERR_INVALID, "logit_bias",
                               "'logit_bias' has the key '%.40s', which is no token id below %u", key, n_vocab);
    char path[64];
    double bias;
    snprintf(path, sizeof path, "logit_bias.%s", key);
    if (!json_get_real(item, path, -100, 100, &bias, error)) return false;
    *ret_bias = (LogitBias){(uint32_t)id, (float)bias};
    return true;
}

static int compare_bias(const void *a, const void *b)
{
    uint32_t left = ((const LogitBias *)a)->id, right = ((const LogitBias *)b)->id;
    return (left > right) - (left < right);
}

bool api_params_bias(const ApiParams *params, uint32_t n_vocab, Arena *arena, LogitBias **ret_bias, uint32_t *ret_n,
                     Error *error)
{
    size_t n = params->logit_bias ? (size_t)cJSON_GetArraySize(params->logit_bias) : 0, i = 0;
    if (n > API_MAX_BIAS)
        return error_set_param(error, ERR_INVALID, "logit_bias", "'logit_bias' has %zu entries, more than %d", n,
                               API_MAX_BIAS);
    LogitBias *bias = arena_array(arena, n, sizeof *bias);
    if (!bias) return error_set(error, ERR_NO_MEMORY, "no memory for logit_bias");
    for (const cJSON *item = params->logit_bias ? params->logit_bias->child : NULL; item; item = item->next)
        if (!read_bias_pair(item, n_vocab, &bias[i++], error)) return false;
    qsort(bias, n, sizeof *bias, compare_bias);
    for (i = 1; i < n; i++)
        if (bias[i - 1].id == bias[i].id)
            return error_set_param(error, ERR_INVALID, "logit_bias", "'logit_bias' names token %u twice", bias[i].id);
    *ret_bias = bias;
    *ret_n = (uint32_t)n;
    return true;
}
