/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/regex.h"

#include "base/utf8.h"
#include "engine/sample/grammar/regex_class.h"

#include <string.h>

typedef struct Parser {
    GrammarBuilder *builder;
    const RegexDialect *dialect;
    Source source;
    RegexFault fault;
    uint32_t depth; /* of groups */
} Parser;

static GrammarNode fail_at(Parser *parser, size_t offset, const char *text)
{
    if (!parser->fault.text) parser->fault = (RegexFault){text, offset};
    return GRAMMAR_FAILED;
}

static bool has_failed(const Parser *parser)
{
    Error ignored;
    return parser->fault.text || !grammar_is_sound(parser->builder, &ignored);
}

/* ---- code points ---- */

/* Sorted and apart, without what no answer can hold, for the dialect's own way to write them. */
static GrammarNode write_class(Parser *parser, const CodeRange *ranges, size_t n, bool negated)
{
    const RegexDialect *dialect = parser->dialect;
    GrammarNode node = grammar_class(parser->builder, ranges, n, negated);
    if (node == GRAMMAR_FAILED || !dialect->write) return node;
    const CodeRange *plain;
    size_t n_plain = grammar_class_ranges(parser->builder, node, &plain);
    return n_plain ? dialect->write(parser->builder, plain, n_plain, dialect->arg) : node;
}

static GrammarNode read_escape(Parser *parser)
{
    RangeList ranges = {0};
    regex_read_escape(parser->builder, &parser->source, false, &ranges, &parser->fault);
    GrammarNode node = has_failed(parser) ? GRAMMAR_FAILED : write_class(parser, ranges.ranges, ranges.n, false);
    range_list_done(&ranges);
    return node;
}

static GrammarNode read_class(Parser *parser)
{
    RangeList ranges = {0};
    bool negated;
    regex_read_class(parser->builder, &parser->source, &ranges, &negated, &parser->fault);
    GrammarNode node = has_failed(parser) ? GRAMMAR_FAILED : write_class(parser, ranges.ranges, ranges.n, negated);
    range_list_done(&ranges);
    return node;
}

/* ---- groups ---- */

/* What a group's '?' may be followed by. */
static const struct {
    const char *word, *refusal;
} group_kinds[] = {
    {":", NULL},
    {"=", "lookahead is not supported"},
    {"!", "lookahead is not supported"},
    {"<=", "lookbehind is not supported"},
    {"<!", "lookbehind is not supported"},
    {">", "atomic groups are not supported"},
    {"P=", "a back reference is not supported"},
    {"#", "comments are not supported"},
    {"(", "conditions are not supported"},
    {"P<", NULL},
    {"<", NULL},
};

static GrammarNode read_choice(Parser *parser);

/* Takes the beginning of a group; its name says nothing. */
static bool read_group_head(Parser *parser, size_t offset)
{
    Source *source = &parser->source;
    if (!source_take(source, "?")) return true;
    for (size_t i = 0; i < sizeof group_kinds / sizeof *group_kinds; i++) {
        if (!source_take(source, group_kinds[i].word)) continue;
        if (group_kinds[i].refusal) return !fail_at(parser, offset, group_kinds[i].refusal);
        if (!strchr(group_kinds[i].word, '<')) return true;
        uint32_t c;
        do c = source_next(source);
        while (c != '>' && c != SOURCE_END);
        return c == '>' || !fail_at(parser, offset, "the name of a group is not closed");
    }
    return !fail_at(parser, offset, "flags of groups are not supported");
}

static GrammarNode read_group(Parser *parser, size_t offset)
{
    if (++parser->depth > SOURCE_MAX_DEPTH) return fail_at(parser, offset, "groups are nested too deeply");
    if (!read_group_head(parser, offset)) return GRAMMAR_FAILED;
    GrammarNode node = read_choice(parser);
    parser->depth--;
    if (has_failed(parser)) return GRAMMAR_FAILED;
    return source_take(&parser->source, ")") ? node : fail_at(parser, offset, "a group is not closed");
}

/* ---- quantifiers ---- */

/* {m}, {m,}, {m,n}; anything else behind a brace is text. */
static bool read_bounds(Source *source, uint32_t *ret_min, uint32_t *ret_max)
{
    Source ahead = *source;
    if (!source_take(&ahead, "{") || !source_number(&ahead, ret_min)) return false;
    *ret_max = *ret_min;
    if (source_take(&ahead, ",") && !source_number(&ahead, ret_max)) *ret_max = GRAMMAR_UNBOUNDED;
    if (!source_take(&ahead, "}")) return false;
    *source = ahead;
    return true;
}

static bool read_quantifier(Source *source, uint32_t *ret_min, uint32_t *ret_max)
{
    *ret_min = 0;
    *ret_max = GRAMMAR_UNBOUNDED;
    if (source_take(source, "*")) return true;
    if (source_take(source, "+")) {
        *ret_min = 1;
        return true;
    }
    if (source_take(source, "?")) {
        *ret_max = 1;
        return true;
    }
    return read_bounds(source, ret_min, ret_max);
}

static GrammarNode read_quantified(Parser *parser, GrammarNode node)
{
    Source *source = &parser->source;
    uint32_t min, max;
    size_t offset = source->at;
    if (has_failed(parser) || !read_quantifier(source, &min, &max)) return node;
    grammar_at(parser->builder, "offset %zu", offset);
    node = grammar_repeat(parser->builder, node, min, max);
    offset = source->at;
    if (source_take(source, "+")) return fail_at(parser, offset, "possessive quantifiers are not supported");
    (void)source_take(source, "?"); /* lazy: the same texts */
    offset = source->at;
    if (read_quantifier(source, &min, &max)) return fail_at(parser, offset, "a quantifier behind a quantifier");
    return node;
}

/* ---- sequences ---- */

/* What may begin an element, but does not. */
static bool is_end(uint32_t c)
{
    return c == SOURCE_END || c == '|' || c == ')' || c == '$';
}

static GrammarNode read_element(Parser *parser)
{
    Source *source = &parser->source;
    size_t offset = source->at;
    uint32_t c = source_peek(source), min, max;
    if (source_take(source, "(")) return read_group(parser, offset);
    if (source_take(source, "[")) return read_class(parser);
    if (source_take(source, "\\")) return read_escape(parser);
    if (source_take(source, ".")) return write_class(parser, regex_line_breaks, regex_n_line_breaks, true);
    if (c == '^') return fail_at(parser, offset, "'^' is supported at the beginning of the pattern's alternatives");
    if (read_quantifier(source, &min, &max)) return fail_at(parser, offset, "a quantifier with nothing to repeat");
    (void)source_next(source);
    return write_class(parser, &(CodeRange){c, c}, 1, false);
}

/* Any text, in the dialect's way. */
static GrammarNode any_text(Parser *parser)
{
    return grammar_many(parser->builder, write_class(parser, NULL, 0, true));
}

static GrammarNode read_sequence(Parser *parser)
{
    Source *source = &parser->source;
    NodeList parts = {0};
    bool is_outer = parser->depth == 0, searches = is_outer && parser->dialect->searches;
    if (is_outer && source_take(source, "^"))
        ;
    else if (searches)
        node_list_push(parser->builder, &parts, any_text(parser));
    while (!has_failed(parser) && !is_end(source_peek(source)))
        node_list_push(parser->builder, &parts, read_quantified(parser, read_element(parser)));
    size_t offset = source->at;
    if (!has_failed(parser) && source_take(source, "$")) {
        if (!is_outer || !is_end(source_peek(source)) || source_peek(source) == '$')
            (void)fail_at(parser, offset, "'$' is supported at the end of the pattern's alternatives");
    } else if (searches) {
        node_list_push(parser->builder, &parts, any_text(parser));
    }
    GrammarNode node = has_failed(parser) ? GRAMMAR_FAILED : grammar_sequence(parser->builder, parts.nodes, parts.n);
    node_list_done(&parts);
    return node;
}

static GrammarNode read_choice(Parser *parser)
{
    NodeList ways = {0};
    do node_list_push(parser->builder, &ways, read_sequence(parser));
    while (!has_failed(parser) && source_take(&parser->source, "|"));
    GrammarNode node = has_failed(parser) ? GRAMMAR_FAILED : grammar_choice(parser->builder, ways.nodes, ways.n);
    node_list_done(&ways);
    return node;
}

bool regex_parse(GrammarBuilder *builder, const char *text, size_t n, const RegexDialect *dialect,
                 GrammarNode *ret_node, Error *error)
{
    static const RegexDialect whole;
    Parser parser = {.builder = builder, .dialect = dialect ? dialect : &whole, .source = {.text = text, .n = n}};
    if (n > REGEX_MAX_BYTES)
        return error_set(error, ERR_TOO_LARGE, "a pattern of %zu bytes, more than %d", n, REGEX_MAX_BYTES);
    if (!utf8_valid((const uint8_t *)text, n)) return error_set(error, ERR_SCHEMA, "the pattern is not UTF-8");
    GrammarNode node = read_choice(&parser);
    if (!has_failed(&parser) && parser.source.at < n) (void)fail_at(&parser, parser.source.at, "a ')' without its '('");
    if (parser.fault.text)
        return error_set(error, ERR_SCHEMA, "offset %zu: %s", parser.fault.offset, parser.fault.text);
    if (!grammar_is_sound(builder, error)) return false;
    *ret_node = node;
    return true;
}
