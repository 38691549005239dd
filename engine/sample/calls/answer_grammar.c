/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/calls/answer_grammar.h"
#include "engine/sample/calls/calls_impl.h"
#include "engine/sample/schema/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE_BREAKS = 2 };

static bool no_memory(Error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory for the grammar of an answer");
}

GrammarNode call_mark(const CallWriter *writer, AnswerMark mark)
{
    const AnswerMarker *marker = &writer->style->marks[mark];
    if (!marker->n) return grammar_empty(writer->builder);
    return marker->is_control ? grammar_token(writer->builder, marker->id)
                              : grammar_text(writer->builder, marker->text);
}

/* ---- a tool's arguments ---- */

static bool has_any(const cJSON *object, const char *const *keys)
{
    for (; *keys; keys++)
        if (cJSON_HasObjectItem(object, *keys)) return true;
    return false;
}

/* Arguments are an object, and of parameters that the schema does not name there are none unless it says so. */
static cJSON *make_parameters(const CallTool *tool)
{
    static const char *const parts[] = {"$ref", "anyOf", "oneOf", "allOf", "type", NULL};
    static const char *const opens[] = {
        "$ref", "anyOf", "oneOf", "allOf", "additionalProperties", "patternProperties", "unevaluatedProperties", NULL};
    cJSON *made = tool->parameters ? cJSON_Duplicate(tool->parameters, 1) : cJSON_CreateObject();
    if (!made) return NULL;
    bool ok = true;
    if (!has_any(made, parts)) ok = cJSON_AddStringToObject(made, "type", "object");
    if (!tool->parameters) ok = ok && cJSON_AddObjectToObject(made, "properties");
    if (cJSON_HasObjectItem(made, "properties") && !has_any(made, opens))
        ok = ok && cJSON_AddFalseToObject(made, "additionalProperties");
    if (ok) return made;
    cJSON_Delete(made);
    return NULL;
}

static cJSON *any_object(void)
{
    cJSON *made = cJSON_CreateObject();
    if (made && cJSON_AddStringToObject(made, "type", "object")) return made;
    cJSON_Delete(made);
    return NULL;
}

static bool write_body(const CallWriter *writer, const CallTool *tool, GrammarNode *ret_node)
{
    cJSON *parameters = make_parameters(tool);
    if (!parameters) return no_memory(writer->error);
    bool ok = (!tool->is_strict || !tool->parameters || schema_check_strict(tool->parameters, writer->error)) &&
              call_body(writer, tool, parameters, ret_node);
    cJSON_Delete(parameters);
    return ok;
}

/* Not the schema's own fault, or one that no other schema would mend. */
static bool ends_all(ErrorCode code)
{
    return code == ERR_NO_MEMORY || code == ERR_UNSUPPORTED || code == ERR_BUSY || code == ERR_CANCELLED ||
           code == ERR_DEADLINE;
}

/*
 * What a lenient tool's schema may fail at does not spoil the builder: it is tried in another one. A key that cannot be
 * written fails for good: the tool could never be called with it.
 */
static bool can_write(const CallWriter *writer, const CallTool *tool, bool *ret_can)
{
    CallWriter own = {.style = writer->style, .error = writer->error, .n_tools = writer->n_tools};
    GrammarNode node;
    if (!grammar_builder_new_within(writer->builder, &own.builder, writer->error)) return false;
    *ret_can = write_body(&own, tool, &node) && grammar_is_sound(own.builder, writer->error);
    grammar_builder_free(own.builder);
    return *ret_can || !ends_all(writer->error->code);
}

static bool refuse_tool(const CallWriter *writer, const CallTool *tool)
{
    char at[48];
    snprintf(at, sizeof at, "tools[%u].function.parameters", tool->index);
    (void)error_prefix(writer->error, "'%s' of '%.64s'", at, tool->name);
    snprintf(writer->error->param, sizeof writer->error->param, "%s", at);
    return false;
}

static bool write_tool(const CallWriter *writer, const AnswerRules *rules, const CallTool *tool, GrammarNode *ret_node)
{
    bool can = true, is_lenient = !tool->is_strict && !rules->must_call;
    if (is_lenient && !can_write(writer, tool, &can)) return refuse_tool(writer, tool);
    if (can && write_body(writer, tool, ret_node) && grammar_is_sound(writer->builder, writer->error)) return true;
    if (!can) {
        grammar_note(writer->builder, tool->name, writer->error->text);
        cJSON *parameters = any_object();
        bool ok = parameters ? call_body(writer, tool, parameters, ret_node) : no_memory(writer->error);
        cJSON_Delete(parameters);
        if (ok) return true;
    }
    return refuse_tool(writer, tool);
}

/* ---- calls ---- */

/* One call, or what stands between the brackets of a list. */
static bool write_choice(const CallWriter *writer, const AnswerRules *rules, GrammarNode *ret_node)
{
    GrammarNode *nodes = calloc(rules->n_tools, sizeof *nodes);
    if (!nodes) return no_memory(writer->error);
    bool ok = true;
    for (uint32_t i = 0; ok && i < rules->n_tools; i++) ok = write_tool(writer, rules, &rules->tools[i], &nodes[i]);
    if (ok) {
        GrammarRule rule = grammar_rule_new(writer->builder, "call");
        grammar_define(writer->builder, rule, grammar_choice(writer->builder, nodes, rules->n_tools));
        *ret_node = grammar_ref(writer->builder, rule);
    }
    free(nodes);
    return ok;
}

static GrammarNode several(GrammarBuilder *builder, GrammarNode one, GrammarNode between, bool only_one)
{
    if (only_one) return one;
    return grammar_seq(builder, one, grammar_many(builder, grammar_seq(builder, between, one)));
}

/* What follows a call's mark, with its end mark. */
static GrammarNode write_marked(const CallWriter *writer, GrammarNode call, bool only_one)
{
    GrammarBuilder *builder = writer->builder;
    const AnswerStyle *style = writer->style;
    if (style->format->section) {
        call = several(builder, call, grammar_text(builder, style->format->section->between), only_one);
    } else if (style->lists_calls) {
        GrammarNode list = several(builder, call, grammar_text(builder, ", "), only_one);
        call = grammar_seq(builder, grammar_text(builder, "["), list, grammar_text(builder, "]"));
    }
    return grammar_seq(builder, grammar_text(builder, style->pad_before), call, grammar_text(builder, style->pad_after),
                       call_mark(writer, MARK_CALL_END));
}

/* An answer that is calls and nothing else. */
static GrammarNode write_calls(const CallWriter *writer, GrammarNode call, bool only_one)
{
    GrammarBuilder *builder = writer->builder;
    const AnswerStyle *style = writer->style;
    GrammarNode one = write_marked(writer, call, only_one);
    only_one |= style->lists_calls || style->format->section;
    if (style->bare) return several(builder, one, grammar_text(builder, "; "), only_one);
    GrammarNode marked = grammar_seq(builder, call_mark(writer, MARK_CALL), one);
    return several(builder, marked, grammar_text(builder, style->format->before), only_one);
}

/* ---- content ---- */

/* Free text and calls behind marks, in turn. */
static GrammarNode write_mixed(const CallWriter *writer, GrammarNode call, bool only_one)
{
    GrammarBuilder *builder = writer->builder;
    const AnswerMarker *mark = &writer->style->marks[MARK_CALL], *also = &writer->style->marks[MARK_CALL_ALSO];
    const char *const marks[] = {mark->text, also->text};
    size_t n_marks = mark->is_control ? 0 : also->n ? 2 : 1;
    GrammarNode text = grammar_without(builder, marks, n_marks);
    GrammarNode rest = write_marked(writer, call, only_one);
    GrammarNode turn = mark->is_control
                           ? grammar_seq(builder, grammar_without(builder, NULL, 0), call_mark(writer, MARK_CALL), rest)
                           : grammar_seq(builder, grammar_until(builder, marks, n_marks, 0), rest);
    if (only_one) return grammar_alt(builder, text, turn);
    return grammar_seq(builder, grammar_many(builder, turn), text);
}

/* Where a mark may be left out, the text behind it is a whole call: it begins with the other one. */
static GrammarNode write_text(const CallWriter *writer, const AnswerRules *rules, GrammarNode call, bool only_one)
{
    GrammarBuilder *builder = writer->builder;
    const AnswerStyle *style = writer->style;
    if (!style->bare) return write_mixed(writer, call, only_one);
    GrammarNode calls = write_calls(writer, call, only_one), text = bare_text(writer, rules->tools, rules->n_tools);
    if (!style->marks[MARK_CALL].is_control) return grammar_alt(builder, calls, text);
    return grammar_alt(builder, calls, text, grammar_seq(builder, call_mark(writer, MARK_CALL), calls));
}

static bool write_answer(const CallWriter *writer, const AnswerRules *rules, GrammarNode *ret_node)
{
    GrammarBuilder *builder = writer->builder;
    GrammarNode call = GRAMMAR_FAILED;
    bool only_one = rules->one_call || !writer->style->shows_two;
    if (rules->n_tools && !write_choice(writer, rules, &call)) return false;
    if (writer->style->format->body == CALL_CHANNELS)
        *ret_node = channel_answer(writer, rules, call, only_one);
    else if (!rules->n_tools)
        *ret_node = rules->has_content ? rules->content : grammar_without(builder, NULL, 0);
    else if (rules->must_call)
        *ret_node = write_calls(writer, call, only_one);
    else if (rules->has_content)
        *ret_node = grammar_alt(builder, rules->content, write_calls(writer, call, only_one));
    else
        *ret_node = write_text(writer, rules, call, only_one);
    return true;
}

/* ---- reasoning ---- */

static GrammarNode write_reasoning(const CallWriter *writer, bool begins)
{
    GrammarBuilder *builder = writer->builder;
    const AnswerMarker *end = &writer->style->marks[MARK_THINK_END];
    const char *const ends[] = {end->text};
    GrammarNode text = end->is_control
                           ? grammar_seq(builder, grammar_without(builder, NULL, 0), call_mark(writer, MARK_THINK_END))
                           : grammar_until(builder, ends, 1, 0);
    GrammarNode blank = grammar_repeat(builder, grammar_text(builder, "\n"), 0, MAX_LINE_BREAKS);
    GrammarNode mark = begins ? call_mark(writer, MARK_THINK) : grammar_empty(builder);
    return grammar_seq(builder, mark, text, blank);
}

bool answer_grammar(GrammarBuilder *builder, const AnswerRules *rules, GrammarNode *ret_root, Error *error)
{
    const CallWriter writer = {builder, rules->style, error, rules->n_tools};
    GrammarNode answer;
    bool has_channels = rules->style->format->body == CALL_CHANNELS; /* reasoning is one of them */
    if (!write_answer(&writer, rules, &answer)) return false;
    if (rules->in_reasoning && !has_channels)
        answer = grammar_seq(builder, write_reasoning(&writer, false), answer);
    else if (rules->may_reason && !has_channels)
        answer = grammar_seq(builder, grammar_optional(builder, write_reasoning(&writer, true)), answer);
    *ret_root = answer;
    return grammar_is_sound(builder, error);
}
