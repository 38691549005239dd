/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prompt and its questions, read once by a policy; then the rows of the right answers run as often as wanted, from
 * forks, while the policy's heads are limited one after the other (engine_limit_head). Engine thread.
 */
#pragma once
#include "engine/eval/ask.h"

typedef struct AnswerProbe AnswerProbe;

/* Takes 1 + the number of questions sequences until it is freed; engine and haystack are kept by the caller. */
LW_CHECK bool answer_probe_new(Engine *engine, PolicyId policy, const Haystack *haystack, AnswerProbe **ret_probe,
                               Error *error);
void answer_probe_free(AnswerProbe *probe); /* NULL is fine */
/* max_open: forks at once. */
LW_CHECK bool answer_probe_run(AnswerProbe *probe, uint32_t max_open, double *ret_nll, uint32_t *ret_right,
                               Error *error);
