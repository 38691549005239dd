/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/chat/completions */
#include "server/api.h"
#include "server/chat_answer.h"
#include "server/chat_grammar.h"
#include "server/chat_prompt.h"
#include "server/generation.h"

bool api_chat_prepare(ApiJob *job, Error *error)
{
    ApiParams params;
    TokenList tokens = {0};
    ChatPromptEnd end;
    bool ok = generation_read(job, API_CHAT, &params, error) &&
              chat_prompt_tokens(job, &params, &tokens, &end, error) &&
              chat_grammar_read(job, &params, &end, error) &&
              generation_add_prompt(job, &params, &tokens, "messages", json_member(job->json, "messages"), error) &&
              chat_answer_plan(job, &params, &end, error);
    token_list_done(&tokens);
    return ok;
}

void api_chat(Server *server, Exchange *exchange, const char *tail)
{
    (void)tail;
    generation_start(server, exchange, ANSWER_CHAT, api_chat_prepare);
}
