/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fields that chat and completions share, read from a request body through one table: type and range of every field
 * are checked and named. What would change the answer and is not supported is refused; what is unknown is counted.
 * Pool thread. Strings and JSON nodes are borrowed from the body's tree.
 */
#pragma once
#include "server/api_guide.h"
#include "server/api_json.h"
#include "server/api_longwave.h"
#include "server/api_tools.h"
#include "scheduler/messages.h"

enum {
    API_MAX_STOPS = 16,
    API_MAX_STOP_BYTES = 1024,
    API_MAX_STOP_IDS = 64,
    API_MAX_BIAS = 4096,
    API_MAX_SALT_BYTES = 248,
    API_MAX_CHOICES = 128
};

typedef enum ApiRoute { API_CHAT = 1, API_COMPLETION = 2 } ApiRoute;

typedef struct ApiParams {
    const char *model;       /* NULL: absent */
    const char *request_id;  /* NULL: absent */
    SamplingParams sampling; /* all but what follows here: seed, bias, top_p, top_k and breakers */
    float repeat_penalty;    /* llama.cpp's name of repetition_penalty; 0: absent */
    double top_p;
    int64_t top_k;
    bool has_seed;
    int64_t seed;
    int64_t max_tokens, max_completion_tokens; /* -1: absent */
    int64_t min_tokens, n;
    bool stream, include_usage, has_stream_options;
    bool logprobs;
    int64_t top_logprobs; /* chat: -1 absent; completions: the value of logprobs */
    bool echo, parse_special;
    bool ignore_eos, include_stop;
    double timeout_s; /* 0: none */
    bool has_generation_prompt, add_generation_prompt, continue_final_message;
    int64_t priority;
    ApiLongwave longwave;
    ApiGuide guide;
    const char *cache_salt;            /* NULL: absent */
    ApiTools tools;
    int64_t reasoning_budget;          /* tokens; -1: any number */
    const char *reasoning_effort;      /* NULL: absent */
    const cJSON *chat_template_kwargs; /* NULL: absent */
    const char *stops[API_MAX_STOPS];
    uint32_t n_stops;
    uint32_t stop_ids[API_MAX_STOP_IDS];
    uint32_t n_stop_ids;
    bool has_breakers; /* dry_sequence_breakers; else the usual ones */
    const char *breakers[SAMPLE_MAX_BREAKERS];
    uint32_t n_breakers;
    const cJSON *logit_bias; /* NULL: absent; an object */
    uint32_t unknown_fields;
} ApiParams;

/* n_vocab bounds token ids. */
LW_CHECK bool api_params_read(const cJSON *body, ApiRoute route, uint32_t n_vocab, ApiParams *ret_params, Error *error);
/* A field that api_params_read knows, for the description of the API. */
typedef enum ApiFieldType {
    API_FIELD_BOOL,
    API_FIELD_NUMBER,
    API_FIELD_INTEGER,
    API_FIELD_OTHER,       /* has a form of its own */
    API_FIELD_UNSUPPORTED, /* refused unless the value asks for nothing */
} ApiFieldType;

typedef struct ApiField {
    const char *name;
    unsigned routes; /* ApiRoute bits */
    ApiFieldType type;
    double min, max; /* of numbers */
} ApiField;

/* Field i; false: there are no more. */
LW_CHECK bool api_params_field(size_t i, ApiField *ret_field);
/* max_tokens or max_completion_tokens, -1 when both are absent. */
int64_t api_params_max_tokens(const ApiParams *params);
/* The checked pairs of logit_bias, in the arena. */
LW_CHECK bool api_params_bias(const ApiParams *params, uint32_t n_vocab, Arena *arena, LogitBias **ret_bias,
                              uint32_t *ret_n, Error *error);
