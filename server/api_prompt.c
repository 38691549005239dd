/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_prompt.h"
#include "server/api_ids.h"
#include "server/generation.h"

#include <string.h>

static bool encode_text(const ApiJob *job, const ApiParams *params, const char *text, const char *path,
                        TokenList *tokens, Error *error)
{
    size_t n = strlen(text);
    TextRange all = {0, n};
    TokEncode encode = {
        .text = text, .n = n, .trusted = &all, .n_trusted = params->parse_special && n, .add_special = true};
    return generation_check_bytes(job, n, path, error) && tok_encode(job->model->tokenizer, &encode, tokens, error);
}

bool api_prompt_tokens(const ApiJob *job, const ApiParams *params, const cJSON *item, const char *path,
                       TokenList *tokens, Error *error)
{
    if (cJSON_IsString(item)) return encode_text(job, params, item->valuestring, path, tokens, error);
    if (cJSON_IsArray(item)) return api_ids_read(item, path, tok_n_vocab(job->model->tokenizer), tokens, error);
    return error_set_param(error, ERR_INVALID, path, "'%s' must be a string or an array, not %s", path,
                           json_type_name(item));
}
