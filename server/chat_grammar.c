/* SPDX-License-Identifier: Apache-2.0 */
#include "server/chat_grammar.h"
#include "engine/sample/calls/answer_grammar.h"
#include "server/api_grammar.h"
#include "server/generation.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_KEY_BYTES = 64 << 20 };

/* One grammar to be: the guide and what the content is to be. */
typedef struct Wrapped {
    const ChatGuide *guide;
    const GrammarSource *content; /* build NULL: any text */
} Wrapped;

static bool may_reason(const ChatGuide *guide)
{
    return guide->style && guide->style->has_reasoning && !guide->end->closed_reasoning;
}

/* ---- what it is known by ---- */

static bool append_tools(const ApiTools *tools, Buffer *key, Error *error)
{
    char *list = cJSON_PrintUnformatted(tools->list), *allowed = NULL;
    bool ok = list != NULL;
    if (tools->allowed) ok = (allowed = cJSON_PrintUnformatted(tools->allowed)) && ok;
    if (!ok) (void)error_set(error, ERR_NO_MEMORY, "no memory for the tools");
    ok = ok &&
         buffer_printf(key, error, "%d %d %s\n", tools->choice, tools->one_call, tools->name ? tools->name : "") &&
         buffer_append_text(key, list, error) && (!allowed || buffer_append_text(key, allowed, error));
    cJSON_free(list);
    cJSON_free(allowed);
    return ok;
}

static bool make_key(const Wrapped *wrapped, Buffer *key, Error *error)
{
    const ChatGuide *guide = wrapped->guide;
    const GrammarSource *content = wrapped->content;
    if (!buffer_printf(key, error, "%d %d\n", guide->end->in_reasoning, may_reason(guide))) return false;
    if (api_tools_may_call(&guide->params->tools) && !append_tools(&guide->params->tools, key, error)) return false;
    return !content->build ||
           (buffer_printf(key, error, "\n%s\n", content->kind) && buffer_append(key, content->text, content->n, error));
}

/* ---- building ---- */

static bool is_strict(const cJSON *tool)
{
    return cJSON_IsTrue(json_member(json_member(tool, "function"), "strict"));
}

/* *ret_tools: for free(); those that may be called. */
static bool list_tools(const ApiTools *tools, CallTool **ret_tools, uint32_t *ret_n, Error *error)
{
    uint32_t n = 0, index = 0;
    CallTool *list = calloc((size_t)cJSON_GetArraySize(tools->list) + 1, sizeof *list);
    if (!list) return error_set(error, ERR_NO_MEMORY, "no memory for the tools");
    for (const cJSON *tool = tools->list->child; tool; tool = tool->next, index++)
        if (api_tools_allows(tools, tool))
            list[n++] = (CallTool){.name = api_tool_name(tool),
                                   .parameters = json_member(json_member(tool, "function"), "parameters"),
                                   .is_strict = is_strict(tool),
                                   .index = index};
    *ret_tools = list;
    *ret_n = n;
    return true;
}

static bool build(const GrammarSource *source, GrammarBuilder *builder, GrammarNode *ret_root, Error *error)
{
    const Wrapped *wrapped = source->arg;
    const ChatGuide *guide = wrapped->guide;
    const ApiTools *tools = &guide->params->tools;
    CallTool *list = NULL;
    AnswerRules rules = {.style = guide->style,
                         .in_reasoning = guide->end->in_reasoning,
                         .may_reason = may_reason(guide),
                         .must_call = tools->choice == TOOLS_REQUIRED || tools->choice == TOOLS_NAMED,
                         .one_call = tools->one_call || tools->choice == TOOLS_NAMED};
    if (wrapped->content->build) {
        if (!wrapped->content->build(wrapped->content, builder, &rules.content, error)) return false;
        rules.has_content = true;
    }
    if (api_tools_may_call(tools) && !list_tools(tools, &list, &rules.n_tools, error)) return false;
    rules.tools = list;
    bool ok = answer_grammar(builder, &rules, ret_root, error);
    free(list);
    return ok;
}

bool chat_grammar_get(GrammarCache *cache, const ChatGuide *guide, const GrammarSource *source, Grammar **ret_grammar,
                      Error *error)
{
    bool has_channels = guide->style && guide->style->format->body == CALL_CHANNELS;
    bool is_plain =
        !api_tools_may_call(&guide->params->tools) && !may_reason(guide) && !guide->end->in_reasoning && !has_channels;
    if (is_plain || !guide->style) return grammar_cache_get(cache, source, ret_grammar, error);
    const Wrapped wrapped = {guide, source};
    Buffer key;
    buffer_init(&key, MAX_KEY_BYTES);
    bool ok = make_key(&wrapped, &key, error);
    if (ok) {
        GrammarSource whole = *source; /* how it is compiled, for whom and until when */
        whole.kind = "chat";
        whole.text = key.data;
        whole.n = key.n;
        whole.build = build;
        whole.arg = &wrapped;
        ok = grammar_cache_get(cache, &whole, ret_grammar, error);
    }
    buffer_done(&key);
    return ok;
}

/* Where calls have to come there is no content. OpenAI takes a response_format beside them, others say what must come.
 */
static bool check_content(const ApiParams *params, Error *error)
{
    const ApiGuide *guide = &params->guide;
    bool must_call = params->tools.choice == TOOLS_REQUIRED || params->tools.choice == TOOLS_NAMED;
    if (!must_call || guide->kind == API_GUIDE_NONE || !strncmp(guide->path, "response_format", 15)) return true;
    return error_set_param(error, ERR_INVALID, guide->path,
                           "'%s' says what the content is, but 'tool_choice' wants calls and nothing else",
                           guide->path);
}

bool chat_grammar_read(ApiJob *job, const ApiParams *params, const ChatPromptEnd *end, Error *error)
{
    GenerationPlan *plan = job->user;
    const ChatGuide guide = {params, end, job->model->style};
    const GrammarSource any = {.kind = "any", .text = ""};
    bool ok = true;
    if (!guide.style && params->tools.list && params->tools.choice != TOOLS_NONE)
        return error_set_param(error, ERR_UNSUPPORTED, "tools", "this model does not call 'tools'");
    if (!check_content(params, error)) return false;
    plan->chat_guide = &guide;
    if (params->guide.kind != API_GUIDE_NONE)
        ok = api_grammar_read(job, &params->guide, error);
    else if (guide.style && api_tools_may_call(&params->tools))
        ok = api_grammar_attach(job, "tools", &any, error);
    plan->chat_guide = NULL;
    return ok;
}
