/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/value_text.h"
#include "engine/sample/schema/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- shared rules ---- */

enum { RULE_NAME_BYTES = 40 };

/* A rule that all schemas of a builder share; its name has a blank, as no other has. */
static GrammarRule rule_of(const ValueText *text, const char *what)
{
    char name[RULE_NAME_BYTES];
    snprintf(name, sizeof name, "%s %s", text->name, what);
    return grammar_rule(text->builder, name, strlen(name));
}

static GrammarNode shared(const ValueText *text, const char *what, GrammarNode (*make)(const ValueText *text))
{
    GrammarRule rule = rule_of(text, what);
    if (rule != GRAMMAR_FAILED && !grammar_rule_is_defined(text->builder, rule))
        grammar_define(text->builder, rule, make(text));
    return grammar_ref(text->builder, rule);
}

/* ---- between values ---- */

static GrammarNode make_blank(GrammarBuilder *builder)
{
    static const CodeRange indents[] = {{'\t', '\t'}, {' ', ' '}};
    GrammarNode indent = grammar_repeat(builder, grammar_class(builder, indents, 2, false), 0, VALUE_TEXT_MAX_INDENT);
    return grammar_optional(builder, grammar_alt(builder, grammar_text(builder, " "),
                                                 grammar_seq(builder, grammar_text(builder, "\n"), indent)));
}

static GrammarNode make_comma(const ValueText *text)
{
    return text->comma;
}

static GrammarNode make_end(const ValueText *text)
{
    return grammar_seq(text->builder, text->blank, grammar_text(text->builder, "}"));
}

GrammarNode value_text_shared_comma(const ValueText *text)
{
    return shared(text, "comma", make_comma);
}

GrammarNode value_text_shared_end(const ValueText *text)
{
    return shared(text, "end", make_end);
}

/* ---- \u escapes ---- */

static GrammarNode hex_digit(GrammarBuilder *builder, uint32_t first, uint32_t last)
{
    CodeRange ranges[3];
    size_t n = 0;
    if (first < 10) ranges[n++] = (CodeRange){'0' + first, '0' + (last < 9 ? last : 9)};
    if (last >= 10) {
        uint32_t from = first > 10 ? first - 10 : 0, to = last - 10;
        ranges[n++] = (CodeRange){'A' + from, 'A' + to};
        ranges[n++] = (CodeRange){'a' + from, 'a' + to};
    }
    return grammar_class(builder, ranges, n, false);
}

/* The last n_digits hex digits of the numbers first to last, which agree in all digits before. */
static GrammarNode hex_numbers(GrammarBuilder *builder, uint32_t first, uint32_t last, unsigned n_digits)
{
    if (!n_digits) return grammar_empty(builder);
    unsigned shift = 4 * (n_digits - 1);
    uint32_t mask = (UINT32_C(1) << shift) - 1, high = first >> shift & 15, end = last >> shift & 15;
    GrammarNode parts[3];
    size_t n = 0;
    if (high == end)
        return grammar_seq(builder, hex_digit(builder, high, high),
                           hex_numbers(builder, first & mask, last & mask, n_digits - 1));
    if (first & mask) {
        parts[n++] = grammar_seq(builder, hex_digit(builder, high, high),
                                 hex_numbers(builder, first & mask, mask, n_digits - 1));
        high++;
    }
    if ((last & mask) != mask) {
        parts[n++] =
            grammar_seq(builder, hex_digit(builder, end, end), hex_numbers(builder, 0, last & mask, n_digits - 1));
        end--;
    }
    if (high <= end)
        parts[n++] = grammar_seq(builder, hex_digit(builder, high, end), hex_numbers(builder, 0, mask, n_digits - 1));
    return grammar_choice(builder, parts, n);
}

static GrammarNode unit(GrammarBuilder *builder, uint32_t first, uint32_t last)
{
    return grammar_seq(builder, grammar_text(builder, "u"), hex_numbers(builder, first, last, 4));
}

static GrammarNode pair(GrammarBuilder *builder, uint32_t high, uint32_t last_high, uint32_t low, uint32_t last_low)
{
    return grammar_seq(builder, unit(builder, 0xD800 + high, 0xD800 + last_high), grammar_text(builder, "\\"),
                       unit(builder, 0xDC00 + low, 0xDC00 + last_low));
}

/* Code points beyond the first plane: up to three blocks of high and low halves. */
static GrammarNode pairs(GrammarBuilder *builder, uint32_t first, uint32_t last)
{
    uint32_t a = first - 0x10000, b = last - 0x10000;
    uint32_t high = a >> 10, end = b >> 10, low = a & 0x3FF, last_low = b & 0x3FF;
    GrammarNode parts[3];
    size_t n = 0;
    if (high == end) return pair(builder, high, high, low, last_low);
    if (low) {
        parts[n++] = pair(builder, high, high, low, 0x3FF);
        high++;
    }
    if (last_low != 0x3FF) {
        parts[n++] = pair(builder, end, end, 0, last_low);
        end--;
    }
    if (high <= end) parts[n++] = pair(builder, high, end, 0, 0x3FF);
    return grammar_choice(builder, parts, n);
}

/* ---- characters ---- */

/* Letters behind a backslash, and what they stand for. */
typedef struct Escapes {
    const char *letters, *codes;
    bool has_pairs; /* what is beyond the first plane is two halves; else \\U and eight digits */
} Escapes;

enum { MAX_SHORT = 12 };

static const Escapes json_escapes = {"\"\\/bfnrt", "\"\\/\b\f\n\r\t", true};
static const Escapes python_escapes = {"\"'\\bfnrt", "\"'\\\b\f\n\r\t", false};

static bool has_code(const CodeRange *ranges, size_t n, uint32_t code)
{
    for (size_t i = 0; i < n; i++)
        if (code >= ranges[i].first && code <= ranges[i].last) return true;
    return false;
}

/* The part of a range that lies within another one; false: none. */
static bool common(CodeRange range, uint32_t first, uint32_t last, CodeRange *ret_range)
{
    if (range.first > first) first = range.first;
    if (range.last < last) last = range.last;
    *ret_range = (CodeRange){first, last};
    return first <= last;
}

/* Spans in which one way to write holds. */
typedef struct Span {
    uint32_t first, last;
} Span;

static const Span raw_spans[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0xD7FF}, {0xE000, CODE_LAST}};
static const Span unit_spans[] = {{0x01, 0x1F}, {0x7F, 0xD7FF}, {0xE000, 0xFFFF}};

static GrammarNode raw_codes(GrammarBuilder *builder, const CodeRange *ranges, size_t n)
{
    size_t n_spans = sizeof raw_spans / sizeof *raw_spans, kept = 0;
    CodeRange *raw = malloc((n + 1) * n_spans * sizeof *raw);
    if (!raw) return grammar_fail(builder, ERR_NO_MEMORY, "no memory for a class of characters");
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n_spans; j++)
            kept += common(ranges[i], raw_spans[j].first, raw_spans[j].last, &raw[kept]);
    GrammarNode node = kept ? grammar_class(builder, raw, kept, false) : grammar_never(builder);
    free(raw);
    return node;
}

static GrammarNode short_codes(GrammarBuilder *builder, const Escapes *escapes, const CodeRange *ranges, size_t n)
{
    CodeRange letters[MAX_SHORT];
    size_t kept = 0;
    for (size_t i = 0; escapes->letters[i]; i++) {
        uint32_t letter = (uint8_t)escapes->letters[i];
        if (has_code(ranges, n, (uint8_t)escapes->codes[i])) letters[kept++] = (CodeRange){letter, letter};
    }
    return kept ? grammar_class(builder, letters, kept, false) : grammar_never(builder);
}

static GrammarNode beyond(GrammarBuilder *builder, const Escapes *escapes, CodeRange part)
{
    if (escapes->has_pairs) return pairs(builder, part.first, part.last);
    return grammar_seq(builder, grammar_text(builder, "U"), hex_numbers(builder, part.first, part.last, 8));
}

static GrammarNode long_codes(GrammarBuilder *builder, const Escapes *escapes, const CodeRange *ranges, size_t n)
{
    size_t n_spans = sizeof unit_spans / sizeof *unit_spans, kept = 0;
    GrammarNode *parts = malloc((n + 1) * (n_spans + 1) * sizeof *parts);
    if (!parts) return grammar_fail(builder, ERR_NO_MEMORY, "no memory for a class of characters");
    CodeRange part;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n_spans; j++)
            if (common(ranges[i], unit_spans[j].first, unit_spans[j].last, &part))
                parts[kept++] = unit(builder, part.first, part.last);
        if (common(ranges[i], 0x10000, CODE_LAST, &part)) parts[kept++] = beyond(builder, escapes, part);
    }
    GrammarNode node = kept ? grammar_choice(builder, parts, kept) : grammar_never(builder);
    free(parts);
    return node;
}

static GrammarNode quoted_codes(GrammarBuilder *builder, const Escapes *escapes, const CodeRange *ranges, size_t n)
{
    GrammarNode escape =
        grammar_alt(builder, short_codes(builder, escapes, ranges, n), long_codes(builder, escapes, ranges, n));
    return grammar_alt(builder, raw_codes(builder, ranges, n),
                       grammar_seq(builder, grammar_text(builder, "\\"), escape));
}

/* One code point of the ranges, sorted and apart, as it may stand in a string. */
static GrammarNode codes_of(const ValueText *text, const CodeRange *ranges, size_t n)
{
    switch (text->strings) {
    case STRINGS_JSON:
        return quoted_codes(text->builder, &json_escapes, ranges, n);
    case STRINGS_PYTHON:
        return quoted_codes(text->builder, &python_escapes, ranges, n);
    case STRINGS_RAW:
        break;
    }
    return grammar_class(text->builder, ranges, n, false);
}

/* ---- strings ---- */

static const CodeRange all_codes[] = {{1, CODE_SURROGATE_FIRST - 1}, {CODE_SURROGATE_LAST + 1, CODE_LAST}};

static GrammarNode make_character(const ValueText *text)
{
    return codes_of(text, all_codes, 2);
}

static GrammarNode framed(const ValueText *text, GrammarNode inside)
{
    return grammar_seq(text->builder, text->before_string, inside, text->behind_string);
}

static GrammarNode make_string(const ValueText *text)
{
    const char *const ends[] = {text->end};
    if (text->end) return framed(text, grammar_without(text->builder, ends, 1));
    return framed(text, grammar_many(text->builder, make_character(text)));
}

GrammarNode value_text_string(const ValueText *text, uint32_t min, uint32_t max)
{
    if (!min && max == GRAMMAR_UNBOUNDED) return shared(text, "string", make_string);
    return framed(text, grammar_repeat(text->builder, shared(text, "character", make_character), min, max));
}

GrammarNode value_text_part(const ValueText *text, const char *part, size_t n)
{
    size_t kept = 0;
    GrammarNode *parts = malloc((n + 1) * sizeof *parts);
    if (!parts) return grammar_fail(text->builder, ERR_NO_MEMORY, "no memory for a word");
    for (size_t at = 0; at < n;) {
        unsigned char lead = (unsigned char)part[at];
        unsigned bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        uint32_t code = bytes == 1 ? lead : lead & (0x7Fu >> bytes);
        for (unsigned i = 1; i < bytes; i++) code = code << 6 | ((unsigned char)part[at + i] & 0x3F);
        parts[kept++] = codes_of(text, &(CodeRange){code, code}, 1);
        at += bytes;
    }
    GrammarNode node = grammar_sequence(text->builder, parts, kept);
    free(parts);
    return node;
}

/* ---- automata ---- */

/* What takes an escape or several bytes, but for a slash: that takes nothing, but may have an escape. */
static const CodeRange rare_codes[] = {{0x01, 0x1F},
                                       {'"', '"'},
                                       {'/', '/'},
                                       {'\\', '\\'},
                                       {0x7F, CODE_SURROGATE_FIRST - 1},
                                       {CODE_SURROGATE_LAST + 1, CODE_LAST}};
enum { N_RARE = sizeof rare_codes / sizeof *rare_codes, MANY_STATES = 32 };

static GrammarNode make_rare(const ValueText *text)
{
    return codes_of(text, rare_codes, N_RARE);
}

static bool has_all_rare(const CodeRange *ranges, size_t n)
{
    for (size_t i = 0, j = 0; i < N_RARE; i++) {
        while (j < n && ranges[j].last < rare_codes[i].last) j++;
        if (j == n || ranges[j].first > rare_codes[i].first) return false;
    }
    return true;
}

/* In large automata many states read all that is rare: they share it, and have a state each for the rest. */
static GrammarNode codes_of_many(const ValueText *text, const CodeRange *ranges, size_t n)
{
    static const CodeRange common_codes[] = {{0x20, 0x21}, {0x23, 0x2E}, {0x30, 0x5B}, {0x5D, 0x7E}};
    enum { N_COMMON = sizeof common_codes / sizeof *common_codes };
    CodeRange kept[128], part;
    size_t n_kept = 0;
    if (!has_all_rare(ranges, n)) return codes_of(text, ranges, n);
    for (size_t i = 0; i < n && ranges[i].first < 0x7F; i++)
        for (size_t j = 0; j < N_COMMON; j++)
            if (common(ranges[i], common_codes[j].first, common_codes[j].last, &part)) kept[n_kept++] = part;
    GrammarNode rare = shared(text, "rare", make_rare);
    return n_kept ? grammar_alt(text->builder, grammar_class(text->builder, kept, n_kept, false), rare) : rare;
}

/* The edges of a state that lead to one place become one node. text NULL: the code points as they are. */
static GrammarNode codes_between(GrammarBuilder *builder, const ValueText *text, const Dfa *dfa, uint32_t from,
                                 uint32_t to, CodeRange *ranges)
{
    size_t n = 0;
    for (uint32_t e = dfa->begin[from]; e < dfa->begin[from + 1]; e++)
        if (dfa->edges[e].to == to) ranges[n++] = (CodeRange){dfa->edges[e].first, dfa->edges[e].last};
    if (!text) return grammar_class(builder, ranges, n, false);
    return dfa->n_states > MANY_STATES ? codes_of_many(text, ranges, n) : codes_of(text, ranges, n);
}

static bool is_first_to(const Dfa *dfa, uint32_t from, uint32_t edge)
{
    for (uint32_t e = dfa->begin[from]; e < edge; e++)
        if (dfa->edges[e].to == dfa->edges[edge].to) return false;
    return true;
}

static GrammarNode make_machine(GrammarBuilder *builder, const ValueText *text, const Dfa *dfa)
{
    uint32_t n_edges = dfa->n_states ? dfa->begin[dfa->n_states] : 0, n = 0;
    GrammarEdge *edges = malloc(((size_t)n_edges + dfa->n_states + 1) * sizeof *edges);
    CodeRange *ranges = malloc(((size_t)n_edges + 1) * sizeof *ranges);
    GrammarNode node = GRAMMAR_FAILED, end = text ? text->behind_string : grammar_empty(builder);
    if (!edges || !ranges) (void)grammar_fail(builder, ERR_NO_MEMORY, "no memory for an automaton");
    for (uint32_t s = 0; edges && ranges && s < dfa->n_states; s++) {
        for (uint32_t e = dfa->begin[s]; e < dfa->begin[s + 1]; e++) {
            uint32_t to = dfa->edges[e].to;
            if (is_first_to(dfa, s, e))
                edges[n++] = (GrammarEdge){s, to, codes_between(builder, text, dfa, s, to, ranges)};
        }
        if (dfa->labels[s]) edges[n++] = (GrammarEdge){s, GRAMMAR_MACHINE_END, end};
    }
    if (edges && ranges) node = n ? grammar_machine(builder, edges, n, dfa->n_states) : grammar_never(builder);
    free(edges);
    free(ranges);
    return node;
}

GrammarNode value_text_words(const ValueText *text, const Dfa *words)
{
    return grammar_seq(text->builder, text->before_string, make_machine(text->builder, text, words));
}

GrammarNode value_text_plain(const ValueText *text, const Dfa *texts)
{
    return make_machine(text->builder, NULL, texts);
}

/* ---- any value ---- */

/* With a fraction no more digits than a double holds. */
static GrammarNode make_fractions(GrammarBuilder *builder, GrammarNode first, GrammarNode digit)
{
    GrammarNode ways[NUMBER_EXACT_DIGITS], point = grammar_text(builder, ".");
    ways[0] =
        grammar_seq(builder, grammar_text(builder, "0"), point, grammar_repeat(builder, digit, 1, NUMBER_EXACT_DIGITS));
    for (uint32_t n = 1; n < NUMBER_EXACT_DIGITS; n++)
        ways[n] = grammar_seq(builder, first, grammar_repeat(builder, digit, n - 1, n - 1), point,
                              grammar_repeat(builder, digit, 1, NUMBER_EXACT_DIGITS - n));
    return grammar_choice(builder, ways, NUMBER_EXACT_DIGITS);
}

static GrammarNode make_number(const ValueText *text)
{
    GrammarBuilder *builder = text->builder;
    GrammarNode digit = grammar_class(builder, &(CodeRange){'0', '9'}, 1, false);
    GrammarNode first = grammar_class(builder, &(CodeRange){'1', '9'}, 1, false);
    GrammarNode whole = grammar_seq(builder, first, grammar_repeat(builder, digit, 0, NUMBER_MAX_WRITTEN - 1));
    GrammarNode digits = grammar_alt(builder, grammar_text(builder, "0"), whole, make_fractions(builder, first, digit));
    static const CodeRange letters[] = {{'E', 'E'}, {'e', 'e'}}, signs[] = {{'+', '+'}, {'-', '-'}};
    GrammarNode exponent = grammar_seq(builder, grammar_class(builder, letters, 2, false),
                                       grammar_optional(builder, grammar_class(builder, signs, 2, false)),
                                       grammar_repeat(builder, digit, 1, 2));
    return grammar_seq(builder, grammar_optional(builder, grammar_text(builder, "-")), digits,
                       grammar_optional(builder, exponent));
}

GrammarNode value_text_number(const ValueText *text)
{
    return shared(text, "number", make_number);
}

static GrammarNode list_of(const ValueText *text, const char *open, GrammarNode item, const char *close)
{
    GrammarBuilder *builder = text->builder;
    GrammarNode more = grammar_many(builder, grammar_seq(builder, text->comma, item));
    GrammarNode items = grammar_optional(builder, grammar_seq(builder, item, more, text->blank));
    return grammar_seq(builder, grammar_text(builder, open), text->blank, items, grammar_text(builder, close));
}

static GrammarNode make_value(const ValueText *text, GrammarNode value)
{
    GrammarBuilder *builder = text->builder;
    GrammarNode string = value_text_string(text, 0, GRAMMAR_UNBOUNDED);
    GrammarNode key = text->keys ? value_text_plain(text, text->keys) : string;
    GrammarNode member = grammar_seq(builder, key, text->colon, value);
    grammar_define(builder, rule_of(text, "object"), list_of(text, "{", member, "}"));
    return grammar_alt(builder, grammar_ref(builder, rule_of(text, "object")), list_of(text, "[", value, "]"), string,
                       value_text_number(text), grammar_text(builder, text->yes), grammar_text(builder, text->no),
                       grammar_text(builder, text->null));
}

GrammarNode value_text_value(const ValueText *text)
{
    GrammarRule rule = rule_of(text, "value");
    GrammarNode value = grammar_ref(text->builder, rule);
    if (value != GRAMMAR_FAILED && !grammar_rule_is_defined(text->builder, rule))
        grammar_define(text->builder, rule, make_value(text, value));
    return value;
}

/* Defined along with any value. */
GrammarNode value_text_object(const ValueText *text)
{
    if (value_text_value(text) == GRAMMAR_FAILED) return GRAMMAR_FAILED;
    return grammar_ref(text->builder, rule_of(text, "object"));
}

/* ---- the forms ---- */

ValueText value_text_json(GrammarBuilder *builder)
{
    GrammarNode quote = grammar_text(builder, "\""), blank = make_blank(builder);
    GrammarNode gap = grammar_optional(builder, grammar_text(builder, " "));
    return (ValueText){.builder = builder,
                       .name = "json",
                       .null = "null",
                       .no = "false",
                       .yes = "true",
                       .strings = STRINGS_JSON,
                       .before_string = quote,
                       .behind_string = quote,
                       .blank = blank,
                       .comma = grammar_seq(builder, grammar_text(builder, ","), blank),
                       .colon = grammar_seq(builder, grammar_text(builder, ":"), gap)};
}

ValueText value_text_python(GrammarBuilder *builder)
{
    ValueText text = value_text_json(builder);
    text.name = "python";
    text.null = "None";
    text.no = "False";
    text.yes = "True";
    text.strings = STRINGS_PYTHON;
    return text;
}

ValueText value_text_marked(GrammarBuilder *builder, GrammarNode mark, const char *end, const Dfa *keys)
{
    ValueText text = value_text_json(builder);
    text.name = "marked";
    text.strings = STRINGS_RAW;
    text.before_string = text.behind_string = mark;
    text.end = end;
    text.blank = grammar_empty(builder);
    text.comma = grammar_text(builder, ",");
    text.colon = grammar_text(builder, ":");
    text.keys = keys;
    return text;
}

ValueText value_text_raw(GrammarBuilder *builder, const char *end)
{
    ValueText text = value_text_marked(builder, grammar_empty(builder), end, NULL);
    text.name = "raw";
    return text;
}
