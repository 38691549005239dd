/* SPDX-License-Identifier: Apache-2.0 */
/* What constrains the answers of a request: from a field of its body to a compiled grammar. Pool thread. */
#pragma once
#include "engine/sample/grammar/cache.h"
#include "server/api_job.h"
#include "server/api_params.h"

/*
 * All answers of the job follow this grammar, taken from the server's cache or built; before prompts are added. param:
 * the field that an error names, unless it names one itself. ERR_INVALID: the job has a grammar already.
 */
LW_CHECK bool api_grammar_attach(ApiJob *job, const char *param, const GrammarSource *source, Error *error);
/* The grammar that the job's guide asks for, if any. */
LW_CHECK bool api_grammar_read(ApiJob *job, const ApiGuide *guide, Error *error);
