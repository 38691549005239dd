/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log-probabilities in the two forms of the API: chat's list of objects, completions' four parallel lists. A token that
 * is no whole UTF-8 text is shown as OpenAI does, as "\xNN..." in chat and "bytes:\xNN..." in completions; -infinity is
 * written as -9999. Loop thread.
 */
#pragma once
#include "server/api_answer.h"

LW_CHECK bool api_answer_add_logprob(ApiAnswer *answer, uint32_t choice, bool is_prompt, const SampleResult *sample,
                                     Error *error);
/* What was added since the last clear; null when log-probabilities are not wanted. */
void api_answer_write_logprobs(const ApiAnswer *answer, uint32_t choice, JsonOut *out);
