/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/calls/calls_impl.h"
#include "engine/sample/schema/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* {"name": "f", "arguments": {...}} */
static bool write_json(const CallWriter *writer, const CallTool *tool, const cJSON *parameters, GrammarNode *ret_node)
{
    GrammarBuilder *builder = writer->builder;
    const char *key = writer->style->format->arguments;
    GrammarNode arguments;
    if (!call_value_json(writer, parameters, parameters, &arguments)) return false;
    *ret_node = grammar_seq(builder, grammar_text(builder, "{\"name\": \""), grammar_text(builder, tool->name),
                            grammar_text(builder, "\", \""), grammar_text(builder, key ? key : "arguments"),
                            grammar_text(builder, "\": "), arguments, grammar_text(builder, "}"));
    return true;
}

static bool write_named(const CallWriter *writer, const CallTool *tool, const cJSON *parameters, GrammarNode *ret_node)
{
    GrammarNode arguments;
    if (writer->style->lists_calls) return write_json(writer, tool, parameters, ret_node);
    if (!call_value_json(writer, parameters, parameters, &arguments)) return false;
    GrammarNode mark =
        writer->style->marks_arguments ? call_mark(writer, MARK_ARGUMENTS) : grammar_empty(writer->builder);
    *ret_node = grammar_seq(writer->builder, grammar_text(writer->builder, tool->name), mark, arguments);
    return true;
}

static bool xml_member(const CallWriter *writer, const char *key, const cJSON *schema, const cJSON *root,
                       GrammarNode *ret_node)
{
    GrammarBuilder *builder = writer->builder;
    GrammarNode value;
    if (!call_value_xml(writer, schema, root, &value)) return false;
    *ret_node = grammar_seq(builder, grammar_text(builder, "<parameter="), grammar_text(builder, key),
                            grammar_text(builder, ">\n"), value, grammar_text(builder, "\n"));
    return true;
}

static bool write_xml(const CallWriter *writer, const CallTool *tool, const cJSON *parameters, GrammarNode *ret_node)
{
    GrammarBuilder *builder = writer->builder;
    GrammarNode members;
    if (!call_members(writer, parameters, parameters, xml_member, "", &members)) return false;
    *ret_node = grammar_seq(builder, grammar_text(builder, "<function="), grammar_text(builder, tool->name),
                            grammar_text(builder, ">\n"), members, grammar_text(builder, "</function>"));
    return true;
}

/* Of Python's literals those that are JSON. */
static bool python_member(const CallWriter *writer, const char *key, const cJSON *schema, const cJSON *root,
                          GrammarNode *ret_node)
{
    GrammarBuilder *builder = writer->builder;
    GrammarNode value;
    if (!call_value_json(writer, schema, root, &value)) return false;
    *ret_node = grammar_seq(builder, grammar_text(builder, key), grammar_text(builder, "="), value);
    return true;
}

static bool write_python(const CallWriter *writer, const CallTool *tool, const cJSON *parameters, GrammarNode *ret_node)
{
    GrammarBuilder *builder = writer->builder;
    GrammarNode members;
    if (!call_members(writer, parameters, parameters, python_member, ", ", &members)) return false;
    *ret_node = grammar_seq(builder, grammar_text(builder, tool->name), grammar_text(builder, "("), members,
                            grammar_text(builder, ")"));
    return true;
}

static bool write_gemma(const CallWriter *writer, const CallTool *tool, const cJSON *parameters, GrammarNode *ret_node)
{
    GrammarBuilder *builder = writer->builder;
    GrammarNode arguments;
    if (!call_value_gemma(writer, parameters, parameters, &arguments)) return false;
    *ret_node = grammar_seq(builder, grammar_text(builder, "call:"), grammar_text(builder, tool->name), arguments);
    return true;
}

static bool (*const bodies[])(const CallWriter *writer, const CallTool *tool, const cJSON *parameters,
                              GrammarNode *ret_node) = {
    [CALL_JSON] = write_json,     [CALL_NAMED] = write_named, [CALL_XML] = write_xml,
    [CALL_PYTHON] = write_python, [CALL_GEMMA] = write_gemma,
};

bool call_body(const CallWriter *writer, const CallTool *tool, const cJSON *parameters, GrammarNode *ret_node)
{
    return bodies[writer->style->format->body](writer, tool, parameters, ret_node);
}
