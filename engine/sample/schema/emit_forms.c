/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forms in which a value is written, by the writer that was asked for, and strings that stand raw: none of them has
 * the mark in it that ends it, or reads as another value that may stand in its place.
 */
#include "engine/sample/schema/emit.h"

#include <string.h>

/* ---- forms ---- */

static ObjectText braces(const ValueText *text)
{
    GrammarBuilder *builder = text->builder;
    GrammarNode close = grammar_text(builder, "}"), empty = grammar_empty(builder);
    return (ObjectText){.open = grammar_seq(builder, grammar_text(builder, "{"), text->blank),
                        .close = close,
                        .close_at_member = grammar_seq(builder, text->blank, close),
                        .between = text->comma,
                        .before_key = text->keys ? empty : text->before_string,
                        .behind_key = text->keys ? empty : text->behind_string,
                        .before_value = text->colon,
                        .behind_value = empty,
                        .many_between = value_text_shared_comma(text),
                        .many_close = value_text_shared_end(text),
                        .keys = text->keys};
}

/* Members in a row: nothing around them. */
static ObjectText row_of(GrammarBuilder *builder, const char *between, const char *before_key, const char *behind_key,
                         const char *behind_value, const Dfa *keys)
{
    GrammarNode empty = grammar_empty(builder), comma = grammar_text(builder, between);
    return (ObjectText){.open = empty,
                        .close = empty,
                        .close_at_member = empty,
                        .between = comma,
                        .before_key = grammar_text(builder, before_key),
                        .behind_key = grammar_text(builder, behind_key),
                        .before_value = empty,
                        .behind_value = grammar_text(builder, behind_value),
                        .many_between = comma,
                        .many_close = empty,
                        .keys = keys};
}

bool emit_forms(Emit *emit)
{
    const SchemaWriter *writer = emit->nodes->options->writer;
    SchemaForm form = writer ? writer->form : SCHEMA_JSON;
    GrammarBuilder *builder = emit->builder;
    const Dfa *keys = NULL;
    if (form != SCHEMA_JSON && !nodes_bare_keys(emit->nodes, &keys)) return false;
    if (form == SCHEMA_PYTHON)
        emit->text = value_text_python(builder);
    else if (form == SCHEMA_MARKED)
        emit->text = value_text_marked(builder, writer->mark, writer->end, keys);
    else
        emit->text = value_text_json(builder);
    emit->object = braces(&emit->text);
    emit->has_root = form == SCHEMA_PYTHON || form == SCHEMA_TAGGED;
    if (form == SCHEMA_PYTHON) emit->root = row_of(builder, ", ", "", "=", "", keys);
    emit->has_tags = form == SCHEMA_TAGGED;
    if (!emit->has_tags) return true;
    emit->raw = value_text_raw(builder, writer->end);
    emit->root = row_of(builder, "", writer->before_key, writer->behind_key, writer->behind_value, keys);
    return true;
}

/* ---- raw strings ---- */

/* Strings without these bytes in them. */
static bool cut_end(Emit *emit, const char *end, size_t n, Strings *strings)
{
    Nodes *nodes = emit->nodes;
    const Dfa *all, *with, *without;
    char *pattern = arena_alloc(nodes->arena, 2 * n + 1), *at = pattern;
    if (!pattern) return nodes_no_memory(nodes);
    for (size_t i = 0; i < n; i++) {
        if (strchr("^$\\.*+?()[]{}|/", end[i])) *at++ = '\\';
        *at++ = end[i];
    }
    return nodes_pattern(nodes, NULL, pattern, &with) && sets_all_strings(&nodes->sets, &all) &&
           dfa_combine(all, with, DFA_MINUS, nodes->arena, &without, nodes->error) &&
           sets_cut_words(&nodes->sets, strings, without);
}

/* Strings that do not read as a value of these kinds, or as a string in quotes. */
static bool cut_kinds(Emit *emit, uint32_t kinds, Strings *strings)
{
    static const struct {
        uint32_t kind;
        const char *pattern;
    } readings[] = {{KIND_STRING, "^\""},
                    {KIND_ARRAY, "^\\["},
                    {KIND_OBJECT, "^\\{"},
                    {KIND_NULL, "^(null|None)$"},
                    {KIND_TRUE, "^([tT]rue)$"},
                    {KIND_FALSE, "^([fF]alse)$"},
                    {KIND_NUMBER, "^-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+\\-]?[0-9]+)?$"}};
    Nodes *nodes = emit->nodes;
    for (size_t i = 0; i < sizeof readings / sizeof *readings; i++) {
        const Dfa *all, *with, *without;
        if (!(kinds & readings[i].kind)) continue;
        if (!nodes_pattern(nodes, NULL, readings[i].pattern, &with) || !sets_all_strings(&nodes->sets, &all) ||
            !dfa_combine(all, with, DFA_MINUS, nodes->arena, &without, nodes->error) ||
            !sets_cut_words(&nodes->sets, strings, without))
            return false;
    }
    return true;
}

/* A length and a mark that must not come are an automaton of both: the longer, the less of the mark is let through. */
static size_t bytes_of_end(const char *end, Strings strings)
{
    uint64_t length = strings.max == UINT32_MAX ? strings.min : strings.max;
    size_t n = strlen(end);
    while (!strings.words && n > 2 && length * n > EMIT_RAW_STATES) n--;
    return n;
}

bool emit_raw(Emit *emit, const ValueText *text, Strings strings, uint32_t kinds, GrammarNode *ret_text)
{
    bool had_words = strings.words, is_bounded = strings.min || strings.max != UINT32_MAX;
    if (!kinds && (!text->end || !(had_words || is_bounded))) return emit_strings(emit, text, strings, ret_text);
    if (strings.max != UINT32_MAX && strings.max > EMIT_MAX_RAW) strings.max = EMIT_MAX_RAW;
    if (text->end && !cut_end(emit, text->end, bytes_of_end(text->end, strings), &strings)) return false;
    if (!cut_kinds(emit, kinds, &strings)) return false;
    if (!sets_words(&emit->nodes->sets, strings, &strings.words)) return false;
    if (dfa_is_empty(strings.words)) {
        *ret_text = grammar_never(emit->builder);
        return !had_words || kinds ||
               error_set(emit->nodes->error, ERR_UNSUPPORTED,
                         "a text with '%.40s' cannot be written in the form in which this model calls tools",
                         text->end);
    }
    strings.min = 0;
    strings.max = UINT32_MAX;
    return emit_strings(emit, text, strings, ret_text);
}

bool emit_tagged(Emit *emit, SchemaNode *node, uint32_t kinds, GrammarNode *ret_text)
{
    uint32_t n = 1;
    if (!(kinds & KIND_STRING)) return emit_node(emit, node, ret_text);
    for (const StringsList *item = node->strings; item; item = item->next) n++;
    GrammarNode *ways = arena_array(emit->nodes->arena, n, sizeof *ways);
    if (!ways) return nodes_no_memory(emit->nodes);
    n = 0;
    bool is_mixed = kinds != KIND_STRING;
    if (is_mixed && !emit_node(emit, node, &ways[n++])) return false;
    for (const StringsList *item = node->strings; item; item = item->next)
        if (!emit_raw(emit, &emit->raw, item->strings, is_mixed ? kinds : 0, &ways[n++])) return false;
    *ret_text = grammar_choice(emit->builder, ways, n);
    return true;
}
