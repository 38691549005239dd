/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request bodies, as far as they are read before the engine: strict JSON, the fields of both routes, logit_bias, the
 * messages of a chat, lists of token ids. What is refused has a reason that itself makes a valid error object; what is
 * accepted as JSON survives printing and reading again.
 */
#include "server/api_ids.h"
#include "server/api_params.h"
#include "server/chat_messages.h"
#include "server/http_error.h"

#include <stdlib.h>
#include <string.h>

enum { N_VOCAB = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool ok)
{
    if (!ok) abort();
}

static void check_refusal(const Error *error)
{
    Buffer body;
    JsonOut out;
    Error other;
    cJSON *json;
    must(error->code != ERR_NONE && *error->text);
    buffer_init(&body, 1 << 16);
    json_begin(&out, &body);
    http_error_write(&out, (int)error->code, error);
    must(json_end(&out, &other));
    must(json_parse(body.data, body.n, &json, &other));
    const cJSON *object = json_member(json, "error");
    must(cJSON_IsString(json_member(object, "message")) && cJSON_IsString(json_member(object, "type")));
    cJSON_Delete(json);
    buffer_done(&body);
}

static void check_round_trip(const cJSON *json)
{
    Error error;
    cJSON *again;
    char *printed = cJSON_PrintUnformatted(json);
    must(printed);
    must(json_parse(printed, strlen(printed), &again, &error));
    cJSON_Delete(again);
    free(printed);
}

static void check_fields(const cJSON *json, ApiRoute route)
{
    Error error = {0};
    ApiParams params;
    Arena arena;
    LogitBias *bias;
    uint32_t n_bias;
    if (!api_params_read(json, route, N_VOCAB, &params, &error)) {
        check_refusal(&error);
        return;
    }
    must(params.sampling.temperature >= 0 && params.sampling.temperature <= 2 && params.n >= 1 &&
         params.n_stops <= API_MAX_STOPS);
    must(params.sampling.repetition_penalty > 0 && params.n_breakers <= SAMPLE_MAX_BREAKERS);
    for (uint32_t i = 0; i < params.n_stop_ids; i++) must(params.stop_ids[i] < N_VOCAB);
    arena_init(&arena, 4096, 1 << 20);
    if (api_params_bias(&params, N_VOCAB, &arena, &bias, &n_bias, &error))
        for (uint32_t i = 0; i < n_bias; i++) must(bias[i].id < N_VOCAB && bias[i].bias >= -100 && bias[i].bias <= 100);
    else
        check_refusal(&error);
    arena_done(&arena);
}

static void check_messages(cJSON *json)
{
    Error error = {0};
    if (!chat_messages_normalise(json, &error)) {
        check_refusal(&error);
        return;
    }
    for (const cJSON *message = json_member(json, "messages")->child; message; message = message->next) {
        must(cJSON_IsString(json_member(message, "role")));
        must(cJSON_IsString(json_member(message, "content")) || json_member(message, "tool_calls"));
    }
}

static void check_ids(const cJSON *json)
{
    Error error = {0};
    TokenList list = {0};
    const cJSON *prompt = json_member(json, "prompt");
    if (prompt && !api_ids_read(prompt, "prompt", N_VOCAB, &list, &error)) check_refusal(&error);
    for (size_t i = 0; i < list.n; i++) must(list.ids[i] < N_VOCAB);
    token_list_done(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Error error = {0};
    cJSON *json;
    char *text = malloc(n + 1);
    must(text);
    if (n) memcpy(text, data, n);
    text[n] = '\0';
    if (!json_parse(text, n, &json, &error)) {
        check_refusal(&error);
    } else {
        check_round_trip(json);
        if (cJSON_IsObject(json)) {
            check_fields(json, API_CHAT);
            check_fields(json, API_COMPLETION);
            check_ids(json);
            check_messages(json);
        }
        cJSON_Delete(json);
    }
    free(text);
    return 0;
}
