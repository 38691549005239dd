/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/completions: the prompt is a string, a list of strings, a list of token ids, or a list of such lists. */
#include "server/api.h"
#include "server/api_prompt.h"
#include "server/generation.h"

#include <stdio.h>

static bool add_one(ApiJob *job, const ApiParams *params, const cJSON *item, const char *path, Error *error)
{
    TokenList tokens = {0};
    bool ok = api_prompt_tokens(job, params, item, path, &tokens, error) &&
              generation_add_prompt(job, params, &tokens, path, NULL, error);
    token_list_done(&tokens);
    return ok;
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

bool api_completions_prepare(ApiJob *job, Error *error)
{
    ApiParams params;
    return generation_read(job, API_COMPLETION, &params, error) && add_prompts(job, &params, error);
}

void api_completions(Server *server, Exchange *exchange, const char *tail)
{
    (void)tail;
    generation_start(server, exchange, ANSWER_COMPLETION, api_completions_prepare);
}
