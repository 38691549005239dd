/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/call_rig.h"

#include "engine/sample/schema/kinds.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 16, MAX_TEXT_BYTES = 1 << 22 };

static bool compile(CallRig *rig, const GrammarVocab *vocab, Error *error)
{
    const AnswerRules rules = {
        .style = &rig->style, .tools = &rig->tool, .n_tools = 1, .must_call = true, .one_call = true};
    rig->grammar = (GrammarRig){0};
    return schema_member_kinds(rig->tool.parameters, 1, &rig->arena, &rig->spec.kinds, error) &&
           grammar_builder_new(&rig->grammar.builder, error) &&
           answer_grammar(rig->grammar.builder, &rules, &rig->grammar.root, error) &&
           grammar_compile(rig->grammar.builder, rig->grammar.root, vocab, &rig->grammar.grammar, error);
}

bool call_rig_init(CallRig *rig, const char *format, const cJSON *parameters, const GrammarVocab *vocab, Error *error)
{
    *rig = (CallRig){.spec = {.name = "f"}, .tool = {.name = "f", .parameters = parameters}};
    if (!answer_style_find(NULL, NULL, format, "none", &rig->style, error)) return false;
    arena_init(&rig->arena, BLOCK_BYTES, SIZE_MAX);
    if (compile(rig, vocab, error)) return true;
    call_rig_done(rig);
    return false;
}

void call_rig_done(CallRig *rig)
{
    grammar_rig_done(&rig->grammar);
    arena_done(&rig->arena);
}

bool call_rig_read(const CallRig *rig, const char *text, size_t n, Buffer *arguments)
{
    const AnswerPlan plan = {.style = &rig->style, .tools = &rig->spec, .n_tools = 1};
    AnswerParser *parser;
    AnswerParts parts;
    Error error;
    answer_parts_init(&parts, MAX_TEXT_BYTES);
    if (!answer_parser_new(&plan, &parser, &error) || !answer_parser_push(parser, text, n, &parts, &error) ||
        !answer_parser_finish(parser, &parts, &error))
        abort();
    bool ok = parts.n == 2 && parts.items[0].kind == PART_CALL && parts.items[1].kind == PART_ARGUMENTS;
    buffer_clear(arguments);
    if (ok && !buffer_append(arguments, parts.text.data + parts.items[0].n_bytes, parts.items[1].n_bytes, &error))
        abort();
    answer_parser_free(parser);
    answer_parts_done(&parts);
    return ok;
}
