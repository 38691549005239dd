/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_grammar.h"

#include "engine/sample/grammar/gbnf.h"
#include "engine/sample/grammar/regex.h"
#include "engine/sample/schema/schema.h"
#include "server/chat_grammar.h"
#include "server/generation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool api_grammar_attach(ApiJob *job, const char *param, const GrammarSource *source, Error *error)
{
    GrammarSource wanted = *source;
    GenerationPlan *plan = job->user;
    wanted.cancelled = &job->is_left;
    wanted.deadline_usec = job->compile.deadline_usec = plan->deadline_usec;
    wanted.is_try = !job->compile.is_long;
    wanted.ret_is_new = &job->has_compiled;
    if (!job->may_compile) wanted.ret_unknown = &job->compile.grammar;
    if (plan->grammar)
        return error_set_param(error, ERR_INVALID, param, "'%s': the answer has to follow another grammar already",
                               param);
    GrammarCache *cache = job->server->grammars;
    bool ok = plan->chat_guide ? chat_grammar_get(cache, plan->chat_guide, &wanted, &plan->grammar, error)
                               : grammar_cache_get(cache, &wanted, &plan->grammar, error);
    snprintf(plan->grammar_field, sizeof plan->grammar_field, "%s", param);
    if (ok) return true;
    job->wants_compiler = error->code == ERR_BUSY;
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

/* arg not NULL: by strict mode. */
static bool build_schema(const GrammarSource *source, GrammarBuilder *builder, GrammarNode *ret_root, Error *error)
{
    const SchemaOptions options = {.keeps_order = source->arg != NULL};
    cJSON *schema;
    if (!json_parse(source->text, source->n, &schema, error)) return false;
    bool ok = (!source->arg || schema_check_strict(schema, error)) &&
              schema_compile(schema, &options, builder, ret_root, NULL, error);
    cJSON_Delete(schema);
    return ok;
}

static bool build_object(const GrammarSource *source, GrammarBuilder *builder, GrammarNode *ret_root, Error *error)
{
    (void)source;
    *ret_root = schema_any_object(builder);
    return grammar_is_sound(builder, error);
}

/* An item's own text is what the cache knows it by. */
static bool attach_item(ApiJob *job, const ApiGuide *guide, GrammarSource source, Error *error)
{
    char *text = cJSON_PrintUnformatted(guide->item);
    if (!text) return error_set(error, ERR_NO_MEMORY, "no memory for a grammar");
    source.text = text;
    source.n = strlen(text);
    bool ok = api_grammar_attach(job, guide->path, &source, error);
    cJSON_free(text);
    return ok;
}

static GrammarSource source_of(const ApiGuide *guide)
{
    switch (guide->kind) {
    case API_GUIDE_REGEX:
        return (GrammarSource){.kind = "regex", .build = build_regex};
    case API_GUIDE_CHOICE:
        return (GrammarSource){.kind = "choice", .build = build_choice, .arg = guide->item};
    case API_GUIDE_SCHEMA:
        if (guide->is_strict) return (GrammarSource){.kind = "strict schema", .build = build_schema, .arg = guide};
        return (GrammarSource){.kind = "schema", .build = build_schema};
    case API_GUIDE_JSON_OBJECT:
        return (GrammarSource){.kind = "object", .build = build_object};
    default:
        return (GrammarSource){.kind = "grammar", .build = build_gbnf};
    }
}

bool api_grammar_read(ApiJob *job, const ApiGuide *guide, Error *error)
{
    if (guide->kind == API_GUIDE_NONE) return true;
    GrammarSource source = source_of(guide);
    if (!cJSON_IsString(guide->item)) return attach_item(job, guide, source, error);
    source.text = guide->item->valuestring;
    source.n = strlen(source.text);
    return api_grammar_attach(job, guide->path, &source, error);
}
