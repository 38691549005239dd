/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of an answer: content, reasoning and calls of tools as OpenAI's members. Loop thread. */
#pragma once
#include "server/api_answer.h"

/* Members of a stream's delta for one part of a choice, text [part->n_bytes]. */
void api_answer_write_part(ApiAnswer *answer, uint32_t choice, const AnswerPart *part, const char *text, JsonOut *out);
/* Members of a whole message, behind its role. */
void api_answer_write_message(const ApiAnswer *answer, uint32_t choice, JsonOut *out);
