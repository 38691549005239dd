/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_grammar.h"

#include "engine/sample/grammar/gbnf.h"
#include "engine/sample/grammar/regex.h"
#include "server/generation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool api_grammar_attach(ApiJob *job, const char *param, const GrammarSource *source, Error *error)
{
    GenerationPlan *plan = job->user;
    if (plan->grammar)
        return error_set_param(error, ERR_INVALID, param, "'%s': the answer has to follow another grammar already",
                               param);
    if (grammar_cache_get(job->server->grammars, source, &plan->grammar, error)) return true;
    if (!*error->param) {
        (void)error_prefix(error, "'%s'", param);
        snprintf(error->param, sizeof error->param, "%s", param);
    }
    return false;
}

static bool build_gbnf(const GrammarSource *source, GrammarBuilder *builder, GrammarNode *ret_root, Error *error)
{
    return gbnf_parse(builder, source->text, source->n, ret_root, error);
}

static bool build_regex(const GrammarSource *source, GrammarBuilder *builder, GrammarNode *ret_root, Error *error)
{
    return regex_parse(builder, source->text, source->n, NULL, ret_root, error);
}

static bool build_choice(const GrammarSource *source, GrammarBuilder *builder, GrammarNode *ret_root, Error *error)
{
    const cJSON *list = source->arg;
    GrammarNode *nodes = calloc(API_MAX_GUIDE_CHOICES, sizeof *nodes);
    size_t n = 0;
    if (!nodes) return error_set(error, ERR_NO_MEMORY, "no memory for a choice");
    for (const cJSON *item = list->child; item && n < API_MAX_GUIDE_CHOICES; item = item->next)
        nodes[n++] = grammar_text(builder, item->valuestring);
    *ret_root = grammar_choice(builder, nodes, n);
    free(nodes);
    return grammar_is_sound(builder, error);
}

/* The list's own text is what the cache knows it by. */
static bool attach_choice(ApiJob *job, const ApiGuide *guide, Error *error)
{
    char *text = cJSON_PrintUnformatted(guide->item);
    if (!text) return error_set(error, ERR_NO_MEMORY, "no memory for a choice");
    GrammarSource source = {"choice", text, strlen(text), build_choice, guide->item};
    bool ok = api_grammar_attach(job, guide->path, &source, error);
    cJSON_free(text);
    return ok;
}

bool api_grammar_read(ApiJob *job, const ApiGuide *guide, Error *error)
{
    if (guide->kind == API_GUIDE_NONE) return true;
    if (guide->kind == API_GUIDE_CHOICE) return attach_choice(job, guide, error);
    const char *text = guide->item->valuestring;
    GrammarSource source = {"grammar", text, strlen(text), build_gbnf, NULL};
    if (guide->kind == API_GUIDE_REGEX) source = (GrammarSource){"regex", text, strlen(text), build_regex, NULL};
    return api_grammar_attach(job, guide->path, &source, error);
}
