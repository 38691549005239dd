/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/completions: the prompt is a string, a list of strings, a list of token ids, or a list of such lists. */
#include "server/api.h"
#include "server/api_ids.h"
#include "server/generation.h"

#include <stdio.h>
#include <string.h>

static bool add_text(ApiJob *job, const ApiParams *params, const cJSON *item, const char *path, Error *error)
{
    TokenList tokens = {0};
    size_t n = strlen(item->valuestring);
    TextRange all = {0, n};
    TokEncode encode = {.text = item->valuestring,
                        .n = n,
                        .trusted = &all,
                        .n_trusted = params->parse_special && n,
                        .add_special = true};
    bool ok = generation_check_bytes(job, n, path, error) &&
              tok_encode(job->model->tokenizer, &encode, &tokens, error) &&
              generation_add_prompt(job, params, &tokens, path, NULL, error);
    token_list_done(&tokens);
    return ok;
}

static bool add_ids(ApiJob *job, const ApiParams *params, const cJSON *list, const char *path, Error *error)
{
    TokenList tokens = {0};
    bool ok = api_ids_read(list, path, tok_n_vocab(job->model->tokenizer), &tokens, error) &&
              generation_add_prompt(job, params, &tokens, path, NULL, error);
    token_list_done(&tokens);
    return ok;
}

static bool add_one(ApiJob *job, const ApiParams *params, const cJSON *item, const char *path, Error *error)
{
    if (cJSON_IsString(item)) return add_text(job, params, item, path, error);
    if (cJSON_IsArray(item)) return add_ids(job, params, item, path, error);
    return error_set_param(error, ERR_INVALID, path, "'%s' must be a string or an array, not %s", path,
                           json_type_name(item));
}

static bool add_prompts(ApiJob *job, const ApiParams *params, Error *error)
{
    const cJSON *prompt = json_member(job->json, "prompt");
    size_t i = 0;
    if (!prompt) return error_set_param(error, ERR_INVALID, "prompt", "'prompt' is missing");
    if (!cJSON_IsArray(prompt) || !prompt->child || cJSON_IsNumber(prompt->child))
        return add_one(job, params, prompt, "prompt", error);
    for (const cJSON *item = prompt->child; item; item = item->next) {
        char path[32];
        snprintf(path, sizeof path, "prompt[%zu]", i++);
        if (!add_one(job, params, item, path, error)) return false;
    }
    return true;
}

static bool prepare(ApiJob *job, Error *error)
{
    ApiParams params;
    return generation_read(job, API_COMPLETION, &params, error) && add_prompts(job, &params, error);
}

void api_completions(Server *server, Exchange *exchange, const char *tail)
{
    (void)tail;
    generation_start(server, exchange, ANSWER_COMPLETION, prepare);
}
