/* SPDX-License-Identifier: Apache-2.0 */
/* A prompt as one JSON item, a string or a list of token ids, down to ids. Pool thread. */
#pragma once
#include "server/api_job.h"
#include "server/api_params.h"

/* Appends to *tokens. A string that cannot fit the context is refused before any work is put into it. */
LW_CHECK bool api_prompt_tokens(const ApiJob *job, const ApiParams *params, const cJSON *item, const char *path,
                                TokenList *tokens, Error *error);
