/* SPDX-License-Identifier: Apache-2.0 */
#include "server/chat_answer.h"

#include "engine/sample/schema/kinds.h"
#include "server/generation.h"

#include <stdio.h>
#include <string.h>

enum { KINDS_BLOCK_BYTES = 64 << 10, KINDS_MAX_BYTES = 64 << 20 };

static bool no_memory(Error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory for the tools");
}

static bool copy_kinds(Arena *arena, const ObjectKinds *kinds, ToolSpec *spec, Error *error)
{
    MemberKinds *own = arena_array(arena, kinds->n, sizeof *own);
    if (!own) return no_memory(error);
    for (uint32_t i = 0; i < kinds->n; i++) {
        own[i] = kinds->members[i];
        own[i].name = arena_strdup(arena, own[i].name);
        if (!own[i].name) return no_memory(error);
    }
    spec->kinds = *kinds;
    spec->kinds.members = own;
    return true;
}

/* Of which kinds a function's parameters are, as far as its form of calls does not tell. */
static bool list_kinds(const AnswerPlan *plan, Arena *arena, const cJSON *tool, ToolSpec *spec, Error *error)
{
    static const cJSON anything = {.type = cJSON_Object};
    const cJSON *parameters = json_member(json_member(tool, "function"), "parameters");
    Arena scratch;
    ObjectKinds kinds;
    if (plan->style->format->body != CALL_TAGS) return true;
    arena_init(&scratch, KINDS_BLOCK_BYTES, KINDS_MAX_BYTES);
    bool ok = schema_member_kinds(parameters ? parameters : &anything, plan->n_tools, &scratch, &kinds, error) &&
              copy_kinds(arena, &kinds, spec, error);
    arena_done(&scratch);
    return ok;
}

static bool list_tools(Arena *arena, const ApiTools *tools, AnswerPlan *plan, Error *error)
{
    uint32_t n = 0;
    ToolSpec *specs = arena_array(arena, (size_t)cJSON_GetArraySize(tools->list), sizeof *specs);
    if (!specs) return no_memory(error);
    for (const cJSON *tool = tools->list->child; tool; tool = tool->next)
        plan->n_tools += api_tools_allows(tools, tool);
    for (const cJSON *tool = tools->list->child; tool; tool = tool->next) {
        if (!api_tools_allows(tools, tool)) continue;
        ToolSpec *spec = &specs[n++];
        spec->name = arena_strdup(arena, api_tool_name(tool));
        if (!spec->name) return no_memory(error);
        if (!list_kinds(plan, arena, tool, spec, error)) return false;
    }
    plan->tools = specs;
    plan->max_calls = tools->one_call || tools->choice == TOOLS_NAMED;
    return true;
}

/* The ids that end reasoning; around a tag, which stands on a line of its own, line breaks. */
static bool set_budget(const ApiJob *job, const ApiParams *params, Request *request, Error *error)
{
    const AnswerStyle *style = job->model->style;
    const AnswerMarker *end = &style->marks[MARK_THINK_END];
    char text[2 * ANSWER_MARK_MAX_BYTES + 16];
    TokenList ids = {0};
    if (params->reasoning_budget < 0 || !style->has_reasoning) return true;
    if (style->format->body == CALL_CHANNELS)
        snprintf(text, sizeof text, "%s%sassistant", end->text, style->marks[MARK_START].text);
    else
        snprintf(text, sizeof text, *end->text == '<' && !end->is_control ? "\n%s\n\n" : "%s", end->text);
    const TextRange all = {0, strlen(text)};
    const TokEncode encode = {.text = text, .n = all.end, .trusted = &all, .n_trusted = 1};
    if (!tok_encode(job->model->tokenizer, &encode, &ids, error)) return false;
    uint32_t *copy = arena_array(&request->arena, ids.n, sizeof *copy);
    if (copy) memcpy(copy, ids.ids, ids.n * sizeof *copy);
    request->reasoning_budget = (uint32_t)params->reasoning_budget;
    request->reasoning_end = copy;
    request->n_reasoning_end = copy ? (uint32_t)ids.n : 0;
    token_list_done(&ids);
    return copy || no_memory(error);
}

bool chat_answer_plan(ApiJob *job, const ApiParams *params, const ChatPromptEnd *end, Error *error)
{
    GenerationPlan *generation = job->user;
    Request *request = generation->requests[0];
    const AnswerStyle *style = job->model->style;
    bool calls = api_tools_may_call(&params->tools);
    if (!style || (!calls && !style->has_reasoning && style->format->body != CALL_CHANNELS)) return true;
    AnswerPlan *plan = arena_alloc(&request->arena, sizeof *plan);
    if (!plan) return no_memory(error);
    *plan = (AnswerPlan){
        .style = style, .splits_reasoning = style->has_reasoning, .begins_in_reasoning = end->in_reasoning};
    if (calls && !list_tools(&request->arena, &params->tools, plan, error)) return false;
    generation->short_call_ids = style->format->body == CALL_NAMED;
    generation->hashes = end->hashes;
    generation->hashes.is_turn = true;
    request->answer = plan;
    return set_budget(job, params, request, error);
}
