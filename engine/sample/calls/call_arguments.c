/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/calls/calls_impl.h"
#include "engine/sample/schema/schema.h"

#include <stdio.h>
#include <string.h>

/* Arguments are an object, whatever the schema lets be besides; its members come in the schema's order. */
static bool write_arguments(const CallWriter *writer, const cJSON *parameters, const SchemaWriter *form,
                            GrammarNode *ret_node)
{
    const SchemaOptions options = {.writer = form, .is_object = true, .keeps_order = true};
    return schema_compile(parameters, &options, writer->builder, ret_node, NULL, writer->error);
}

/* {"name": "f", "arguments": {...}} */
static bool write_json(const CallWriter *writer, const CallTool *tool, const cJSON *parameters, GrammarNode *ret_node)
{
    GrammarBuilder *builder = writer->builder;
    const char *key = writer->style->format->arguments;
    GrammarNode arguments;
    if (!write_arguments(writer, parameters, NULL, &arguments)) return false;
    *ret_node = grammar_seq(builder, grammar_text(builder, "{\"name\": \""), grammar_text(builder, tool->name),
                            grammar_text(builder, "\", \""), grammar_text(builder, key ? key : "arguments"),
                            grammar_text(builder, "\": "), arguments, grammar_text(builder, "}"));
    return true;
}

static bool write_named(const CallWriter *writer, const CallTool *tool, const cJSON *parameters, GrammarNode *ret_node)
{
    GrammarNode arguments;
    if (writer->style->lists_calls) return write_json(writer, tool, parameters, ret_node);
    if (!write_arguments(writer, parameters, NULL, &arguments)) return false;
    GrammarNode mark =
        writer->style->marks_arguments ? call_mark(writer, MARK_ARGUMENTS) : grammar_empty(writer->builder);
    *ret_node = grammar_seq(writer->builder, grammar_text(writer->builder, tool->name), mark, arguments);
    return true;
}

/* A text of the format's section, % in it being a mark. */
static GrammarNode around(const CallWriter *writer, const char *text)
{
    GrammarBuilder *builder = writer->builder;
    size_t n = strcspn(text, "%");
    GrammarNode node = grammar_bytes(builder, text, n);
    if (!text[n]) return node;
    return grammar_seq(builder, node, call_mark(writer, MARK_ARGUMENTS), grammar_text(builder, text + n + 1));
}

static GrammarNode call_number(GrammarBuilder *builder)
{
    static const CodeRange digits = {'0', '9'}, first = {'1', '9'};
    GrammarNode more = grammar_repeat(builder, grammar_class(builder, &digits, 1, false), 0, 1);
    GrammarNode number = grammar_alt(builder, grammar_text(builder, "0"),
                                     grammar_seq(builder, grammar_class(builder, &first, 1, false), more));
    return grammar_seq(builder, grammar_text(builder, ":"), number);
}

static bool write_section(const CallWriter *writer, const CallTool *tool, const cJSON *parameters,
                          GrammarNode *ret_node)
{
    const ToolSection *section = writer->style->format->section;
    GrammarBuilder *builder = writer->builder;
    GrammarNode arguments;
    if (!write_arguments(writer, parameters, NULL, &arguments)) return false;
    GrammarNode number = section->counts ? call_number(builder) : grammar_empty(builder);
    *ret_node = grammar_seq(builder, call_mark(writer, MARK_ITEM), around(writer, section->head),
                            grammar_text(builder, section->prefix), grammar_text(builder, tool->name), number,
                            around(writer, section->neck), arguments, around(writer, section->tail),
                            call_mark(writer, MARK_ITEM_END));
    return true;
}

/* A line break behind each tag but the ones around a key, as templates show it. */
static bool write_tags(const CallWriter *writer, const CallTool *tool, const cJSON *parameters, GrammarNode *ret_node)
{
    const ToolTags *tags = writer->style->format->tags;
    GrammarBuilder *builder = writer->builder;
    const char *break_in = tags->has_lines ? "\n" : "";
    char behind_key[CALL_TAG_BYTES], behind_value[CALL_TAG_BYTES];
    snprintf(behind_key, sizeof behind_key, "%s\n%s", tags->behind_key, tags->before_value);
    snprintf(behind_value, sizeof behind_value, "%s%s\n", break_in, tags->behind_value);
    const SchemaWriter form = {.form = SCHEMA_TAGGED,
                               .end = tags->behind_value,
                               .before_key = tags->before_key,
                               .behind_key = behind_key,
                               .behind_value = behind_value,
                               .kinds_of = tool->parameters ? tool->parameters : parameters,
                               .n_kinds_of = writer->n_tools};
    GrammarNode members;
    if (!write_arguments(writer, parameters, &form, &members)) return false;
    *ret_node = grammar_seq(builder, grammar_text(builder, tags->before_name), grammar_text(builder, tool->name),
                            grammar_text(builder, tags->behind_name), grammar_text(builder, "\n"), members,
                            grammar_text(builder, tags->end));
    return true;
}

static bool write_python(const CallWriter *writer, const CallTool *tool, const cJSON *parameters, GrammarNode *ret_node)
{
    static const SchemaWriter form = {.form = SCHEMA_PYTHON};
    GrammarBuilder *builder = writer->builder;
    GrammarNode members;
    if (!write_arguments(writer, parameters, &form, &members)) return false;
    *ret_node = grammar_seq(builder, grammar_text(builder, tool->name), grammar_text(builder, "("), members,
                            grammar_text(builder, ")"));
    return true;
}

static bool write_gemma(const CallWriter *writer, const CallTool *tool, const cJSON *parameters, GrammarNode *ret_node)
{
    const AnswerMarker *quote = &writer->style->marks[MARK_QUOTE];
    const SchemaWriter form = {
        .form = SCHEMA_MARKED, .mark = call_mark(writer, MARK_QUOTE), .end = quote->is_control ? NULL : quote->text};
    GrammarBuilder *builder = writer->builder;
    GrammarNode arguments;
    if (!write_arguments(writer, parameters, &form, &arguments)) return false;
    *ret_node = grammar_seq(builder, grammar_text(builder, "call:"), grammar_text(builder, tool->name), arguments);
    return true;
}

static bool write_channel(const CallWriter *writer, const CallTool *tool, const cJSON *parameters,
                          GrammarNode *ret_node)
{
    GrammarNode arguments;
    if (!write_arguments(writer, parameters, NULL, &arguments)) return false;
    *ret_node = channel_call(writer, tool->name, arguments);
    return true;
}

static bool (*const bodies[])(const CallWriter *writer, const CallTool *tool, const cJSON *parameters,
                              GrammarNode *ret_node) = {
    [CALL_JSON] = write_json,     [CALL_NAMED] = write_named, [CALL_SECTION] = write_section,  [CALL_TAGS] = write_tags,
    [CALL_PYTHON] = write_python, [CALL_GEMMA] = write_gemma, [CALL_CHANNELS] = write_channel,
};

bool call_body(const CallWriter *writer, const CallTool *tool, const cJSON *parameters, GrammarNode *ret_node)
{
    return bodies[writer->style->format->body](writer, tool, parameters, ret_node);
}
