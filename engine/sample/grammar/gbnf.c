/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/grammar/gbnf.h"

#include "base/buffer.h"
#include "base/utf8.h"
#include "engine/sample/grammar/source.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

typedef struct Parser {
    GrammarBuilder *builder;
    Source source;
    char rule[64]; /* whose text is read; cut */
    uint32_t depth;
} Parser;

/* The failure of a place in the text. */
static GrammarNode fail_at(Parser *parser, size_t offset, const char *fmt, ...) LW_PRINTF(3, 4);
static GrammarNode fail_at(Parser *parser, size_t offset, const char *fmt, ...)
{
    char text[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (*parser->rule)
        grammar_at(parser->builder, "rule '%s', offset %zu", parser->rule, offset);
    else
        grammar_at(parser->builder, "offset %zu", offset);
    return grammar_fail(parser->builder, ERR_SCHEMA, "%s", text);
}

static bool has_failed(const Parser *parser)
{
    Error ignored;
    return !grammar_is_sound(parser->builder, &ignored);
}

/* ---- blanks and names ---- */

static void skip_blanks(Parser *parser, bool lines_too)
{
    Source *source = &parser->source;
    for (;;) {
        uint32_t c = source_peek(source);
        if (c == '#') {
            while ((c = source_peek(source)) != SOURCE_END && c != '\n' && c != '\r') (void)source_next(source);
        } else if (c == ' ' || c == '\t' || (lines_too && (c == '\n' || c == '\r'))) {
            (void)source_next(source);
        } else {
            return;
        }
    }
}

static bool is_word(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static size_t read_name(Parser *parser)
{
    size_t first = parser->source.at;
    while (is_word(source_peek(&parser->source))) (void)source_next(&parser->source);
    return parser->source.at - first;
}

/* ---- characters ---- */

/* One character, written as itself or behind a backslash. */
static bool read_char(Parser *parser, uint32_t *ret_code)
{
    static const char names[] = "nrt\\\"[]-", codes[] = "\n\r\t\\\"[]-";
    static const struct {
        char name;
        size_t n_digits;
    } hexes[] = {{'x', 2}, {'u', 4}, {'U', 8}};
    Source *source = &parser->source;
    size_t offset = source->at;
    uint32_t c = source_next(source);
    if (c != '\\') {
        *ret_code = c;
        return c != SOURCE_END || !fail_at(parser, offset, "the grammar ends within a text or a class");
    }
    c = source_next(source);
    const char *found = c < 0x80 && c ? strchr(names, (int)c) : NULL;
    if (found) {
        *ret_code = (uint8_t)codes[found - names];
        return true;
    }
    for (size_t i = 0; i < sizeof hexes / sizeof *hexes; i++)
        if (c == (uint8_t)hexes[i].name) {
            if (source_hex(source, hexes[i].n_digits, ret_code)) return true;
            return !fail_at(parser, offset, "'\\%c' without %zu hexadecimal digits of a code point", hexes[i].name,
                            hexes[i].n_digits);
        }
    return !fail_at(parser, offset, "an unknown escape");
}

static GrammarNode read_text(Parser *parser)
{
    Source *source = &parser->source;
    Buffer text;
    buffer_init(&text, GBNF_MAX_BYTES);
    while (!has_failed(parser) && !source_take(source, "\"")) {
        char bytes[4];
        size_t offset = source->at;
        uint32_t code = 0;
        Error error;
        if (!read_char(parser, &code)) break;
        if (code == 0 || (code >= 0xD800 && code < 0xE000))
            (void)fail_at(parser, offset, "U+%04X cannot be part of an answer", code);
        else if (!buffer_append(&text, bytes,
                                (size_t)utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)bytes),
                                &error))
            (void)grammar_fail(parser->builder, error.code, "%s", error.text);
    }
    GrammarNode node = has_failed(parser) ? GRAMMAR_FAILED : grammar_bytes(parser->builder, text.data, text.n);
    buffer_done(&text);
    return node;
}

static GrammarNode read_class(Parser *parser)
{
    Source *source = &parser->source;
    RangeList ranges = {0};
    bool negated = source_take(source, "^");
    while (!has_failed(parser) && !source_take(source, "]")) {
        size_t offset = source->at;
        uint32_t first, last;
        if (!read_char(parser, &first)) break;
        last = first;
        bool is_range =
            source->at + 1 < source->n && source->text[source->at] == '-' && source->text[source->at + 1] != ']';
        if (is_range && (source_next(source), !read_char(parser, &last))) break;
        if (last < first) (void)fail_at(parser, offset, "a range from U+%04X down to U+%04X", first, last);
        range_list_push(parser->builder, &ranges, first, last);
    }
    GrammarNode node =
        has_failed(parser) ? GRAMMAR_FAILED : grammar_class(parser->builder, ranges.ranges, ranges.n, negated);
    range_list_done(&ranges);
    return node;
}

/* <[id]> */
static GrammarNode read_token(Parser *parser, size_t offset)
{
    uint32_t id;
    Source *source = &parser->source;
    if (!source_take(source, "[") || !source_number(source, &id) || !source_take(source, "]>"))
        return fail_at(parser, offset, "a token must be written as '<[id]>'");
    return grammar_token(parser->builder, id);
}

/* ---- sequences ---- */

static GrammarNode read_choice(Parser *parser);

static GrammarNode read_group(Parser *parser, size_t offset)
{
    if (++parser->depth > SOURCE_MAX_DEPTH)
        return fail_at(parser, offset, "groups nested deeper than %d", SOURCE_MAX_DEPTH);
    skip_blanks(parser, true);
    GrammarNode node = read_choice(parser);
    parser->depth--;
    if (node != GRAMMAR_FAILED && !source_take(&parser->source, ")"))
        return fail_at(parser, parser->source.at, "the group of offset %zu is not closed", offset);
    return node;
}

/* *ret_is_one false: no element begins here. */
static GrammarNode read_element(Parser *parser, bool *ret_is_one)
{
    Source *source = &parser->source;
    size_t offset = source->at;
    *ret_is_one = true;
    if (source_take(source, "\"")) return read_text(parser);
    if (source_take(source, "[")) return read_class(parser);
    if (source_take(source, "(")) return read_group(parser, offset);
    if (source_take(source, ".")) return grammar_class(parser->builder, NULL, 0, true);
    if (source_take(source, "<")) return read_token(parser, offset);
    size_t n = read_name(parser);
    *ret_is_one = n > 0;
    if (n == 0) return GRAMMAR_FAILED;
    return grammar_ref(parser->builder, grammar_rule(parser->builder, source->text + offset, n));
}

/* {m}, {m,}, {m,n}, {,n} behind its brace */
static GrammarNode read_bounds(Parser *parser, GrammarNode node, size_t offset)
{
    Source *source = &parser->source;
    uint32_t min = 0, max;
    skip_blanks(parser, false);
    bool has_min = source_number(source, &min), ok = true;
    skip_blanks(parser, false);
    max = min;
    if (source_take(source, ",")) {
        skip_blanks(parser, false);
        if (!source_number(source, &max)) max = GRAMMAR_UNBOUNDED;
        ok = has_min || max != GRAMMAR_UNBOUNDED;
    } else {
        ok = has_min;
    }
    skip_blanks(parser, false);
    if (!ok || !source_take(source, "}")) return fail_at(parser, offset, "a repetition that is not '{m}' or '{m,n}'");
    return grammar_repeat(parser->builder, node, min, max);
}

static GrammarNode read_repeats(Parser *parser, GrammarNode node)
{
    Source *source = &parser->source;
    for (uint32_t n = 0; node != GRAMMAR_FAILED; n++) {
        size_t offset = source->at;
        grammar_at(parser->builder, "rule '%s', offset %zu", parser->rule, offset);
        if (source_take(source, "*"))
            node = grammar_many(parser->builder, node);
        else if (source_take(source, "+"))
            node = grammar_repeat(parser->builder, node, 1, GRAMMAR_UNBOUNDED);
        else if (source_take(source, "?"))
            node = grammar_optional(parser->builder, node);
        else if (source_take(source, "{"))
            node = read_bounds(parser, node, offset);
        else
            return node;
        skip_blanks(parser, parser->depth > 0);
    }
    return GRAMMAR_FAILED;
}

static GrammarNode read_sequence(Parser *parser)
{
    NodeList parts = {0};
    while (!has_failed(parser)) {
        bool is_one;
        grammar_at(parser->builder, "rule '%s', offset %zu", parser->rule, parser->source.at);
        GrammarNode node = read_element(parser, &is_one);
        if (!is_one) break;
        skip_blanks(parser, parser->depth > 0);
        node_list_push(parser->builder, &parts, read_repeats(parser, node));
    }
    GrammarNode node = has_failed(parser) ? GRAMMAR_FAILED : grammar_sequence(parser->builder, parts.nodes, parts.n);
    node_list_done(&parts);
    return node;
}

/* A bar may stand on a line of its own. */
static bool take_bar(Parser *parser)
{
    size_t at = parser->source.at;
    skip_blanks(parser, true);
    if (source_take(&parser->source, "|")) return true;
    parser->source.at = at;
    return false;
}

static GrammarNode read_choice(Parser *parser)
{
    NodeList ways = {0};
    do {
        skip_blanks(parser, ways.n > 0 || parser->depth > 0);
        node_list_push(parser->builder, &ways, read_sequence(parser));
    } while (!has_failed(parser) && take_bar(parser));
    GrammarNode node = has_failed(parser) ? GRAMMAR_FAILED : grammar_choice(parser->builder, ways.nodes, ways.n);
    node_list_done(&ways);
    return node;
}

/* ---- rules ---- */

static void read_rule(Parser *parser)
{
    Source *source = &parser->source;
    size_t offset = source->at, n = read_name(parser);
    const char *name = source->text + offset;
    parser->rule[0] = '\0';
    if (n == 0) {
        (void)fail_at(parser, offset, "a rule must begin with its name");
        return;
    }
    snprintf(parser->rule, sizeof parser->rule, "%.*s", n < 60 ? (int)n : 60, name);
    GrammarRule rule = grammar_rule(parser->builder, name, n);
    skip_blanks(parser, false);
    if (!source_take(source, "::=")) {
        (void)fail_at(parser, source->at, "'::=' is missing");
        return;
    }
    skip_blanks(parser, true);
    GrammarNode node = read_choice(parser);
    if (node == GRAMMAR_FAILED) return;
    uint32_t c = source_peek(source);
    if (c != SOURCE_END && c != '\n' && c != '\r') (void)fail_at(parser, source->at, "unexpected text");
    grammar_at(parser->builder, "rule '%s', offset %zu", parser->rule, offset);
    grammar_define(parser->builder, rule, node);
}

bool gbnf_parse(GrammarBuilder *builder, const char *text, size_t n, GrammarNode *ret_root, Error *error)
{
    Parser parser = {.builder = builder, .source = {.text = text, .n = n}};
    if (n > GBNF_MAX_BYTES)
        return error_set(error, ERR_TOO_LARGE, "a grammar of %zu bytes, more than %d", n, GBNF_MAX_BYTES);
    if (!utf8_valid((const uint8_t *)text, n)) return error_set(error, ERR_SCHEMA, "the grammar is not UTF-8");
    for (skip_blanks(&parser, true); !has_failed(&parser) && parser.source.at < n; skip_blanks(&parser, true))
        read_rule(&parser);
    if (!grammar_is_sound(builder, error)) return false;
    grammar_at(builder, "%s", "");
    GrammarRule root = grammar_rule(builder, "root", 4);
    if (root != GRAMMAR_FAILED && !grammar_rule_is_defined(builder, root))
        return error_set(error, ERR_SCHEMA, "the grammar has no rule 'root'");
    *ret_root = grammar_ref(builder, root);
    return grammar_is_sound(builder, error);
}
