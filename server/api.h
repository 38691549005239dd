/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers that routes.c names. Each replies, now or later, exactly once. Loop thread. */
#pragma once
#include "server/api_job.h"

/* tail: what follows a prefix route's path. */
typedef void ApiHandler(Server *server, Exchange *exchange, const char *tail);

ApiHandler api_chat, api_completions;
/* Their part in the pool: job->user is a GenerationPlan. */
LW_CHECK bool api_chat_prepare(ApiJob *job, Error *error);
LW_CHECK bool api_completions_prepare(ApiJob *job, Error *error);
ApiHandler api_models, api_model, api_livez, api_readyz, api_metrics;
ApiHandler api_tokenize, api_detokenize, api_apply_template;
ApiHandler api_abort;
ApiHandler api_openapi, api_page;
ApiHandler api_session_post, api_session_delete;
